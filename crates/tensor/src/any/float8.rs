//! 8-bit floats. The typed functions are in [`float8`](mod@crate::float8).

use crate::any::formula::widened;
use crate::any::quantize::nonzero;
use crate::{AnyTensor, DType, Result};
use alloc::vec::Vec;
use kiln_ir::{Custom, CustomOp, Error, Float8, Op, OperandType, Reduction, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// 8-bit floats with their scale.
#[derive(Clone, Debug)]
pub struct Float8Tensor {
    /// The bits, `u8`, in the tensor's shape.
    pub bits: AnyTensor,
    /// The factor of the decoded values: a scalar in `f32`.
    pub scale: AnyTensor,
    /// The 8-bit float format of the bits.
    pub format: Float8,
}

impl AnyTensor {
    /// Rounds to 8-bit floats, and returns their bits as `u8`. See [`float8::encode`](crate::float8::encode).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn encode_float8(self, format: Float8) -> Result<AnyTensor> {
        self.check_float("encode")?;
        Ok(self.constant().expression(|x| format.encoded(&x)))
    }

    /// Decodes the bits of 8-bit floats to a float dtype. See [`float8::decode`](crate::float8::decode).
    ///
    /// # Errors
    /// When the bits are not `u8`.
    pub fn decode_float8(self, format: Float8, dtype: DType) -> Result<AnyTensor> {
        if self.dtype() != DType::U8 {
            return Err(self.wrong("decode", "needs bits in u8").hint("encode a tensor of floats first"));
        }
        self.expression(|bits| format.decoded(&bits)).cast(dtype)
    }

    /// Quantises to 8-bit floats with a scale that maps the greatest magnitude to the format's greatest value. See
    /// [`float8::quantize`](crate::float8::quantize).
    ///
    /// # Errors
    /// As [`encode_float8`](AnyTensor::encode_float8).
    pub fn quantize_float8(self, format: Float8) -> Result<Float8Tensor> {
        self.check_float("quantize")?;
        let x = self.constant();
        let scale = x.clone().expression(|x| scale(&x, format));
        let bits = x.expression_with([scale.clone()], |x, [scale]| scaled_bits(&x, &scale, format));
        Ok(Float8Tensor { bits, scale, format })
    }

    /// Computes the matmul of both tensors in 8-bit floats, forward and backward. See
    /// [`float8::matmul`](crate::float8::matmul).
    ///
    /// # Errors
    /// When a tensor has fewer than two axes, the inner sizes differ, the batch axes do not broadcast, or the tensors
    /// are not of one float dtype.
    pub fn matmul_float8(self, other: AnyTensor) -> Result<AnyTensor> {
        const OP: &str = MatMulAsFloat8::NAME;
        self.in_same_domain(OP, &other)?;
        self.check_rank(OP, 2, "[.., rows, columns]")?;
        other.check_rank(OP, 2, "[.., rows, columns]")?;
        let (left, right) = (*self.shape(), *other.shape());
        let m = left.rank();
        if right.rank() == 2 && m > 2 {
            // One matrix for all rows: the batch axes are merged into the rows.
            let rows: usize = left[..m - 1].iter().product();
            let product = self.reshape([rows, left[m - 1]])?.matmul_float8(other)?;
            return product.reshape(left.with(m - 1, right[1]));
        }
        let (a, b) = self.with_same_batch(other)?;
        a.apply_with(&Op::Custom(Custom::new(MatMulAsFloat8)), [b.into_value().into()])
    }
}

impl Float8Tensor {
    /// Dequantises to a float dtype. See [`float8::dequantize`](crate::float8::dequantize).
    ///
    /// # Errors
    /// When bits or scale have the wrong dtype or shape.
    pub fn dequantize(self, dtype: DType) -> Result<AnyTensor> {
        self.bits.in_same_domain("dequantize", &self.scale)?;
        let numbers = self.bits.decode_float8(self.format, DType::F32)?;
        let scaled = numbers.expression_with([self.scale], |x, [scale]| &x * scale.broadcast(x.shape()));
        scaled.cast(dtype)
    }

    /// Swaps the last two axes, without a copy.
    ///
    /// # Errors
    /// With fewer than two axes.
    pub fn transpose(self) -> Result<Float8Tensor> {
        Ok(Float8Tensor { bits: self.bits.transpose()?, ..self })
    }

