//! Connections of a server: accepted, greeted, and run.

use super::http::Request;
use super::hub::{Hub, Live};
use crate::codec::MAX_HELLO;
use crate::message::{Frame, Hello, MAGIC, PROTOCOL, fingerprint};
use crate::socket::{End, Io, Socket, config, drive, receive_frame, send_frame};
use kiln_ir::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_tungstenite::accept_async_with_config;

/// How long a connection may take to introduce itself.
const GREETING: Duration = Duration::from_secs(10);

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
        // Metrics and clients that come back need some beside those of sessions.
        let room = Arc::new(Semaphore::new(2 * hub.options.sessions + 64));
        tokio::select! {
            () = accept(hub, &listener, tls, &room) => {}
            () = look_for_idle(hub) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        drop(listener);
        // Connections hold a permit each.
        let all = 2 * hub.options.sessions + 64;
        let ended = room.acquire_many(u32::try_from(all).unwrap_or(u32::MAX));
        let _ = tokio::time::timeout(FAREWELL, ended).await;
    });
}

async fn look_for_idle(hub: &Hub) {
    loop {
        tokio::time::sleep(LOOK).await;
        hub.end_idle();
    }
}

#[cfg_attr(
    not(feature = "tls"),
    expect(clippy::clone_on_copy, reason = "without TLS the acceptor is a unit")
)]
async fn accept(hub: &Arc<Hub>, listener: &TcpListener, tls: Tls, room: &Arc<Semaphore>) {
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                hub.metrics.connections.fetch_add(1, Ordering::Relaxed);
                let (hub, tls) = (hub.clone(), tls.clone());
                tokio::spawn(async move {
                    connection(&hub, stream, tls, peer).await;
                    drop(permit);
                });
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
async fn connection(hub: &Arc<Hub>, stream: TcpStream, tls: Tls, peer: SocketAddr) {
    let greeted = match tokio::time::timeout(GREETING, greet(hub, stream, tls)).await {
        Ok(greeted) => greeted,
        Err(_) => Err(format!("no greeting within {GREETING:?}")),
    };
    match greeted {
        Ok(Some((mut socket, hello))) => match session(hub, &hello) {
            Ok(live) => attached(hub, &live, socket, &hello).await,
            Err(error) => {
                hub.metrics.refused.fetch_add(1, Ordering::Relaxed);
                log::warn!("{peer} was refused: {error}");
                let _ = tokio::time::timeout(GREETING, send_frame(&mut socket, &Frame::Refused(error))).await;
                let _ = tokio::time::timeout(FAREWELL, socket.close(None)).await;
            }
        },
        Ok(None) => {}
        Err(problem) => {
            hub.metrics.refused.fetch_add(1, Ordering::Relaxed);
            log::warn!("{peer} was refused: {problem}");
        }
    }
}

/// The client's introduction; `None` for a request of plain HTTP, which is answered.
async fn greet(hub: &Hub, stream: TcpStream, tls: Tls) -> Result<Option<(Socket, Hello)>, String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let io = encrypted(stream, tls).await?;
    let request = Request::read(io).await.map_err(|error| error.to_string())?;
    if !request.is_upgrade() {
        let (status, body) = match request.target() {
            "GET /metrics" if hub.options.admits(request.token()) => ("200 OK", hub.metrics()),
            "GET /metrics" => ("401 Unauthorized", "`Authorization: Bearer` must have the token\n".into()),
            _ => ("404 Not Found", "a Kiln server: `/metrics`, or a WebSocket\n".into()),
        };
        return request.answer(status, &body).await.map(|()| None).map_err(|error| error.to_string());
    }
    let io: Box<dyn Io> = Box::new(request.io);
    let mut socket = accept_async_with_config(io, Some(config())).await.map_err(|error| error.to_string())?;
    match receive_frame(&mut socket, MAX_HELLO).await? {
        Frame::Hello(hello) => Ok(Some((socket, *hello))),
        Frame::Welcome(_)
        | Frame::Refused(_)
        | Frame::Payload { .. }
        | Frame::Ack { .. }
        | Frame::Closed(_) => Err("the first message is no greeting".into()),
    }
}

/// The session of a client: a new one, or the one to go on with.
fn session(hub: &Arc<Hub>, hello: &Hello) -> Result<Arc<Live>> {
    if hello.magic != MAGIC || hello.protocol != PROTOCOL || hello.fingerprint != fingerprint() {
        let problem = format!("the client speaks another version than {}", env!("CARGO_PKG_VERSION"));
        return Err(Error::device("server", problem).hint("build client and server from one version of Kiln"));
    }
    if !hub.options.admits(&hello.token) {
        return Err(Error::device("server", "the token is not the server's")
            .hint("set `KILN_TOKEN`, or call `RemoteDevice::with_token`"));
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
            log::info!("a connection of session {} broke: {problem}", live.id);
            tokio::spawn(end_after_grace(hub.clone(), live.clone(), epoch));
        }
        End::Closed(reason) => {
            if let Some(error) = reason {
                log::warn!("the client of session {} failed: {error}", live.id);
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
async fn encrypted(stream: TcpStream, tls: Tls) -> Result<Box<dyn Io>, String> {
    match tls {
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("TLS: {error}")),
        },
        None => Ok(Box::new(stream)),
    }
}

#[cfg(not(feature = "tls"))]
async fn encrypted(stream: TcpStream, (): Tls) -> Result<Box<dyn Io>, String> {
    Ok(Box::new(stream))
}
