//! Matmul, convolution and pooling against the reference engine.

use crate::against::{Case, against_reference, within};
use kiln_ir::{ConvPass, ConvSpec, DType, Op, PoolKind, PoolSpec};

#[test]
fn matmul_of_all_shapes() {
    let sizes = [1, 2, 3, 7, 17, 64];
    for m in sizes {
        for k in sizes {
            for n in sizes {
                against_reference(&Case::new(Op::MatMul, &[&[m, k], &[k, n]]));
            }
        }
    }
    for [m, k, n] in [
        [0, 3, 2],
        [3, 0, 2],
        [3, 2, 0],
        [130, 200, 150],
        [8, 300, 500],
        [500, 300, 3],
        [1, 700, 900],
        [20, 301, 70],
        [200, 75, 17],
    ] {
        against_reference(&Case::new(Op::MatMul, &[&[m, k], &[k, n]]));
        against_reference(&Case::new(Op::MatMul, &[&[m, k], &[k, n]]).transposed());
    }
    against_reference(&Case::new(Op::MatMul, &[&[300, 260], &[260, 310]]).dtype(DType::F64));
}

#[test]
fn matmul_of_batches_and_views() {
    for shapes in [
        [[5, 3, 4], [5, 4, 6]],
        [[64, 9, 16], [64, 16, 2]],
        [[2, 70, 80], [2, 80, 90]],
        [[0, 2, 3], [0, 3, 2]],
    ] {
        let case = Case::new(Op::MatMul, &[&shapes[0], &shapes[1]]);
        against_reference(&case);
        against_reference(&case.clone().transposed());
        against_reference(&case.clone().flipped());
        against_reference(&case.clone().repeated(1));
        against_reference(&case.clone().dtype(DType::BF16).repeated(1));
        against_reference(&case.repeated(0));
    }
    against_reference(&Case::new(Op::MatMul, &[&[2, 3, 1, 4], &[2, 3, 4, 5]]));
    against_reference(&Case::new(Op::MatMul, &[&[6, 1, 4], &[6, 4, 5]]).repeated(1));
}

#[test]
fn narrow_matmuls() {
    for rows in [1, 2, 3, 5, 7, 8, 9, 24] {
        for [k, n] in [[1, 70_000], [9, 8000], [33, 3000], [1000, 130], [5000, 40], [70, 1], [40_000, 3]] {
            if rows * k * n > 4_000_000 {
                continue;
            }
            let factor = if k > 10_000 { 30.0 } else { 5.0 };
            for shapes in [[[rows, k], [k, n]], [[n, k], [k, rows]]] {
                let case = Case::new(Op::MatMul, &[&shapes[0], &shapes[1]]);
                within(&case, factor);
                within(&case.clone().transposed(), factor);
                within(&case.clone().flipped(), factor);
                if rows % 3 == 1 {
                    within(&case.clone().dtype(DType::F64), factor);
                    within(&case.clone().dtype(DType::BF16), factor);
                    within(&case.dtype(DType::F16).transposed(), factor);
                }
            }
        }
    }
}

#[test]
fn matmul_of_16_bit_floats_is_rounded_once() {
    for dtype in [DType::F16, DType::BF16] {
        for shapes in [[[130, 200], [200, 300]], [[50, 1100], [1100, 70]], [[3, 600], [600, 900]]] {
            let case = Case::new(Op::MatMul, &[&shapes[0], &shapes[1]]).dtype(dtype);
            against_reference(&case);
            against_reference(&case.transposed());
        }
    }
}

#[test]
fn matmul_with_a_long_inner_dim() {
    within(&Case::new(Op::MatMul, &[&[30, 40_000], &[40_000, 33]]), 20.0);
    within(&Case::new(Op::MatMul, &[&[26, 70_000], &[70_000, 25]]).dtype(DType::BF16), 1.0);
}

#[test]
fn matmul_propagates_infinities_and_nans() {
    for shapes in [[[1, 50], [50, 30]], [[60, 50], [50, 90]], [[30, 700], [700, 4]]] {
        let case = Case::new(Op::MatMul, &[&shapes[0], &shapes[1]]).with_infinities();
        against_reference(&case);
        against_reference(&case.transposed());
    }
}

