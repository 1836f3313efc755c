//! The server: sessions of many clients on one backend.

mod greetings;
mod http;
mod hub;
mod listener;
mod machine;
mod metrics;
mod options;

pub use crate::session::{Quotas, Usage};
#[cfg(feature = "tls")]
pub use crate::tls::TlsIdentity;
pub use options::ServerOptions;

use hub::Hub;
use kiln_ir::{Error, Result};
use kiln_tensor::Backend;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Serves a backend's device on a port of this machine, until the process is interrupted (Ctrl-C) or terminated. Running work
/// then ends first.
///
/// It listens on the loopback address alone. [`Server::bind`] takes [options](ServerOptions): other addresses, a token, TLS,
/// quotas.
///
/// ```no_run
/// use kiln_backends::Cpu;
///
/// kiln_remote::server::start::<Cpu>(Default::default(), 3000)?;
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Errors
/// When the port cannot be used.
pub fn start<B: Backend>(device: B::Device, port: u16) -> Result<()> {
    Server::bind::<B>(&device, ServerOptions::new().with_port(port))?.run()
}

/// Calls [`start`] under the name that Burn uses.
///
/// # Errors
/// When the port cannot be used.
pub fn start_websocket<B: Backend>(device: B::Device, port: u16) -> Result<()> {
    start::<B>(device, port)
}

/// A running server. Dropping it stops it at once; [`shutdown`](Server::shutdown) lets work end first.
///
/// ```
/// use kiln_backends::Cpu;
/// use kiln_remote::server::{Server, ServerOptions};
/// use kiln_remote::{RemoteBackend, RemoteDevice};
/// use kiln_tensor::Tensor;
///
/// let server = Server::bind::<Cpu>(&Default::default(), ServerOptions::new())?;
/// let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &RemoteDevice::new(server.url()));
/// assert_eq!((x * 2).into_data().to_vec::<f32>(), [2.0, 4.0]);
/// server.shutdown();
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub struct Server {
    hub: Arc<Hub>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server for a backend's device. Port 0, the default, takes any free one.
    ///
    /// # Errors
    /// When the address cannot be used, an address beyond this machine has no token, or a certificate cannot be read.
    pub fn bind<B: Backend>(device: &B::Device, options: ServerOptions) -> Result<Server> {
        let address = options.address()?;
        let stack = B::stack(device);
        let (stop, stopped) = watch::channel(false);
        let hub = Arc::new(Hub::new(stack, options));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("kiln-server".into()).spawn({
            let hub = hub.clone();
            move || listener::run(&hub, address, stopped, &sender)
        });
        let thread = thread.map_err(|error| Error::device("server", format!("no thread for it: {error}")))?;
        let address = receiver.recv().unwrap_or_else(|_| Err(Error::device("server", "its thread ended")))?;
        log::info!("serving {} on {address}", hub.device());
        Ok(Server { hub, address, stop, thread: Some(thread) })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for clients on this machine.
    pub fn url(&self) -> String {
        let scheme = if self.hub.is_encrypted() { "wss" } else { "ws" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> usize {
        self.hub.sessions()
    }

    /// Returns the usage of all sessions.
    pub fn usage(&self) -> Usage {
        self.hub.usage()
    }

    /// Returns the metrics, as `GET /metrics` gives them: Prometheus text.
    pub fn metrics(&self) -> String {
        self.hub.metrics()
    }

    /// Serves until the process is interrupted or terminated, then [shuts down](Server::shutdown).
    ///
    /// # Errors
    /// When signals cannot be waited for.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let failed = |error| Error::device("server", format!("signals cannot be waited for: {error}"));
        runtime.map_err(failed)?.block_on(signal()).map_err(failed)?;
        log::info!("shutting down");
        self.shutdown();
        Ok(())
    }

    /// Shuts down: accepts no further clients or messages, finishes received messages, and notifies clients. Sessions
    /// that take longer than 10 s are ended.
    pub fn shutdown(mut self) {
        self.hub.drain(Duration::from_secs(10));
        self.end();
    }

    fn end(&mut self) {
        self.hub.close(&Error::device("server", "the server has been stopped"));
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for Ctrl-C, or a request to terminate.
async fn signal() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminated.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
