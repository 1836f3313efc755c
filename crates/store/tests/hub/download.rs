//! Downloads: whole, resumed, damaged, refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kiln_store::StoreError;
use kiln_store::hub::{Downloader, HubCache};

use super::server::{COMMIT, Faults, Files, Server};

const WEIGHTS: &str = "model.safetensors";

/// 3 MiB without repetition.
fn weights() -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..3 << 20).map(next).collect()
}

fn files() -> Files {
    vec![
        ("config.json", br#"{"model_type": "llama"}"#.to_vec()),
        ("tokenizer.json", b"{}".to_vec()),
        ("onnx/model.onnx", b"onnx".to_vec()),
        (WEIGHTS, weights()),
    ]
}

struct Setup {
    root: tempfile::TempDir,
    server: Server,
    downloader: Downloader,
}

impl Setup {
    fn new(faults: Faults) -> Setup {
        let root = tempfile::tempdir().unwrap();
        let server = Server::start(files(), faults);
        let downloader = Downloader::new().unwrap().token(None).cache(HubCache::new(root.path()));
        let downloader = downloader.timeout(Duration::from_secs(2)).retry(2, Duration::from_millis(1));
        let downloader = downloader.endpoint(&server.url).unwrap();
        Setup { root, server, downloader }
    }

    fn entry(&self) -> PathBuf {
        self.root.path().join("models--org--tiny")
    }

    fn get(&self, file: &str) -> Result<PathBuf, StoreError> {
        let model = self.downloader.download("org/tiny", "main", &[file])?;
        Ok(model.file(file)?.expect("the downloaded file"))
    }

    #[track_caller]
    fn fails(&self, file: &str) -> String {
        let error = self.get(file).unwrap_err();
        assert!(matches!(error, StoreError::Download { .. }), "{error:?}");
        error.to_string()
    }

    /// The lengths of the blobs, by the ends of their names.
    fn blobs(&self) -> Vec<(bool, u64)> {
        let Ok(entries) = fs::read_dir(self.entry().join("blobs")) else { return Vec::new() };
        let describe = |entry: fs::DirEntry| {
            let is_partial = entry.file_name().to_str().unwrap().ends_with(".incomplete");
            (is_partial, entry.metadata().unwrap().len())
        };
        entries.map(|entry| describe(entry.unwrap())).collect()
    }
}

#[test]
fn a_model_arrives_in_the_layout_of_huggingface_hub() {
    let setup = Setup::new(Faults::default());
    let model = setup.downloader.download_model("org/tiny", "main").unwrap();
    assert_eq!((model.name().as_deref(), model.commit()), (Some("org/tiny"), Some(COMMIT)));
    // No file of another runtime.
    assert_eq!(model.files().unwrap(), ["config.json", WEIGHTS, "tokenizer.json"]);
    assert_eq!(fs::read(model.weights().unwrap()).unwrap(), weights());
    assert_eq!(HubCache::new(setup.root.path()).find("org/tiny").unwrap(), model);
    assert_eq!(fs::read_to_string(setup.entry().join("refs/main")).unwrap(), COMMIT);
    assert!(setup.root.path().join(".locks/models--org--tiny").is_dir());
    #[cfg(unix)]
    {
        use sha2::{Digest, Sha256};
        let target = fs::read_link(model.path().join(WEIGHTS)).unwrap();
        let sha256: String = Sha256::digest(weights()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(target, Path::new("../../blobs").join(sha256));
    }
    assert!(setup.blobs().iter().all(|(is_partial, _)| !is_partial));

    // Complete files are not requested again.
    setup.server.requests();
    setup.downloader.download_model("org/tiny", "main").unwrap();
    assert_eq!(setup.server.requests(), ["GET /api/models/org/tiny/revision/main"]);
    setup.downloader.download("org/tiny", COMMIT, &[WEIGHTS]).unwrap();
    assert!(setup.server.requests().is_empty());
}

/// The files below a folder with their contents, and links with their targets.
#[cfg(unix)]
fn tree(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let contents = if kind.is_dir() {
                folders.push(path);
                continue;
            } else if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            };
            found.push((path.strip_prefix(folder).unwrap().to_owned(), contents));
        }
    }
    found.sort();
    found
}

