//! `KILN_FUSION=check`: every region also runs op by op, and the results are compared.

use crate::lock::Mutex;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    DType, Engine, Error, FusedOp, Op, Operands, Program, ProgramOperand, TensorData, TensorType, Values,
    poisoned, try_block_on,
};

/// Comparisons whose results cannot be read yet: in a browser, no thread may wait for the device. A read awaits them.
#[derive(Default)]
pub(crate) struct Comparisons(Mutex<Vec<Arc<Comparison>>>);

impl Comparisons {
    /// Runs a region both fused and op by op; poisons the results where they differ, or leaves that to the next read.
    pub(crate) fn run(
        &self,
        engine: &dyn Engine,
        op: &Op,
        operands: Operands,
        results: &[TensorType],
    ) -> Values {
        let Op::Fused(region) = op else { return engine.execute(op, operands, results) };
        let comparison = Comparison {
            region: region.clone(),
            values: engine.execute(op, operands.clone(), results),
            expected: region.program().run_region(engine, operands.clone()),
            operands,
        };
        match try_block_on(comparison.verify(engine)) {
            Some(Ok(())) => comparison.values,
            Some(Err(error)) => poisoned(results, &error),
            None => {
                let values = comparison.values.clone();
                self.0.lock().push(Arc::new(comparison));
                values
            }
        }
    }

    /// Compares the results that were not read yet. A comparison that fails is repeated by each later call.
    ///
    /// # Errors
    /// When results differ.
    pub(crate) async fn verify(&self, engine: &dyn Engine) -> Result<(), Error> {
        let left = self.0.lock().clone();
        for comparison in left {
            comparison.verify(engine).await?;
            self.0.lock().retain(|other| !Arc::ptr_eq(other, &comparison));
        }
        Ok(())
    }
}

/// The results of a region as one kernel, and op by op.
struct Comparison {
    region: FusedOp,
    operands: Operands,
    values: Values,
    expected: Values,
}

impl Comparison {
    /// # Errors
    /// When results differ.
    async fn verify(&self, engine: &dyn Engine) -> Result<(), Error> {
        match first_difference(engine, &self.values, &self.expected).await {
            Ok(None) => Ok(()),
            Ok(Some(place)) => Err(located(engine, self.region.program(), &self.operands, place).await),
            // Both runs fail, or a value cannot be read: the program gets the region's own error.
            Err(_) => Ok(()),
        }
    }
}

/// The index of the first result that differs.
///
/// # Errors
/// When a result has no data.
async fn first_difference(
    engine: &dyn Engine,
    values: &Values,
    expected: &Values,
) -> Result<Option<usize>, Error> {
    for (place, (value, expected)) in values.iter().zip(expected).enumerate() {
        let exact = engine.caps().machine.exact_regions;
        if !agree(&engine.read(value.clone()).await?, &engine.read(expected.clone()).await?, exact) {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// The error for a region with a differing result. It names the first op whose value differs when the region is cut
/// after it.
async fn located(engine: &dyn Engine, program: &Program, operands: &Operands, place: usize) -> Error {
    for number in 0..program.instructions.len() {
        let Some(cut) = prefix_program(program, number) else { continue };
        let ty = cut.instructions[number].results[0];
        let expected = cut.run_region(engine, operands.clone());
        let values = engine.execute(&Op::Fused(FusedOp::new(cut)), operands.clone(), &[ty]);
        if let Ok(Some(_)) = first_difference(engine, &values, &expected).await {
            let name = program.instructions[number].op.name();
            let problem = format!(
                "as one kernel, op {number} ({name}) of the region below differs from the op by itself\n{program}"
            );
            return Error::value("fusion", problem).hint("this is a bug in Kiln; KILN_FUSION=off avoids it");
        }
    }
    let problem = format!(
        "as one kernel, result {place} of the region below differs, but no op of it alone\n{program}"
    );
    Error::value("fusion", problem).hint("this is a bug in Kiln; KILN_FUSION=off avoids it")
}

/// The region up to an instruction, which becomes its only result.
fn prefix_program(program: &Program, number: usize) -> Option<Program> {
    let instruction = program.instructions.get(number)?;
    if instruction.results.len() != 1 || instruction.op.is_view() {
        return None;
    }
    let before: usize = program.instructions[..number].iter().map(|i| i.results.len()).sum();
    Some(Program {
        inputs: program.inputs.clone(),
        instructions: program.instructions[..=number].to_vec(),
        outputs: alloc::vec![ProgramOperand::Slot(program.inputs.len() + before)],
    })
}

/// Whether two tensors agree: in their numbers if regions are exact, otherwise within the tolerance for a different
/// summation order and for unrounded 16-bit intermediates.
fn agree(a: &TensorData, b: &TensorData, exact: bool) -> bool {
    if a.ty() != b.ty() {
        return false;
    }
    let tolerances = [(DType::F64, 1e-9), (DType::F32, 2e-4), (DType::F16, 2e-2), (DType::BF16, 1e-1)];
    let Some((_, tolerance)) = tolerances.into_iter().find(|(dtype, _)| *dtype == a.dtype()) else {
        return a == b;
    };
    let (a, b): (Vec<f64>, Vec<f64>) = (a.to_vec(), b.to_vec());
    let greatest = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |greatest, x| greatest.max(x.abs()));
    a.iter().zip(&b).all(|(&a, &b)| {
        (a == b && !exact)
            || a.to_bits() == b.to_bits()
            || (a.is_nan() && b.is_nan())
            || !exact && (a - b).abs() <= tolerance * (b.abs() + 1e-2 * greatest + 1e-3)
    })
}
