//! Cases of composite ops.

use super::FLOATS;
use crate::case::{Case, Fill, Grad, Input, tensor};
use kiln_ir::{AttentionSpec, BlockFormat, DType, FftKind, NormKind, Op, Real, ResizeMode, TensorType};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        cases.extend(softmaxes(dtype));
        cases.extend(log_sum_exps(dtype));
        cases.extend(norms(dtype));
        for row in ATTENTIONS {
            cases.extend(row.cases(dtype));
        }
        cases.extend(resizes(dtype));
        cases.extend(ffts(dtype));
        cases.extend(quantizations(dtype));
        cases.extend(block_dequantizations(dtype));
    }
    cases.retain(Case::is_valid);
    cases
}

fn sized(case: Case, shape: &[usize]) -> Case {
    if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
}

fn softmaxes(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize); 11] = [
        (&[1], 0),
        (&[5], 0),
        (&[0], 0),
        (&[2, 0], 1),
        (&[0, 3], 1),
        (&[3, 4], 0),
        (&[3, 4], 1),
        (&[2, 3, 4], 1),
        (&[257, 131], 1),
        (&[131, 257], 0),
        (&[3, 20_011], 1),
    ];
    let mut cases = Vec::new();
    for log in [false, true] {
        let case = |shape: &[usize], axis, fill| {
            let case = Case::new(Op::Softmax { axis, log }, vec![tensor(shape, dtype, fill)]);
            sized(case.label(format!("axis{axis}")).near(16.0, 16.0), shape)
        };
        cases.extend(table.map(|(shape, axis)| case(shape, axis, Fill::Normal).grad(Grad::Smooth)));
        cases.push(case(&[6, 7], 1, Fill::Uniform(-1000.0, 1000.0)).label("far"));
        let masked = Fill::Among(&[f64::NEG_INFINITY, 1.0, 2.0, f64::NEG_INFINITY]);
        cases.push(case(&[6, 3], 1, masked).label("masked"));
        let not_finite = Fill::Among(&[1.0, f64::INFINITY, 2.0, f64::NAN, 0.0]);
        cases.push(case(&[9, 3], 0, not_finite).label("not_finite"));
        cases.push(case(&[7, 1], 1, not_finite).label("alone_not_finite"));
    }
    cases
}

fn log_sum_exps(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize); 8] = [
        (&[1], 0),
        (&[5], 0),
        (&[0], 0),
        (&[2, 0], 1),
        (&[0, 3], 1),
        (&[3, 4], 0),
        (&[2, 3, 4], 1),
        (&[131, 257], 1),
    ];
    let case = |shape: &[usize], axis, fill| {
        let case = Case::new(Op::LogSumExp { axis }, vec![tensor(shape, dtype, fill)]);
        sized(case.label(format!("axis{axis}")).near(16.0, 16.0), shape)
    };
    let mut cases: Vec<Case> =
        table.map(|(shape, axis)| case(shape, axis, Fill::Normal).grad(Grad::Smooth)).into();
    cases.push(case(&[6, 7], 1, Fill::Uniform(-1000.0, 1000.0)).label("far"));
    let masked = Fill::Among(&[f64::NEG_INFINITY, 1.0, 2.0, f64::NEG_INFINITY]);
    cases.push(case(&[6, 3], 1, masked).label("masked"));
    let not_finite = Fill::Among(&[1.0, f64::INFINITY, 2.0, f64::NAN, 0.0]);
    cases.push(case(&[9, 3], 0, not_finite).label("not_finite"));
    cases
}

fn norms(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize); 9] = [
        (&[1], 1),
        (&[6], 1),
        (&[0, 4], 1),
        (&[3, 0], 1),
        (&[3, 5], 1),
        (&[2, 3, 4], 2),
        (&[2, 3, 4], 1),
        (&[130, 257], 1),
        (&[70, 5, 96], 2),
    ];
    let mut cases = Vec::new();
    for (shape, axes) in table {
        for &kind in NormKind::ALL {
            for operands in 1..=3 {
                let row = &shape[shape.len() - axes..];
                let mut inputs = vec![tensor(shape, dtype, Fill::Normal)];
                inputs.extend((1..operands).map(|_| tensor(row, dtype, Fill::Normal)));
                let op = Op::Norm { kind, axes, epsilon: Real(1e-5) };
                // The result of a constant row is the rounding error of the mean, times `1 / sqrt(epsilon)`.
                let case = Case::new(op, inputs).label(format!("last{axes}")).near(16.0, 400.0);
                cases.push(sized(case, shape).grad(Grad::Smooth));
            }
        }
    }
    let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(1e-5) };
    let shifted = Fill::Uniform(900.0, 901.0);
    // The mean has a few rounding errors of a sum near 900 times the count; every element inherits them, scaled by 1 /
    // 0.3.
    cases.push(Case::new(op, vec![tensor([4, 33], dtype, shifted)]).label("shifted").near(16.0, 12000.0));
    cases
}

