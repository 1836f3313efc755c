//! Operator fusion: a layer records ops lazily and runs neighbours as one kernel.
//!
//! [`Fusion`] is a layer: an [`Engine`](kiln_ir::Engine) around another. It answers every op at once with values that are
//! not computed yet. When one of them is read, everything recorded runs, in this order:
//!
//! 1. The structure of what was recorded (ops, which result feeds which operand, types, and which values are still
//!    alive; not the numbers, which may change from step to step) is looked up among the plans made before. A training
//!    step after the first finds its plan.
//! 2. Otherwise a [plan](Plan) is made: ops whose results nobody can see are left out, neighbours that one kernel can run
//!    become one [`Op::Fused`](kiln_ir::Op::Fused), and each value is passed on by value at its last use, so that the engine
//!    below overwrites or frees its memory.
//! 3. The plan runs on the engine below. What fused regions mean is the program that they hold: an engine that does not
//!    compile them runs them op by op.
//!
//! Whether a value is alive is seen when the plan is looked up: one that was dropped before is never stored. What begins as the
//! last recordings did is only compared with their plan as it comes, and written down once it differs.
//!
//! Plans depend on the facts of the engine's [`Machine`](kiln_ir::Machine): how long rows may be, for instance, and how many
//! tensors a kernel binds.
//!
//! An engine that computes while the program goes on ([`Machine::asynchronous`](kiln_ir::Machine::asynchronous)) gets a head
//! start: what begins as the last recordings did then runs while the rest is
//! recorded, and runs once more from its start if the rest turns out to be another. [`Statistics`] counts both.
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
//! Each thread records into a queue of its own; a value may be used on any thread, and whoever needs it first runs the
//! queue that holds it. `KILN_FUSION` in the environment switches between [`Mode`]s: `off`, `on`, `check`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod cache;
mod check;
mod explain;
mod head_start;
mod layer;
mod lazy;
mod limits;
mod lock;
mod mode;
mod plan;
mod queue;
mod record;
#[cfg(feature = "std")]
mod threads;

pub use layer::{Fusion, Statistics};
pub use mode::Mode;
pub use plan::{Plan, Step, StepKind};
