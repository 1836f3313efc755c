//! Connections of a server: accepted, greeted, and run.

use super::greetings::Greetings;
use super::http::Request;
use super::hub::{Hub, Live};
use crate::codec::MAX_HELLO;
use crate::message::{Frame, Hello, MAGIC, PROTOCOL, fingerprint};
use crate::socket::{End, Io, Socket, drive, greeted, greeting_config, receive_frame, send_frame};
use kiln_ir::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::accept_async_with_config;

/// How long a connection may take to introduce itself.
const GREETING: Duration = Duration::from_secs(5);

/// How often sessions are looked at for being idle.
const LOOK: Duration = Duration::from_millis(250);

/// How long connections have to end when the server does.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(feature = "tls")]
type Tls = Option<tokio_rustls::TlsAcceptor>;
#[cfg(not(feature = "tls"))]
type Tls = ();

/// Accepts connections until `stopped`. Tells the address, or why there is none.
pub(super) fn run(
    hub: &Arc<Hub>,
    address: SocketAddr,
    mut stopped: watch::Receiver<bool>,
    opened: &mpsc::Sender<Result<SocketAddr>>,
) {
    let failed = |error: std::io::Error| {
        Error::device("server", format!("{address} cannot be listened on: {error}"))
            .hint("choose another port")
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = opened.send(Err(failed(error)));
            return;
        }
    };
    runtime.block_on(async {
        let prepared = async { Ok((tls(hub)?, TcpListener::bind(address).await.map_err(failed)?)) };
        let (tls, listener) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        let _ = opened.send(listener.local_addr().map_err(failed));
        let greeter = Arc::new(Greeter { hub: hub.clone(), tls, greetings: Mutex::default() });
        let mut connections = JoinSet::new();
        tokio::select! {
            () = accept(&greeter, &listener, &mut connections) => {}
            () = look_for_idle(hub) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        drop(listener);
        greeter.greetings().end_all();
        let ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, ended).await;
    });
}

/// What connections need before they belong to a session.
struct Greeter {
    hub: Arc<Hub>,
    tls: Tls,
    greetings: Mutex<Greetings>,
}

/// Why a connection is not greeted.
enum Refusal {
    /// Nothing is said to the other side.
    Silent(String),
    /// The client is told, after a while.
    Told { socket: Box<Socket>, error: Error, delay: Duration },
}

async fn look_for_idle(hub: &Hub) {
    loop {
        tokio::time::sleep(LOOK).await;
        hub.end_idle();
    }
}