/// The fixture was written by the Python package `huggingface_hub`, from a server with the same files and ETags.
#[cfg(unix)]
#[test]
fn the_cache_equals_that_of_huggingface_hub() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hub/models--org--tiny");
    let names = ["config.json", "1_Pooling/config.json", WEIGHTS];
    let snapshot = fixture.join("snapshots").join(COMMIT);
    let files = names.map(|name| (name, fs::read(snapshot.join(name)).unwrap())).to_vec();
    let blob = |name: &str| {
        let target = fs::read_link(snapshot.join(name)).unwrap();
        (name.to_owned(), target.file_name().unwrap().to_str().unwrap().to_owned())
    };
    let server = Server::start(files, Faults { etags: names.map(blob).to_vec(), ..Faults::default() });
    let root = tempfile::tempdir().unwrap();
    let downloader =
        Downloader::new().unwrap().cache(HubCache::new(root.path())).endpoint(&server.url).unwrap();
    downloader.download("org/tiny", "main", &names).unwrap();
    assert_eq!(tree(&root.path().join("models--org--tiny")), tree(&fixture));
}

#[test]
fn files_are_chosen_by_names_and_patterns() {
    let setup = Setup::new(Faults::default());
    let model = setup.downloader.download("org/tiny", "refs/pr/1", &["onnx/*", "config.json"]).unwrap();
    assert_eq!(model.files().unwrap(), ["config.json", "onnx/model.onnx"]);
    assert_eq!(fs::read(model.path().join("onnx/model.onnx")).unwrap(), b"onnx");
    assert_eq!(fs::read_to_string(setup.entry().join("refs/refs/pr/1")).unwrap(), COMMIT);
    assert_eq!(setup.server.requests()[0], "GET /api/models/org/tiny/revision/refs%2Fpr%2F1");
    let error = setup.downloader.download("org/tiny", "main", &["*.gguf"]).unwrap_err().to_string();
    assert!(error.contains("no file that matches `*.gguf`; it has `config.json`"), "{error}");
}

#[test]
fn a_cut_download_is_resumed_at_every_point() {
    let length = weights().len();
    for cut in [0, 1, 1000, 1 << 20, length - 1] {
        let setup = Setup::new(Faults { cuts: vec![cut], ..Faults::default() });
        let path = setup.get(WEIGHTS).unwrap_or_else(|error| panic!("cut after {cut}: {error}"));
        assert_eq!(fs::read(path).unwrap(), weights(), "cut after {cut}");
        let requests = setup.server.requests();
        let range = if cut == 0 { String::new() } else { format!(" bytes={cut}-") };
        assert_eq!(requests[2], format!("GET /org/tiny/resolve/{COMMIT}/{WEIGHTS}{range}"));
    }
}

#[test]
fn a_partial_file_is_kept_for_the_next_process() {
    let setup = Setup::new(Faults { cuts: vec![5000, 0], ..Faults::default() });
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("the connection was lost after 5000 bytes"), "{error}");
    assert!(error.contains("(after 2 attempts)\n  hint: check the network"), "{error}");
    assert_eq!(setup.blobs(), [(true, 5000)]);
    assert!(!setup.entry().join("refs/main").exists());

    setup.server.requests();
    assert_eq!(fs::read(setup.get(WEIGHTS).unwrap()).unwrap(), weights());
    let requests = setup.server.requests();
    assert!(requests[1].ends_with(" bytes=5000-"), "{requests:?}");
    assert_eq!(setup.blobs(), [(false, weights().len() as u64)]);
}

/// The name of the blob of the weights.
fn partial(setup: &Setup) -> PathBuf {
    use sha2::{Digest, Sha256};
    let sha256: String = Sha256::digest(weights()).iter().map(|byte| format!("{byte:02x}")).collect();
    let blobs = setup.entry().join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    blobs.join(format!("{sha256}.incomplete"))
}

#[test]
fn partial_files_with_other_contents_are_replaced() {
    for old in [vec![7; 1000], vec![7; weights().len()], vec![7; weights().len() + 1], weights()] {
        let setup = Setup::new(Faults::default());
        fs::write(partial(&setup), &old).unwrap();
        assert_eq!(fs::read(setup.get(WEIGHTS).unwrap()).unwrap(), weights());
        assert_eq!(setup.blobs(), [(false, weights().len() as u64)]);
        if old == weights() {
            assert_eq!(setup.server.requests().len(), 1, "only the properties are requested");
        }
    }
}

