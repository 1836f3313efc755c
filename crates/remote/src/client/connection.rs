//! The client's connection: a thread that sends and receives, and connects again.

use super::answers::Answers;
use super::device::RemoteDevice;
use super::engine::{RemoteEngine, Statistics, Transport};
use crate::codec::{MAX_FRAME, malformed};
use crate::link::Link;
use crate::message::{Frame, Hello, MAGIC, Offer, PROTOCOL, Request, Resume, Welcome, fingerprint};
use crate::socket::{End, Io, Socket, config, drive, receive_frame, send_frame};
use kiln_ir::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::http::Uri;

/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The pause after a failed attempt: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// The interval at which the engine checks for a pause of the program, and sends recorded ops.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the last messages may take when the engine is dropped.
const FAREWELL: Duration = Duration::from_secs(1);

/// The transport over WebSocket. Dropping it ends the session.
struct Connection {
    link: Arc<Link>,
    shared: Arc<Shared>,
}

/// The state shared by the connection thread and the engine.
#[derive(Default)]
struct Shared {
    reconnections: AtomicU64,
    has_ended: Mutex<bool>,
    end: Condvar,
}

/// The address of a server.
struct Address {
    url: String,
    host: String,
    port: u16,
    is_encrypted: bool,
}

/// Why an attempt to connect failed.
enum Failure {
    /// The next attempt may succeed.
    Passing(Error),
    /// The server refused.
    Final(Error),
}

/// Connects to a server.
///
/// # Errors
/// When the address is invalid, nobody answers, or the server refuses.
pub(super) fn open(device: &RemoteDevice) -> Result<(RemoteEngine, Offer)> {
    let address = Address::parse(device.url())?;
    let (sender, receiver) = mpsc::channel();
    let (answers, shared) = (Arc::new(Answers::default()), Arc::new(Shared::default()));
    let thread = std::thread::Builder::new().name("kiln-remote".into()).spawn({
        let (device, answers, shared) = (device.without_session(), answers.clone(), shared.clone());
        move || {
            run(&device, &address, &answers, &shared, &sender);
            *shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            shared.end.notify_all();
        }
    });
    thread.map_err(|error| Error::device("remote", format!("no thread for the connection: {error}")))?;
    let opened =
        receiver.recv().unwrap_or_else(|_| Err(Error::device("remote", "the connection's thread ended")));
    let (link, welcome): (Arc<Link>, Welcome) = opened?;
    let transport = Box::new(Connection { link, shared });
    let engine = RemoteEngine::new(&welcome.offer, transport, answers, welcome.programs as usize);
    watch_pauses(&engine);
    Ok((engine, welcome.offer))
}

/// Sends recorded ops when the program pauses, as long as the engine lives.
fn watch_pauses(engine: &RemoteEngine) {
    let engine = Arc::downgrade(engine.shared());
    let watch = move || {
        while let Some(engine) = Weak::upgrade(&engine) {
            engine.flush_if_paused();
            drop(engine);
            std::thread::sleep(PAUSE);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("kiln-remote-pauses".into()).spawn(watch) {
        log::warn!("no thread looks for pauses, so that ops may wait until the next read: {error}");
    }
}

impl Transport for Connection {
    fn send(&self, request: &Request, tail: &[u8]) -> Result<()> {
        self.link.send(request, tail)
    }

    fn lost(&self) -> Option<Error> {
        self.link.is_closed().then(|| self.link.reason().unwrap_or_else(ended))
    }

    fn count(&self, statistics: &mut Statistics) {
        let traffic = &self.link.traffic;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        statistics.messages_sent = count(&traffic.sent[0]);
        statistics.bytes_sent = count(&traffic.sent[1]);
        statistics.messages_received = count(&traffic.received[0]);
        statistics.bytes_received = count(&traffic.received[1]);
        statistics.reconnections = count(&self.shared.reconnections);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.finish(None);
        let has_ended = self.shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.end.wait_timeout_while(has_ended, FAREWELL, |has_ended| !*has_ended);
        drop(waited);
        self.link.close(None);
    }
}

type Opened = Result<(Arc<Link>, Welcome)>;

fn run(
    device: &RemoteDevice,
    address: &Address,
    answers: &Answers,
    shared: &Shared,
    opened: &mpsc::Sender<Opened>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ =
                opened.send(Err(Error::device("remote", format!("no runtime for the connection: {error}"))));
            return;
        }
    };
    runtime.block_on(async {
        let (socket, welcome) = match connect(device, address, None).await {
            Ok(connected) => connected,
            Err(Failure::Passing(error) | Failure::Final(error)) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        let window = usize::try_from(welcome.window_bytes).unwrap_or(usize::MAX);
        let link = Arc::new(Link::new(welcome.window_messages as usize, window, None));
        if opened.send(Ok((link.clone(), welcome.clone()))).is_ok() {
            let error = serve(device, address, &link, &welcome, socket, answers, shared).await;
            link.close(Some(error.clone()));
            answers.fail(&error);
        }
    });
}

/// Keeps the session over any number of connections. Returns why it ended.
async fn serve(
    device: &RemoteDevice,
    address: &Address,
    link: &Link,
    welcome: &Welcome,
    mut socket: Socket,
    answers: &Answers,
    shared: &Shared,
) -> Error {
    let heartbeat = Duration::from_millis(welcome.heartbeat_millis.max(1));
    let mut from = 1;
    loop {
        let deliver = |message: tokio_tungstenite::tungstenite::Bytes| {
            let delivered = answers.deliver(&message);
            link.done();
            delivered
        };
        let problem = match drive(socket, link, from, heartbeat, deliver).await {
            End::Broken(problem) => problem,
            End::Closed(reason) => return reason.unwrap_or_else(ended),
            End::Finished => return link.reason().unwrap_or_else(ended),
            End::Violation(error) => return error,
        };
        if link.is_finished() {
            return link.reason().unwrap_or_else(ended);
        }
        log::info!("the connection to {} broke: {problem}", address.url);
        let resumed = match reconnect(device, address, link, welcome, &problem).await {
            Ok(resumed) => resumed,
            Err(error) => return error,
        };
        from = match link.resume(resumed.1.received) {
            Ok(from) => from,
            Err(error) => return error,
        };
        socket = resumed.0;
        shared.reconnections.fetch_add(1, Ordering::Relaxed);
        log::info!("connected to {} again", address.url);
    }
}

async fn reconnect(
    device: &RemoteDevice,
    address: &Address,
    link: &Link,
    welcome: &Welcome,
    problem: &str,
) -> Result<(Socket, Welcome)> {
    let patience = Duration::from_millis(welcome.grace_millis);
    let since = Instant::now();
    let mut pause = PAUSES[0];
    loop {
        let resume = Resume { session: welcome.session, secret: welcome.secret, received: link.received() };
        match connect(device, address, Some(resume)).await {
            Ok(connected) => return Ok(connected),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Passing(error)) if since.elapsed() + pause > patience => {
                let problem = format!("{} was lost ({problem}), and for {patience:?}: {error}", address.url);
                return Err(Error::device("remote", problem).hint("restart the server, then the program"));
            }
            Err(Failure::Passing(_)) if link.is_finished() => return Err(ended()),
            Err(Failure::Passing(_)) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSES[1]);
    }
}

