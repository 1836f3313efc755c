//! The tests of the crate, in one program.

#[cfg(feature = "chat")]
mod chat;
mod devices;
mod dump;
mod runs;
#[cfg(feature = "runs")]
mod runs_browser;
#[cfg(feature = "runs")]
mod runs_command;
#[cfg(all(feature = "server", unix))]
mod server;
#[cfg(feature = "weights")]
mod weights;
