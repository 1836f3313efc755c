//! Options of a server.

use crate::session::Quotas;
#[cfg(feature = "tls")]
use crate::tls::TlsIdentity;
use kiln_ir::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Options of a [`Server`](super::Server).
///
/// By default it listens on the loopback address and a free port, and asks for the token of `KILN_TOKEN` in the environment if
/// that is set.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    pub(super) token: Option<String>,
    pub(super) quotas: Quotas,
    pub(super) sessions: usize,
    pub(super) window_bytes: u64,
    pub(super) idle: Duration,
    pub(super) grace: Duration,
    pub(super) heartbeat: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsIdentity>,
}

impl ServerOptions {
    /// The defaults.
    pub fn new() -> ServerOptions {
        ServerOptions {
            ip: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            token: kiln_ir::setting("KILN_TOKEN", "a token", |text| Some(text.to_string())),
            quotas: Quotas::default(),
            sessions: 64,
            window_bytes: 32 << 20,
            idle: Duration::from_secs(3600),
            grace: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The address to listen on. One beyond this machine needs a [token](ServerOptions::with_token). Default: `127.0.0.1`.
    #[must_use]
    pub fn with_ip(self, ip: IpAddr) -> ServerOptions {
        ServerOptions { ip, ..self }
    }

    /// The port. Default: 0, any free one.
    #[must_use]
    pub fn with_port(self, port: u16) -> ServerOptions {
        ServerOptions { port, ..self }
    }

    /// The token that clients must show. Without TLS it is sent unencrypted.
    #[must_use]
    pub fn with_token(self, token: impl Into<String>) -> ServerOptions {
        ServerOptions { token: Some(token.into()), ..self }
    }

    /// The limits of each session.
    #[must_use]
    pub fn with_quotas(self, quotas: Quotas) -> ServerOptions {
        ServerOptions { quotas, ..self }
    }

    /// The most sessions at a time. Default: 64.
    #[must_use]
    pub fn with_sessions(self, sessions: usize) -> ServerOptions {
        ServerOptions { sessions, ..self }
    }

    /// The most bytes on the way in each direction of a session. Default: 32 MiB; less than 8 MiB is taken as 8.
    #[must_use]
    pub fn with_window(self, bytes: u64) -> ServerOptions {
        ServerOptions { window_bytes: bytes.max(8 << 20), ..self }
    }

    /// How long a session without messages lives. Default: 1 hour.
    #[must_use]
    pub fn with_idle_timeout(self, idle: Duration) -> ServerOptions {
        ServerOptions { idle, ..self }
    }

    /// How long a session lives without a connection. Its client may come back meanwhile, and nothing is lost. Default: 30 s.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> ServerOptions {
        ServerOptions { grace, ..self }
    }

    /// The interval at which both sides of a connection show that they live. Without a sign for three of them, it is broken.
    /// Default: 5 s.
    #[must_use]
    pub fn with_heartbeat(self, heartbeat: Duration) -> ServerOptions {
        ServerOptions { heartbeat: heartbeat.max(Duration::from_millis(1)), ..self }
    }

    /// TLS, with this certificate: clients connect to `wss://`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, identity: TlsIdentity) -> ServerOptions {
        ServerOptions { tls: Some(identity), ..self }
    }

    /// The address to listen on.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        let has_token = self.token.as_deref().is_some_and(|token| !token.is_empty());
        if !self.ip.is_loopback() && !has_token {
            let problem = format!("{} can be reached from other machines, and there is no token", self.ip);
            return Err(Error::device("server", problem)
                .hint("set `KILN_TOKEN` or `ServerOptions::with_token`; clients need the same"));
        }
        Ok(SocketAddr::new(self.ip, self.port))
    }

    /// Whether a client's token is the server's. Takes as long for any token of a length.
    pub(super) fn admits(&self, token: &str) -> bool {
        let Some(own) = self.token.as_deref() else { return true };
        let differences = own.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0 && own.len() == token.len()
    }
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_this_machine_needs_a_token() {
        let options = ServerOptions { token: None, ..ServerOptions::new() }.with_ip([0, 0, 0, 0].into());
        assert!(options.address().unwrap_err().to_string().contains("KILN_TOKEN"));
        assert!(options.with_token("x").address().is_ok());
    }

    #[test]
    fn tokens_are_compared_whole() {
        let options = ServerOptions::new().with_token("secret");
        assert!(options.admits("secret"));
        for token in ["", "secre", "secret2", "Secret"] {
            assert!(!options.admits(token), "{token}");
        }
    }
}
