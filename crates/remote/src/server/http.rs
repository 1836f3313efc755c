//! The start of a connection: the head of an HTTP request, which either asks for metrics or for a WebSocket.

use crate::socket::Io;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// The longest head that is read, in bytes.
const MAX_HEAD: usize = 8 << 10;

/// The head of a request, as text, and the connection from its beginning.
pub(super) struct Request {
    head: String,
    pub(super) io: Rewound,
}

impl Request {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// When the connection ends before it, or it is too long.
    pub(super) async fn read(mut io: Box<dyn Io>) -> io::Result<Request> {
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            if bytes.len() >= MAX_HEAD {
                return Err(io::Error::other("the head of the request is too long"));
            }
            let mut buffer = [0; 1024];
            let read = io.read(&mut buffer).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&buffer[..read]);
        }
        let head = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Request { head, io: Rewound { bytes, position: 0, io } })
    }

    /// Whether it asks for a WebSocket.
    pub(super) fn is_upgrade(&self) -> bool {
        self.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
    }

    /// The method and the path.
    pub(super) fn target(&self) -> &str {
        self.head.lines().next().and_then(|line| line.rsplit_once(' ')).map_or("", |(target, _)| target)
    }

    /// The token of the header `Authorization: Bearer`, empty if there is none.
    pub(super) fn token(&self) -> &str {
        self.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
    }

    /// Answers, and ends the connection.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(super) async fn answer(self, status: &str, body: &str) -> io::Result<()> {
        let mut io = self.io.io;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        io.write_all(head.as_bytes()).await?;
        io.write_all(body.as_bytes()).await?;
        io.shutdown().await
    }

    fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers
            .into_iter()
            .find(|(key, _)| key.trim().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

/// A connection whose first bytes were read, and are read again.
pub(super) struct Rewound {
    bytes: Vec<u8>,
    position: usize,
    io: Box<dyn Io>,
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        self.position += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
