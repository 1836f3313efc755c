//! Cases of matmul, convolution, pooling.

use super::FLOATS;
use crate::case::{Case, Fill, Grad, Input, tensor};
use crate::fill::epsilon;
use kiln_ir::{
    BlockFormat, ConvPass, ConvSpec, DType, Float8, Op, OperandType, PoolKind, PoolSpec, TensorType, infer,
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        cases.extend(matmuls(dtype));
    }
    cases.extend(float8_matmuls());
    cases.extend(block_matmuls());
    for dtype in FLOATS {
        for row in CONVS {
            cases.extend(row.cases(dtype));
        }
    }
    for dtype in DType::ALL {
        for row in POOLS {
            cases.extend(row.cases(dtype));
        }
    }
    cases.retain(Case::is_valid);
    cases
}

/// Sets the tolerance for sums of `count` products of normal numbers.
fn summed(case: Case, count: usize) -> Case {
    case.near(4.0, 4.0 + 2.0 * count as f64)
}

fn matmuls(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], &[usize]); 18] = [
        (&[1, 1], &[1, 1]),
        (&[0, 3], &[3, 2]),
        (&[2, 0], &[0, 3]),
        (&[2, 3], &[3, 0]),
        (&[0, 2, 3], &[0, 3, 4]),
        (&[1, 5], &[5, 1]),
        (&[5, 1], &[1, 5]),
        (&[2, 3], &[3, 4]),
        (&[1, 7], &[7, 9]),
        (&[9, 7], &[7, 1]),
        (&[17, 19], &[19, 23]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[2, 2, 1, 3], &[2, 2, 3, 2]),
        (&[64, 64], &[64, 64]),
        (&[130, 257], &[257, 131]),
        (&[1, 1000], &[1000, 70]),
        (&[6, 40, 33], &[6, 33, 41]),
        (&[40, 3, 3], &[40, 3, 3]),
    ];
    let case = |(a, b): (&[usize], &[usize])| {
        let fill = if dtype.is_float() { Fill::Normal } else { Fill::Special };
        let depth = a[a.len() - 1];
        let case = Case::new(Op::MatMul, vec![tensor(a, dtype, fill), tensor(b, dtype, fill)]);
        let case = summed(case, depth).grad(Grad::Smooth);
        if a.iter().product::<usize>() >= 1000 { case.large() } else { case }
    };
    let mut cases: Vec<Case> = table.map(case).into();
    let not_finite = Fill::Among(&[1.0, 0.0, f64::INFINITY, -1.0, f64::NAN]);
    let inputs = vec![tensor([5, 4], dtype, not_finite), tensor([4, 6], dtype, not_finite)];
    cases.push(Case::new(Op::MatMul, inputs).label("not_finite"));
    cases
}

/// Bits of 1, -2, 0, NaN and infinity.
fn beyond(format: Float8) -> Fill {
    Fill::Among(match format {
        Float8::E4M3 => &[56.0, 192.0, 0.0, 127.0, 255.0],
        Float8::E5M2 => &[60.0, 192.0, 0.0, 124.0, 252.0, 127.0],
    })
}

fn float8_matmuls() -> Vec<Case> {
    use Float8::{E4M3, E5M2};
    const SHAPES: [(&[usize], &[usize]); 11] = [
        (&[1, 1], &[1, 1]),
        (&[0, 3], &[3, 2]),
        (&[2, 0], &[0, 3]),
        (&[2, 3], &[3, 0]),
        (&[2, 3], &[3, 4]),
        (&[1, 16], &[16, 16]),
        (&[17, 19], &[19, 23]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[3, 32, 48], &[3, 48, 16]),
        (&[64, 128], &[128, 80]),
        (&[130, 257], &[257, 131]),
    ];
    let inputs = |a: &[usize], b: &[usize], fills: [Fill; 2], scale: Fill| {
        let [left, right] = [tensor(a, DType::U8, fills[0]), tensor(b, DType::U8, fills[1])];
        let scale = || tensor([], DType::F32, scale);
        vec![left, right, scale(), scale()]
    };
    let none = Grad::None("bits have no gradient, and scales are f32");
    let case = |formats: [Float8; 2], dtype: DType, inputs: Vec<Input>, label: &str| {
        let names = formats.map(Float8::name).join("_");
        Case::new(Op::MatMulFloat8 { formats, dtype }, inputs)
            .label(format!("{names}_{dtype}_{label}"))
            .grad(none)
    };
    let mut cases = Vec::new();
    for (a, b) in SHAPES {
        for formats in [[E4M3, E4M3], [E4M3, E5M2], [E5M2, E4M3], [E5M2, E5M2]] {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let fills = formats.map(Fill::halves);
                let inputs = inputs(a, b, fills, Fill::Among(&[0.5, 1.0, 4.0]));
                let case = case(formats, dtype, inputs, "halves");
                cases.push(if a.iter().product::<usize>() >= 1000 { case.large() } else { case });
            }
        }
    }
    for formats in [[E4M3, E4M3], [E5M2, E4M3]] {
        // Tensor cores keep about 13 bits of products, relative to the largest product of one instruction.
        let positive = inputs(&[33, 64], &[64, 48], [Fill::Normal; 2], Fill::Positive);
        cases.push(case(formats, DType::F32, positive, "small").near(8192.0, 0.0).large());
        let fills = formats.map(beyond);
        let beyond = inputs(&[5, 4], &[4, 6], fills, Fill::Among(&[1.0]));
        cases.push(case(formats, DType::F32, beyond, "not_finite"));
    }
    cases
}

