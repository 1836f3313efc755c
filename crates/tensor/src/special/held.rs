//! The precision in which a layer of mixed precision holds a value.

use crate::{AnyTensor, Result};
use alloc::vec::Vec;
use kiln_ir::{Custom, CustomOp, DType, Op, OperandType, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// A tensor as it is, which a layer of mixed precision holds as it holds another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldAs;

impl HeldAs {
    pub(super) const NAME: &str = "held_as";
    /// The operand whose precision counts.
    const LIKE: usize = 1;
}

impl AnyTensor {
    /// The same numbers, held in 16 bits where a layer of mixed precision holds `like` so. See
    /// [`module::held_as`](crate::module::held_as).
    pub fn held_as(self, like: &AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain(HeldAs::NAME, like)?;
        if self.dtype() != DType::F32 || !self.stack().engine().mixes_precision() {
            return Ok(self);
        }
        let like = like.clone().into_value();
        self.apply_with(&Op::Custom(Custom::new(HeldAs)), [like.into()])
    }
}

impl CustomOp for HeldAs {
    fn name(&self) -> &str {
        HeldAs::NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let types: Vec<_> = inputs.iter().filter_map(|input| input.tensor()).collect();
        if let [x, like] = types[..]
            && x.dtype.is_float()
            && x.dtype == like.dtype
        {
            return Ok(smallvec![*x]);
        }
        Err(kiln_ir::Error::type_error(HeldAs::NAME, "takes two tensors of one float dtype", inputs))
    }

    fn batched(&self) -> Option<Custom> {
        Some(Custom::new(HeldAs))
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn held_as(&self) -> Option<usize> {
        Some(HeldAs::LIKE)
    }

    fn saved(&self) -> Saved {
        Saved::NONE
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(alloc::vec![inputs[0].clone()])
    }

    fn vjp<'e>(
        &self,
        _: &[Var<'e>],
        _: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        Some(Ok(alloc::vec![gradients[0].clone(), None]))
    }
}
