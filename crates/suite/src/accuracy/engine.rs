//! The measured engines.

use crate::engines::reference;
use kiln_cpu::Cpu;
use kiln_ir::{Engine, Expand};
use std::sync::Arc;

/// A measured engine, if this machine supports it.
#[derive(Clone, Copy)]
pub struct Subject {
    /// Its name in the record and on the page.
    pub name: &'static str,
    /// Opens it; `None` where the processor lacks the instructions.
    pub open: fn() -> Option<Arc<dyn Engine>>,
}

/// The reference, and the CPU engine with each instruction set.
pub const SUBJECTS: [Subject; 4] = [
    Subject { name: "reference", open: || Some(Arc::new(reference())) },
    Subject { name: "cpu scalar", open: || cpu("scalar") },
    Subject { name: "cpu avx2", open: || cpu("avx2") },
    Subject { name: "cpu avx512", open: || cpu("avx512") },
];

fn cpu(instructions: &str) -> Option<Arc<dyn Engine>> {
    Some(Arc::new(Expand::new(Cpu::with_threads(1).with_instructions(instructions)?)))
}