/// Shapes of `x` before its last axis, rows of the weight, and blocks of a row.
const BLOCK_MATMULS: [(&[usize], usize, usize); 9] = [
    (&[1], 1, 1),
    (&[0], 3, 1),
    (&[2], 0, 1),
    (&[2], 3, 0),
    (&[1], 7, 2),
    (&[3], 5, 1),
    (&[2, 3], 9, 2),
    (&[2, 1, 2], 4, 1),
    (&[33], 70, 3),
];

/// An engine may round `x` to two bytes, except in `f64`. Ones and zeros are exact.
fn block_matmuls() -> Vec<Case> {
    let mut cases = Vec::new();
    for &format in BlockFormat::ALL {
        for (leading, rows, blocks) in BLOCK_MATMULS {
            for dtype in FLOATS {
                // The edge shapes are those of `f32`.
                if dtype != DType::F32 && leading.len() + blocks < 3 {
                    continue;
                }
                let inner = blocks * format.len();
                let fills = [("ones", Fill::Among(&[-1.0, 0.0, 1.0])), ("normal", Fill::Normal)];
                for (label, fill) in fills {
                    let shape: Vec<usize> = leading.iter().copied().chain([inner]).collect();
                    let weight = tensor([rows, blocks * format.bytes()], DType::U8, Fill::Blocks(format));
                    let case =
                        Case::new(Op::MatMulBlocks { format }, vec![tensor(&shape[..], dtype, fill), weight]);
                    let case = case.label(format!("{}_{label}", format.name())).grad(Grad::Smooth);
                    let case = rounded_to_two_bytes(case, fill, dtype, inner);
                    // Sums of large numbers, as a repeated byte has them, may cancel: only ones are multiplied in every
                    // layout.
                    cases.push(if rows > 50 || fill == Fill::Normal { case.large() } else { case });
                }
            }
        }
    }
    cases
}

/// Sets the tolerance for a sum of `count` products with normal weights, one operand of which is rounded to two bytes. Of
/// normal numbers up to 4, the standard deviation of the rounding error is 4 / (127 · 254 · √12), below 0.00004. A repeated
/// byte is a block of large numbers, whose sum rounds.
fn rounded_to_two_bytes(case: Case, fill: Fill, dtype: DType, count: usize) -> Case {
    const DEVIATIONS: f64 = 6.0;
    let is_rounded = fill == Fill::Normal && dtype != DType::F64;
    let rounding = if is_rounded { DEVIATIONS * 4e-5 * (count as f64).sqrt() } else { 0.0 };
    case.near(4.0 + (count as f64).sqrt(), 4.0 + 2.0 * count as f64 + rounding / epsilon(dtype))
}

/// A convolution, for a case of each of its three passes.
struct Conv {
    x: &'static [usize],
    w: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    dilation: &'static [usize],
    groups: usize,
}

const fn conv(
    x: &'static [usize],
    w: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    dilation: &'static [usize],
    groups: usize,
) -> Conv {
    Conv { x, w, stride, padding, dilation, groups }
}

