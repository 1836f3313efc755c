//! Folders and the cache, without a network.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_store::StoreError;
use kiln_store::hub::{self, HubCache, HubFolder};

const COMMIT: &str = "12fd25f77366fa6b3b4b768ec3050bf629380bac";

#[track_caller]
fn write(path: &Path, contents: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// The entry of `org/tiny` as `huggingface_hub` writes it.
#[cfg(unix)]
fn entry(root: &Path) -> PathBuf {
    let entry = root.join("models--org--tiny");
    write(&entry.join("blobs/aaaa"), r#"{"model_type": "llama"}"#);
    write(&entry.join("blobs/bbbb"), "weights");
    write(&entry.join("blobs/cccc"), "pooling");
    write(&entry.join("refs/main"), COMMIT);
    write(&entry.join("refs/refs/pr/1"), COMMIT);
    let snapshot = entry.join("snapshots").join(COMMIT);
    fs::create_dir_all(snapshot.join("1_Pooling")).unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, snapshot.join(name)).unwrap();
    link("../../blobs/aaaa", "config.json");
    link("../../blobs/bbbb", "model.safetensors");
    link("../../../blobs/cccc", "1_Pooling/config.json");
    entry
}

fn names(paths: &[PathBuf]) -> Vec<&str> {
    paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect()
}

#[cfg(unix)]
#[test]
fn models_are_found_in_the_cache() {
    let root = tempfile::tempdir().unwrap();
    let entry = entry(root.path());
    let cache = HubCache::new(root.path());
    let snapshot = entry.join("snapshots").join(COMMIT);
    for revision in ["main", "refs/pr/1", COMMIT] {
        let model = cache.find_revision("org/tiny", revision).unwrap();
        assert_eq!(model.path(), snapshot);
        assert_eq!(model.name().as_deref(), Some("org/tiny"));
        assert_eq!(model.commit(), Some(COMMIT));
        assert_eq!(model.config().unwrap()["model_type"], "llama");
        assert_eq!(model.weights().unwrap(), snapshot.join("model.safetensors"));
        assert_eq!(model.files().unwrap(), ["1_Pooling/config.json", "config.json", "model.safetensors"]);
        assert!(model.file("1_Pooling/config.json").unwrap().is_some());
        assert_eq!(model.file("README.md").unwrap(), None);
    }
    assert_eq!(cache.models().unwrap(), ["org/tiny"]);
    assert!(HubCache::new(root.path().join("none")).models().unwrap().is_empty());

    // The entry, a snapshot and its configuration are the same model.
    for path in [entry.clone(), snapshot.clone(), snapshot.join("config.json")] {
        let model = hub::open(&path).unwrap();
        assert_eq!((model.path(), model.commit()), (&*snapshot, Some(COMMIT)), "{}", path.display());
    }
    // Without `refs`, the only snapshot is used.
    fs::remove_dir_all(entry.join("refs")).unwrap();
    assert_eq!(cache.find("org/tiny").unwrap().path(), snapshot);
    fs::create_dir(entry.join("snapshots/0000")).unwrap();
    assert!(matches!(cache.find("org/tiny"), Err(StoreError::NotInCache { .. })));
}

/// The fixture was written by the Python package `huggingface_hub`; see `generate.py` beside it.
#[cfg(unix)]
#[test]
fn a_cache_of_huggingface_hub_is_read() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hub");
    let cache = HubCache::new(&fixture);
    assert_eq!(cache.models().unwrap(), ["org/tiny"]);
    let model = cache.find("org/tiny").unwrap();
    assert_eq!(model.commit(), Some(COMMIT));
    assert_eq!(model.config().unwrap()["model_type"], "llama");
    assert_eq!(model.json("1_Pooling/config.json").unwrap().unwrap()["pooling"], true);
    assert_eq!(fs::read(model.weights().unwrap()).unwrap().len(), 2048);
}

#[test]
fn models_are_located_by_path() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    write(&folder.join("a.gguf"), "");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    for path in [folder.clone(), folder.join("a.gguf")] {
        assert_eq!(hub::locate(&text(&path)).unwrap(), folder.join("a.gguf"));
    }
    write(&folder.join("config.json"), "{}");
    assert_eq!(hub::locate(&text(&folder)).unwrap(), folder);
    let error = hub::locate(&text(&root.path().join("none"))).unwrap_err().to_string();
    assert!(error.contains("no such file or folder"), "{error}");
    assert!(matches!(hub::locate("kiln-tests/no-such-model"), Err(StoreError::NotInCache { .. })));
}

#[test]
fn missing_models_are_named() {
    let root = tempfile::tempdir().unwrap();
    let error = HubCache::new(root.path()).find("org/tiny").unwrap_err();
    assert!(matches!(error, StoreError::NotInCache { .. }));
    let text = error.to_string();
    assert!(text.contains("`org/tiny` (revision `main`) is not in the cache"), "{text}");
    assert!(text.contains("hint: download it"), "{text}");
}

