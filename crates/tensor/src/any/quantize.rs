//! Quantisation. The typed functions are in [`quantize`](mod@crate::quantize).

use crate::any::formula::constant;
use crate::{AnyTensor, DType, Result, Shape};
use alloc::format;
use kiln_ir::{Binary, Comparison, Op, Operand, Reduction, Var};

/// The mapping between integers and real values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantMode {
    /// `q * scale`: 0 is represented by 0, and the range is symmetric about it.
    #[default]
    Symmetric,
    /// `(q - zero) * scale`: the range uses all integers, and 0 is represented exactly.
    Asymmetric,
}

/// The groups of elements that share a scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantGranularity {
    /// The whole tensor.
    #[default]
    Tensor,
    /// Each index of one axis, over all others: axis 0 for weights `[out, in]`.
    Channel(usize),
    /// Each block of `size` elements of one axis, for every index of the others.
    Block {
        /// The axis that is divided into blocks.
        axis: usize,
        /// The length of a block, which divides the length of the axis.
        size: usize,
    },
}

/// A quantisation scheme: dtype, mode and granularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantScheme {
    /// The dtype of the integers: `i8`, `u8`, `i16`, `u16` or `i32`; signed if symmetric. Default: `i8`.
    pub dtype: DType,
    /// The mapping between integers and real values. Default: symmetric.
    pub mode: QuantMode,
    /// The groups of elements that share a scale. Default: the whole tensor.
    pub granularity: QuantGranularity,
}

impl Default for QuantScheme {
    fn default() -> QuantScheme {
        QuantScheme { dtype: DType::I8, mode: QuantMode::Symmetric, granularity: QuantGranularity::Tensor }
    }
}

impl QuantScheme {
    /// Returns the least and the greatest integer. A symmetric scheme excludes the least integer of its dtype.
    pub fn limits(&self) -> (i64, i64) {
        let (least, greatest) = match self.dtype {
            DType::I8 => (i8::MIN as i64, i8::MAX as i64),
            DType::U8 => (0, u8::MAX as i64),
            DType::I16 => (i16::MIN as i64, i16::MAX as i64),
            DType::U16 => (0, u16::MAX as i64),
            DType::I32
            | DType::I64
            | DType::U32
            | DType::U64
            | DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::Bool => (i32::MIN as i64, i32::MAX as i64),
        };
        match self.mode {
            QuantMode::Symmetric => (-greatest, greatest),
            QuantMode::Asymmetric => (least, greatest),
        }
    }

    fn check(&self, op: &str, x: &AnyTensor) -> Result<()> {
        let problem = match (self.dtype, self.mode) {
            (DType::I8 | DType::I16 | DType::I32, _) | (DType::U8 | DType::U16, QuantMode::Asymmetric) => {
                return Ok(());
            }
            (DType::U8 | DType::U16, QuantMode::Symmetric) => {
                format!("{} has no negative numbers", self.dtype)
            }
            (
                DType::I64
                | DType::U64
                | DType::U32
                | DType::F64
                | DType::F32
                | DType::F16
                | DType::BF16
                | DType::Bool,
                _,
            ) => format!("{} is not a quantized dtype", self.dtype),
        };
        Err(x.wrong(op, problem).hint("use i8, i16 or i32, or u8 or u16 with an asymmetric scheme"))
    }

    /// Returns the shape of the scales of a tensor.
    fn scales(&self, op: &str, x: &AnyTensor) -> Result<Shape> {
        let shape = *x.shape();
        let ones = || (0..shape.rank()).map(|_| 1).collect::<Shape>();
        match self.granularity {
            QuantGranularity::Tensor => Ok(ones()),
            QuantGranularity::Channel(axis) if axis < shape.rank() => Ok(ones().with(axis, shape[axis])),
            QuantGranularity::Block { axis, size }
                if axis < shape.rank() && size != 0 && shape[axis].is_multiple_of(size) =>
            {
                Ok(shape.with(axis, shape[axis] / size))
            }
            QuantGranularity::Channel(_) | QuantGranularity::Block { .. } => {
                let problem = format!("cannot be split by {:?}", self.granularity);
                Err(x.wrong(op, problem).hint("the axis exists, and blocks divide it"))
            }
        }
    }
}

