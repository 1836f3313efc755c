//! The client: an engine that sends ops to a server.

mod answers;
#[cfg(feature = "client")]
mod connection;
#[cfg(feature = "client")]
mod device;
mod engine;
mod recording;

pub use answers::{Answers, Asked, Found};
#[cfg(feature = "client")]
pub use device::{RemoteBackend, RemoteDevice};
pub use engine::{RemoteEngine, Statistics, Transport};
