//! The checks and operands that each result of a region depends on.

use crate::array::suspicions;
use crate::driver::Driver;
use crate::suspicion::{Suspicion, Suspicions};
use kiln_ir::{Operands, Program, ProgramOperand};
use kiln_kernel::{Check, Kernel, Launch};

/// The checks and operands that a result depends on.
pub(super) struct Sources {
    pub(super) checks: Vec<bool>,
    pub(super) operands: Vec<bool>,
}

impl Sources {
    /// The deferred bounds-check flags of the result. `of_all` holds the flags of all operands.
    pub(super) fn suspicions<D: Driver>(
        &self,
        inputs: &Operands,
        of_all: &Suspicions<D>,
        own: &[Suspicion<D>],
    ) -> Suspicions<D> {
        let mut found = if of_all.is_empty() || self.operands.iter().all(|&is_source| is_source) {
            of_all.clone()
        } else {
            suspicions::<D>(inputs.iter().zip(&self.operands).filter(|(_, is)| **is).map(|(x, _)| x))
        };
        own.iter().zip(&self.checks).filter(|(_, is)| **is).for_each(|(word, _)| found.push(word));
        found
    }
}

/// For each check, whether the kernel's result at a place depends on it.
pub(super) fn checks_of(kernel: &Kernel, launch: &Launch, checks: &[Check], place: usize) -> Vec<bool> {
    let is_stored = |param: u32| launch.bindings[param as usize].place == place;
    let mut is_source = vec![false; kernel.body.len()];
    for (number, instruction) in kernel.body.iter().enumerate().rev() {
        if is_source[number] || instruction.compute.store().is_some_and(|(param, _)| is_stored(param)) {
            instruction.compute.operands().iter().for_each(|&operand| is_source[operand as usize] = true);
        }
    }
    checks.iter().map(|check| is_source[check.value as usize]).collect()
}

/// For each output of a program, the inputs that it depends on.
pub(super) fn operands_of(program: &Program) -> Vec<Vec<bool>> {
    let inputs = program.inputs.len();
    let mut sources: Vec<Vec<bool>> = (0..inputs).map(|i| (0..inputs).map(|j| i == j).collect()).collect();
    let joined = |sources: &[Vec<bool>], operands: &[ProgramOperand]| {
        let mut all = vec![false; inputs];
        for operand in operands {
            if let ProgramOperand::Slot(slot) = operand {
                all.iter_mut().zip(&sources[*slot]).for_each(|(all, one)| *all |= one);
            }
        }
        all
    };
    for instruction in &program.instructions {
        let of_results = joined(&sources, &instruction.operands);
        sources.extend(instruction.results.iter().map(|_| of_results.clone()));
    }
    program.outputs.iter().map(|output| joined(&sources, core::slice::from_ref(output))).collect()
}