/// Accepts connections. It never waits for one of them.
async fn accept(greeter: &Arc<Greeter>, listener: &TcpListener, connections: &mut JoinSet<()>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                greeter.hub.metrics.connections.fetch_add(1, Ordering::Relaxed);
                while connections.try_join_next().is_some() {}
                let number = greeter.greetings().number();
                let task = connections.spawn(connection(greeter.clone(), stream, peer, number));
                greeter.greetings().begin(number, peer.ip(), task);
            }
            Err(error) => {
                // Out of file descriptors, for instance, which passes.
                log::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// Runs one connection to its end.
async fn connection(greeter: Arc<Greeter>, stream: TcpStream, peer: SocketAddr, number: u64) {
    let hub = &greeter.hub;
    let outcome = tokio::time::timeout(GREETING, greeter.greet(stream, peer.ip())).await;
    let outcome =
        outcome.unwrap_or_else(|_| Err(Refusal::Silent(format!("no greeting within {GREETING:?}"))));
    match outcome {
        Ok(Some((socket, live, hello))) => {
            greeter.greetings().end(number);
            attached(hub, &live, greeted(socket).await, &hello).await;
        }
        Ok(None) => {}
        Err(refusal) => {
            hub.metrics.refused.fetch_add(1, Ordering::Relaxed);
            match refusal {
                Refusal::Silent(problem) => log::warn!("{peer} was refused: {problem}"),
                Refusal::Told { mut socket, error, delay } => {
                    log::warn!("{peer} was refused: {error}");
                    tokio::time::sleep(delay).await;
                    let told = async {
                        let _ = send_frame(&mut socket, &Frame::Refused(error)).await;
                        socket.close(None).await
                    };
                    let _ = tokio::time::timeout(FAREWELL, told).await;
                }
            }
        }
    }
    greeter.greetings().end(number);
}

impl Greeter {
    /// The session of a client that introduced itself; `None` for a request of plain HTTP, which is answered.
    async fn greet(
        &self,
        stream: TcpStream,
        peer: IpAddr,
    ) -> Result<Option<(Socket, Arc<Live>, Box<Hello>)>, Refusal> {
        let silent = |error: &dyn std::fmt::Display| Refusal::Silent(error.to_string());
        stream.set_nodelay(true).map_err(|error| silent(&error))?;
        let io = encrypted(stream, &self.tls).await.map_err(Refusal::Silent)?;
        let request = Request::read(io).await.map_err(|error| silent(&error))?;
        if let Some((status, reason)) = request.refusal(&self.hub.options) {
            let problem = format!("{status}: {}", reason.trim_end());
            request.answer(status, &reason).await.map_err(|error| silent(&error))?;
            return Err(Refusal::Silent(problem));
        }
        if !request.is_upgrade() {
            return self.answer(request, peer).await.map(|()| None).map_err(|error| silent(&error));
        }
        let io: Box<dyn Io> = Box::new(request.io);
        let accepted = accept_async_with_config(io, Some(greeting_config())).await;
        let mut socket = accepted.map_err(|error| silent(&error))?;
        let hello = match receive_frame(&mut socket, MAX_HELLO).await.map_err(Refusal::Silent)? {
            Frame::Hello(hello) if hello.magic == MAGIC => hello,
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(_)
            | Frame::Payload { .. }
            | Frame::Ack { .. }
            | Frame::Closed(_) => return Err(Refusal::Silent("the first message is no greeting".into())),
        };
        if !self.hub.options.admits(&hello.token) {
            let error = Error::device("server", "the token is not the server's")
                .hint("set `KILN_TOKEN`, or call `RemoteDevice::with_token`");
            let delay = self.greetings().wrong_token(peer, Instant::now());
            return Err(Refusal::Told { socket: Box::new(socket), error, delay });
        }
        match session(&self.hub, &hello) {
            Ok(live) => Ok(Some((socket, live, hello))),
            Err(error) => Err(Refusal::Told { socket: Box::new(socket), error, delay: Duration::ZERO }),
        }
    }

    /// Answers a request of plain HTTP.
    async fn answer(&self, request: Request, peer: IpAddr) -> std::io::Result<()> {
        let (status, body) = match request.target() {
            "GET /metrics" if self.hub.options.admits(request.token()) => ("200 OK", self.hub.metrics()),
            "GET /metrics" => {
                let delay = self.greetings().wrong_token(peer, Instant::now());
                tokio::time::sleep(delay).await;
                ("401 Unauthorized", "`Authorization: Bearer` must have the token\n".into())
            }
            _ => ("404 Not Found", "a Kiln server: `/metrics`, or a WebSocket\n".into()),
        };
        request.answer(status, &body).await
    }

    fn greetings(&self) -> MutexGuard<'_, Greetings> {
        self.greetings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session of a client whose token is right: a new one, or the one to go on with.
fn session(hub: &Arc<Hub>, hello: &Hello) -> Result<Arc<Live>> {
    if hello.protocol != PROTOCOL || hello.fingerprint != fingerprint() {
        let problem = format!("the client speaks another version than {}", env!("CARGO_PKG_VERSION"));
        return Err(Error::device("server", problem).hint("build client and server from one version of Kiln"));
    }
    match &hello.resume {
        None => hub.open(),
        Some(resume) => {
            let live = hub.resume(resume)?;
            hub.metrics.resumed.fetch_add(1, Ordering::Relaxed);
            Ok(live)
        }
    }
}

/// Runs a connection of a session, after the one before has ended.
async fn attached(hub: &Arc<Hub>, live: &Arc<Live>, mut socket: Socket, hello: &Hello) {
    let epoch = live.epoch.fetch_add(1, Ordering::AcqRel) + 1;
    live.superseded.notify_waiters();
    let running = live.connection.lock().await;
    if is_superseded(live, epoch) {
        return;
    }
    live.set_attached(true);
    let received = hello.resume.map_or(0, |resume| resume.received);
    let end = match live.link.resume(received) {
        Ok(from) => {
            let welcome = Frame::Welcome(Box::new(hub.welcome(live)));
            match tokio::time::timeout(GREETING, send_frame(&mut socket, &welcome)).await {
                Ok(Ok(())) => tokio::select! {
                    end = drive(socket, &live.link, from, hub.options.heartbeat, |bytes| live.deliver(bytes)) => end,
                    () = superseded(live, epoch) => return,
                },
                Ok(Err(problem)) => End::Broken(problem),
                Err(_) => End::Broken("the greeting was not taken".into()),
            }
        }
        Err(error) => {
            let _ =
                tokio::time::timeout(GREETING, send_frame(&mut socket, &Frame::Refused(error.clone()))).await;
            End::Violation(error)
        }
    };
    drop(running);
    match end {
        End::Broken(problem) => {
            log::info!("a connection of session {:x} broke: {problem}", live.id);
            if !is_superseded(live, epoch) {
                live.set_attached(false);
            }
            tokio::spawn(end_after_grace(hub.clone(), live.clone(), epoch));
        }
        End::Closed(reason) => {
            if let Some(error) = reason {
                log::warn!("the client of session {:x} failed: {error}", live.id);
            }
            live.end(None);
        }
        End::Finished => live.end(None),
        End::Violation(error) => live.fail(error),
    }
}

async fn end_after_grace(hub: Arc<Hub>, live: Arc<Live>, epoch: u64) {
    tokio::time::sleep(hub.options.grace).await;
    if !is_superseded(&live, epoch) {
        live.fail(Error::device(
            "server",
            format!("the client did not come back for {:?}", hub.options.grace),
        ));
    }
}

fn is_superseded(live: &Live, epoch: u64) -> bool {
    live.epoch.load(Ordering::Acquire) != epoch
}

async fn superseded(live: &Live, epoch: u64) {
    loop {
        let notified = live.superseded.notified();
        if is_superseded(live, epoch) {
            return;
        }
        notified.await;
    }
}

#[cfg(feature = "tls")]
fn tls(hub: &Hub) -> Result<Tls> {
    hub.options.tls.as_ref().map(crate::tls::acceptor).transpose()
}

#[cfg(not(feature = "tls"))]
fn tls(_: &Hub) -> Result<Tls> {
    Ok(())
}

#[cfg(feature = "tls")]
async fn encrypted(stream: TcpStream, tls: &Tls) -> Result<Box<dyn Io>, String> {
    match tls {
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("TLS: {error}")),
        },
        None => Ok(Box::new(stream)),
    }
}

#[cfg(not(feature = "tls"))]
async fn encrypted(stream: TcpStream, (): &Tls) -> Result<Box<dyn Io>, String> {
    Ok(Box::new(stream))
}
