//! A hub on the loopback interface.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

pub(crate) const COMMIT: &str = "12fd25f77366fa6b3b4b768ec3050bf629380bac";

/// Faults of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Lengths after which the next bodies are cut, and the connection is closed.
    pub(crate) cuts: Vec<usize>,
    /// Large files are stored elsewhere: their requests are redirected there.
    pub(crate) storage: Option<String>,
    /// Bodies differ from the declared digest.
    pub(crate) wrong_contents: bool,
    /// Range requests are answered with the whole file.
    pub(crate) ignores_ranges: bool,
    /// Range requests are answered with this first byte.
    pub(crate) range_start: Option<usize>,
    /// Bodies stall after these bytes.
    pub(crate) stall: Option<usize>,
    /// Bodies have more bytes than declared.
    pub(crate) extra: bool,
    /// The number of requests that fail with status 503 first.
    pub(crate) unavailable: usize,
    /// Requests are redirected to themselves.
    pub(crate) loops: bool,
    /// The ETag of every file.
    pub(crate) etag: Option<String>,
    /// The ETags of files by name.
    pub(crate) etags: Vec<(String, String)>,
    /// The names in the list of files, instead of those that exist.
    pub(crate) listed: Option<Vec<String>>,
    /// The time before each body.
    pub(crate) delay: Duration,
}

/// A file, which the hub stores as a large file if it has more than 100 bytes.
pub(crate) type Files = Vec<(&'static str, Vec<u8>)>;

/// A server that runs until the process ends.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

struct State {
    files: Files,
    faults: Faults,
    /// The request lines and the headers `range` and `authorization`.
    requests: Vec<String>,
}

impl Server {
    pub(crate) fn start(files: Files, faults: Faults) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { files, faults, requests: Vec::new() }));
        let server = Server { url, state };
        let shared = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = shared.clone();
                thread::spawn(move || server.respond(stream.unwrap()));
            }
        });
        server
    }

    /// The requests so far, which are forgotten.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.state.lock().unwrap().faults = faults;
    }

    fn respond(&self, mut stream: TcpStream) {
        let Some((method, path, headers)) = read_request(&stream) else { return };
        let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let (files, faults, cut) = {
            let mut state = self.state.lock().unwrap();
            let noted: Vec<String> =
                ["range", "authorization"].iter().filter_map(|name| header(name)).collect();
            state.requests.push([vec![format!("{method} {path}")], noted].concat().join(" "));
            if state.faults.unavailable > 0 {
                state.faults.unavailable -= 1;
                drop(state);
                let _ = stream.write_all(
                    b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                return;
            }
            let is_body = method == "GET" && !path.starts_with("/api");
            let cut = (is_body && !state.faults.cuts.is_empty()).then(|| state.faults.cuts.remove(0));
            (state.files.clone(), state.faults.clone(), cut)
        };
        let answer = |stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]| {
            let head = format!(
                "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let body = if method == "HEAD" { &[] } else { body };
            // The client may close the connection first.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        };
        if faults.loops {
            return answer(&mut stream, "302 Found", &format!("Location: {path}\r\n"), b"");
        }
        if path.starts_with("/api/models/org/tiny/revision/") {
            let names: Vec<String> =
                faults.listed.unwrap_or_else(|| files.iter().map(|(name, _)| (*name).to_owned()).collect());
            let siblings: Vec<_> =
                names.iter().map(|name| serde_json::json!({ "rfilename": name })).collect();
            let list = serde_json::json!({ "id": "org/tiny", "sha": COMMIT, "siblings": siblings });
            return answer(&mut stream, "200 OK", "", list.to_string().as_bytes());
        }
        if path.starts_with("/api") {
            return answer(&mut stream, "404 Not Found", "X-Error-Code: RepoNotFound\r\n", b"");
        }
        if let Some(rest) = path.strip_prefix("/org/old/") {
            return answer(&mut stream, "307 Moved", &format!("Location: /org/tiny/{rest}\r\n"), b"");
        }
        let in_storage = path.strip_prefix("/storage/");
        let in_repository = path.strip_prefix("/org/tiny/resolve/").and_then(|rest| rest.split_once('/'));
        let name = in_storage.or(in_repository.map(|(_, name)| name)).unwrap_or_default();
        let Some((_, contents)) = files.iter().find(|(file, _)| *file == name) else {
            let code = "X-Error-Code: EntryNotFound\r\nX-Error-Message: Entry not found\r\n";
            return answer(&mut stream, "404 Not Found", code, b"");
        };
        let is_large = contents.len() > 100;
        let sha256: String = Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect();
        let named = faults.etags.iter().find(|(file, _)| file == name).map(|(_, etag)| etag.clone());
        let usual = if is_large { sha256 } else { format!("{:040x}", contents.len()) };
        let etag = faults.etag.clone().or(named).unwrap_or(usual);
        let mut properties =
            format!("X-Repo-Commit: {COMMIT}\r\nETag: \"{etag}\"\r\nAccept-Ranges: bytes\r\n");
        if let (true, Some(storage), None) = (is_large, &faults.storage, in_storage) {
            properties = format!(
                "X-Repo-Commit: {COMMIT}\r\nX-Linked-ETag: \"{etag}\"\r\nX-Linked-Size: {}\r\nETag: W/\"other\"\r\nLocation: {storage}/storage/{name}\r\n",
                contents.len()
            );
            return answer(&mut stream, "302 Found", &properties, b"Found");
        }
        if method == "HEAD" {
            return answer(&mut stream, "200 OK", &properties, contents);
        }
        let asked: Option<usize> = header("range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
            .filter(|_| !faults.ignores_ranges);
        if asked.is_some_and(|from| from >= contents.len()) {
            return answer(&mut stream, "416 Range Not Satisfiable", "", b"");
        }
        let from = asked.map_or(0, |asked| faults.range_start.unwrap_or(asked));
        let mut body = contents[from..].to_vec();
        if faults.wrong_contents {
            body[0] ^= 1;
        }
        if faults.extra {
            body.extend([0; 1000]);
        }
        let status = if asked.is_some() {
            properties.push_str(&format!(
                "Content-Range: bytes {from}-{}/{}\r\n",
                contents.len() - 1,
                contents.len()
            ));
            "206 Partial Content"
        } else {
            "200 OK"
        };
        let head = format!(
            "HTTP/1.1 {status}\r\n{properties}Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        thread::sleep(faults.delay);
        let sent = cut.or(faults.stall).unwrap_or(body.len()).min(body.len());
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..sent]));
        if faults.stall.is_some() {
            thread::sleep(Duration::from_secs(20));
        }
    }
}

type Request = (String, String, Vec<(String, String)>);

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(": ").map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned()))
        })
        .collect();
    Some((method, path, headers))
}