#[test]
fn servers_without_ranges_start_over() {
    let setup = Setup::new(Faults { ignores_ranges: true, cuts: vec![2 << 20], ..Faults::default() });
    assert_eq!(fs::read(setup.get(WEIGHTS).unwrap()).unwrap(), weights());
    let setup = Setup::new(Faults { range_start: Some(3), cuts: vec![1000], ..Faults::default() });
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("asked for byte 1000, the server sent byte 3"), "{error}");
}

#[test]
fn wrong_contents_are_refused() {
    let setup = Setup::new(Faults { wrong_contents: true, ..Faults::default() });
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("SHA-256 of the contents is "), "{error}");
    assert_eq!(setup.blobs(), [(true, 0)]);
    assert!(!setup.entry().join("snapshots").exists());

    let setup = Setup::new(Faults { extra: true, ..Faults::default() });
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("the contents are longer than 3145728 bytes"), "{error}");
    let error = setup.fails("config.json");
    assert!(error.contains("the contents are longer than 23 bytes"), "{error}");
}

#[test]
fn a_truncated_body_is_an_error() {
    let setup = Setup::new(Faults { cuts: vec![10; 4], ..Faults::default() });
    let error = setup.fails("config.json");
    assert!(error.contains("the connection was lost after 20 bytes"), "{error}");
    assert!(!setup.entry().join("snapshots").exists());
}

#[test]
fn missing_files_and_models_are_named() {
    let setup = Setup::new(Faults::default());
    let error = setup.fails("README.md");
    let url = format!(
        "{}/org/tiny/resolve/main/README.md: HTTP status 404 Not Found: Entry not found",
        setup.server.url
    );
    assert!(error.starts_with(&url), "{error}");
    assert!(error.contains("hint: the repository does not contain this file"), "{error}");
    let error = setup.downloader.download_model("org/none", "main").unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("hint: check the name of the model"), "{error}");
    // Nothing is written for a model that does not exist.
    assert!(!setup.root.path().join("models--org--none").exists());
}

#[test]
fn redirects_are_followed_without_the_token() {
    let storage = Server::start(files(), Faults::default());
    let mut setup = Setup::new(Faults { storage: Some(storage.url.clone()), ..Faults::default() });
    setup.downloader = setup.downloader.token(Some("secret"));
    assert_eq!(fs::read(setup.get(WEIGHTS).unwrap()).unwrap(), weights());
    assert!(setup.server.requests().iter().all(|request| request.ends_with("Bearer secret")));
    assert_eq!(storage.requests(), [format!("GET /storage/{WEIGHTS}")]);
    assert!(!format!("{:?}", setup.downloader).contains("secret"));

    // A renamed repository.
    let model = setup.downloader.download("org/old", "main", &["config.json"]).unwrap();
    assert_eq!(model.config().unwrap()["model_type"], "llama");
}

#[test]
fn a_resumed_download_is_redirected_with_its_range() {
    let storage = Server::start(files(), Faults { cuts: vec![4000], ..Faults::default() });
    let setup = Setup::new(Faults { storage: Some(storage.url.clone()), ..Faults::default() });
    assert_eq!(fs::read(setup.get(WEIGHTS).unwrap()).unwrap(), weights());
    assert_eq!(storage.requests()[1], format!("GET /storage/{WEIGHTS} bytes=4000-"));
}

#[test]
fn endless_redirects_are_refused() {
    let setup = Setup::new(Faults { loops: true, ..Faults::default() });
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("more than 10 redirects"), "{error}");
    assert_eq!(setup.server.requests().len(), 11);
}

