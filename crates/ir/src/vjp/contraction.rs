//! Gradient rules of matmul, convolution and pooling.

use super::{Gradients, Rule, emit};
use crate::{BlockFormat, ConvPass, ConvSpec, DType, Extremum, Op, PadAxis, PoolKind, PoolSpec, Scalar, Var};
use alloc::vec::Vec;

impl<'e> Rule<'_, 'e> {
    pub(super) fn matmul(&self) -> Gradients<'e> {
        let (g, a, b) = (self.g(), self.x(0), self.x(1));
        self.two(|| g.matmul(&b.transpose()), || a.transpose().matmul(g))
    }

    /// Blocks have no gradient.
    pub(super) fn matmul_blocks(&self, format: BlockFormat) -> Gradients<'e> {
        self.linear(|g, x| {
            let weight = emit(Op::DequantizeBlocks { format, dtype: g.dtype() }, &[self.x(1)]);
            let columns = weight.shape()[0];
            let rows = g.shape()[..g.rank() - 1].iter().product::<usize>();
            g.reshape([rows, columns]).matmul(&weight).reshape(x.shape())
        })
    }

    /// Each of the three passes is linear in both operands, and its gradients are the other two.
    pub(super) fn conv(&self, spec: &ConvSpec, pass: &ConvPass) -> Gradients<'e> {
        let (g, a, b) = (self.g(), self.x(0), self.x(1));
        let space = |var: &Var<'e>| var.shape()[2..].to_vec();
        let run =
            |pass: ConvPass, a: &Var<'e>, b: &Var<'e>| emit(Op::Conv { spec: spec.clone(), pass }, &[a, b]);
        match pass {
            ConvPass::Forward => self.two(
                || run(ConvPass::Input { size: space(a) }, g, b),
                || run(ConvPass::Weight { size: space(b) }, a, g),
            ),
            ConvPass::Input { .. } => {
                self.two(|| run(ConvPass::Forward, g, b), || run(ConvPass::Weight { size: space(b) }, g, a))
            }
            ConvPass::Weight { .. } => {
                self.two(|| run(ConvPass::Input { size: space(a) }, b, g), || run(ConvPass::Forward, a, g))
            }
        }
    }

    pub(super) fn pool(&self, spec: &PoolSpec) -> Gradients<'e> {
        self.linear(|g, x| {
            let op = Op::PoolGrad { spec: spec.clone(), size: x.shape()[2..].to_vec() };
            match spec.kind {
                PoolKind::Max => emit(op, &[g, x]),
                PoolKind::Average { .. } => emit(op, &[g]),
            }
        })
    }

    /// The gradient rule of the gradient of pooling, which is linear in its first operand. The position of the maximum
    /// does not change with small changes of the second.
    pub(super) fn pool_grad(&self, spec: &PoolSpec) -> Gradients<'e> {
        self.linear(|g, _| match spec.kind {
            PoolKind::Average { .. } => emit(Op::Pool(spec.clone()), &[g]),
            PoolKind::Max => at_maxima(g, self.x(1), spec),
        })
    }
}

/// For each window of `g`, the element at the first maximum of the same window of `x`.
fn at_maxima<'e>(g: &Var<'e>, x: &Var<'e>, spec: &PoolSpec) -> Var<'e> {
    let windows = windows_of(x, spec, crate::op::least(x.dtype()));
    let last = windows.rank() - 1;
    let index = DType::I32;
    let place = emit(Op::ArgReduce { extremum: Extremum::Max, axis: last, index }, &[&windows]);
    let found = windows_of(g, spec, Scalar::Float(0.0)).gather(last, &place);
    found.reshape(windows.shape().without(last))
}

/// The windows of a padded tensor, `[batch, channels, windows.., elements]`.
fn windows_of<'e>(x: &Var<'e>, spec: &PoolSpec, padding: Scalar) -> Var<'e> {
    let axes = spec.window.len();
    let around = |axis: usize| PadAxis::new(spec.padding[axis].0, spec.padding[axis].1 + spec.overhang[axis]);
    let none = [PadAxis::default(); 2];
    let pads: Vec<PadAxis> = none.into_iter().chain((0..axes).map(around)).collect();
    let windows = (0..axes).fold(x.pad(pads, padding), |var, axis| {
        var.windows(axis + 2, spec.window[axis], spec.stride[axis], spec.dilation[axis])
    });
    let elements: usize = spec.window.iter().product();
    let shape = windows.shape();
    windows.reshape(shape[..axes + 2].iter().copied().chain([elements]).collect::<crate::Shape>())
}
