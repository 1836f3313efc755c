//! Requests to the hub.

use std::fmt::Write;
use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::header::{HeaderMap, LOCATION};
use ureq::http::{Method, Request, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use super::super::name::{self, RepositoryName};
use crate::error::StoreError;

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 10;
/// Maximum length of the list of a repository's files, in bytes.
const MAX_LIST: u64 = 32 << 20;
/// Maximum length of an error message of the server, in characters.
const MAX_MESSAGE: usize = 200;
/// Longest wait that a server may ask for.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A client of one endpoint.
pub(super) struct Client {
    agent: Agent,
    /// For servers on this machine, which are not reached through a proxy.
    direct: Agent,
    endpoint: String,
    token: Option<String>,
}

/// The reason why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt may succeed, at the earliest after the time that the server asks for.
    Temporary { problem: String, wait: Option<Duration> },
    /// Another attempt would fail too.
    Permanent(String),
    /// A local file failed.
    Store(StoreError),
}

/// The files of a repository.
#[derive(Debug)]
pub(super) struct Repository {
    pub(super) commit: String,
    pub(super) files: Vec<String>,
}

/// The properties of a file.
#[derive(Debug, Clone)]
pub(super) struct Metadata {
    pub(super) commit: String,
    /// The name of the blob.
    pub(super) etag: String,
    pub(super) size: Option<u64>,
    /// The digest of large files; others have the SHA-1 of a git object as ETag.
    pub(super) sha256: Option<String>,
}

/// The contents of a file, starting at an offset.
pub(super) struct Contents {
    pub(super) from: u64,
    pub(super) reader: Box<dyn Read>,
}

impl Client {
    pub(super) fn new(endpoint: &str, token: Option<&str>, timeout: Duration) -> Client {
        let config = || {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .timeout_resolve(Some(timeout))
                .timeout_connect(Some(timeout))
                .timeout_send_request(Some(timeout))
                .timeout_recv_response(Some(timeout))
                .timeout_per_read(Some(timeout))
                .timeout_per_write(Some(timeout))
                .user_agent(concat!("kiln/", env!("CARGO_PKG_VERSION")))
        };
        Client {
            agent: config().build().into(),
            direct: config().proxy(None).build().into(),
            endpoint: endpoint.to_owned(),
            token: token.map(str::to_owned),
        }
    }

    /// The URL of a file.
    pub(super) fn file_url(&self, name: &RepositoryName, revision: &str, file: &str) -> String {
        format!("{}/{name}/resolve/{}/{}", self.endpoint, quote(revision, false), quote(file, true))
    }

    /// The URL of the list of files.
    pub(super) fn list_url(&self, name: &RepositoryName, revision: &str) -> String {
        format!("{}/api/models/{name}/revision/{}", self.endpoint, quote(revision, false))
    }

    /// Lists the files of a revision.
    pub(super) fn list(&self, url: &str) -> Result<Repository, Failure> {
        #[derive(Deserialize)]
        struct File {
            rfilename: String,
        }
        #[derive(Deserialize)]
        struct List {
            sha: String,
            siblings: Vec<File>,
        }
        let response = self.follow(&Method::GET, url, None, &|_| false)?;
        let text =
            response.into_body().into_with_config().limit(MAX_LIST).read_to_vec().map_err(Failure::from)?;
        let list: List = serde_json::from_slice(&text)
            .map_err(|error| Failure::Permanent(format!("the list of files is not valid: {error}")))?;
        let files: Vec<String> = list.siblings.into_iter().map(|file| file.rfilename).collect();
        if !name::is_commit(&list.sha) {
            return Err(Failure::Permanent("the list of files does not name a commit".to_owned()));
        }
        if let Some(error) = files.iter().find_map(|file| name::check_file(file).err()) {
            return Err(Failure::Permanent(format!("refused the list of files: {error}")));
        }
        Ok(Repository { commit: list.sha, files })
    }

