//! Products with a bias and an activation, which the vendor's library computes before it stores them. Where it does not, the product
//! runs alone, and what follows it is a kernel.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Driver, Epilogue};
use crate::strided::begins_aligned;
use kiln_ir::{
    DType, Layout, MAX_RANK, Mixing, Op, Operand, Operands, Program, Result, TensorType, Value, Values,
};
use smallvec::smallvec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Programs that are kept at most; when there are more, all are dropped and read again.
const MOST: usize = 1 << 14;

/// What is known of programs, by their addresses.
#[derive(Default)]
pub(crate) struct Finished(Mutex<HashMap<usize, Known, Mixing>>);

#[derive(Clone)]
struct Known {
    /// Held, so that no other program gets its address.
    _program: Arc<Program>,
    parts: Option<Arc<Parts>>,
}

/// A product and what follows it.
struct Parts {
    epilogue: kiln_kernel::Epilogue,
    rest: Arc<Program>,
    /// The inputs that the rest takes after the product.
    taken: Vec<usize>,
}

impl Finished {
    /// The parts of a program that is a product with what follows it.
    fn parts(&self, program: &Arc<Program>) -> Option<Arc<Parts>> {
        // Such regions begin with their product.
        program.instructions.first().filter(|first| first.op == Op::MatMul)?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        let read = || Known { _program: program.clone(), parts: Parts::of(program).map(Arc::new) };
        known.entry(Arc::as_ptr(program).addr()).or_insert_with(read).parts.clone()
    }
}

impl Parts {
    fn of(program: &Program) -> Option<Parts> {
        let epilogue = kiln_kernel::Epilogue::of(program)?;
        let (rest, taken) = kiln_kernel::Epilogue::rest(program);
        Some(Parts { epilogue, rest: Arc::new(rest), taken })
    }
}

impl<D: Driver> Gpu<D> {
    /// A region that is a product with what follows it; `None` for any other.
    pub(crate) fn run_finished(
        &self,
        program: &Arc<Program>,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Option<Values>> {
        let Some(parts) = self.finished.parts(program) else { return Ok(None) };
        let as_recorded =
            |(operand, ty): (&Operand, &TensorType)| operand.value().is_none_or(|value| value.ty() == ty);
        if !inputs.iter().zip(&program.inputs).all(as_recorded) {
            return Ok(None);
        }
        match self.finish(&parts.epilogue, inputs, results)? {
            Some(values) => Ok(Some(values)),
            None => self.run_apart(&parts, inputs, results).map(Some),
        }
    }

    /// By the vendor's library; `None` where it does not do that, or a kernel is faster.
    fn finish(
        &self,
        epilogue: &kiln_kernel::Epilogue,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Option<Values>> {
        let kiln_kernel::Epilogue { factors, product, bias, activation, numbers } = epilogue;
        let is_number = |(input, number): &(usize, kiln_ir::Scalar)| {
            inputs[*input].scalar().is_some_and(|given| given.to_f64() == number.to_f64())
        };
        let mut factors = factors.map(|input| inputs[input].clone());
        let is_empty = |operand: &Operand| operand.value().is_none_or(|value| value.ty().num_elements() == 0);
        if !numbers.iter().all(is_number) || factors.iter().any(is_empty) {
            return Ok(None);
        }
        let bias = match bias.map(|input| inputs[input].value()) {
            Some(Some(bias)) if is_row::<D>(bias, product.dtype)? => Some(bias),
            Some(_) => return Ok(None),
            None => None,
        };
        let result = self.uninit(&results[0])?;
        let Some(mut products) = self.products(&mut factors, product, &result)? else { return Ok(None) };
        if Self::is_slim(&products) {
            return Ok(None);
        }
        // Held until the step that reads it is queued.
        let row = bias.map(|bias| self.row(bias, product.dtype)).transpose()?;
        let bias = row.as_ref().map(|row| row.at(product.dtype.size()));
        products.epilogue = Epilogue { bias, activation: *activation };
        if !self.multiply(products)? {
            return Ok(None);
        }
        let array = Array { suspicions: suspicions::<D>(inputs), ..result };
        Ok(Some(smallvec![array.into_value(results[0])]))
    }

    /// The product, and then the rest.
    fn run_apart(&self, parts: &Parts, inputs: &Operands, results: &[TensorType]) -> Result<Values> {
        let factors = parts.epilogue.factors.map(|input| inputs[input].clone());
        let product = self.matmul(factors.into_iter().collect(), &[parts.epilogue.product])?;
        let taken = parts.taken.iter().map(|&input| inputs[input].clone());
        let operands: Operands = product.into_iter().map(Operand::Value).chain(taken).collect();
        self.kernel_or_ops(&parts.rest, operands, results)
    }

    /// What begins with the row that is seen many times, in that dtype.
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

/// Whether a tensor is one row that is seen many times, without gaps; one of that dtype must begin where a library may read it.
fn is_row<D: Driver>(bias: &Value, dtype: DType) -> Result<bool> {
    let layout = &Array::<D>::of(bias)?.layout;
    let last = layout.rank() - 1;
    let lies = |axis: usize| layout.shape[axis] <= 1 || layout.strides()[axis] == isize::from(axis == last);
    Ok((0..=last).all(lies) && (bias.dtype() != dtype || begins_aligned(layout, dtype)))
}
