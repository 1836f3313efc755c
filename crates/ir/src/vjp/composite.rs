//! Gradient rules of the named composites.

use super::{Gradients, Rule, emit};
use crate::expand::unmirrored;
use crate::{DType, FftKind, NormKind, Op, Operands, Shape, TensorType, Var};
use alloc::vec::Vec;

impl<'e> Rule<'_, 'e> {
    pub(super) fn softmax(&self, axis: usize, log: bool) -> Gradients<'e> {
        let y = self.y();
        self.linear(|g, _| {
            if log {
                g - y.exp() * g.sum(&[axis])
            } else {
                let weighted = g * y;
                let total = weighted.sum(&[axis]);
                weighted - y * total
            }
        })
    }

    /// The softmax of the operand scales the gradient. It is 0 if the sum has no terms above 0.
    pub(super) fn log_sum_exp(&self) -> Gradients<'e> {
        let y = self.y();
        self.linear(|g, x| {
            let none = y.equal(&y.scalar(f64::NEG_INFINITY));
            let y = none.select(&y.scalar(0.0), y);
            g * (x - &y).exp()
        })
    }

    /// With `c` the row less its mean, `r` the reciprocal deviation and `u = g * weight`: `x` gets
    /// `(u - mean(u) - c * r² * mean(u * c)) * r`; root mean square lacks the middle term. Statistics are computed again
    /// from `x`, in the accumulator's dtype. That of `u * c` needs only the mean, and is taken at once with the deviation's.
    pub(super) fn norm(&self, kind: NormKind, axes: usize, epsilon: f64) -> Gradients<'e> {
        let (first, rank) = (self.x(0).rank() - axes, self.x(0).rank());
        let row: Vec<usize> = (first..rank).collect();
        let leading: Vec<usize> = (0..first).collect();
        let wide = self.x(0).dtype().accumulator();
        let wanted = |place: usize| self.wanted.get(place).copied().unwrap_or(false);
        let g = self.g().cast(wide);
        let mut gradients = self.zero();
        if wanted(0) || wanted(1) {
            let x = self.x(0).cast(wide);
            let centred = match kind {
                NormKind::Layer => &x - x.mean(&row),
                NormKind::Rms => x,
            };
            let scale = (centred.square().mean(&row) + epsilon).rsqrt();
            if wanted(0) {
                let u = if self.inputs.len() > 1 { &g * self.x(1).cast(wide) } else { g.clone() };
                let along = &centred * ((&u * &centred).mean(&row) * &scale * &scale);
                let rest = match kind {
                    NormKind::Layer => &u - u.mean(&row) - along,
                    NormKind::Rms => u - along,
                };
                gradients[0] = Some((rest * &scale).cast(self.x(0).dtype()));
            }
            if wanted(1) {
                gradients[1] = Some(self.row_gradient(&(&g * (centred * scale)), &leading));
            }
        }
        if wanted(2) {
            gradients[2] = Some(self.row_gradient(&g, &leading));
        }
        gradients
    }

    /// Sums the contributions of all rows to the gradient of the weight or bias.
    fn row_gradient(&self, rows: &Var<'e>, leading: &[usize]) -> Var<'e> {
        rows.sum(leading).reshape(self.x(1).shape()).cast(self.x(1).dtype())
    }

    /// The transform is a symmetric complex matrix, so its transpose as a real map is the transform with the opposite
    /// sign. Half a spectrum represents the other half too. Mirrored frequencies therefore count twice in a transform
    /// to real numbers, and half in the gradient of a transform from real numbers.
    pub(super) fn fft(&self, kind: FftKind, axis: usize, inverse: bool) -> Gradients<'e> {
        let run = |kind: FftKind, parts: Operands| {
            Var::emit(self.engine(), &Op::Fft { kind, axis, inverse: !inverse }, parts)
        };
        // Multiplies frequencies that a conjugate mirrors by the weight.
        let weighted = |parts: [&Var<'e>; 2], points: usize, weight: f64| {
            let shape = Shape::new(alloc::vec![1; parts[0].rank()]).with(axis, parts[0].shape()[axis]);
            let single = unmirrored(self.engine(), TensorType::new(shape, DType::Bool), axis, points);
            parts.map(|part| single.select(part, &(part * weight)))
        };
        let g = |place: usize| self.gradient_or_zeros(place);
        let results = match kind {
            FftKind::Complex => run(kind, [g(0), g(1)].map(Var::into_operand).into_iter().collect()),
            FftKind::FromReal => {
                let points = self.x(0).shape()[axis];
                let halves = weighted([&g(0), &g(1)], points, 0.5);
                run(FftKind::ToReal { points }, halves.map(Var::into_operand).into_iter().collect())
            }
            FftKind::ToReal { points } => {
                let spectrum = run(FftKind::FromReal, [g(0).into_operand()].into_iter().collect());
                weighted([&spectrum[0], &spectrum[1]], points, 2.0).into()
            }
        };
        results.into_iter().zip(self.wanted).map(|(g, &wanted)| wanted.then_some(g)).collect()
    }

    /// The derivative of `(q - zero) * scale` by the scale is `q - zero`: dequantization with a scale of 1.
    pub(super) fn dequantize(&self) -> Gradients<'e> {
        let mut gradients = self.zero();
        if self.wanted[1] {
            let scale = self.x(1);
            let ones = Var::full(scale.engine(), scale.ty(), 1.0);
            let mut operands = alloc::vec![self.x(0), &ones];
            operands.extend(self.inputs.get(2));
            let product = self.g() * emit(Op::Dequantize, &operands);
            gradients[1] = Some((0..scale.rank()).fold(product, |sum, axis| sum_blocks(&sum, axis, scale)));
        }
        gradients
    }
}

/// Sums each block of one axis, so that the axis has the length of that of `like`.
fn sum_blocks<'e>(var: &Var<'e>, axis: usize, like: &Var<'e>) -> Var<'e> {
    let (shape, blocks) = (var.shape(), like.shape()[axis]);
    if shape[axis] == blocks {
        return var.clone();
    }
    let result = shape.with(axis, blocks);
    if blocks == 0 {
        return Var::zeros(var.engine(), var.ty().with_shape(result));
    }
    let before: usize = shape[..axis].iter().product();
    let after: usize = shape[axis + 1..].iter().product();
    var.reshape([before, blocks, shape[axis] / blocks, after]).sum(&[2]).reshape(result)
}
