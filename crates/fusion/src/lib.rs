//! Operator fusion: a layer records ops lazily and runs neighbours as one kernel.
//!
//! [`Fusion`] is a layer: an [`Engine`](kiln_ir::Engine) around another. It returns lazy values from every op at once.
//! When one of them is read, the recorded ops run, in this order:
//!
//! 1. The recording's structure is looked up in the plan cache: ops, operand wiring, types and liveness. Plain numbers
//!    may change from step to step, so they are not part of it. A training step after the first finds its plan.
//! 2. On a miss, the layer makes a [plan](Plan). Dead ops are removed, and neighbours that one kernel can run become
//!    one [`Op::Fused`](kiln_ir::Op::Fused). Each value is passed on by value at its last use, so that the engine below
//!    overwrites or frees its memory.
//! 3. The plan runs on the engine below. A fused region holds a program that defines its semantics: an engine that does
//!    not compile regions runs the program op by op.
//!
//! Liveness is determined when the plan is looked up: a value that was dropped before is never stored. A recording
//! that begins like the previous ones is only compared with their plan op by op; ops are stored from the first
//! difference on.
//!
//! Plans depend on the facts of the engine's [`Machine`](kiln_ir::Machine): for instance the longest row and the
//! number of tensors that a kernel binds.
//!
//! An engine that computes asynchronously ([`Machine::asynchronous`](kiln_ir::Machine::asynchronous)) gets speculative
//! execution of a predicted plan. A recording that begins like the previous ones then runs while the rest is recorded,
//! and runs again from its start if the prediction is wrong. [`Statistics`] counts both.
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_fusion::{Fusion, Mode};
//! use kiln_ir::{Engine, TensorData, Var, block_on};
//! use std::sync::Arc;
//!
//! let fusion = Fusion::with_mode(Arc::new(Cpu::new()), Mode::On);
//! let x = Var::new(&fusion, fusion.write(TensorData::from([1.0f32, 2.0])));
//! let y = (x.exp() * 2.0 + 1.0).into_value();
//! assert_eq!(fusion.statistics().steps_run, 0, "nothing has run yet");
//! let y = block_on(fusion.read(y)).unwrap().into_vec::<f32>().unwrap();
//! assert_eq!(fusion.statistics().steps_run, 1, "one kernel");
//! # assert!((y[0] - 6.4365635).abs() < 1e-5);
//! ```
//!
//! Each thread records into a queue of its own. A value may be used on any thread; the first reader runs the queue that
//! holds it. `KILN_FUSION` in the environment selects a [`Mode`]: `off`, `on`, `check`; `KILN_PLAN_CACHE_BYTES` limits the
//! size of cached plans ([`Fusion::set_plan_limit`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod cache;
mod check;
mod explain;
mod layer;
mod lazy;
mod limits;
mod lock;
mod loops;
mod mode;
mod plan;
mod queue;
mod record;
mod speculative_run;
#[cfg(feature = "std")]
mod threads;

pub use layer::{Fusion, Statistics};
pub use mode::Mode;
pub use plan::{Plan, Step, StepKind};
