//! The precision in which a mixed-precision layer stores a value.

use super::Function;
use crate::{AnyTensor, Result};
use alloc::vec::Vec;
use kiln_ir::{DType, OperandType, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// An unchanged tensor, which a mixed-precision layer stores in the precision of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchPrecision;

/// The name of [`MatchPrecision`].
pub(super) const NAME: &str = "match_precision";

impl AnyTensor {
    /// Returns the tensor unchanged, stored in 16 bits if a mixed-precision layer stores `like` in 16 bits. See
    /// [`module::match_precision`](crate::module::match_precision).
    ///
    /// # Errors
    /// On a stack with mixed precision, when the tensor is `f32` and `like` is not.
    pub fn match_precision(self, like: &AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain(NAME, like)?;
        if self.dtype() != DType::F32 || !self.stack().engine().mixes_precision() {
            return Ok(self);
        }
        let like = like.clone().into_value();
        self.apply_with(&MatchPrecision.op(), [like.into()])
    }
}

impl Function for MatchPrecision {
    const IS_EXPRESSION: bool = true;
    const SAVED: Saved = Saved::NONE;
    const MATCH_PRECISION: Option<usize> = Some(1);

    fn name(&self) -> &str {
        NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let types: Vec<_> = inputs.iter().filter_map(|input| input.tensor()).collect();
        if let [x, like] = types[..]
            && x.dtype.is_float()
            && x.dtype == like.dtype
        {
            return Ok(smallvec![*x]);
        }
        Err(kiln_ir::Error::type_error(NAME, "expects two tensors of one float dtype", inputs))
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        inputs[0].clone()
    }

    fn gradients<'e>(&self, _: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        alloc::vec![Some(g.clone()), None]
    }
}