#[test]
fn a_server_that_stalls_is_an_error() {
    let mut setup = Setup::new(Faults { stall: Some(1000), ..Faults::default() });
    setup.downloader = setup.downloader.timeout(Duration::from_millis(300));
    let start = Instant::now();
    let error = setup.fails(WEIGHTS);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(error.contains("timeout"), "{error}");
    assert_eq!(setup.blobs(), [(true, 2000)]);

    // Another server that accepts connections and never answers.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    setup.downloader = setup.downloader.endpoint(&address).unwrap();
    assert!(setup.fails(WEIGHTS).contains("timeout"));
    drop(silent);
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("refused") || error.contains("connection"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_busy_server_is_asked_again() {
    let setup = Setup::new(Faults { unavailable: 1, ..Faults::default() });
    setup.get("config.json").unwrap();
    setup.server.set(Faults { unavailable: 9, ..Faults::default() });
    let error = setup.fails("tokenizer.json");
    assert!(error.contains("HTTP status 503"), "{error}");
}

#[test]
fn names_that_leave_the_cache_are_refused() {
    let setup = Setup::new(Faults::default());
    for name in ["../config.json", "a/../../b", "/etc/passwd", "", "a\\b"] {
        let refused = setup.downloader.download("org/tiny", "main", &[name]);
        assert!(matches!(refused, Err(StoreError::InvalidArgument { .. })), "{name}");
    }
    for (model, revision) in [("../x", "main"), ("org/tiny", "../main"), ("org", ""), ("a/b/c", "main")] {
        let refused = setup.downloader.download(model, revision, &["config.json"]);
        assert!(matches!(refused, Err(StoreError::InvalidArgument { .. })), "{model} {revision}");
    }
    assert!(setup.server.requests().is_empty());

    for name in ["../../refs/main", "/etc/passwd", "a/../b"] {
        setup.server.set(Faults { listed: Some(vec![name.to_owned()]), ..Faults::default() });
        let error = setup.downloader.download("org/tiny", "main", &["*"]).unwrap_err().to_string();
        assert!(error.contains("refused the list of files"), "{error}");
    }
    for etag in ["../../../evil", "", "a/b", "..", ".hidden"] {
        setup.server.set(Faults { etag: Some(etag.to_owned()), ..Faults::default() });
        let error = setup.fails("config.json");
        assert!(error.contains("refused the ETag"), "{error}");
    }
    assert!(!setup.entry().exists());
}

#[test]
fn other_endpoints_are_no_urls() {
    let setup = Setup::new(Faults::default());
    for endpoint in ["", "hub.example", "ftp://hub.example", "file:///etc", "https://user@hub.example"] {
        assert!(setup.downloader.clone().endpoint(endpoint).is_err(), "{endpoint}");
    }
}

#[test]
fn two_downloads_of_one_file_do_not_clash() {
    let setup = Setup::new(Faults { delay: Duration::from_millis(100), ..Faults::default() });
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| fs::read(setup.get(WEIGHTS).unwrap()).unwrap())).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == weights()));
    });
    let bodies = setup.server.requests().iter().filter(|request| request.starts_with("GET")).count();
    assert_eq!(bodies, 1);
}

#[test]
fn a_lock_without_progress_is_an_error() {
    let mut setup = Setup::new(Faults::default());
    setup.downloader = setup.downloader.timeout(Duration::from_millis(100));
    let partial = partial(&setup);
    let lock = setup.root.path().join(".locks/models--org--tiny");
    fs::create_dir_all(&lock).unwrap();
    let name = partial.file_stem().unwrap().to_str().unwrap();
    let held = fs::File::create(lock.join(format!("{name}.lock"))).unwrap();
    held.lock().unwrap();
    let error = setup.fails(WEIGHTS);
    assert!(error.contains("another process downloads it, without progress"), "{error}");
    drop(held);
    setup.get(WEIGHTS).unwrap();
}

#[cfg(unix)]
#[test]
fn a_link_in_place_of_the_partial_file_is_not_followed() {
    let setup = Setup::new(Faults::default());
    let target = setup.root.path().join("precious");
    fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, partial(&setup)).unwrap();
    assert!(matches!(setup.get(WEIGHTS), Err(StoreError::Io { .. })));
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

#[test]
fn progress_is_reported() {
    let mut setup = Setup::new(Faults { cuts: vec![1 << 20], ..Faults::default() });
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    setup.downloader = setup.downloader.on_progress(move |progress| {
        sink.lock().unwrap().push((progress.to_string(), progress.received, progress.size));
    });
    setup.downloader.download("org/tiny", "main", &["config.json", WEIGHTS]).unwrap();
    let reports = reports.lock().unwrap();
    let (text, received, size) = reports.last().unwrap();
    assert_eq!(text, "model.safetensors: 3.1 of 3.1 MB (2 of 2)");
    assert_eq!((*received, *size), (weights().len() as u64, Some(weights().len() as u64)));
    assert!(reports.windows(2).all(|pair| pair[0].2 != pair[1].2 || pair[0].1 <= pair[1].1), "{reports:?}");
    assert!(reports.len() < 20);
}