    /// Requests the properties of a file.
    pub(super) fn metadata(&self, url: &str) -> Result<Metadata, Failure> {
        // The hub sends the properties of large files with the redirect to its storage.
        let response =
            self.follow(&Method::HEAD, url, None, &|headers| headers.contains_key("x-linked-etag"))?;
        let headers = response.headers();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let commit = text("x-repo-commit").filter(|commit| name::is_commit(commit)).ok_or_else(|| {
            Failure::Permanent(
                "the server is no Hugging Face hub: there is no commit in its answer".to_owned(),
            )
        })?;
        let etag = text("x-linked-etag").or_else(|| text("etag")).map(normalized).unwrap_or_default();
        if !is_blob_name(etag) {
            return Err(Failure::Permanent(format!("refused the ETag `{}`", etag.escape_debug())));
        }
        let length = text("content-length").filter(|_| response.status().is_success());
        Ok(Metadata {
            commit: commit.to_ascii_lowercase(),
            etag: etag.to_owned(),
            size: text("x-linked-size").or(length).and_then(|size| size.trim().parse().ok()),
            sha256: (etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then(|| etag.to_ascii_lowercase()),
        })
    }

    /// Requests the contents of a file from an offset. The server may start at 0 instead.
    pub(super) fn get(&self, url: &str, from: u64) -> Result<Contents, Failure> {
        let response = self.follow(&Method::GET, url, (from > 0).then_some(from), &|_| false)?;
        let from = match response.status() {
            StatusCode::PARTIAL_CONTENT => match range_start(response.headers()) {
                Some(start) if start == from => from,
                start => {
                    let start = start.map_or("an unknown byte".to_owned(), |start| format!("byte {start}"));
                    return Err(Failure::Permanent(format!(
                        "asked for byte {from}, the server sent {start}"
                    )));
                }
            },
            // What was received is longer than the file.
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => return self.get(url, 0),
            _ => 0,
        };
        Ok(Contents { from, reader: Box::new(response.into_body().into_reader()) })
    }

    /// Sends a request and follows redirects until one for which `stop` is true. A response without an error status is
    /// returned.
    fn follow(
        &self,
        method: &Method,
        url: &str,
        from: Option<u64>,
        stop: &dyn Fn(&HeaderMap) -> bool,
    ) -> Result<Response<Body>, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(method, &url, from)?;
            let status = response.status();
            let is_range_error = status == StatusCode::RANGE_NOT_SATISFIABLE && from.is_some();
            if status.is_success() || is_range_error || (status.is_redirection() && stop(response.headers()))
            {
                return Ok(response);
            }
            if !status.is_redirection() {
                return Err(status_failure(status, response.headers(), self.token.is_some()));
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            url = location.and_then(|location| join(&url, location)).ok_or_else(|| {
                let shown = location.unwrap_or("nothing").escape_debug();
                Failure::Permanent(format!("redirected to {shown}, which is no HTTP URL"))
            })?;
            if self.endpoint.starts_with("https:") && !url.starts_with("https:") {
                return Err(Failure::Permanent(format!("refused the redirect from HTTPS to {url}")));
            }
        }
        Err(Failure::Permanent(format!("more than {MAX_REDIRECTS} redirects")))
    }

    fn send(&self, method: &Method, url: &str, from: Option<u64>) -> Result<Response<Body>, Failure> {
        let mut request =
            Request::builder().method(method.clone()).uri(url).header("accept-encoding", "identity");
        if let Some(from) = from {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let Some(token) = &self.token
            && origin(url) == origin(&self.endpoint)
        {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|error| Failure::Permanent(error.to_string()))?;
        let agent = if is_loopback(url) { &self.direct } else { &self.agent };
        Ok(agent.run(request)?)
    }
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Failure {
        use ureq::Error;
        let is_temporary = matches!(
            error,
            Error::Io(_)
                | Error::Timeout(_)
                | Error::HostNotFound
                | Error::ConnectionFailed
                | Error::Protocol(_)
        );
        let problem = error.to_string();
        if is_temporary { Failure::Temporary { problem, wait: None } } else { Failure::Permanent(problem) }
    }
}

/// Describes an error status of the server.
fn status_failure(status: StatusCode, headers: &HeaderMap, has_token: bool) -> Failure {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut problem = format!("HTTP status {status}");
    if let Some(message) = text("x-error-message") {
        let message: String = message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect();
        let _ = write!(problem, ": {message}");
    }
    let hint = match (status.as_u16(), text("x-error-code")) {
        (_, Some("EntryNotFound")) => "the repository does not contain this file",
        (_, Some("RevisionNotFound")) => "the repository does not contain this revision",
        (_, Some("GatedRepo")) => "accept the terms of the model on its page, and set HF_TOKEN",
        (401 | 403, _) if !has_token => "the name is wrong, or the model is private: then set HF_TOKEN",
        (401 | 403, _) => "the name is wrong, or the token in HF_TOKEN has no access to it",
        (404, _) => "check the name of the model, the revision and the file",
        _ => "",
    };
    if !hint.is_empty() {
        let _ = write!(problem, "\n  hint: {hint}");
    }
    if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) {
        let wait = text("retry-after").and_then(|seconds| seconds.trim().parse().ok());
        return Failure::Temporary {
            problem,
            wait: wait.map(|wait| Duration::from_secs(wait).min(MAX_WAIT)),
        };
    }
    Failure::Permanent(problem)
}