/// An attention, for a case of its value and one of its gradient.
struct Attention {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    dim_v: usize,
    causal: Option<i64>,
    mask: Mask,
}

#[derive(Clone, Copy)]
enum Mask {
    None,
    Bool(&'static [usize]),
    Added(&'static [usize]),
}

const fn attention(sizes: [usize; 7], causal: Option<i64>, mask: Mask) -> Attention {
    let [batch, heads, kv_heads, queries, keys, dim, dim_v] = sizes;
    Attention { batch, heads, kv_heads, queries, keys, dim, dim_v, causal, mask }
}

const ATTENTIONS: [Attention; 16] = [
    attention([1, 1, 1, 1, 1, 1, 1], None, Mask::None),
    attention([0, 2, 2, 3, 3, 4, 4], None, Mask::None),
    attention([1, 2, 2, 0, 3, 4, 4], None, Mask::None),
    attention([1, 2, 2, 3, 0, 4, 4], None, Mask::None),
    attention([2, 2, 2, 3, 4, 5, 5], None, Mask::None),
    attention([1, 2, 2, 4, 4, 3, 2], Some(0), Mask::None),
    attention([1, 2, 2, 3, 5, 3, 3], Some(2), Mask::None),
    attention([1, 1, 1, 4, 3, 3, 3], Some(-1), Mask::None),
    attention([2, 4, 2, 3, 3, 4, 4], None, Mask::None),
    attention([1, 4, 1, 3, 4, 2, 3], Some(1), Mask::None),
    attention([1, 2, 2, 3, 4, 3, 3], None, Mask::Bool(&[1, 2, 3, 4])),
    attention([2, 2, 2, 3, 4, 3, 3], None, Mask::Bool(&[1, 1, 3, 4])),
    attention([2, 2, 2, 3, 4, 3, 3], None, Mask::Added(&[2, 2, 3, 4])),
    attention([2, 2, 1, 3, 4, 3, 3], Some(1), Mask::Added(&[1, 1, 1, 4])),
    attention([2, 4, 4, 70, 67, 32, 32], Some(0), Mask::None),
    attention([1, 2, 2, 130, 129, 17, 19], None, Mask::Added(&[1, 1, 130, 129])),
];

impl Attention {
    fn cases(&self, dtype: DType) -> Vec<Case> {
        let spec = AttentionSpec { scale: Real(1.0 / (self.dim as f64).sqrt()), causal: self.causal };
        let forward = Op::Attention(spec);
        let q = || tensor([self.batch, self.heads, self.queries, self.dim], dtype, Fill::Normal);
        let k = || tensor([self.batch, self.kv_heads, self.keys, self.dim], dtype, Fill::Normal);
        let v = || tensor([self.batch, self.kv_heads, self.keys, self.dim_v], dtype, Fill::Normal);
        let grad = tensor([self.batch, self.heads, self.queries, self.dim_v], dtype, Fill::Normal);
        let mask = self.mask_input(dtype);
        let mut inputs = vec![q(), k(), v()];
        inputs.extend(mask.clone());
        let mut operands = vec![grad, q(), k(), v()];
        let mut sources = vec![1, 2, 3];
        if mask.is_some() {
            sources.push(6);
        }
        for place in [0, 1] {
            operands.push(Input::Result { op: forward.clone(), inputs: sources.clone(), place });
        }
        operands.extend(mask);
        let gradient = Case::new(Op::AttentionGrad(spec), operands);
        let finish = |case: Case| {
            let case = case.label(self.label()).near(32.0, 64.0).grad(Grad::Smooth);
            if self.queries * self.keys > 1000 { case.large() } else { case }
        };
        vec![finish(Case::new(forward, inputs)), finish(gradient)]
    }

    fn mask_input(&self, dtype: DType) -> Option<Input> {
        match self.mask {
            Mask::None => None,
            Mask::Bool(shape) => Some(tensor(shape, DType::Bool, Fill::Normal)),
            Mask::Added(shape) => Some(tensor(shape, dtype, Fill::Normal)),
        }
    }

    fn label(&self) -> String {
        match self.causal {
            Some(offset) => format!("causal{offset}"),
            None => "full".into(),
        }
    }
}

fn resizes(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], &[usize]); 12] = [
        (&[1, 1, 1], &[1]),
        (&[1, 1, 1], &[4]),
        (&[0, 2, 3], &[5]),
        (&[1, 0, 3], &[5]),
        (&[2, 3, 4], &[7]),
        (&[2, 3, 7], &[3]),
        (&[1, 2, 5], &[1]),
        (&[1, 2, 3, 4], &[5, 6]),
        (&[1, 2, 6, 5], &[3, 8]),
        (&[1, 1, 4, 4], &[4, 4]),
        (&[1, 2, 2, 3, 4], &[3, 2, 5]),
        (&[2, 5, 37, 41], &[50, 31]),
    ];
    let mut cases = Vec::new();
    for (shape, size) in table {
        for &mode in ResizeMode::ALL {
            for align_corners in [false, true] {
                let op = Op::Resize { mode, size: size.to_vec(), align_corners };
                let corners = if align_corners { "_corners" } else { "" };
                let label = format!("{}to{size:?}{corners}", mode.name()).replace(' ', "");
                let case = Case::new(op, vec![tensor(shape, dtype, Fill::Normal)]).label(label);
                // Positions of up to 50 have rounding errors, which compilers reduce by fused multiply-adds.
                cases.push(sized(case.near(16.0, 128.0).grad(Grad::Smooth), shape));
            }
        }
    }
    cases
}

