//! The precision in which a mixed-precision layer stores a value.

use crate::{AnyTensor, Result};
use alloc::vec::Vec;
use kiln_ir::{Custom, CustomOp, DType, Op, OperandType, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// An unchanged tensor, which a mixed-precision layer stores in the precision of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchPrecision;

impl MatchPrecision {
    pub(super) const NAME: &str = "match_precision";
    /// The index of the operand whose precision is matched.
    const LIKE: usize = 1;
}

impl AnyTensor {
    /// Returns the tensor unchanged, stored in 16 bits if a mixed-precision layer stores `like` in 16 bits. See
    /// [`module::match_precision`](crate::module::match_precision).
    ///
    /// # Errors
    /// On a stack with mixed precision, when the tensor is `f32` and `like` is not.
    pub fn match_precision(self, like: &AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain(MatchPrecision::NAME, like)?;
        if self.dtype() != DType::F32 || !self.stack().engine().mixes_precision() {
            return Ok(self);
        }
        let like = like.clone().into_value();
        self.apply_with(&Op::Custom(Custom::new(MatchPrecision)), [like.into()])
    }
}

impl CustomOp for MatchPrecision {
    fn name(&self) -> &str {
        MatchPrecision::NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let types: Vec<_> = inputs.iter().filter_map(|input| input.tensor()).collect();
        if let [x, like] = types[..]
            && x.dtype.is_float()
            && x.dtype == like.dtype
        {
            return Ok(smallvec![*x]);
        }
        Err(kiln_ir::Error::type_error(
            MatchPrecision::NAME,
            "expects two tensors of one float dtype",
            inputs,
        ))
    }

    fn batched(&self) -> Option<Custom> {
        Some(Custom::new(MatchPrecision))
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn match_precision(&self) -> Option<usize> {
        Some(MatchPrecision::LIKE)
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
