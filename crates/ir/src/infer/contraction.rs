//! Inference rules of matmul, convolution and pooling.

use super::Rule;
use crate::{
    BlockFormat, ConvPass, ConvSpec, DType, PoolKind, PoolSpec, Result, ResultTypes, Shape, TensorType,
};
use alloc::format;
use alloc::vec::Vec;
use smallvec::smallvec;

/// The most padding of a convolution on one side of an axis, and of pooling: kernels allocate and loop over it, while it
/// has no elements whose bytes would be counted.
const MAX_CONV_PADDING: usize = 1 << 24;
const MAX_POOL_PADDING: usize = 1 << 20;

/// The largest stride and dilation of a convolution: kernels keep a list for each remainder modulo the stride.
const MAX_CONV_STRIDE: usize = 1 << 16;
const MAX_CONV_DILATION: usize = 1 << 24;

impl Rule<'_> {
    pub(super) fn matmul(&self) -> Result<ResultTypes> {
        let (a, b) = (self.tensor(0)?, self.tensor(1)?);
        self.same_dtype(a, b)?;
        self.number(a)?;
        let dtype = if matches!(a.dtype, DType::I8 | DType::U8) { DType::I32 } else { a.dtype };
        self.product(a, b, dtype)
    }

    pub(super) fn matmul_float8(&self, dtype: DType) -> Result<ResultTypes> {
        let (a, b) = (self.tensor(0)?, self.tensor(1)?);
        for bits in [a, b] {
            if bits.dtype != DType::U8 {
                let problem = format!("needs the bits of 8-bit floats in u8, not {}", bits.dtype);
                return Err(self.error(problem).hint("encode the operand first"));
            }
        }
        for place in [2, 3] {
            if *self.tensor(place)? != TensorType::new([], DType::F32) {
                let problem = format!("operand {place}, a scale, must be f32[]");
                return Err(self.error(problem).hint("scale the result for scales of rows or columns"));
            }
        }
        let fits = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        self.dtype(fits, "f32, f16 or bf16 for the result", dtype)?;
        self.product(a, b, dtype)
    }

    pub(super) fn matmul_blocks(&self, format: BlockFormat) -> Result<ResultTypes> {
        let (x, w) = (self.tensor(0)?, self.tensor(1)?);
        self.float(x)?;
        if x.rank() < 2 || w.rank() != 2 {
            return Err(self.error("needs operands of shapes [.., m, k] and [n, bytes]").hint(
                "add an axis to a vector first; the weight has one row for each column of the result",
            ));
        }
        let (axis, elements) = (x.rank() - 1, self.block_elements(w, format)?);
        if x.shape[axis] != elements {
            let problem = format!("rows of x have {} elements, rows of blocks {elements}", x.shape[axis]);
            return Err(self
                .error(problem)
                .hint("the weight is [n, bytes], one row of k elements for each result"));
        }
        Ok(smallvec![self.sized(x.shape.with(axis, w.shape[0]), x.dtype)?])
    }

    /// The elements of a row of blocks.
    pub(super) fn block_elements(&self, blocks: &TensorType, format: BlockFormat) -> Result<usize> {
        let (name, size) = (format.name(), format.bytes());
        if blocks.dtype != DType::U8 {
            let problem = format!("needs the bytes of {name} blocks in u8, not {}", blocks.dtype);
            return Err(self.error(problem).hint("quantize the tensor first"));
        }
        let Some(&bytes) = blocks.shape.last() else {
            return Err(self.error(format!("needs at least 1 axis, of the bytes of {name} blocks")));
        };
        format.row_len(bytes).ok_or_else(|| {
            let problem =
                format!("a row of {bytes} bytes is not a whole number of {name} blocks of {size} bytes");
            self.error(problem).hint("the last axis holds all bytes of a row; is the format right?")
        })
    }

    /// The type of a batched matmul.
    fn product(&self, a: &TensorType, b: &TensorType, dtype: DType) -> Result<ResultTypes> {
        let rank = a.rank();
        if rank < 2 || b.rank() < 2 {
            return Err(self.error("needs at least 2 axes").hint("add an axis to a vector first"));
        }
        if a.shape[rank - 1] != b.shape[b.rank() - 2] {
            return Err(self.error("inner sizes differ").hint(
                "the last axis of the left operand must be as long as the second last of the right one; \
                 transpose one of them?",
            ));
        }
        if a.shape[..rank - 2] != b.shape[..b.rank() - 2] {
            return Err(self
                .error("batch sizes differ")
                .hint("axes before the last two must be equal, or broadcast: lengths equal or 1"));
        }
        let shape = a.shape.with(rank - 1, b.shape[rank - 1]);
        Ok(smallvec![self.sized(shape, dtype)?])
    }

    pub(super) fn conv(&self, spec: &ConvSpec, pass: &ConvPass) -> Result<ResultTypes> {
        let (a, b) = (self.tensor(0)?, self.tensor(1)?);
        self.same_dtype(a, b)?;
        self.float(a)?;
        let axes = self.conv_spec(spec)?;
        if a.rank() != axes + 2 || b.rank() != axes + 2 {
            return Err(self.error(format!("needs {} axes for {axes} spatial dimensions", axes + 2)));
        }
        match pass {
            ConvPass::Forward => self.conv_forward(spec, a, b),
            ConvPass::Input { size } => self.conv_input(spec, a, b, size),
            ConvPass::Weight { size } => self.conv_weight(spec, a, b, size),
        }
    }

    fn conv_spec(&self, spec: &ConvSpec) -> Result<usize> {
        let axes = spec.stride.len();
        if axes == 0 || spec.padding.len() != axes || spec.dilation.len() != axes {
            return Err(self.error("stride, padding and dilation need one entry per spatial dimension"));
        }
        if spec.groups == 0 || spec.stride.contains(&0) || spec.dilation.contains(&0) {
            return Err(self
                .error("stride, dilation and groups must be at least 1")
                .hint("1 is the default of each: every position, neighbouring elements, one group"));
        }
        Ok(axes)
    }

    fn conv_forward(&self, spec: &ConvSpec, x: &TensorType, w: &TensorType) -> Result<ResultTypes> {
        let (channels, out) = (x.shape[1], w.shape[0]);
        if channels != w.shape[1].saturating_mul(spec.groups) {
            let problem = format!(
                "the input has {channels} channels, the weight expects {} in {} groups",
                w.shape[1].saturating_mul(spec.groups),
                spec.groups
            );
            return Err(self
                .error(problem)
                .hint("the weight is [channels_out, channels_in / groups, kernel..]"));
        }
        self.out_channels(spec, out)?;
        let space = self.conv_space(spec, &x.shape[2..], &w.shape[2..])?;
        Ok(smallvec![self.sized(joined(&[x.shape[0], out], &space), x.dtype)?])
    }

    fn conv_input(
        &self,
        spec: &ConvSpec,
        y: &TensorType,
        w: &TensorType,
        size: &[usize],
    ) -> Result<ResultTypes> {
        if y.shape[1] != w.shape[0] {
            let problem =
                format!("the operand has {} channels, the weight {} outputs", y.shape[1], w.shape[0]);
            return Err(self
                .error(problem)
                .hint("the weight is [channels of the operand, channels of the result / groups, kernel..]"));
        }
        self.out_channels(spec, w.shape[0])?;
        self.leads_to(spec, size, &w.shape[2..], &y.shape[2..])?;
        let channels = w.shape[1].saturating_mul(spec.groups);
        Ok(smallvec![self.sized(joined(&[y.shape[0], channels], size), y.dtype)?])
    }

    fn conv_weight(
        &self,
        spec: &ConvSpec,
        x: &TensorType,
        y: &TensorType,
        size: &[usize],
    ) -> Result<ResultTypes> {
        if x.shape[0] != y.shape[0] {
            return Err(self.error("batch sizes differ"));
        }
        self.out_channels(spec, y.shape[1])?;
        if !x.shape[1].is_multiple_of(spec.groups) {
            return Err(
                self.error(format!("{} channels do not split into {} groups", x.shape[1], spec.groups))
            );
        }
        self.leads_to(spec, &x.shape[2..], size, &y.shape[2..])?;
        let shape = joined(&[y.shape[1], x.shape[1] / spec.groups], size);
        Ok(smallvec![self.sized(shape, x.dtype)?])
    }

    fn out_channels(&self, spec: &ConvSpec, channels: usize) -> Result<()> {
        if channels.is_multiple_of(spec.groups) {
            return Ok(());
        }
        Err(self
            .error(format!("{channels} output channels do not split into {} groups", spec.groups))
            .hint("the number of groups divides both numbers of channels"))
    }

    fn at_most(&self, attribute: &str, value: usize, most: usize, axis: usize) -> Result<()> {
        if value <= most {
            return Ok(());
        }
        Err(self
            .error(format!("a {attribute} of {value} along axis {axis} is more than {most}"))
            .hint("take a slice with a step first"))
    }

    /// The spatial extents of the result of a convolution.
    fn conv_space(&self, spec: &ConvSpec, input: &[usize], kernel: &[usize]) -> Result<Vec<usize>> {
        if input.len() != spec.stride.len() || kernel.len() != spec.stride.len() {
            return Err(self.error("sizes need one entry per spatial dimension"));
        }
        (0..input.len())
            .map(|axis| {
                let (low, high) = spec.padding[axis];
                self.padding(low.max(high), MAX_CONV_PADDING, axis + 2)?;
                self.at_most("stride", spec.stride[axis], MAX_CONV_STRIDE, axis + 2)?;
                self.at_most("dilation", spec.dilation[axis], MAX_CONV_DILATION, axis + 2)?;
                let length = input[axis].saturating_add(low).saturating_add(high);
                self.window_count(length, kernel[axis], spec.stride[axis], spec.dilation[axis], axis + 2)
            })
            .collect()
    }

    fn padding(&self, elements: usize, most: usize, axis: usize) -> Result<()> {
        if elements <= most {
            return Ok(());
        }
        Err(self
            .error(format!("{elements} elements of padding along axis {axis} are more than {most}"))
            .hint("pad the operand with `pad` first"))
    }

    fn leads_to(&self, spec: &ConvSpec, input: &[usize], kernel: &[usize], output: &[usize]) -> Result<()> {
        let space = self.conv_space(spec, input, kernel)?;
        if space == output {
            return Ok(());
        }
        Err(self.error(format!(
            "input {input:?} and kernel {kernel:?} result in {space:?}, but the operand has {output:?}"
        )))
    }

    pub(super) fn pool(&self, spec: &PoolSpec) -> Result<ResultTypes> {
        let x = self.only()?;
        Ok(smallvec![self.pooled(spec, x)?])
    }

    fn pooled(&self, spec: &PoolSpec, x: &TensorType) -> Result<TensorType> {
        let axes = spec.window.len();
        let lists = [spec.stride.len(), spec.padding.len(), spec.overhang.len(), spec.dilation.len()];
        if axes == 0 || lists.iter().any(|&len| len != axes) {
            return Err(self.error("stride, padding, overhang and dilation need one entry per pooled axis"));
        }
        if x.rank() != axes + 2 {
            return Err(self.error(format!("needs {} axes to pool {axes} of them", axes + 2)));
        }
        match spec.kind {
            PoolKind::Max => self.number(x)?,
            PoolKind::Average { .. } => self.float(x)?,
        }
        if spec.kind != PoolKind::Max && spec.dilation.iter().any(|&dilation| dilation != 1) {
            return Err(self.error("average pooling does not support dilation"));
        }
        let mut shape = x.shape;
        for axis in 0..axes {
            shape[axis + 2] = self.pooled_length(spec, axis, x.shape[axis + 2])?;
        }
        self.sized(shape, x.dtype)
    }

    fn pooled_length(&self, spec: &PoolSpec, axis: usize, length: usize) -> Result<usize> {
        let (low, high) = spec.padding[axis];
        self.padding(low.max(high).max(spec.overhang[axis]), MAX_POOL_PADDING, axis + 2)?;
        let (size, step, dilation) = (spec.window[axis], spec.stride[axis], spec.dilation[axis]);
        let padded = [low, high, spec.overhang[axis]].into_iter().fold(length, usize::saturating_add);
        let count = self.window_count(padded, size, step, dilation, axis + 2)?;
        // 128 bits cannot overflow here.
        let [low, size, step, length] = [low, size, step, length].map(|x| x as u128);
        let wide = dilation as u128;
        let reaches = |window: usize| {
            let start = window as u128 * step;
            let first = low.saturating_sub(start).div_ceil(wide);
            first < size && start + first * wide < low + length
        };
        let is_left = |w: &usize| *w as u128 * step < low;
        let is_right = |w: &usize| *w as u128 * step + (size - 1) * wide >= low + length;
        // Windows at the edges of the axis are the only ones that can be entirely in padding or, if the dilation
        // exceeds the axis, skip the axis.
        let edge = if wide <= length { 1 } else { count };
        let mut at_risk =
            (0..count).take(edge).take_while(is_left).chain((0..count).rev().take(edge).take_while(is_right));
        if length == 0 || at_risk.any(|window| !reaches(window)) {
            return Err(self
                .error(format!("a window along axis {} contains padding only", axis + 2))
                .hint("padding must be smaller than the window with its dilation"));
        }
        Ok(count)
    }

    pub(super) fn pool_grad(&self, spec: &PoolSpec, size: &[usize]) -> Result<ResultTypes> {
        let operands = if spec.kind == PoolKind::Max { 2 } else { 1 };
        self.arity(operands)?;
        let grad = self.tensor(0)?;
        if size.len() + 2 != grad.rank() {
            return Err(self.error("size needs one entry per pooled axis"));
        }
        let x = self.sized(joined(&grad.shape[..2], size), grad.dtype)?;
        if operands == 2 && *self.tensor(1)? != x {
            return Err(self.error(format!("the pooled operand must be {x}")));
        }
        let pooled = self.pooled(spec, &x)?;
        if pooled != *grad {
            return Err(self.error(format!("pooling {x} returns {pooled}, not {grad}")));
        }
        Ok(smallvec![x])
    }
}

fn joined(first: &[usize], rest: &[usize]) -> Shape {
    first.iter().chain(rest).copied().collect()
}
