//! A client that breaks the protocol: raw requests, frames and messages.

use super::{TOKEN, text};
use kiln_remote::codec::{decode, encode};
use kiln_remote::message::{Frame, Hello, MAGIC, PROTOCOL, Reply, Request, fingerprint};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The request of a WebSocket, with these headers besides.
pub(super) fn upgrade(headers: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// A connection that gives up reading after some seconds.
pub(super) fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(8))).map_err(text)?;
    stream.set_write_timeout(Some(Duration::from_secs(8))).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    Ok(stream)
}

/// What is answered to a request: the first bytes.
pub(super) fn answer(address: SocketAddr, request: &str) -> Result<String, String> {
    let mut stream = connect(address)?;
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut bytes = [0; 1024];
    let length = stream.read(&mut bytes).map_err(text)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// A WebSocket over which nothing was sent.
pub(super) fn open(address: SocketAddr) -> Result<TcpStream, String> {
    let mut stream = connect(address)?;
    stream.write_all(upgrade("Host: localhost\r\n").as_bytes()).map_err(text)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(text)?;
        head.push(byte[0]);
    }
    Ok(stream)
}

/// A binary message, in one write.
pub(super) fn send(stream: &mut TcpStream, payload: &[u8]) -> Result<(), String> {
    let mut frame = vec![0x82];
    match payload.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length @ ..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    // A mask of zeros.
    frame.extend([0; 4]);
    frame.extend_from_slice(payload);
    stream.write_all(&frame).map_err(text)
}

/// The next binary message.
pub(super) fn receive(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).map_err(text)?;
    let length = match head[1] & 0x7f {
        126 => {
            let mut bytes = [0; 2];
            stream.read_exact(&mut bytes).map_err(text)?;
            usize::from(u16::from_be_bytes(bytes))
        }
        127 => {
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes).map_err(text)?;
            u64::from_be_bytes(bytes) as usize
        }
        short => usize::from(short),
    };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).map_err(text)?;
    Ok(payload)
}

pub(super) fn hello(token: &str) -> Hello {
    let token = token.into();
    Hello { magic: MAGIC, protocol: PROTOCOL, fingerprint: fingerprint(), token, resume: None }
}

/// A session of an attacker who knows the token.
pub(super) struct Attacker {
    pub(super) stream: TcpStream,
    sequence: u64,
}

impl Attacker {
    pub(super) fn new(address: SocketAddr) -> Result<Attacker, String> {
        let mut stream = open(address)?;
        send(&mut stream, &encode(&Frame::Hello(Box::new(hello(TOKEN))), &[]).map_err(text)?)?;
        let answer = receive(&mut stream)?;
        let answer = decode::<Frame>(&answer).map_err(text)?.0;
        let is_welcome = matches!(answer, Frame::Welcome(_));
        is_welcome
            .then_some(Attacker { stream, sequence: 0 })
            .ok_or_else(|| format!("no welcome: {answer:?}"))
    }

    /// Sends a message, whatever the window is.
    pub(super) fn send(&mut self, request: &Request, tail: &[u8]) -> Result<(), String> {
        self.sequence += 1;
        let message = encode(request, tail).map_err(text)?;
        let frame = encode(&Frame::Payload { sequence: self.sequence }, &message).map_err(text)?;
        send(&mut self.stream, &frame)
    }

    /// The next answer, or the reason of the end.
    pub(super) fn receive(&mut self) -> Result<Reply, String> {
        loop {
            let bytes = receive(&mut self.stream)?;
            let (frame, tail) = decode::<Frame>(&bytes).map_err(text)?;
            match frame {
                Frame::Payload { sequence } => {
                    // The server waits for acknowledgements of its answers.
                    let _ = send(&mut self.stream, &encode(&Frame::Ack { sequence }, &[]).map_err(text)?);
                    return Ok(decode::<Reply>(tail).map_err(text)?.0);
                }
                Frame::Closed(reason) => return Err(format!("closed: {reason:?}")),
                Frame::Ack { .. } | Frame::Hello(_) | Frame::Welcome(_) | Frame::Refused(_) => {}
            }
        }
    }

    /// Waits until the server has done all that was sent, or ended the session. Returns its word.
    pub(super) fn settle(&mut self) -> Result<Option<String>, String> {
        use kiln_remote::message::Question;
        if let Err(error) = self.send(&Request::Ask { question: 99, about: Question::Sync }, &[]) {
            return Ok(Some(error));
        }
        loop {
            match self.receive() {
                Ok(Reply::Answer { question: 99, .. }) => return Ok(None),
                Ok(_) => {}
                Err(reason) if reason.contains("timed out") || reason.contains("unavailable") => {
                    return Err(format!("the server does not answer: {reason}"));
                }
                Err(reason) => return Ok(Some(reason)),
            }
        }
    }
}