    /// Computes the matmul, in a float dtype; the batch axes must be equal. See
    /// [`float8::matmul_quantized`](crate::float8::matmul_quantized).
    ///
    /// # Errors
    /// When the shapes are incompatible, or bits or scales have the wrong dtype or shape.
    pub fn matmul(self, other: Float8Tensor, dtype: DType) -> Result<AnyTensor> {
        let op = Op::MatMulFloat8 { formats: [self.format, other.format], dtype: added(dtype) };
        self.bits.in_same_domain(op.name(), &other.bits)?;
        let rest = [other.bits, self.scale, other.scale].map(|any| any.into_value().into());
        self.bits.apply_with(&op, rest)?.cast(dtype)
    }
}

/// Returns the scale of a tensor: its greatest magnitude over the format's. The scale of an all-zero tensor is 1.
fn scale<'e>(x: &Var<'e>, format: Float8) -> Var<'e> {
    let all: Vec<usize> = (0..x.rank()).collect();
    let magnitude = x.abs();
    let greatest = if all.is_empty() { magnitude } else { magnitude.reduce(Reduction::Max, &all) };
    nonzero(&(widened(&greatest.reshape([])).cast(DType::F32) / f64::from(format.greatest())))
}

/// Returns the bits of a tensor divided by its scale.
fn scaled_bits<'e>(x: &Var<'e>, scale: &Var<'e>, format: Float8) -> Var<'e> {
    format.encoded(&(widened(x).cast(DType::F32) / scale.broadcast(x.shape())))
}

/// A matmul of floats in 8-bit floats: operands in E4M3 and output gradients in E5M2, each with a scale by its greatest
/// magnitude.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatMulAsFloat8;

impl MatMulAsFloat8 {
    pub(crate) const NAME: &str = "matmul_as_float8";
}

/// Computes the matmul of two tensors in these formats.
fn product<'e>(a: &Var<'e>, b: &Var<'e>, formats: [Float8; 2]) -> Var<'e> {
    let [scale_a, scale_b] = [scale(a, formats[0]), scale(b, formats[1])];
    let bits = [scaled_bits(a, &scale_a, formats[0]), scaled_bits(b, &scale_b, formats[1])];
    let op = Op::MatMulFloat8 { formats, dtype: added(a.dtype()) };
    bits[0].apply(op, &[&bits[1], &scale_a, &scale_b]).cast(a.dtype())
}

/// Returns the accumulation dtype of a matmul with a result of this dtype: at most `f32`.
fn added(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F32 } else { dtype }
}

impl CustomOp for MatMulAsFloat8 {
    fn name(&self) -> &str {
        MatMulAsFloat8::NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let types: Vec<_> = inputs.iter().filter_map(|input| input.tensor()).collect();
        let wrong = |problem: &str| Error::type_error(MatMulAsFloat8::NAME, problem, inputs);
        let [a, b] = types[..] else { return Err(wrong("expects two tensors")) };
        if !a.dtype.is_float() || a.dtype != b.dtype {
            return Err(wrong("needs one float dtype").hint("cast the tensors to it first"));
        }
        let product =
            kiln_ir::infer(&Op::MatMul, inputs).map_err(|error| error.in_op(MatMulAsFloat8::NAME))?;
        Ok(smallvec![product[0]])
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        if inputs.iter().any(|input| input.ty().num_elements() == 0) {
            return Some(alloc::vec![inputs[0].matmul(&inputs[1])]);
        }
        Some(alloc::vec![product(&inputs[0], &inputs[1], [Float8::E4M3; 2])])
    }

    fn saved(&self) -> Saved {
        Saved { outputs: 0, ..Saved::ALL }
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let (a, b) = (&inputs[0], &inputs[1]);
        let Some(g) = &gradients[0] else { return Some(Ok(alloc::vec![None, None])) };
        if [a, b, g].iter().any(|var| var.ty().num_elements() == 0) {
            let zeros = |x: &Var<'e>| Some(Var::zeros(x.engine(), x.ty()));
            return Some(Ok(alloc::vec![zeros(a), zeros(b)]));
        }
        let of_a = product(g, &b.transpose(), [Float8::E5M2, Float8::E4M3]);
        let of_b = product(&a.transpose(), g, [Float8::E4M3, Float8::E5M2]);
        Some(Ok(alloc::vec![Some(of_a), Some(of_b)]))
    }
}
