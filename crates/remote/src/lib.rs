//! A backend over the network: ops of a program here run on a device elsewhere.
//!
//! A tour, in the order in which an op is processed:
//!
//! * [`RemoteEngine`](client::RemoteEngine) is the client's engine. Executing an op only records it. Ops that the server does not
//!   run are expanded before; custom ops without an expansion run on the client's host.
//! * A recorded batch is a [`Template`](message::Template), which the server keeps: it is sent once for each structure, and later
//!   only its number, the numbers in it, and the ids of its inputs.
//! * A link numbers the [messages](message) in both directions and keeps them until the other side has processed them, so
//!   that a broken connection loses nothing. It bounds the messages in flight: programs wait if the server is slower.
//! * A [`Session`](session::Session) on the server holds the values and programs of one client, within its
//!   [quotas](session::Quotas), and runs batches on a stack: that of any backend, with its fusion. It knows no other session.
//! * A `Server` accepts connections, greets clients, and ends sessions that are idle or whose client does not come back.
//!
//! Features: `client` and `server`, both on by default; `tls` for `wss://`.
//!
//! ```
//! use kiln_backends::Cpu;
//! use kiln_remote::server::{Server, ServerOptions};
//! use kiln_remote::{RemoteBackend, RemoteDevice};
//! use kiln_tensor::{Autodiff, Tensor};
//!
//! // On the one machine:
//! let server = Server::bind::<Cpu>(&Default::default(), ServerOptions::new())?;
//!
//! // On the other:
//! let device = RemoteDevice::new(server.url());
//! let x = Tensor::<Autodiff<RemoteBackend>, 1>::from_floats([1.0, 2.0], &device).require_grad();
//! let gradients = (&x * &x).sum().backward();
//! assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [2.0, 4.0]);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod budget;
pub mod client;
pub mod codec;
#[cfg(feature = "net")]
mod link;
pub mod message;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
#[cfg(feature = "net")]
mod socket;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "client")]
pub use client::{RemoteBackend, RemoteDevice, Statistics};
pub use session::{Quotas, Usage};
#[cfg(feature = "tls")]
pub use tls::TlsIdentity;
