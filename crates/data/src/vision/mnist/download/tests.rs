//! Tests of the downloader with a server on the loopback interface.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use super::super::MnistDataset;
use super::*;
use crate::Dataset;

/// The server's answer to every request for a file.
#[derive(Clone, Copy)]
enum Answer {
    Intact,
    WithoutLength,
    Missing,
    Flipped,
    CutShort,
    /// The labels, but not the images.
    LabelsOnly,
    NotGzip,
    Silence,
}

/// Starts a server that runs until the test process ends, and returns its address.
fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || respond(stream.unwrap(), answer));
        }
    });
    address
}

fn respond(mut stream: TcpStream, answer: Answer) {
    let name = requested_file(&stream);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist").join(&name);
    let mut body = fs::read(path).unwrap();
    let mut status = "200 OK";
    let mut length = Some(body.len());
    match answer {
        Answer::Intact => {}
        Answer::LabelsOnly if name.contains("labels") => {}
        Answer::WithoutLength => length = None,
        Answer::Missing | Answer::LabelsOnly => {
            status = "404 Not Found";
            body.clear();
            length = Some(0);
        }
        Answer::Flipped => {
            let middle = body.len() / 2;
            body[middle] ^= 1;
        }
        Answer::CutShort => body.truncate(body.len() / 2),
        Answer::NotGzip => {
            body = b"<html>please log in</html>".to_vec();
            length = Some(body.len());
        }
        Answer::Silence => thread::sleep(Duration::from_secs(5)),
    }
    let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
    let head = format!("HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n");
    // The client may close the connection first.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn requested_file(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let request = lines.next().unwrap();
    lines.find(String::is_empty);
    request.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned()
}

fn downloader(answers: &[Answer]) -> Downloader {
    let config =
        ureq::Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(2))).build();
    Downloader { agent: config.into(), mirrors: answers.iter().map(|answer| serve(*answer)).collect() }
}

fn files_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn intact_files_are_stored() {
    for answer in [Answer::Intact, Answer::WithoutLength] {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("new").join("mnist");
        downloader(&[answer]).fetch(MnistSplit::Test, &directory).unwrap();
        assert_eq!(files_in(&directory), [TEST_IMAGES.name, TEST_LABELS.name]);
        assert_eq!(MnistDataset::from_directory(&directory, MnistSplit::Test).unwrap().len(), 10_000);
    }
}

#[test]
fn the_next_mirror_is_tried() {
    let root = tempfile::tempdir().unwrap();
    let answers = [Answer::Missing, Answer::Flipped, Answer::CutShort, Answer::Intact];
    downloader(&answers).fetch(MnistSplit::Test, root.path()).unwrap();
    assert_eq!(files_in(root.path()), [TEST_IMAGES.name, TEST_LABELS.name]);
}

#[test]
fn failed_downloads_leave_the_folder_unchanged() {
    for answer in [Answer::Missing, Answer::Flipped, Answer::CutShort, Answer::NotGzip, Answer::Silence] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(TEST_LABELS.name), "good").unwrap();
        let start = Instant::now();
        let error = downloader(&[answer]).fetch(MnistSplit::Test, root.path()).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(4));
        let text = error.to_string();
        assert!(
            text.starts_with("t10k-labels-idx1-ubyte.gz: download failed:\n    http://127.0.0.1:"),
            "{text}"
        );
        assert!(text.contains("\n  hint: check the network, or put the file into "), "{text}");
        assert_eq!(files_in(root.path()), [TEST_LABELS.name]);
        assert_eq!(fs::read(root.path().join(TEST_LABELS.name)).unwrap(), b"good");
    }
}

#[test]
fn an_incomplete_split_is_not_stored() {
    let root = tempfile::tempdir().unwrap();
    let error = downloader(&[Answer::LabelsOnly]).fetch(MnistSplit::Test, root.path()).unwrap_err();
    assert!(error.to_string().starts_with("t10k-images-idx3-ubyte.gz: download failed:"), "{error}");
    assert!(files_in(root.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn stored_files_have_default_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    downloader(&[Answer::Intact]).fetch(MnistSplit::Test, root.path()).unwrap();
    let mode = |name| fs::metadata(root.path().join(name)).unwrap().permissions().mode();
    fs::write(root.path().join("other"), "").unwrap();
    assert_eq!(mode(TEST_LABELS.name), mode("other"));
}

#[test]
fn wrong_contents_are_a_digest_error() {
    let expected = Expected { sha256: TRAIN_LABELS.sha256, ..TEST_LABELS };
    let root = tempfile::tempdir().unwrap();
    let error = downloader(&[Answer::Intact]).fetch_file(expected, root.path()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("SHA-256 of the contents is {}", TEST_LABELS.sha256)), "{text}");
    assert!(files_in(root.path()).is_empty());
}

#[test]
fn contents_longer_than_expected_are_refused() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist");
    let original = fs::read(checkout.join(TEST_LABELS.name)).unwrap();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("longer.gz");
    // A gzip file may have several members; their contents are concatenated.
    fs::write(&path, original.repeat(2)).unwrap();
    assert!(matches!(verify(&TEST_LABELS, &path), Err(Failure::Digest { .. })));
}

#[test]
fn bundled_files_have_the_expected_digests() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist");
    for file in [TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS] {
        verify(&file, &checkout.join(file.name)).unwrap();
    }
}

#[test]
fn an_unwritable_folder_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let error = downloader(&[Answer::Intact]).fetch(MnistSplit::Test, &file.join("mnist")).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}