/// The minimum and maximum of each group that shares a scale; both have the rank of the tensor.
#[derive(Clone, Debug)]
pub struct QuantRange {
    /// The minima.
    pub min: AnyTensor,
    /// The maxima.
    pub max: AnyTensor,
}

/// Scales, and zero points of an asymmetric scheme. Each has the rank of the tensor, and each length divides the
/// tensor's.
#[derive(Clone, Debug)]
pub struct QuantParams {
    /// The step size: the value of one integer step.
    pub scale: AnyTensor,
    /// The zero point: the integer that represents 0, in the dtype of the integers.
    pub zero: Option<AnyTensor>,
}

/// A quantised tensor: integers with their scales and zero points.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// The quantised integers.
    pub values: AnyTensor,
    /// Scales and zero points.
    pub params: QuantParams,
}

impl AnyTensor {
    /// Computes the range of each group that shares a scale. See
    /// [`quantize::compute_range`](crate::quantize::compute_range).
    ///
    /// # Errors
    /// When the dtype is not a float, the tensor has no elements or more than 6 axes, or the dtype, mode or granularity
    /// of the scheme is not supported for it.
    pub fn quant_range(self, scheme: &QuantScheme) -> Result<QuantRange> {
        const OP: &str = "compute_range";
        self.check_float(OP)?;
        scheme.check(OP, &self)?;
        let scales = scheme.scales(OP, &self)?;
        if self.shape().num_elements() == 0 {
            return Err(self.wrong(OP, "a tensor without elements has no range"));
        }
        let blocks = self.blocks(&scales)?;
        let within: alloc::vec::Vec<usize> = (0..scales.rank()).map(|axis| 2 * axis + 1).collect();
        let min = blocks.clone().reduce(Reduction::Min, &within)?.reshape(scales)?;
        let max = blocks.reduce(Reduction::Max, &within)?.reshape(scales)?;
        Ok(QuantRange { min, max })
    }

    /// Splits each axis into the number of its blocks and their length.
    fn blocks(self, scales: &Shape) -> Result<AnyTensor> {
        let shape = *self.shape();
        let split = shape.iter().zip(scales.iter()).flat_map(|(&len, &count)| [count, len / count.max(1)]);
        let both: alloc::vec::Vec<usize> = split.collect();
        if both.len() > kiln_ir::MAX_RANK {
            let problem = format!("needs {} axes, more than {}", both.len(), kiln_ir::MAX_RANK);
            return Err(self.wrong("compute_range", problem).hint("reshape the tensor first"));
        }
        self.reshape(both)
    }

    /// Quantises with given scales. See [`quantize::quantize`](crate::quantize::quantize()).
    ///
    /// # Errors
    /// When the dtype is not a float, the scales have another dtype or do not divide the tensor into equal blocks, the
    /// zero points differ from the scales in shape or from `dtype`, or `dtype` is not one of [`QuantScheme::dtype`].
    pub fn quantize(self, params: &QuantParams, dtype: DType) -> Result<Quantized> {
        self.in_same_domain("quantize", &params.scale)?;
        let operands = params.operands();
        let values = self.apply_with(&Op::Quantize { dtype }, operands)?;
        Ok(Quantized { values, params: params.clone() })
    }

    /// Quantises with scales from the tensor's own range. See
    /// [`quantize::quantize_dynamic`](crate::quantize::quantize_dynamic).
    ///
    /// # Errors
    /// As [`quant_range`](AnyTensor::quant_range).
    pub fn quantize_dynamic(self, scheme: &QuantScheme) -> Result<Quantized> {
        let params = self.clone().constant().quant_range(scheme)?.params(scheme)?;
        self.quantize(&params, scheme.dtype)
    }

