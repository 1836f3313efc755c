//! Inference rules of creation ops and elementwise ops.

use super::Rule;
use crate::{Binary, DType, Domain, OperandType, RandomKind, Result, ResultTypes, Scalar, TensorType, Unary};
use alloc::format;
use smallvec::smallvec;

impl<'a> Rule<'a> {
    pub(super) fn full(&self, ty: &TensorType) -> Result<ResultTypes> {
        match self.inputs[0] {
            OperandType::Scalar(scalar) => self.scalar_fits(scalar, ty.dtype)?,
            OperandType::Tensor(_) => return Err(self.error("the fill value must be a number")),
        }
        Ok(smallvec![self.sized(ty.shape, ty.dtype)?])
    }

    pub(super) fn iota(&self, ty: &TensorType, axis: usize) -> Result<ResultTypes> {
        self.number(ty)?;
        self.axis(axis, ty)?;
        Ok(smallvec![self.sized(ty.shape, ty.dtype)?])
    }

    pub(super) fn random(&self, ty: &TensorType, kind: RandomKind) -> Result<ResultTypes> {
        match self.inputs[0] {
            OperandType::Scalar(Scalar::Int(_) | Scalar::UInt(_)) => {}
            OperandType::Tensor(key) if key.dtype == DType::U64 && key.rank() == 0 => {}
            OperandType::Scalar(Scalar::Float(_) | Scalar::Bool(_)) | OperandType::Tensor(_) => {
                return Err(self.error("the key must be an integer or a u64 tensor without axes"));
            }
        }
        match kind {
            RandomKind::Bits => self.dtype(ty.dtype.is_int(), "an integer dtype", ty.dtype)?,
            RandomKind::Uniform | RandomKind::Normal => self.float(ty)?,
        }
        Ok(smallvec![self.sized(ty.shape, ty.dtype)?])
    }

    pub(super) fn unary(&self, function: Unary) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.in_domain(function.info().domain, ty)?;
        Ok(smallvec![*ty])
    }

    pub(super) fn binary(&self, function: Binary) -> Result<ResultTypes> {
        let ty = self.pair(self.inputs[0], self.inputs[1])?;
        self.in_domain(function.info().domain, ty)?;
        Ok(smallvec![*ty])
    }

    fn in_domain(&self, domain: Domain, ty: &TensorType) -> Result<()> {
        self.dtype(domain.contains(ty.dtype), domain.name(), ty.dtype)
    }

    pub(super) fn compare(&self) -> Result<ResultTypes> {
        let ty = self.pair(self.inputs[0], self.inputs[1])?;
        Ok(smallvec![ty.with_dtype(DType::Bool)])
    }

    pub(super) fn select(&self) -> Result<ResultTypes> {
        let condition = self.tensor(0)?;
        self.dtype(condition.dtype.is_bool(), "a bool condition", condition.dtype)?;
        let ty = self.pair(self.inputs[1], self.inputs[2])?;
        if ty.shape != condition.shape {
            return Err(self.error("shapes differ").hint("broadcast the operands to one shape first"));
        }
        Ok(smallvec![*ty])
    }

    pub(super) fn cast(&self, dtype: DType) -> Result<ResultTypes> {
        let ty = self.only()?;
        Ok(smallvec![self.sized(ty.shape, dtype)?])
    }

    pub(super) fn bitcast(&self, dtype: DType) -> Result<ResultTypes> {
        let ty = self.only()?;
        if ty.dtype.is_bool() || dtype.is_bool() {
            return Err(self.error("bool has no bits to reinterpret").hint("use cast"));
        }
        if ty.dtype.size() != dtype.size() {
            return Err(self.error(format!("{} and {dtype} differ in size", ty.dtype)).hint("use cast"));
        }
        Ok(smallvec![ty.with_dtype(dtype)])
    }

    /// The common type of two operands of which at most one is a scalar.
    fn pair(&self, a: OperandType<'a>, b: OperandType<'a>) -> Result<&'a TensorType> {
        match (a, b) {
            (OperandType::Tensor(a), OperandType::Tensor(b)) => {
                self.same_dtype(a, b)?;
                if a.shape != b.shape {
                    return Err(self.error("shapes differ").hint(
                        "shapes must be equal, or broadcast: aligned at the last axis, lengths equal or 1",
                    ));
                }
                Ok(a)
            }
            (OperandType::Tensor(ty), OperandType::Scalar(scalar))
            | (OperandType::Scalar(scalar), OperandType::Tensor(ty)) => {
                self.scalar_fits(scalar, ty.dtype)?;
                Ok(ty)
            }
            (OperandType::Scalar(_), OperandType::Scalar(_)) => {
                Err(self.error("two plain numbers have no shape").hint("pass one operand as a tensor"))
            }
        }
    }
}
