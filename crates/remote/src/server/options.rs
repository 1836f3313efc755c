//! Options of a server.

use crate::session::Quotas;
#[cfg(feature = "tls")]
use crate::tls::TlsIdentity;
use kiln_ir::{Error, Result};
use sha2::{Digest, Sha256};
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
    pub(super) memory: Option<u64>,
    pub(super) origins: Vec<String>,
    pub(super) hosts: Vec<String>,
    pub(super) sessions: usize,
    pub(super) window_bytes: u64,
    pub(super) idle: Duration,
    pub(super) grace: Duration,
    pub(super) heartbeat: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsIdentity>,
}

impl ServerOptions {
    /// Returns the defaults.
    pub fn new() -> ServerOptions {
        ServerOptions {
            ip: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            token: kiln_ir::setting("KILN_TOKEN", "a token", |text| Some(text.to_string())),
            quotas: Quotas::default(),
            memory: None,
            origins: Vec::new(),
            hosts: Vec::new(),
            sessions: 64,
            window_bytes: 32 << 20,
            idle: Duration::from_secs(3600),
            grace: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    kiln_ir::setters! {
        /// Sets the address to listen on. One beyond this machine needs a [token](ServerOptions::with_token). Default: `127.0.0.1`.
        with_ip(ip: IpAddr) => ip = ip;

        /// Sets the port. Default: 0, any free one.
        with_port(port: u16) => port = port;

        /// Sets the token that clients must show. Without TLS it is sent unencrypted.
        with_token(token: impl Into<String>) => token = Some(token.into());

        /// Sets the limits of each session.
        with_quotas(quotas: Quotas) => quotas = quotas;

        /// Sets the most bytes of all sessions together: tensors, intermediate results, programs, errors and queued messages. Default:
        /// seven eighths of the device's memory if it has its own, otherwise half of the memory that is available when the server
        /// starts (`MemAvailable` and the limit of the control group on Linux), and 4 GiB where that is unknown.
        with_memory(bytes: u64) => memory = Some(bytes);
    }

    /// Sets the origins of web pages that may connect, such as `https://kiln.example`. Default: none. A request of a
    /// page names its origin, and any other is refused; programs that are no browsers name none.
    #[must_use]
    pub fn with_origins<S: Into<String>>(self, origins: impl IntoIterator<Item = S>) -> ServerOptions {
        ServerOptions { origins: origins.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the names under which clients reach the server, without ports; `localhost` and addresses in digits are
    /// always right. Default: no other name on the loopback address, where a page could reach the server under a name
    /// of its own (DNS rebinding), and any name on other addresses, which need a token.
    #[must_use]
    pub fn with_hosts<S: Into<String>>(self, hosts: impl IntoIterator<Item = S>) -> ServerOptions {
        ServerOptions { hosts: hosts.into_iter().map(Into::into).collect(), ..self }
    }

    kiln_ir::setters! {
        /// Sets the most sessions at a time. One whose client has not come back gives its place to a new one. Default: 64.
        with_sessions(sessions: usize) => sessions = sessions;

        /// Sets the most bytes on the way in each direction of a session. Default: 32 MiB; less than 8 MiB is taken as 8.
        with_window(bytes: u64) => window_bytes = bytes.max(8 << 20);

        /// Sets how long a session without messages lives. Default: 1 hour.
        with_idle_timeout(idle: Duration) => idle = idle;

        /// Sets how long a session lives without a connection. Its client may come back meanwhile, and nothing is lost. Default: 30 s.
        with_grace(grace: Duration) => grace = grace;

        /// Sets the interval at which both sides of a connection show that they live. Without a sign for three of them, it is broken.
        /// Default: 5 s.
        with_heartbeat(heartbeat: Duration) => heartbeat = heartbeat.max(Duration::from_millis(1));
    }

    /// Sets TLS with this certificate: clients connect to `wss://`.
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

    /// Whether a client's token is the server's. The time that it takes tells nothing of the server's.
    pub(super) fn admits(&self, token: &str) -> bool {
        self.token.as_deref().is_none_or(|own| same_secret(own.as_bytes(), token.as_bytes()))
    }

    /// Whether a page of this origin may connect.
    pub(super) fn admits_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin))
    }

    /// Whether the server may be reached as this host, with or without a port.
    pub(super) fn admits_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(host, |(address, _)| address),
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_any = self.hosts.is_empty() && !self.ip.is_loopback();
        let mut own = self.hosts.iter().map(String::as_str).chain(["localhost"]);
        is_any || name.parse::<IpAddr>().is_ok() || own.any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Compares hashes: how far they agree tells nothing of the secrets.
pub(super) fn same_secret(own: &[u8], other: &[u8]) -> bool {
    Sha256::digest(own) == Sha256::digest(other)
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
    fn names_of_the_server() {
        let loopback = ServerOptions::new();
        for host in [
            "localhost",
            "LOCALHOST:3000",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:3000",
            "10.0.0.1",
        ] {
            assert!(loopback.admits_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:3000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
        ] {
            assert!(!loopback.admits_host(host), "{host}");
        }
        let named = ServerOptions::new().with_hosts(["kiln.example"]);
        assert!(named.admits_host("kiln.example:3000") && !named.admits_host("evil.example"));
        let public = ServerOptions::new().with_ip([0, 0, 0, 0].into());
        assert!(public.admits_host("kiln.example"));
        assert!(!public.with_hosts(["kiln.example"]).admits_host("evil.example"));
        let pages = ServerOptions::new().with_origins(["https://kiln.example"]);
        assert!(pages.admits_origin("https://kiln.example") && !pages.admits_origin("http://kiln.example"));
        assert!(!loopback.admits_origin("null") && !loopback.admits_origin("http://localhost"));
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