#[test]
fn names_that_are_paths_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let cache = HubCache::new(root.path().join("hub"));
    write(&root.path().join("secret/snapshots/main/config.json"), "{}");
    for name in
        ["", "..", "../secret", "a/../b", "a/b/c", "/etc", "a//b", ".git/x", "org/na me", "org/a--b", "a\\b"]
    {
        assert!(matches!(cache.find(name), Err(StoreError::InvalidArgument { .. })), "{name}");
    }
    for revision in ["", "..", "../../secret", "/etc/passwd", "a\\..\\b", "C:/x", "a\0b"] {
        let found = cache.find_revision("org/tiny", revision);
        assert!(matches!(found, Err(StoreError::InvalidArgument { .. })), "{revision:?}");
    }
}

#[cfg(unix)]
#[test]
fn links_that_leave_the_entry_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let entry = entry(root.path());
    write(&root.path().join("secret"), "secret");
    let snapshot = entry.join("snapshots").join(COMMIT);
    std::os::unix::fs::symlink("../../../secret", snapshot.join("vocab.txt")).unwrap();
    std::os::unix::fs::symlink("/etc", snapshot.join("etc")).unwrap();
    let model = hub::open(&entry).unwrap();
    for name in ["vocab.txt", "etc/passwd"] {
        let error = model.file(name).unwrap_err();
        assert!(matches!(error, StoreError::OutsideFolder { .. }), "{name}: {error}");
    }
    assert!(matches!(model.tokenizer_files(), Err(StoreError::OutsideFolder { .. })));
    for name in ["../../refs/main", "/etc/passwd", "a/../../b", ""] {
        assert!(matches!(model.file(name), Err(StoreError::InvalidArgument { .. })), "{name}");
    }

    // A reference that leads out of the snapshots.
    write(&entry.join("refs/evil"), "../../../..");
    let error = HubCache::new(root.path()).find_revision("org/tiny", "evil").unwrap_err();
    assert!(error.to_string().contains("does not contain a commit"), "{error}");
}

#[test]
fn plain_folders_list_weights_and_tokenizers() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    write(&folder.join("config.json"), "{}");
    let model = hub::open(&folder).unwrap();
    assert_eq!((model.path(), model.name(), model.commit()), (&*folder, None, None));
    let error = model.weights().unwrap_err().to_string();
    assert!(error.contains("does not contain weights"), "{error}");

    write(&folder.join("training_args.bin"), "");
    write(&folder.join("a.Q4_0.gguf"), "");
    assert_eq!(names(&[model.weights().unwrap()]), ["a.Q4_0.gguf"]);
    write(&folder.join("a.Q8_0.gguf"), "");
    let error = model.weights().unwrap_err().to_string();
    assert!(
        error.contains("2 files of weights") && error.contains("`a.Q4_0.gguf`, `a.Q8_0.gguf`"),
        "{error}"
    );
    for name in ["pytorch_model.bin", "model.safetensors"] {
        write(&folder.join(name), "");
        assert_eq!(names(&model.weight_files().unwrap()), [name]);
    }
    for name in
        ["tokenizer_config.json", "merges.txt", "tokenizer.json", "vocab.json", "README.md", ".gitattributes"]
    {
        write(&folder.join(name), "");
    }
    let tokenizer = ["tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"];
    assert_eq!(names(&model.tokenizer_files().unwrap()), tokenizer);
    assert!(!model.files().unwrap().contains(&".gitattributes".to_owned()));
}

#[test]
fn shards_are_those_of_the_index() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let index = folder.join("model.safetensors.index.json");
    write(
        &index,
        r#"{"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}}"#,
    );
    write(&folder.join("config.json"), "{}");
    write(&folder.join("model-1.safetensors"), "");
    let model = HubFolder::open(folder).unwrap();
    assert_eq!(model.weights().unwrap(), index);
    let error = model.weight_files().unwrap_err().to_string();
    assert!(error.contains("shard `model-2.safetensors`"), "{error}");
    write(&folder.join("model-2.safetensors"), "");
    assert_eq!(names(&model.weight_files().unwrap()), ["model-1.safetensors", "model-2.safetensors"]);

    for map in [r#""../secret""#, r#""/etc/passwd""#, "1", "null"] {
        write(&index, &format!(r#"{{"weight_map": {{"a": {map}}}}}"#));
        assert!(model.weight_files().is_err(), "{map}");
    }
    write(&index, "[");
    assert!(matches!(model.weight_files(), Err(StoreError::Json { .. })));
}

#[test]
fn folders_without_a_model_are_refused() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("README.md"), "");
    let error = hub::open(root.path()).unwrap_err().to_string();
    assert!(error.contains("neither `config.json` nor weights"), "{error}");
    assert!(matches!(hub::open(root.path().join("none")), Err(StoreError::Io { .. })));
    assert!(matches!(hub::open(root.path().join("README.md")), Err(StoreError::Io { .. })));
    let folder = root.path().join("models--org--tiny");
    fs::create_dir_all(folder.join("snapshots")).unwrap();
    let error = hub::open(&folder).unwrap_err().to_string();
    assert!(error.contains("no snapshot of the branch `main`"), "{error}");
}
