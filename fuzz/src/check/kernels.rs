//! Checks that all kernels of a program compile: op by op, fused, and of its gradients. A source that does not compile
//! panics.

use super::{Counts, Failure, Subjects, fused};
use crate::shrink::edit;
use crate::trace::{Ownership, trace};
use crate::trial::Trial;

pub(super) fn check(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    for trial in [edit::inlined_all(trial).as_ref(), Some(trial)].into_iter().flatten() {
        trace(&*subjects.one, trial, Ownership::Passed);
        counts.ops += trial.program.instructions.len() as u64;
    }
    fused::run_all(trial, subjects);
    Ok(())
}