    /// Applies fake quantisation: quantises and dequantises, with the gradient of the identity in range
    /// (straight-through estimator). See [`quantize::fake_quantize`](crate::quantize::fake_quantize).
    ///
    /// # Errors
    /// As [`quantize`](AnyTensor::quantize), and when dtype and mode of the scheme do not suit each other.
    pub fn fake_quantize(self, params: &QuantParams, scheme: &QuantScheme) -> Result<AnyTensor> {
        const OP: &str = "fake_quantize";
        self.check_float(OP)?;
        scheme.check(OP, &self)?;
        self.check_alike(OP, &params.scale)?;
        let rounded = self.clone().constant().quantize(params, scheme.dtype)?;
        let (least, greatest) = scheme.limits();
        let rounded = Quantized {
            values: rounded.values.binary_scalar(Binary::Max, least)?.binary_scalar(Binary::Min, greatest)?,
            params: rounded.params,
        };
        let value = rounded.dequantize()?;
        // The position among the integers without clamping, in floats.
        let scale = params.scale.clone().constant().expand_blocks(*self.shape())?;
        let place = self.clone().constant().expression_with([scale], |x, [scale]| (x / scale).round());
        let place = match &params.zero {
            Some(zero) => {
                let zero = zero.clone().cast(self.dtype())?.expand_blocks(*self.shape())?;
                place.binary(Binary::Add, zero)?
            }
            None => place,
        };
        let inside = place.expression(|place| {
            let (low, high) = (place.scalar(least as f64), place.scalar(greatest as f64));
            low.compare(Comparison::Le, &place).and(&place.compare(Comparison::Le, &high))
        });
        Ok(self.expression_with([value.constant(), inside], |x, [value, inside]| {
            let nothing = &x - constant(&x);
            value + inside.select(&nothing, &nothing.scalar(0.0))
        }))
    }

    /// Repeats each entry over the block that it covers.
    fn expand_blocks(self, shape: Shape) -> Result<AnyTensor> {
        let from = *self.shape();
        let axes = from.iter().zip(shape.iter()).enumerate();
        let grown = axes.filter(|(_, (count, len))| **count != 1 && count != len).map(|(axis, _)| axis);
        let grown: alloc::vec::Vec<usize> = grown.collect();
        let y = grown.into_iter().try_fold(self, |any, axis| {
            let here = *any.shape();
            let block = shape[axis] / here[axis];
            let before: usize = here[..axis].iter().product();
            let after: usize = here[axis + 1..].iter().product();
            let rows = any.reshape([before, here[axis], 1, after])?;
            rows.expand([before, here[axis], block, after])?.reshape(here.with(axis, shape[axis]))
        })?;
        y.expand(shape)
    }
}

impl QuantRange {
    /// Computes scales and zero points that cover the range, widened to include 0. See
    /// [`quantize::compute_q_params`](crate::quantize::compute_q_params).
    ///
    /// # Errors
    /// When minimum and maximum differ in type, or the scheme's dtype is not supported.
    pub fn params(self, scheme: &QuantScheme) -> Result<QuantParams> {
        const OP: &str = "compute_q_params";
        let QuantRange { min, max } = self;
        min.check_float(OP)?;
        min.check_same(OP, &max)?;
        scheme.check(OP, &min)?;
        let (least, greatest) = scheme.limits();
        if scheme.mode == QuantMode::Symmetric {
            let scale = min
                .expression_with([max], |min, [max]| nonzero(&(min.abs().max(&max.abs()) / greatest as f64)));
            return Ok(QuantParams { scale, zero: None });
        }
        let min = min.binary_scalar(Binary::Min, 0.0)?;
        let max = max.binary_scalar(Binary::Max, 0.0)?;
        let steps = (greatest - least) as f64;
        // Divided before the subtraction: the difference may overflow the dtype.
        let scale = max.expression_with([min.clone()], |max, [min]| nonzero(&(max / steps - min / steps)));
        let zero = min.expression_with([scale.clone()], |min, [scale]| {
            let zero = least as f64 - (min / scale).round();
            zero.max(&zero.scalar(least as f64)).min(&zero.scalar(greatest as f64))
        });
        Ok(QuantParams { scale, zero: Some(zero.cast(scheme.dtype)?) })
    }
}