const CONVS: [Conv; 22] = [
    conv(&[1, 1, 1], &[1, 1, 1], &[1], &[(0, 0)], &[1], 1),
    conv(&[0, 2, 5], &[3, 2, 3], &[1], &[(1, 1)], &[1], 1),
    conv(&[2, 0, 5], &[3, 0, 3], &[1], &[(1, 1)], &[1], 1),
    conv(&[2, 2, 5], &[0, 2, 3], &[1], &[(1, 1)], &[1], 1),
    conv(&[2, 3, 7], &[4, 3, 3], &[1], &[(0, 0)], &[1], 1),
    conv(&[2, 3, 8], &[4, 3, 3], &[2], &[(1, 2)], &[1], 1),
    conv(&[1, 2, 9], &[2, 2, 3], &[3], &[(0, 0)], &[2], 1),
    conv(&[2, 4, 7], &[6, 2, 3], &[1], &[(1, 1)], &[1], 2),
    conv(&[1, 4, 6], &[8, 1, 3], &[1], &[(1, 1)], &[1], 4),
    conv(&[1, 1, 1, 1], &[1, 1, 1, 1], &[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1),
    conv(&[2, 3, 5, 6], &[4, 3, 3, 3], &[1, 1], &[(1, 1), (1, 1)], &[1, 1], 1),
    conv(&[1, 3, 6, 5], &[2, 3, 2, 3], &[2, 1], &[(0, 1), (2, 0)], &[1, 2], 1),
    conv(&[2, 4, 5, 5], &[4, 1, 3, 3], &[1, 1], &[(1, 1), (1, 1)], &[1, 1], 4),
    conv(&[2, 3, 4, 4], &[5, 3, 1, 1], &[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1),
    conv(&[1, 2, 3, 3], &[2, 2, 3, 3], &[1, 1], &[(4, 4), (3, 3)], &[1, 1], 1),
    conv(&[1, 2, 3, 4, 3], &[2, 2, 2, 2, 2], &[1, 2, 1], &[(0, 0), (1, 1), (0, 1)], &[1, 1, 1], 1),
    conv(&[1, 4, 3, 3, 4], &[4, 2, 2, 3, 2], &[1, 1, 2], &[(1, 0), (1, 1), (0, 0)], &[2, 1, 1], 2),
    conv(&[4, 16, 28, 28], &[32, 16, 3, 3], &[1, 1], &[(1, 1), (1, 1)], &[1, 1], 1),
    conv(&[3, 24, 17, 19], &[24, 1, 5, 5], &[1, 1], &[(2, 2), (2, 2)], &[1, 1], 24),
    conv(&[2, 18, 21, 23], &[34, 9, 3, 3], &[2, 2], &[(1, 1), (1, 1)], &[1, 1], 2),
    conv(&[2, 33, 16, 16], &[65, 33, 1, 1], &[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1),
    conv(&[5, 7, 400], &[9, 7, 11], &[3], &[(5, 5)], &[2], 1),
];

impl Conv {
    fn cases(&self, dtype: DType) -> Vec<Case> {
        let spec = ConvSpec {
            stride: self.stride.to_vec(),
            padding: self.padding.to_vec(),
            dilation: self.dilation.to_vec(),
            groups: self.groups,
        };
        let (x, w) = (TensorType::new(self.x, dtype), TensorType::new(self.w, dtype));
        let forward = Op::Conv { spec: spec.clone(), pass: ConvPass::Forward };
        let y = infer(&forward, &[OperandType::Tensor(&x), OperandType::Tensor(&w)]);
        let y = y.unwrap_or_else(|error| panic!("a row of the table is invalid: {error}"))[0];
        let input = Op::Conv { spec: spec.clone(), pass: ConvPass::Input { size: self.x[2..].to_vec() } };
        let weight = Op::Conv { spec, pass: ConvPass::Weight { size: self.w[2..].to_vec() } };
        let kernel: usize = self.w[2..].iter().product();
        let outputs: usize = y.shape[2..].iter().product();
        let label = format!("s{:?}p{:?}d{:?}g{}", self.stride, self.padding, self.dilation, self.groups);
        let case = |op: Op, a: TensorType, b: TensorType, count: usize| {
            let inputs = vec![Input::Tensor(a, Fill::Normal), Input::Tensor(b, Fill::Normal)];
            let case = Case::new(op, inputs).label(label.replace(' ', "")).grad(Grad::Smooth);
            let case = summed(case, count);
            if x.num_elements() > 1000 { case.large() } else { case }
        };
        vec![
            case(forward, x, w, kernel * self.w[1]),
            case(input, y, w, kernel * self.w[0] / self.groups),
            case(weight, x, y, outputs * self.x[0]),
        ]
    }
}

/// A pooling, for a case of its value and one of its gradient.
struct Pool {
    x: &'static [usize],
    window: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    overhang: &'static [usize],
    dilation: &'static [usize],
}

const fn pool(
    x: &'static [usize],
    window: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    overhang: &'static [usize],
    dilation: &'static [usize],
) -> Pool {
    Pool { x, window, stride, padding, overhang, dilation }
}

const POOLS: [Pool; 14] = [
    pool(&[1, 1, 1], &[1], &[1], &[(0, 0)], &[0], &[1]),
    pool(&[0, 2, 4], &[2], &[2], &[(0, 0)], &[0], &[1]),
    pool(&[2, 0, 4], &[2], &[2], &[(0, 0)], &[0], &[1]),
    pool(&[2, 3, 7], &[2], &[2], &[(0, 0)], &[0], &[1]),
    pool(&[2, 3, 7], &[3], &[2], &[(1, 1)], &[1], &[1]),
    pool(&[1, 2, 9], &[3], &[1], &[(1, 0)], &[0], &[2]),
    pool(&[1, 1, 1, 1], &[1, 1], &[1, 1], &[(0, 0), (0, 0)], &[0, 0], &[1, 1]),
    pool(&[2, 3, 4, 6], &[2, 2], &[2, 2], &[(0, 0), (0, 0)], &[0, 0], &[1, 1]),
    pool(&[2, 2, 5, 6], &[3, 2], &[1, 2], &[(1, 1), (0, 1)], &[0, 1], &[1, 1]),
    pool(&[1, 2, 6, 6], &[2, 3], &[2, 1], &[(0, 0), (1, 1)], &[0, 0], &[3, 1]),
    pool(&[1, 2, 3, 4, 5], &[2, 2, 3], &[1, 2, 2], &[(0, 0), (0, 0), (1, 1)], &[0, 0, 0], &[1, 1, 1]),
    pool(&[4, 16, 28, 28], &[2, 2], &[2, 2], &[(0, 0), (0, 0)], &[0, 0], &[1, 1]),
    pool(&[3, 17, 33, 35], &[3, 3], &[2, 2], &[(1, 1), (1, 1)], &[0, 0], &[1, 1]),
    pool(&[5, 9, 1001], &[5], &[1], &[(2, 2)], &[0], &[1]),
];

const KINDS: [PoolKind; 3] = [
    PoolKind::Max,
    PoolKind::Average { include_padding: true },
    PoolKind::Average { include_padding: false },
];

impl Pool {
    fn cases(&self, dtype: DType) -> Vec<Case> {
        KINDS.into_iter().flat_map(|kind| self.cases_of(kind, dtype)).collect()
    }

    fn cases_of(&self, kind: PoolKind, dtype: DType) -> Vec<Case> {
        let spec = PoolSpec {
            kind,
            window: self.window.to_vec(),
            stride: self.stride.to_vec(),
            padding: self.padding.to_vec(),
            overhang: self.overhang.to_vec(),
            dilation: self.dilation.to_vec(),
        };
        let x = TensorType::new(self.x, dtype);
        let Ok(types) = infer(&Op::Pool(spec.clone()), &[OperandType::Tensor(&x)]) else { return Vec::new() };
        let label = self.label(kind);
        let (fill, grad) = match kind {
            PoolKind::Max => (Fill::Distinct, Grad::Piecewise),
            PoolKind::Average { .. } => (Fill::Normal, Grad::Smooth),
        };
        let finish = |case: Case| {
            let case = case.label(&label);
            let case = match kind {
                PoolKind::Max if case.op.kind() == kiln_ir::OpKind::Pool => case,
                // The gradient sums over the windows that contain an element, possibly with a rounding per window.
                PoolKind::Max | PoolKind::Average { .. } => case.near(16.0, 32.0),
            };
            if x.num_elements() > 1000 { case.large() } else { case }
        };
        let size = self.x[2..].to_vec();
        let operand = Input::Tensor(x, fill);
        let mut operands = vec![Input::Tensor(types[0], Fill::Normal)];
        if kind == PoolKind::Max {
            operands.push(operand.clone());
        }
        // The gradient of max pooling is linear in its first operand and constant in the second.
        let gradient = Case::new(Op::PoolGrad { spec: spec.clone(), size }, operands).grad(grad);
        let mut cases =
            vec![finish(Case::new(Op::Pool(spec.clone()), vec![operand]).grad(grad)), finish(gradient)];
        if kind == PoolKind::Max && x.num_elements() < 1000 {
            let ties = Input::Tensor(x, Fill::Among(&[0.0, 1.0, f64::NAN, 1.0, f64::NEG_INFINITY]));
            let size = self.x[2..].to_vec();
            let gradient = vec![Input::Tensor(types[0], Fill::Normal), ties.clone()];
            cases.push(finish(Case::new(Op::Pool(spec.clone()), vec![ties]).label("ties")));
            cases.push(finish(Case::new(Op::PoolGrad { spec, size }, gradient).label("ties")));
        }
        cases
    }

    fn label(&self, kind: PoolKind) -> String {
        let kind = match kind {
            PoolKind::Max => "",
            PoolKind::Average { include_padding: true } => "with_padding",
            PoolKind::Average { include_padding: false } => "without_padding",
        };
        let text = format!(
            "w{:?}s{:?}p{:?}o{:?}d{:?}{kind}",
            self.window, self.stride, self.padding, self.overhang, self.dilation
        );
        text.replace(' ', "")
    }
}
