//! Matmuls with a fused bias and activation, by the epilogue of the vendor's BLAS. Where the library lacks the epilogue, the matmul
//! runs alone, and a fused kernel applies bias and activation.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{self, Driver};
use crate::strided::begins_aligned;
use kiln_ir::{
    DType, Epilogue, FusedOp, FxBuildHasher, Instruction, Layout, MAX_RANK, OpKind, OpSet, Operand, Operands,
    Pattern, Program, ProgramOperand, Result, Scalar, TensorType, Value, Values,
};
use smallvec::smallvec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of cached programs; beyond it all are dropped and derived again.
const MOST: usize = 1 << 14;

/// The cache of programs after the matmuls of regions, by the addresses of the regions' programs.
#[derive(Default)]
pub(crate) struct EpilogueCache(Mutex<HashMap<usize, CacheEntry, FxBuildHasher>>);

/// An entry of [`EpilogueCache`].
struct CacheEntry {
    /// Keeps the address from being reused by another program.
    _program: Arc<Program>,
    epilogue: Arc<EpilogueProgram>,
}

/// The ops of a region after its matmul, as a program.
struct EpilogueProgram {
    program: Arc<Program>,
    /// The region inputs that these ops read.
    taken: Vec<usize>,
}

impl EpilogueCache {
    fn program(&self, fused: &FusedOp, epilogue: &Epilogue) -> Arc<EpilogueProgram> {
        let program = fused.shared();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        let make = || CacheEntry {
            _program: program.clone(),
            epilogue: Arc::new(EpilogueProgram::new(program, epilogue)),
        };
        known.entry(Arc::as_ptr(program).addr()).or_insert_with(make).epilogue.clone()
    }
}

impl EpilogueProgram {
    fn new(region: &Program, epilogue: &Epilogue) -> EpilogueProgram {
        let count = region.inputs.len();
        let product = epilogue.product - count;
        let others = region.instructions.iter().enumerate().filter(|(number, _)| *number != product);
        let rest: Vec<&Instruction> = others.map(|(_, instruction)| instruction).collect();
        let mut taken: Vec<usize> = Vec::new();
        for operand in rest.iter().flat_map(|instruction| &instruction.operands) {
            if let ProgramOperand::Slot(slot) = *operand
                && slot < count
                && !taken.contains(&slot)
            {
                taken.push(slot);
            }
        }
        let first = product_type(region, epilogue);
        let inputs: Vec<TensorType> =
            core::iter::once(first).chain(taken.iter().map(|&input| region.inputs[input])).collect();
        // The new slot of each value; the matmul's result is the first input.
        let mut next = inputs.len();
        let mut places: Vec<usize> = (0..count)
            .map(|slot| taken.iter().position(|&input| input == slot).map_or(0, |place| place + 1))
            .collect();
        for number in 0..region.instructions.len() {
            places.push(if number == product { 0 } else { next });
            next += usize::from(number != product);
        }
        let moved = |operand: &ProgramOperand| match *operand {
            ProgramOperand::Slot(slot) => ProgramOperand::Slot(places[slot]),
            ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(scalar),
        };
        let instructions = rest.iter().map(|instruction| Instruction {
            op: instruction.op.clone(),
            operands: instruction.operands.iter().map(moved).collect(),
            results: instruction.results.clone(),
        });
        let instructions = instructions.collect();
        let outputs = region.outputs.iter().map(moved).collect();
        EpilogueProgram { program: Arc::new(Program { inputs, instructions, outputs }), taken }
    }
}

/// The type of the matmul's result; each instruction of such a region has one result.
fn product_type(region: &Program, epilogue: &Epilogue) -> TensorType {
    region.instructions[epilogue.product - region.inputs.len()].results[0]
}

/// The ops whose results depend on the order of a sum, which differs between their kernels.
const SUMS: OpSet = OpSet::of(&[
    OpKind::Reduce,
    OpKind::Scan,
    OpKind::Softmax,
    OpKind::LogSumExp,
    OpKind::Norm,
    OpKind::MatMul,
    OpKind::MatMulFloat8,
    OpKind::MatMulBlocks,
    OpKind::Conv,
    OpKind::Attention,
    OpKind::AttentionGrad,
]);