fn ffts(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize); 16] = [
        (&[1], 0),
        (&[0, 4], 1),
        (&[4, 0], 1),
        (&[2], 0),
        (&[8], 0),
        (&[7], 0),
        (&[12], 0),
        (&[3, 5], 0),
        (&[2, 6, 3], 1),
        (&[2, 31], 1),
        (&[9, 1024], 1),
        (&[300, 9], 0),
        (&[5, 509], 1),
        (&[3, 1000], 1),
        (&[2, 540, 2], 1),
        (&[1, 1018], 1),
    ];
    let mut cases = Vec::new();
    for (shape, axis) in table {
        let points = shape[axis];
        let real = if points == 0 { vec![] } else { vec![FftKind::FromReal, FftKind::ToReal { points }] };
        for kind in [FftKind::Complex].into_iter().chain(real) {
            let length = match kind {
                FftKind::Complex | FftKind::FromReal => points,
                FftKind::ToReal { .. } => points / 2 + 1,
            };
            let operand = TensorType::new(shape, dtype).shape.with(axis, length);
            let part = || tensor(operand, dtype, Fill::Normal);
            let parts = if kind == FftKind::FromReal { vec![part()] } else { vec![part(), part()] };
            for inverse in [false, true] {
                let case = Case::new(Op::Fft { kind, axis, inverse }, parts.clone());
                let label = format!("axis{axis}{}", if inverse { "_inverse" } else { "" });
                let case = case.label(label).near(16.0, 16.0 + points as f64);
                cases.push(sized(case.grad(Grad::Smooth), shape));
            }
        }
    }
    cases
}

/// Axes before the last, and blocks of a row.
const BLOCKS: [(&[usize], usize); 7] =
    [(&[], 1), (&[0], 2), (&[3], 0), (&[1], 1), (&[3], 2), (&[2, 3], 1), (&[17], 10)];

/// An engine may fuse the multiplication by the scale and the addition of the minimum.
fn block_dequantizations(dtype: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for &format in BlockFormat::ALL {
        for (leading, blocks) in BLOCKS {
            let shape: Vec<usize> = leading.iter().copied().chain([blocks * format.bytes()]).collect();
            let operand = tensor(&shape[..], DType::U8, Fill::Blocks(format));
            let case = Case::new(Op::DequantizeBlocks { format, dtype }, vec![operand]);
            let case = case.label(format!("{}_{dtype}", format.name())).near(4.0, 16.0);
            cases.push(sized(case.grad(Grad::None("blocks have no gradient")), &shape));
        }
    }
    cases
}

fn quantizations(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], &[usize]); 8] = [
        (&[], &[]),
        (&[1], &[1]),
        (&[0, 3], &[1, 1]),
        (&[6], &[1]),
        (&[6], &[3]),
        (&[4, 6], &[4, 2]),
        (&[2, 3, 4], &[1, 3, 1]),
        (&[130, 260], &[130, 4]),
    ];
    let mut cases = Vec::new();
    for (shape, scale) in table {
        for stored in [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32] {
            for with_zero in [false, true] {
                let q = TensorType::new(shape, stored);
                let s = || tensor(scale, dtype, Fill::Uniform(0.02, 0.1));
                let zero = || tensor(scale, stored, Fill::Uniform(-9.0, 9.0));
                let mut quantize = vec![tensor(shape, dtype, Fill::Uniform(-6.0, 6.0)), s()];
                let mut dequantize = vec![Input::Tensor(q, Fill::Uniform(-100.0, 100.0)), s()];
                if with_zero {
                    quantize.push(zero());
                    dequantize.push(zero());
                }
                let constant = Grad::None("the result is an integer");
                let case =
                    Case::new(Op::Quantize { dtype: stored }, quantize).label(stored.name()).grad(constant);
                cases.push(sized(case, shape));
                let case = Case::new(Op::Dequantize, dequantize).near(2.0, 0.0).grad(Grad::Smooth);
                cases.push(sized(case, shape));
            }
        }
    }
    let corners = vec![tensor([9, 9], dtype, Fill::Special), tensor([9, 1], dtype, Fill::Uniform(0.1, 1.0))];
    cases.push(Case::new(Op::Quantize { dtype: DType::I8 }, corners).label("corners"));
    cases
}
