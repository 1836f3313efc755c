//! `kiln server`: a backend over the network.

use clap::{Args, ValueEnum};
use kiln_backends::{Cpu, Flex};
use kiln_remote::server::{Quotas, Server, ServerOptions};
use std::net::IpAddr;
use std::time::Duration;

/// Options of `kiln server`. The token is that of `KILN_TOKEN` in the environment.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend to serve.
    #[arg(long, value_enum, default_value_t = Kind::Cpu)]
    backend: Kind,
    /// The number of the device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// The port; 0 takes any free one.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// The address to listen on. One beyond this machine needs a token in `KILN_TOKEN`.
    #[arg(long, default_value = "127.0.0.1")]
    ip: IpAddr,
    /// Certificate chain for TLS, in PEM.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "key", value_name = "FILE")]
    certificate: Option<std::path::PathBuf>,
    /// Private key for TLS, in PEM.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "certificate", value_name = "FILE")]
    key: Option<std::path::PathBuf>,
    /// The most sessions at a time.
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// The most bytes of tensors of one session, in MiB.
    #[arg(long, default_value_t = 8192)]
    memory_mib: u64,
    /// The most bytes of all sessions together, in MiB. By default half of the memory that is available, or seven eighths of
    /// that of a GPU.
    #[arg(long)]
    total_memory_mib: Option<u64>,
    /// The origin of web pages that may connect, such as `https://kiln.example`; can be repeated.
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// A name under which clients reach the server; can be repeated. By default only `localhost` on the loopback address, and any
    /// name on others.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Seconds after which a session without messages ends.
    #[arg(long, default_value_t = 3600)]
    idle_seconds: u64,
    /// Seconds that a session waits for its client to come back.
    #[arg(long, default_value_t = 30)]
    grace_seconds: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// The processor, with fusion.
    Cpu,
    /// The processor, op by op.
    Flex,
    /// An NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Cuda,
}

/// Serves until the process is interrupted.
pub(crate) fn run(options: Options) -> Result<(), String> {
    // Another logger cannot have been set.
    let _ = log::set_logger(&Stderr).map(|()| log::set_max_level(log::LevelFilter::Info));
    let server = bind(&options).map_err(|error| error.to_string())?;
    println!("serving on {}", server.url());
    server.run().map_err(|error| error.to_string())
}

fn bind(options: &Options) -> kiln_tensor::Result<Server> {
    let settings = settings(options);
    match options.backend {
        Kind::Cpu => Server::bind::<Cpu>(&Default::default(), settings),
        Kind::Flex => Server::bind::<Flex>(&Default::default(), settings),
        #[cfg(feature = "cuda")]
        Kind::Cuda => {
            let device = kiln_backends::CudaDevice::open(options.device)?;
            Server::bind::<kiln_backends::Cuda>(&device, settings)
        }
    }
}

fn settings(options: &Options) -> ServerOptions {
    let memory_bytes = options.memory_mib.saturating_mul(1 << 20);
    let settings = ServerOptions::new()
        .with_ip(options.ip)
        .with_port(options.port)
        .with_sessions(options.sessions)
        .with_idle_timeout(Duration::from_secs(options.idle_seconds))
        .with_grace(Duration::from_secs(options.grace_seconds))
        .with_origins(options.origins.iter().cloned())
        .with_hosts(options.hosts.iter().cloned())
        .with_quotas(Quotas { memory_bytes, ..Quotas::default() });
    let settings = match options.total_memory_mib {
        Some(mebibytes) => settings.with_memory(mebibytes.saturating_mul(1 << 20)),
        None => settings,
    };
    with_tls(settings, options)
}

#[cfg(feature = "tls")]
fn with_tls(settings: ServerOptions, options: &Options) -> ServerOptions {
    match (&options.certificate, &options.key) {
        (Some(certificates), Some(key)) => settings
            .with_tls(kiln_remote::TlsIdentity { certificates: certificates.clone(), key: key.clone() }),
        (Some(_) | None, Some(_) | None) => settings,
    }
}

#[cfg(not(feature = "tls"))]
fn with_tls(settings: ServerOptions, _: &Options) -> ServerOptions {
    settings
}

/// Writes events to the standard error.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("kiln") {
            eprintln!("{}: {}", record.level().as_str().to_lowercase(), record.args());
        }
    }

    fn flush(&self) {}
}
