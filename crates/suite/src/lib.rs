//! One conformance suite for every Kiln engine.
//!
//! An engine is correct when it agrees with the [reference](kiln_reference::Reference), and the reference is correct
//! when it agrees with PyTorch. A tour:
//!
//! * [`cases`] holds tables: every op on every dtype it accepts, on edge shapes, as [`Case`](case::Case)s. [`coverage`]
//!   lists the required variants and shapes; [`fill`] generates the data.
//! * [`check`] holds the checks of a case, as functions over any [`Engine`](kiln_ir::Engine):
//!   [`check_value`](check::check_value) in each memory [`layout`], [`check_grad`](check::check_grad) with finite
//!   differences, [`check_forward`](check::check_forward), [`check_vmap`](check::check_vmap),
//!   [`check_expand`](check::check_expand).
//! * [`engines`] lists the engines under test and their ignored cases; [`run`] runs tables against them;
//!   [`support`] prints the ops that an engine runs; [`foreign`](mod@foreign) has the tests of engines over other libraries.
//! * [`goldens`] reads `goldens/`: PyTorch's results for small inputs. The `README.md` there specifies the files.
//! * [`accuracy`] measures elementary functions against tables of exact values.
//! * The program `bench_core` measures the cost of one eager op, `bench_shapes` that of changing shapes; both print
//!   [`figure`]s.
//!
//! To test another engine, run [`run::values`], [`run::grads`], [`run::forwards`], [`run::batches`] and
//! [`run::expansions`] with a [`Subject`](engines::Subject) of it.
//!
//! ```
//! use kiln_suite::cases::Group;
//! use kiln_suite::check::check_value;
//!
//! let engine = kiln_cpu::Cpu::with_threads(1);
//! let case = &Group::View.cases()[0];
//! assert!(check_value(&engine, case).problems.is_empty());
//! ```
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod case;
pub mod cases;
pub mod check;
pub mod compare;
pub mod coverage;
pub mod engines;
pub mod figure;
pub mod fill;
pub mod foreign;
pub mod goldens;
pub mod layout;
pub mod methods;
pub mod modules;
pub mod report;
pub mod run;
pub mod support;
