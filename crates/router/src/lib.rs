//! Several engines as one.
//!
//! A [`Router`] is an engine that stands for several others, its *members*: a GPU and the CPU, or two GPUs. Each value is on
//! one member. A tour:
//!
//! * **Placement.** [`Engine::to_device`](kiln_ir::Engine::to_device) moves a value to a member,
//!   [`Engine::device_of`](kiln_ir::Engine::device_of) says where it is. Data and constants that are on no member yet are made
//!   on the member that first needs them, so that making one for a device costs no transfer.
//! * **Ops** run on the member of their operands. Operands on several members meet by a transfer, as the [`TransferPolicy`]
//!   says: by default on the member with most of their bytes.
//! * **Fallback.** An op that a member does not run, not even expanded, runs on the next member that does, and its results come
//!   back.
//! * **Statistics.** [`Router::statistics`] counts transfers, their bytes, and the ops of each member.
//! * **Gradients.** A layer of automatic differentiation goes around the router. It records moves, and the gradient of a leaf is
//!   on the member of the leaf.
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_ir::{Binary, DType, Engine, Op, TensorData, TensorType, block_on, expanding};
//! use kiln_router::{Member, Router};
//! use std::sync::Arc;
//!
//! let member = |name: &str| Member::new(name, expanding(Arc::new(Cpu::with_threads(1))));
//! let router = Router::new([member("first"), member("second")]);
//! let x = router.to_device(router.write(TensorData::from([1.0f32, 2.0])), 0);
//! let y = router.to_device(router.write(TensorData::from([3.0f32, 4.0])), 1);
//!
//! let ty = TensorType::new([2], DType::F32);
//! let sum = router.execute(&Op::Binary(Binary::Add), [x.into(), y.into()].into_iter().collect(), &[ty]).remove(0);
//! assert_eq!(router.device_of(&sum), Some(0));
//! assert_eq!(block_on(router.read(sum))?.to_vec::<f32>(), [4.0, 6.0]);
//! assert_eq!(router.statistics().automatic.transfers, 1);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod engine;
mod member;
mod memory;
mod placed;
mod policy;
mod router;
mod statistics;

pub use member::Member;
pub use policy::TransferPolicy;
pub use router::Router;
pub use statistics::{MemberStatistics, Statistics, Transfers};