/// Replaces a scale of 0, that of an all-zero group, by 1.
pub(super) fn nonzero<'e>(scale: &Var<'e>) -> Var<'e> {
    scale.equal(&scale.scalar(0.0)).select(&scale.scalar(1.0), scale)
}

impl QuantParams {
    fn operands(&self) -> impl Iterator<Item = Operand> {
        let zero = self.zero.clone().map(|zero| zero.into_value().into());
        core::iter::once(self.scale.value().clone().into()).chain(zero)
    }
}

impl Quantized {
    /// Dequantises to floats, in the dtype of the scale. See [`quantize::dequantize`](crate::quantize::dequantize).
    ///
    /// # Errors
    /// When the shapes of integers and scales do not match.
    pub fn dequantize(self) -> Result<AnyTensor> {
        self.values.apply_with(&Op::Dequantize, self.params.operands())
    }

    /// Computes the matmul of two quantised matrices, as floats. See [`quantize::matmul`](crate::quantize::matmul).
    ///
    /// # Errors
    /// When the shapes are incompatible.
    pub fn matmul(self, other: Quantized) -> Result<AnyTensor> {
        const OP: &str = "quantized matmul";
        let (a, b) = (&self.values, &other.values);
        a.in_same_domain(OP, b)?;
        a.check_rank(OP, 2, "[.., rows, columns]")?;
        b.check_rank(OP, 2, "[.., rows, columns]")?;
        let narrow = |dtype| matches!(dtype, DType::I8 | DType::U8);
        let (rows, columns) = (a.rank() - 1, b.rank() - 2);
        // Only a scale that is constant along the sum can be factored out of it, and 32 bits hold the sums of 8-bit
        // products.
        let whole = self.params.scale.shape()[rows] == 1 && other.params.scale.shape()[columns] == 1;
        let depth = a.shape()[rows];
        if !whole || !narrow(a.dtype()) || !narrow(b.dtype()) || depth > 1 << 15 {
            return self.dequantize()?.matmul(other.dequantize()?);
        }
        let sums = self.integer_product(&other, depth)?;
        let dtype = self.params.scale.dtype();
        let scaled = sums.cast(dtype)?.binary(Binary::Mul, self.params.scale)?;
        scaled.binary(Binary::Mul, other.params.scale)
    }

    /// Computes `Σ (a - a0) (b - b0) = Σ a b - a0 Σ b - b0 Σ a + n a0 b0`, in 32 bits.
    fn integer_product(&self, other: &Quantized, depth: usize) -> Result<AnyTensor> {
        let wide = |any: &AnyTensor| any.clone().cast(DType::I32);
        let (a, b) = (&self.values, &other.values);
        let product =
            if a.dtype() == b.dtype() { a.clone().matmul(b.clone())? } else { wide(a)?.matmul(wide(b)?)? };
        let zero = |params: &QuantParams| params.zero.as_ref().map(wide).transpose();
        let (zero_a, zero_b) = (zero(&self.params)?, zero(&other.params)?);
        let mut sums = product;
        if let Some(zero) = &zero_a {
            let columns = wide(b)?.reduce(Reduction::Sum, &[b.rank() - 2])?;
            sums = sums.binary(Binary::Sub, columns.binary(Binary::Mul, zero.clone())?)?;
        }
        if let Some(zero) = &zero_b {
            let rows = wide(a)?.reduce(Reduction::Sum, &[a.rank() - 1])?;
            sums = sums.binary(Binary::Sub, rows.binary(Binary::Mul, zero.clone())?)?;
        }
        match (zero_a, zero_b) {
            (Some(a), Some(b)) => {
                let both = a.binary(Binary::Mul, b)?.binary_scalar(Binary::Mul, depth)?;
                sums.binary(Binary::Add, both)
            }
            _ => Ok(sums),
        }
    }
}