/// Returns an ETag without quotes and without the mark of weak tags.
fn normalized(etag: &str) -> &str {
    let etag = etag.trim();
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Whether an ETag can be the name of a file.
fn is_blob_name(etag: &str) -> bool {
    (1..=200).contains(&etag.len())
        && !etag.starts_with('.')
        && !etag.ends_with(".incomplete")
        && etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Returns the first byte of a partial response: `Content-Range: bytes START-END/LENGTH`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get("content-range")?.to_str().ok()?.trim().strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}

/// Percent-encodes all bytes except unreserved characters (RFC 3986, section 2.3), and slashes if `slashes`.
fn quote(text: &str, slashes: bool) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
        if plain || (slashes && byte == b'/') {
            quoted.push(char::from(byte));
        } else {
            let _ = write!(quoted, "%{byte:02X}");
        }
    }
    quoted
}

/// Returns scheme, host and port of an HTTP URL. URLs with a user name are none.
pub(super) fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let default = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host().to_ascii_lowercase();
    (!host.is_empty()).then(|| (scheme, host, authority.port_u16().unwrap_or(default)))
}

fn is_loopback(url: &str) -> bool {
    origin(url).is_some_and(|(_, host, _)| matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]"))
}

/// Resolves the target of a redirect (RFC 3986, section 5.2, without dot segments).
fn join(base: &str, location: &str) -> Option<String> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, rest) = base.split_once("://")?;
    let joined = if location.contains("://") && origin(location).is_some() {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('?').next().unwrap_or_default();
        if location.starts_with('/') {
            format!("{scheme}://{authority}{location}")
        } else {
            let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
            format!("{scheme}://{authority}{folder}{location}")
        }
    };
    origin(&joined).map(|_| joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved() {
        let base = "https://hub.example/org/name/resolve/main/a.json?x=1";
        for (location, expected) in [
            ("https://cdn.example/b?c=d", Some("https://cdn.example/b?c=d")),
            ("//cdn.example/b", Some("https://cdn.example/b")),
            ("/api/b#part", Some("https://hub.example/api/b")),
            ("b.json", Some("https://hub.example/org/name/resolve/main/b.json")),
            ("ftp://cdn.example/b", None),
            ("https://user@cdn.example/b", None),
        ] {
            let joined = join(base, location);
            match expected {
                Some(expected) => assert_eq!(joined.as_deref(), Some(expected), "{location}"),
                None => assert!(
                    joined.as_ref().is_none_or(|url| url.starts_with("https://hub.example/")),
                    "{location}: {joined:?}"
                ),
            }
        }
    }

    #[test]
    fn blob_names_are_no_paths() {
        for etag in ["", "..", ".", "a/b", "a\\b", ".hidden", "a b", "x.incomplete"] {
            assert!(!is_blob_name(etag), "{etag}");
        }
        assert!(is_blob_name("d7edf6bd2a681fb0175f7735299831ee1b22b812"));
        assert_eq!(normalized("W/\"abc\""), "abc");
    }

    #[test]
    fn urls_are_quoted() {
        assert_eq!(quote("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(quote("a b/ä?.json", true), "a%20b/%C3%A4%3F.json");
    }

    #[test]
    fn origins() {
        let same = |a: &str, b: &str| origin(a) == origin(b);
        assert!(same("https://hub.example/a", "https://HUB.example:443/b"));
        assert!(!same("https://hub.example", "http://hub.example"));
        assert!(!same("https://hub.example", "https://hub.example.evil"));
        assert_eq!(origin("file:///etc/passwd"), None);
    }
}
