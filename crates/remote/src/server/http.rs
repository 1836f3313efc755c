//! The start of a connection: the head of an HTTP request, which either asks for metrics or for a WebSocket.

use super::ServerOptions;
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

    /// The status and the reason, if the request is not for this server: that of a page of another origin, or to a name that
    /// is not the server's.
    pub(super) fn refusal(&self, options: &ServerOptions) -> Option<(&'static str, String)> {
        let repeated = ["host", "origin"].into_iter().find(|name| self.headers(name).nth(1).is_some());
        if let Some(name) = repeated {
            return Some(("400 Bad Request", format!("the header `{name}` is there twice\n")));
        }
        if let Some(origin) = self.header("origin").filter(|origin| !options.admits_origin(origin)) {
            let problem =
                format!("pages of `{}` may not connect: `ServerOptions::with_origins`\n", shown(origin));
            return Some(("403 Forbidden", problem));
        }
        let host = self.header("host").filter(|host| !options.admits_host(host))?;
        Some((
            "403 Forbidden",
            format!("`{}` is no name of the server: `ServerOptions::with_hosts`\n", shown(host)),
        ))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.filter(move |(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// The beginning of a header, as a client wrote it, without control characters.
fn shown(header: &str) -> String {
    header.chars().filter(|letter| !letter.is_control()).take(100).collect()
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