impl<D: Driver> Gpu<D> {
    /// Runs a region by the vendor's library, as one kernel, or op by op.
    pub(crate) fn fused(&self, fused: &FusedOp, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        // Alone, each of these ops has its own order of summation, whatever is recorded around it.
        if self.deterministic && fused.program().kinds().intersection(SUMS) != OpSet::default() {
            return Ok(fused.program().run_region(self, inputs));
        }
        let as_recorded =
            |(operand, ty): (&Operand, &TensorType)| operand.value().is_none_or(|value| value.ty() == ty);
        match fused.pattern() {
            Pattern::Epilogue(epilogue) if inputs.iter().zip(&fused.program().inputs).all(as_recorded) => {
                match self.finish(fused, epilogue, &inputs, results)? {
                    Some(values) => Ok(values),
                    None => self.run_apart(fused, epilogue, &inputs, results),
                }
            }
            Pattern::Epilogue(_) | Pattern::QuantizedMatMul(_) | Pattern::Loop => {
                self.kernel_or_ops(fused.shared(), inputs, results)
            }
        }
    }

    /// Runs a region by the library's matmul with epilogue; `None` if there is no library that supports it, or a kernel
    /// is faster.
    fn finish(
        &self,
        fused: &FusedOp,
        epilogue: &Epilogue,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Option<Values>> {
        let Epilogue { product: _, factors, bias, activation, numbers } = epilogue;
        let product = product_type(fused.program(), epilogue);
        let is_number = |(input, number): &(usize, Scalar)| {
            inputs[*input].scalar().is_some_and(|given| given.to_f64() == number.to_f64())
        };
        let mut factors = factors.map(|input| inputs[input].clone());
        let is_empty = |operand: &Operand| operand.value().is_none_or(|value| value.ty().num_elements() == 0);
        if self.driver.library().is_none() || !numbers.iter().all(is_number) || factors.iter().any(is_empty) {
            return Ok(None);
        }
        let bias = match bias.map(|input| inputs[input].value()) {
            Some(Some(bias)) if is_row::<D>(bias, product.dtype)? => Some(bias),
            Some(_) => return Ok(None),
            None => None,
        };
        let result = self.uninit(&results[0])?;
        let Some(mut products) = self.products(&mut factors, &product, &result)? else { return Ok(None) };
        if Self::is_slim(&products) {
            return Ok(None);
        }
        // The row must stay allocated until the step that reads it is queued.
        let row = bias.map(|bias| self.row(bias, product.dtype)).transpose()?;
        let bias = row.as_ref().map(|row| row.at(product.dtype.size()));
        products.epilogue = driver::Epilogue { bias, activation: *activation };
        if !self.multiply(products)? {
            return Ok(None);
        }
        let array = Array { suspicions: suspicions::<D>(inputs), ..result };
        Ok(Some(smallvec![array.into_value(results[0])]))
    }

    /// Runs the matmul, and then the remaining ops as a kernel.
    fn run_apart(
        &self,
        fused: &FusedOp,
        epilogue: &Epilogue,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let rest = self.finished.program(fused, epilogue);
        let factors = epilogue.factors.map(|input| inputs[input].clone());
        let product =
            self.matmul(factors.into_iter().collect(), &[product_type(fused.program(), epilogue)])?;
        let taken = rest.taken.iter().map(|&input| inputs[input].clone());
        let operands: Operands = product.into_iter().map(Operand::Value).chain(taken).collect();
        self.kernel_or_ops(&rest.program, operands, results)
    }

    /// The first row of a broadcast bias, cast to the dtype.
    fn row(&self, bias: &Value, dtype: DType) -> Result<Array<D>> {
        let array = Array::<D>::of(bias)?;
        if bias.dtype() == dtype {
            return Ok(array.clone());
        }
        let mut strides = [0; MAX_RANK];
        strides[0] = 1;
        let length = bias.shape()[bias.shape().rank() - 1];
        let first = array.with_layout(Layout::strided([length].into(), strides, array.layout.offset));
        let first = first.into_value(TensorType::new([length], bias.dtype()));
        Ok(Array::of(&self.cast(&Operand::Value(first), dtype)?)?.clone())
    }
}

/// Whether a tensor is one contiguous row, broadcast. A row of the given dtype must also be aligned for libraries.
fn is_row<D: Driver>(bias: &Value, dtype: DType) -> Result<bool> {
    let layout = &Array::<D>::of(bias)?.layout;
    let last = layout.rank() - 1;
    let lies = |axis: usize| layout.shape[axis] <= 1 || layout.strides()[axis] == isize::from(axis == last);
    Ok((0..=last).all(lies) && (bias.dtype() != dtype || begins_aligned(layout, dtype)))
}
