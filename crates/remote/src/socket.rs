//! One connection of a link: frames in and out, acknowledgements and heartbeats.

use crate::codec::{MAX_FRAME, decode, encode, malformed};
use crate::link::Link;
use crate::message::Frame;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use kiln_ir::{Error, Result};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
#[cfg(feature = "server")]
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

/// A connection to the other side: plain or encrypted.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(crate) type Socket = WebSocketStream<Box<dyn Io>>;

/// A connection is broken when nothing was heard for this number of heartbeats.
const MISSED: u32 = 3;

/// How long the other side of a broken protocol has to take the reason.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// It broke. The link may go on over another.
    Broken(String),
    /// The other side ended the session.
    Closed(Option<Error>),
    /// This side ended the session, and said so.
    Finished,
    /// The other side broke the protocol.
    Violation(Error),
}

/// The limits of WebSocket messages.
pub(crate) fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME + 64))
        .max_frame_size(Some(MAX_FRAME + 64))
        .write_buffer_size(64 << 10)
        .max_write_buffer_size(4 * MAX_FRAME)
}

/// The limits before the client has shown a token.
#[cfg(feature = "server")]
pub(crate) fn greeting_config() -> WebSocketConfig {
    let most = Some(crate::codec::MAX_HELLO);
    WebSocketConfig::default().max_message_size(most).max_frame_size(most).read_buffer_size(4 << 10)
}

/// A greeted connection, with the limits of a session. Nothing may have been sent behind the greeting.
#[cfg(feature = "server")]
pub(crate) async fn greeted(socket: Socket) -> Socket {
    WebSocketStream::from_raw_socket(socket.into_inner(), Role::Server, Some(config())).await
}

/// Sends one frame without a payload.
pub(crate) async fn send_frame(socket: &mut Socket, frame: &Frame) -> Result<(), String> {
    let bytes = encode(frame, &[]).map_err(|error| error.to_string())?;
    socket.send(Message::Binary(bytes.into())).await.map_err(|error| error.to_string())
}

/// Receives the first frame of the other side, of at most `most` bytes.
pub(crate) async fn receive_frame(socket: &mut Socket, most: usize) -> Result<Frame, String> {
    match next(socket).await {
        Ok(Some(bytes)) if bytes.len() > most => Err(format!("{} bytes are more than {most}", bytes.len())),
        Ok(Some(bytes)) => crate::codec::decode_all(&bytes).map_err(|error| error.to_string()),
        Ok(None) => Err("the other side closed the connection".into()),
        Err(problem) => Err(problem),
    }
}

/// Runs a connection until it ends. Writes the link's messages from number `from` on; gives those that arrive to
/// `deliver`, which never waits.
pub(crate) async fn drive(
    socket: Socket,
    link: &Link,
    from: u64,
    heartbeat: Duration,
    deliver: impl FnMut(Bytes) -> Result<()>,
) -> End {
    let (sink, mut stream) = socket.split();
    let end = tokio::select! {
        end = read(&mut stream, link, heartbeat, deliver) => end,
        end = write(sink, link, from, heartbeat) => end,
    };
    if let End::Finished | End::Violation(_) = end {
        // A socket that is closed before all was read resets the connection, and the other side may lose the reason.
        let _ = tokio::time::timeout(FAREWELL, async { while let Ok(Some(_)) = next(&mut stream).await {} })
            .await;
    }
    end
}

async fn read(
    mut stream: impl Stream<Item = tungstenite::Result<Message>> + Unpin,
    link: &Link,
    heartbeat: Duration,
    mut deliver: impl FnMut(Bytes) -> Result<()>,
) -> End {
    loop {
        let bytes = match tokio::time::timeout(heartbeat * MISSED, next(&mut stream)).await {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => return End::Broken("the other side closed the connection".into()),
            Ok(Err(problem)) => return End::Broken(problem),
            Err(_) => return End::Broken(format!("nothing was heard for {:?}", heartbeat * MISSED)),
        };
        match take(&bytes, link, &mut deliver) {
            Ok(None) => {}
            Ok(Some(end)) => return end,
            Err(error) => {
                // The other half of the connection says why.
                link.close(Some(error.clone()));
                tokio::time::sleep(FAREWELL).await;
                return End::Violation(error);
            }
        }
    }
}

fn take(bytes: &Bytes, link: &Link, deliver: &mut impl FnMut(Bytes) -> Result<()>) -> Result<Option<End>> {
    let (frame, tail) = decode::<Frame>(bytes)?;
    match frame {
        Frame::Payload { sequence } => {
            if link.arrived(sequence, bytes.len())? {
                deliver(bytes.slice(bytes.len() - tail.len()..))?;
            }
            Ok(None)
        }
        Frame::Ack { sequence } => link.acknowledged(sequence).map(|()| None),
        Frame::Closed(reason) => Ok(Some(End::Closed(reason))),
        Frame::Hello(_) | Frame::Welcome(_) | Frame::Refused(_) => {
            Err(malformed("a greeting within a session"))
        }
    }
}

async fn write(
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    link: &Link,
    from: u64,
    heartbeat: Duration,
) -> End {
    match write_all(&mut sink, link, from, heartbeat).await {
        Ok(()) => {
            let reason = link.reason();
            let frame = encode(&Frame::Closed(reason), &[]).unwrap_or_default();
            if let Err(error) = sink.send(Message::Binary(frame.into())).await {
                return End::Broken(error.to_string());
            }
            let _ = sink.close().await;
            End::Finished
        }
        Err(error) => End::Broken(error.to_string()),
    }
}

/// Writes until the link ends.
async fn write_all(
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
    link: &Link,
    from: u64,
    heartbeat: Duration,
) -> tungstenite::Result<()> {
    let mut sequence = from;
    let mut told = 0;
    let mut beat = tokio::time::interval(heartbeat);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        while let Some(frame) = link.frame(sequence) {
            if link.is_closed() {
                return Ok(());
            }
            sink.feed(Message::Binary(frame)).await?;
            sequence += 1;
            if link.owes_ack(told) {
                told = feed_ack(sink, link).await?;
            }
        }
        if link.owes_ack(told) {
            told = feed_ack(sink, link).await?;
        }
        sink.flush().await?;
        if link.is_closed() || link.is_finished_after(sequence) {
            return Ok(());
        }
        if link.frame(sequence).is_some() || link.owes_ack(told) {
            continue;
        }
        tokio::select! {
            () = link.work.notified() => {}
            _ = beat.tick() => told = feed_ack(sink, link).await?,
        }
    }
}

async fn feed_ack(
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
    link: &Link,
) -> tungstenite::Result<u64> {
    let sequence = link.processed();
    let frame = encode(&Frame::Ack { sequence }, &[]).unwrap_or_default();
    sink.feed(Message::Binary(frame.into())).await?;
    Ok(sequence)
}

/// The bytes of the next binary message; `None` at the end.
async fn next(
    stream: &mut (impl Stream<Item = tungstenite::Result<Message>> + Unpin),
) -> Result<Option<Bytes>, String> {
    loop {
        match stream.next().await {
            Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
            Some(Ok(Message::Text(_))) => return Err("a text message".into()),
            Some(Ok(Message::Close(_))) | None => return Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
}
