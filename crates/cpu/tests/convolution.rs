//! Every convolution algorithm, selected by shapes, against the reference engine.

use crate::against::{Case, agree};
use kiln_cpu::Cpu;
use kiln_ir::{ConvPass, ConvSpec, DType, Op, TensorData};

struct Conv {
    x: &'static [usize],
    w: &'static [usize],
    stride: usize,
    padding: &'static [(usize, usize)],
    dilation: usize,
    groups: usize,
}

const fn conv(
    x: &'static [usize],
    w: &'static [usize],
    padding: &'static [(usize, usize)],
    [stride, dilation, groups]: [usize; 3],
) -> Conv {
    Conv { x, w, stride, padding, dilation, groups }
}

/// Kernels of 3 × 3 with many channels.
const THREES: &[Conv] = &[
    // Few tiles, many tiles, odd sizes.
    conv(&[1, 16, 14, 14], &[24, 16, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[1, 17, 13, 11], &[21, 17, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[3, 32, 28, 27], &[17, 32, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[2, 18, 40, 33], &[16, 18, 3, 3], &[(0, 0), (0, 0)], [1, 1, 1]),
    // Padding on one side, more padding than the kernel size, and negative padding in the input pass.
    conv(&[2, 16, 20, 21], &[16, 16, 3, 3], &[(2, 0), (0, 1)], [1, 1, 1]),
    conv(&[1, 16, 20, 21], &[16, 16, 3, 3], &[(3, 5), (4, 3)], [1, 1, 1]),
    // Groups.
    conv(&[2, 48, 15, 16], &[64, 24, 3, 3], &[(1, 1), (1, 1)], [1, 1, 2]),
];

/// Other convolutions: strips over a copy of the source, of a group, or over the source itself, and tiles of channels.
const OTHERS: &[Conv] = &[
    conv(&[2, 40, 12, 13], &[33, 40, 1, 1], &[(0, 0), (0, 0)], [1, 1, 1]),
    conv(&[2, 9, 17, 16], &[13, 9, 1, 1], &[(0, 0), (0, 0)], [2, 1, 1]),
    conv(&[1, 3, 37, 41], &[19, 3, 7, 7], &[(3, 3), (3, 3)], [2, 1, 1]),
    conv(&[1, 5, 20, 19], &[7, 5, 3, 4], &[(2, 1), (0, 3)], [3, 2, 1]),
    conv(&[1, 4, 11, 12], &[6, 4, 5, 5], &[(2, 2), (2, 2)], [1, 2, 1]),
    conv(&[20, 2, 9, 9], &[3, 2, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[2, 24, 19, 18], &[24, 1, 3, 3], &[(1, 1), (1, 1)], [1, 1, 24]),
    conv(&[2, 24, 19, 18], &[24, 1, 3, 3], &[(1, 1), (1, 1)], [2, 1, 24]),
    conv(&[3, 16, 10, 11], &[32, 1, 5, 5], &[(2, 2), (2, 2)], [1, 1, 16]),
    conv(&[2, 24, 9, 20], &[36, 4, 3, 3], &[(1, 1), (1, 1)], [1, 1, 6]),
    // Depthwise by windows, with rows of one vector, of several, and shorter ones.
    conv(&[2, 16, 9, 14], &[16, 1, 3, 3], &[(1, 1), (1, 1)], [1, 1, 16]),
    conv(&[1, 24, 7, 56], &[24, 1, 3, 3], &[(1, 1), (1, 1)], [1, 1, 24]),
    conv(&[1, 18, 6, 45], &[18, 1, 3, 3], &[(2, 0), (0, 1)], [1, 1, 18]),
    conv(&[1, 17, 5, 28], &[17, 1, 5, 5], &[(2, 2), (2, 2)], [1, 1, 17]),
    conv(&[1, 16, 10, 31], &[16, 1, 7, 7], &[(3, 3), (3, 3)], [1, 1, 16]),
    conv(&[2, 16, 1, 13], &[16, 1, 3, 3], &[(1, 1), (1, 1)], [1, 1, 16]),
    conv(&[2, 16, 8, 30], &[16, 1, 3, 3], &[(2, 2), (2, 2)], [1, 2, 16]),
    // Rows of whole vectors.
    conv(&[2, 3, 5, 80], &[2, 3, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[2, 3, 6, 80], &[2, 3, 1, 1], &[(0, 0), (0, 0)], [1, 1, 1]),
    conv(&[1, 5, 7, 112], &[11, 5, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[1, 5, 7, 64], &[9, 5, 1, 1], &[(0, 0), (0, 0)], [1, 1, 1]),
    conv(&[1, 3, 9, 64], &[5, 3, 4, 4], &[(1, 1), (1, 1)], [2, 1, 1]),
    conv(&[1, 600, 5, 5], &[34, 600, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[6, 20, 2, 2], &[40, 20, 3, 3], &[(1, 1), (1, 1)], [1, 1, 1]),
    conv(&[9, 20, 1, 1], &[40, 20, 1, 1], &[(0, 0), (0, 0)], [1, 1, 1]),
    conv(&[2, 6, 300], &[10, 6, 7], &[(3, 3)], [1, 1, 1]),
    conv(&[2, 6, 301], &[10, 6, 7], &[(0, 9)], [4, 2, 1]),
    conv(&[2, 5, 6, 7, 8], &[9, 5, 3, 2, 3], &[(1, 1), (0, 1), (1, 1)], [1, 1, 1]),
    conv(&[1, 4, 7, 6, 9], &[6, 2, 3, 3, 3], &[(1, 1), (1, 1), (1, 1)], [2, 1, 2]),
    conv(&[2, 3, 4, 4], &[5, 3, 2, 2], &[(5, 5), (6, 6)], [3, 2, 1]),
    conv(&[2, 3, 0, 4], &[5, 3, 2, 2], &[(2, 2), (1, 1)], [1, 1, 1]),
    conv(&[2, 0, 5, 20], &[4, 0, 2, 2], &[(0, 0), (0, 0)], [1, 1, 1]),
];

impl Conv {
    fn cases(&self) -> [Case; 3] {
        let axes = self.padding.len();
        let spec = ConvSpec {
            stride: vec![self.stride; axes],
            padding: self.padding.to_vec(),
            dilation: vec![self.dilation; axes],
            groups: self.groups,
        };
        let mut y = vec![self.x[0], self.w[0]];
        for axis in 0..axes {
            let padded = self.x[axis + 2] + self.padding[axis].0 + self.padding[axis].1;
            y.push((padded - self.dilation * (self.w[axis + 2] - 1) - 1) / self.stride + 1);
        }
        let op = |pass| Op::Conv { spec: spec.clone(), pass };
        [
            Case::new(op(ConvPass::Forward), &[self.x, self.w]),
            Case::new(op(ConvPass::Input { size: self.x[2..].to_vec() }), &[&y, self.w]),
            Case::new(op(ConvPass::Weight { size: self.w[2..].to_vec() }), &[self.x, &y]),
        ]
    }
}

fn all() -> impl Iterator<Item = Case> {
    THREES.iter().chain(OTHERS).flat_map(Conv::cases)
}

#[test]
fn every_shape_on_every_instruction_set() {
    for name in ["scalar", "avx2", "avx512"] {
        let Some(cpu) = Cpu::with_threads(2).with_instructions(name) else { continue };
        all().for_each(|case| agree(&case, &cpu, 5.0));
    }
}

#[test]
fn every_shape_in_f64() {
    all().for_each(|case| agree(&case.dtype(DType::F64), &Cpu::with_threads(3), 5.0));
}

#[test]
fn every_shape_from_views() {
    let cpu = Cpu::with_threads(2);
    for case in all() {
        agree(&case.clone().transposed(), &cpu, 5.0);
        agree(&case.clone().flipped(), &cpu, 5.0);
        agree(&case.clone().repeated(0), &cpu, 5.0);
        agree(&case.repeated(1), &cpu, 5.0);
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    for case in all() {
        let alone = case.on_cpu(1);
        assert_eq!(alone, case.on_cpu(2));
        assert_eq!(alone, case.on_cpu(3));
    }
}

#[test]
fn infinities_affect_only_windows_that_contain_them() {
    for conv in THREES.iter().chain(&OTHERS[..4]) {
        for case in conv.cases() {
            // Only in the first operand: products of an infinite weight with padding may be NaN or skipped.
            let x = case.data(0);
            let mut values = x.to_vec::<f64>();
            (values[37], values[150]) = (f64::INFINITY, f64::NAN);
            let shape = *x.shape();
            let some = case.operand(0, TensorData::new(values, shape).unwrap().convert(DType::F32));
            agree(&some, &Cpu::with_threads(2), 5.0);
        }
    }
}
