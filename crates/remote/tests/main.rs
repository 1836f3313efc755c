//! The tests of the crate, in one program.

#[cfg(all(feature = "client", feature = "server"))]
mod by_name;
#[cfg(all(feature = "client", feature = "server"))]
mod hardening;
mod in_process;
#[cfg(all(feature = "client", feature = "server"))]
mod loopback;
#[cfg(all(feature = "client", feature = "server"))]
mod mnist;
#[cfg(all(feature = "client", feature = "server"))]
mod relay;
