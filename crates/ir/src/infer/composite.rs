//! Inference rules of the named composites.

use super::{Rule, broadcast_shapes};
use crate::{BlockFormat, DType, FftKind, Result, ResultTypes, Shape, TensorType};
use alloc::format;
use smallvec::smallvec;

impl Rule<'_> {
    pub(super) fn softmax(&self, axis: usize) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.float(ty)?;
        self.axis(axis, ty)?;
        Ok(smallvec![*ty])
    }

    pub(super) fn log_sum_exp(&self, axis: usize) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.float(ty)?;
        self.axis(axis, ty)?;
        Ok(smallvec![ty.with_shape(ty.shape.with(axis, 1))])
    }

    pub(super) fn norm(&self, axes: usize) -> Result<ResultTypes> {
        let x = self.tensor(0)?;
        self.float(x)?;
        if axes == 0 || axes > x.rank() {
            return Err(self.error(format!("cannot normalise the last {axes} of {} axes", x.rank())));
        }
        let row = x.with_shape(&x.shape[x.rank() - axes..]);
        for place in 1..self.inputs.len() {
            if *self.tensor(place)? != row {
                return Err(self
                    .error(format!("weight and bias must be {row}"))
                    .hint("they have one element for each element of the axes that are normalised"));
            }
        }
        Ok(smallvec![*x])
    }

    pub(super) fn attention(&self) -> Result<ResultTypes> {
        let [q, k, v] = [self.tensor(0)?, self.tensor(1)?, self.tensor(2)?];
        let mask = if self.inputs.len() == 4 { Some(self.tensor(3)?) } else { None };
        let (y, lse) = self.attended(q, k, v, mask)?;
        Ok(smallvec![y, lse])
    }

    /// The types of the output and of the log-sum-exp.
    fn attended(
        &self,
        q: &TensorType,
        k: &TensorType,
        v: &TensorType,
        mask: Option<&TensorType>,
    ) -> Result<(TensorType, TensorType)> {
        self.float(q)?;
        self.same_dtype(q, k)?;
        self.same_dtype(q, v)?;
        if [q, k, v].iter().any(|ty| ty.rank() != 4) {
            return Err(self.error("needs 4 axes").hint("the axes are [batch, heads, length, dim]"));
        }
        let ([batch, heads, queries], [_, kv_heads, keys]) = (first(q), first(k));
        if q.shape[3] != k.shape[3] {
            return Err(self
                .error("queries and keys differ in dim")
                .hint("their axes are [batch, heads, length, dim]; the last must be equal"));
        }
        if first(k) != first(v) || k.shape[0] != batch {
            return Err(self
                .error("batch, heads and lengths of keys and values must agree")
                .hint("their axes are [batch, heads, length, dim]; only dim may differ, and the batch is that of the queries"));
        }
        if kv_heads == 0 && heads != 0 || kv_heads != 0 && heads % kv_heads != 0 {
            let problem = format!("{heads} heads of queries are not a multiple of {kv_heads} heads of keys");
            return Err(self
                .error(problem)
                .hint("each head of keys serves as many heads of queries: repeat the keys, or change the number of heads"));
        }
        if let Some(mask) = mask {
            self.attention_mask(mask, q.dtype, [batch, heads, queries, keys].into())?;
        }
        let y = q.with_shape(q.shape.with(3, v.shape[3]));
        Ok((y, TensorType::new([batch, heads, queries], q.dtype.accumulator())))
    }

    fn attention_mask(&self, mask: &TensorType, dtype: DType, scores: Shape) -> Result<()> {
        if !mask.dtype.is_bool() && mask.dtype != dtype {
            return Err(self
                .error(format!("the mask must be bool or {dtype}"))
                .hint("a bool mask selects scores; a float mask is added to them"));
        }
        if mask.rank() != 4 || broadcast_shapes(&mask.shape, &scores) != Some(scores) {
            return Err(self
                .error(format!("the mask must broadcast to {scores}"))
                .hint("its axes are [batch, heads, queries, keys], each equal or 1"));
        }
        Ok(())
    }

    pub(super) fn attention_grad(&self) -> Result<ResultTypes> {
        let [grad, q, k, v] = [self.tensor(0)?, self.tensor(1)?, self.tensor(2)?, self.tensor(3)?];
        let [y, lse] = [self.tensor(4)?, self.tensor(5)?];
        let mask = if self.inputs.len() == 7 { Some(self.tensor(6)?) } else { None };
        let (expected_y, expected_lse) = self.attended(q, k, v, mask)?;
        if *grad != expected_y || *y != expected_y || *lse != expected_lse {
            return Err(self
                .error(format!("gradient and output must be {expected_y}, the log-sum-exp {expected_lse}")));
        }
        Ok(smallvec![*q, *k, *v])
    }

    pub(super) fn resize(&self, size: &[usize]) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.float(ty)?;
        if size.is_empty() || ty.rank() != size.len() + 2 {
            return Err(self.error(format!(
                "needs {} axes to resize {} of them",
                size.len() + 2,
                size.len()
            )));
        }
        let mut shape = ty.shape;
        for (axis, &length) in size.iter().enumerate() {
            if ty.shape[axis + 2] == 0 && length != 0 {
                return Err(self.error(format!("axis {} is empty and cannot grow", axis + 2)));
            }
            shape[axis + 2] = length;
        }
        Ok(smallvec![self.sized(shape, ty.dtype)?])
    }

    pub(super) fn fft(&self, kind: FftKind, axis: usize) -> Result<ResultTypes> {
        self.arity(if kind == FftKind::FromReal { 1 } else { 2 })?;
        let re = self.tensor(0)?;
        self.float(re)?;
        self.axis(axis, re)?;
        if self.inputs.len() == 2 && re != self.tensor(1)? {
            return Err(self.error("real and imaginary part differ in type"));
        }
        let length = re.shape[axis];
        let sized = |length| self.sized(re.shape.with(axis, length), re.dtype);
        match kind {
            FftKind::Complex => Ok(smallvec![*re, *re]),
            FftKind::FromReal if length == 0 => Err(self
                .error(format!("axis {axis} has no points"))
                .hint("the transform of a real axis needs at least one: pad it first")),
            FftKind::FromReal => {
                let half = sized(length / 2 + 1)?;
                Ok(smallvec![half, half])
            }
            FftKind::ToReal { points: 0 } => {
                Err(self.error("0 points were requested").hint("a transform needs at least one point"))
            }
            FftKind::ToReal { points } if length != points / 2 + 1 => Err(self
                .error(format!("{points} points need {} frequencies, not {length}", points / 2 + 1))
                .hint("half a spectrum has `points / 2 + 1` elements: cut or pad it first")),
            FftKind::ToReal { points } => Ok(smallvec![sized(points)?]),
        }
    }

    pub(super) fn quantize(&self, dtype: DType) -> Result<ResultTypes> {
        let (x, scale) = (self.tensor(0)?, self.tensor(1)?);
        self.float(x)?;
        self.same_dtype(x, scale)?;
        self.quantized_dtype(dtype)?;
        self.blocks(x, scale)?;
        if self.inputs.len() == 3 {
            self.zero_point(self.tensor(2)?, scale, dtype)?;
        }
        Ok(smallvec![x.with_dtype(dtype)])
    }

    pub(super) fn dequantize(&self) -> Result<ResultTypes> {
        let (q, scale) = (self.tensor(0)?, self.tensor(1)?);
        self.quantized_dtype(q.dtype)?;
        self.float(scale)?;
        self.blocks(q, scale)?;
        if self.inputs.len() == 3 {
            self.zero_point(self.tensor(2)?, scale, q.dtype)?;
        }
        Ok(smallvec![self.sized(q.shape, scale.dtype)?])
    }

    pub(super) fn dequantize_blocks(&self, format: BlockFormat, dtype: DType) -> Result<ResultTypes> {
        let blocks = self.tensor(0)?;
        let elements = self.block_elements(blocks, format)?;
        self.dtype(dtype.is_float(), "a float dtype for the result", dtype)?;
        Ok(smallvec![self.sized(blocks.shape.with(blocks.rank() - 1, elements), dtype)?])
    }

    fn quantized_dtype(&self, dtype: DType) -> Result<()> {
        let ok = matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32);
        self.dtype(ok, "i8, u8, i16, u16 or i32 for quantised values", dtype)
    }

    fn blocks(&self, x: &TensorType, scale: &TensorType) -> Result<()> {
        let divides = |(&length, &blocks): (&usize, &usize)| blocks != 0 && length.is_multiple_of(blocks);
        let empty = x.num_elements() == 0;
        if x.rank() == scale.rank() && (empty || x.shape.iter().zip(scale.shape.iter()).all(divides)) {
            return Ok(());
        }
        Err(self
            .error("the scale does not split the tensor into equal blocks")
            .hint("scale and tensor have the same rank, and each length of the scale divides the tensor's"))
    }

    fn zero_point(&self, zero: &TensorType, scale: &TensorType, dtype: DType) -> Result<()> {
        if *zero == scale.with_dtype(dtype) {
            return Ok(());
        }
        Err(self.error(format!("the zero point must be {}", scale.with_dtype(dtype))))
    }
}

fn first(ty: &TensorType) -> [usize; 3] {
    [ty.shape[0], ty.shape[1], ty.shape[2]]
}