async fn connect(
    device: &RemoteDevice,
    address: &Address,
    resume: Option<Resume>,
) -> Result<(Socket, Welcome), Failure> {
    match tokio::time::timeout(ATTEMPT, greet(device, address, resume)).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::Passing(address.unreachable(format!("no answer within {ATTEMPT:?}")))),
    }
}

async fn greet(
    device: &RemoteDevice,
    address: &Address,
    resume: Option<Resume>,
) -> Result<(Socket, Welcome), Failure> {
    let passing = |problem: String| Failure::Passing(address.unreachable(problem));
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
    let stream = stream.map_err(|error| passing(error.to_string()))?;
    stream.set_nodelay(true).map_err(|error| passing(error.to_string()))?;
    let stream = encrypted(Box::new(stream), device, address).await?;
    let connected = client_async_with_config(&address.url, stream, Some(config())).await;
    let (mut socket, _) = connected.map_err(|error| passing(error.to_string()))?;
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
        fingerprint: fingerprint(),
        token: device.token().unwrap_or_default().into(),
        resume,
    };
    send_frame(&mut socket, &Frame::Hello(Box::new(hello))).await.map_err(passing)?;
    match receive_frame(&mut socket, MAX_FRAME).await.map_err(passing)? {
        Frame::Welcome(welcome) => Ok((socket, *welcome)),
        Frame::Refused(error) => Err(Failure::Final(error)),
        Frame::Closed(reason) => Err(Failure::Final(reason.unwrap_or_else(ended))),
        Frame::Hello(_) | Frame::Payload { .. } | Frame::Ack { .. } => {
            Err(Failure::Final(malformed("the server does not greet")))
        }
    }
}

#[cfg(feature = "tls")]
async fn encrypted(
    stream: Box<dyn Io>,
    device: &RemoteDevice,
    address: &Address,
) -> Result<Box<dyn Io>, Failure> {
    if !address.is_encrypted {
        return Ok(stream);
    }
    crate::tls::connect(stream, &address.host, device.root_certificates()).await.map_err(Failure::Passing)
}

#[cfg(not(feature = "tls"))]
async fn encrypted(stream: Box<dyn Io>, _: &RemoteDevice, address: &Address) -> Result<Box<dyn Io>, Failure> {
    if !address.is_encrypted {
        return Ok(stream);
    }
    let problem = "`wss://` needs TLS, which this program was built without";
    Err(Failure::Final(address.unreachable(problem.into()).hint("build with Kiln's feature `remote-tls`")))
}

impl Address {
    fn parse(url: &str) -> Result<Address> {
        let invalid = |problem: String| {
            Error::device("remote", format!("`{url}` is no address of a server: {problem}"))
                .hint("write `ws://host:3000`, or `wss://host:3000` for TLS")
        };
        let uri: Uri = url.parse().map_err(|error| invalid(format!("{error}")))?;
        let is_encrypted = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            Some(_) | None => return Err(invalid("it must start with `ws://` or `wss://`".into())),
        };
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| invalid("it has no host".into()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        Ok(Address { url: url.into(), host, port, is_encrypted })
    }

    fn unreachable(&self, problem: String) -> Error {
        Error::device("remote", format!("no connection to {}: {problem}", self.url))
            .hint("start a server there: `kiln server --backend cpu --port 3000`")
    }
}

fn ended() -> Error {
    Error::device("remote", "the session has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let address = Address::parse("ws://[::1]:3000").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.is_encrypted), ("::1", 3000, false));
        let address = Address::parse("wss://kiln.example/path").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.is_encrypted), ("kiln.example", 443, true));
        for url in ["", "host:3000", "http://host", "ws://", "ws:// host"] {
            let error = Address::parse(url).err().unwrap().to_string();
            assert!(error.contains("hint: write `ws://host:3000`"), "{url}: {error}");
        }
    }
}