#[test]
fn matmul_of_all_dtypes() {
    for dtype in DType::ALL {
        if !dtype.is_bool() {
            against_reference(&Case::new(Op::MatMul, &[&[2, 5, 70], &[2, 70, 67]]).dtype(dtype));
            against_reference(&Case::new(Op::MatMul, &[&[3, 2], &[2, 0]]).dtype(dtype));
        }
    }
}

struct Conv {
    x: &'static [usize],
    w: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    dilation: &'static [usize],
    groups: usize,
}

#[rustfmt::skip]
const CONVS: &[Conv] = &[
    Conv { x: &[2, 1, 28, 28], w: &[32, 1, 3, 3], stride: &[1, 1], padding: &[(1, 1), (1, 1)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[3, 32, 14, 14], w: &[64, 32, 3, 3], stride: &[1, 1], padding: &[(0, 0), (0, 0)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[2, 8, 9, 10], w: &[70, 8, 5, 5], stride: &[1, 1], padding: &[(2, 2), (2, 2)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[2, 6, 11, 13], w: &[40, 6, 3, 2], stride: &[2, 3], padding: &[(1, 0), (0, 2)], dilation: &[1, 2], groups: 1 },
    Conv { x: &[2, 3, 12, 12], w: &[16, 3, 4, 4], stride: &[4, 4], padding: &[(0, 0), (0, 0)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[2, 8, 10, 10], w: &[8, 1, 3, 3], stride: &[1, 1], padding: &[(1, 1), (1, 1)], dilation: &[1, 1], groups: 8 },
    Conv { x: &[2, 4, 9, 70], w: &[8, 1, 3, 3], stride: &[2, 2], padding: &[(1, 1), (1, 1)], dilation: &[1, 1], groups: 4 },
    Conv { x: &[2, 8, 10, 9], w: &[12, 4, 3, 3], stride: &[1, 2], padding: &[(2, 0), (0, 1)], dilation: &[2, 1], groups: 2 },
    Conv { x: &[1, 17, 8, 8], w: &[33, 17, 1, 1], stride: &[1, 1], padding: &[(0, 0), (0, 0)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[2, 5, 7, 7], w: &[90, 5, 7, 7], stride: &[1, 1], padding: &[(0, 0), (0, 0)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[3, 4, 33], w: &[20, 4, 5], stride: &[3], padding: &[(4, 1)], dilation: &[2], groups: 1 },
    Conv { x: &[1, 3, 5, 6, 7], w: &[6, 3, 2, 3, 2], stride: &[1, 2, 1], padding: &[(0, 1), (1, 1), (0, 0)], dilation: &[1, 1, 2], groups: 1 },
    Conv { x: &[1, 2, 3, 3], w: &[3, 2, 2, 2], stride: &[5, 5], padding: &[(6, 6), (6, 6)], dilation: &[3, 3], groups: 1 },
    Conv { x: &[0, 2, 3, 3], w: &[3, 2, 2, 2], stride: &[1, 1], padding: &[(0, 0), (0, 0)], dilation: &[1, 1], groups: 1 },
    Conv { x: &[2, 0, 3, 3], w: &[3, 0, 2, 2], stride: &[1, 1], padding: &[(0, 0), (0, 0)], dilation: &[1, 1], groups: 1 },
];

impl Conv {
    fn spec(&self) -> ConvSpec {
        ConvSpec {
            stride: self.stride.to_vec(),
            padding: self.padding.to_vec(),
            dilation: self.dilation.to_vec(),
            groups: self.groups,
        }
    }

    fn y(&self) -> Vec<usize> {
        let mut shape = vec![self.x[0], self.w[0]];
        for axis in 0..self.stride.len() {
            let padded = self.x[axis + 2] + self.padding[axis].0 + self.padding[axis].1;
            shape.push((padded - self.dilation[axis] * (self.w[axis + 2] - 1) - 1) / self.stride[axis] + 1);
        }
        shape
    }

    fn cases(&self) -> [Case; 3] {
        let op = |pass| Op::Conv { spec: self.spec(), pass };
        let y = self.y();
        [
            Case::new(op(ConvPass::Forward), &[self.x, self.w]),
            Case::new(op(ConvPass::Input { size: self.x[2..].to_vec() }), &[&y, self.w]),
            Case::new(op(ConvPass::Weight { size: self.w[2..].to_vec() }), &[self.x, &y]),
        ]
    }
}

#[test]
fn conv_forward_and_backward_passes() {
    for conv in CONVS {
        for case in conv.cases() {
            within(&case, 5.0);
            within(&case.clone().transposed(), 5.0);
            within(&case.flipped(), 5.0);
        }
    }
}

#[test]
fn conv_of_all_float_dtypes() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        for conv in &CONVS[3..8] {
            conv.cases().into_iter().for_each(|case| against_reference(&case.dtype(dtype)));
        }
    }
}

#[test]
fn conv_is_independent_of_thread_count() {
    for case in CONVS[1].cases().into_iter().chain(CONVS[5].cases()) {
        assert_eq!(case.on_cpu(1), case.on_cpu(3));
    }
}

fn pools() -> Vec<(PoolSpec, &'static [usize])> {
    let kinds = [
        PoolKind::Max,
        PoolKind::Average { include_padding: false },
        PoolKind::Average { include_padding: true },
    ];
    let mut pools = Vec::new();
    for kind in kinds {
        let is_max = kind == PoolKind::Max;
        let plain = |window: &[usize]| PoolSpec::new(kind, window);
        pools.push((plain(&[2, 2]), &[2, 3, 8, 150][..]));
        pools.push((plain(&[2, 2]), &[1, 2, 7, 9]));
        pools.push((
            PoolSpec { stride: vec![2, 2], padding: vec![(1, 1); 2], ..plain(&[3, 3]) },
            &[2, 2, 9, 12],
        ));
        pools.push((
            PoolSpec { stride: vec![1, 1], padding: vec![(1, 1); 2], ..plain(&[3, 3]) },
            &[2, 2, 5, 70],
        ));
        pools.push((PoolSpec { stride: vec![3, 2], overhang: vec![2, 1], ..plain(&[3, 2]) }, &[1, 2, 10, 7]));
        pools.push((plain(&[3]), &[2, 2, 17]));
        pools.push((plain(&[2, 1, 3]), &[1, 2, 4, 3, 9]));
        pools.push((plain(&[7, 7]), &[2, 5, 7, 7]));
        if is_max {
            let dilated = PoolSpec {
                stride: vec![1, 2],
                dilation: vec![2, 3],
                padding: vec![(1, 0), (2, 1)],
                ..plain(&[2, 2])
            };
            pools.push((dilated, &[1, 2, 6, 9]));
        }
    }
    pools
}

/// The shape of the result of pooling.
fn pooled(spec: &PoolSpec, x: &[usize]) -> Vec<usize> {
    let mut shape = x.to_vec();
    for axis in 0..spec.window.len() {
        let length = x[axis + 2] + spec.padding[axis].0 + spec.padding[axis].1 + spec.overhang[axis];
        shape[axis + 2] =
            (length - spec.dilation[axis] * (spec.window[axis] - 1) - 1) / spec.stride[axis] + 1;
    }
    shape
}

#[test]
fn pooling_and_its_gradient() {
    for (spec, x) in pools() {
        let y = pooled(&spec, x);
        let is_max = spec.kind == PoolKind::Max;
        let size = x[2..].to_vec();
        let forward = Case::new(Op::Pool(spec.clone()), &[x]);
        let operands: &[&[usize]] = if is_max { &[&y, x] } else { &[&y] };
        let backward = Case::new(Op::PoolGrad { spec, size }, operands);
        for case in [forward, backward] {
            against_reference(&case);
            against_reference(&case.clone().transposed());
            against_reference(&case.clone().dtype(DType::F64));
            against_reference(&case.clone().dtype(DType::BF16));
            against_reference(&case.clone().with_few_values());
            if is_max {
                against_reference(&case.clone().dtype(DType::I32));
                against_reference(&case.clone().dtype(DType::U8));
                against_reference(&case.with_infinities());
            }
        }
    }
}
