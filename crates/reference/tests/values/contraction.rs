use super::{assert_close, outcome, run, shaped, t, vec_of};
use kiln_ir::{ConvPass, ConvSpec, DType, Op, PoolKind, PoolSpec};
use std::slice::from_ref;

#[test]
fn matmul() {
    let y = run(&Op::MatMul, &[t([[1.0f32, 2.0], [3.0, 4.0]]), t([[5.0f32], [6.0]])]);
    assert_eq!((y.shape()[..].to_vec(), y.into_vec::<f32>().unwrap()), (vec![2, 1], vec![17.0, 39.0]));
    let bytes = run(&Op::MatMul, &[t([[100i8, 100]]), t([[100i8], [100]])]);
    assert_eq!((bytes.dtype(), bytes.to_vec::<i32>()), (DType::I32, vec![20_000]));
    let empty = run(&Op::MatMul, &[shaped::<f32>(&[], &[2, 0]), shaped::<f32>(&[], &[0, 1])]);
    assert_eq!(empty.into_vec::<f32>().unwrap(), [0.0, 0.0]);
    let batches = run(&Op::MatMul, &[t([[[2i32]], [[3]]]), t([[[4i32]], [[5]]])]);
    assert_eq!(batches.into_vec::<i32>().unwrap(), [8, 15]);
}

#[test]
fn conv1d() {
    let spec = ConvSpec { stride: vec![2], padding: vec![(1, 0)], dilation: vec![2], groups: 1 };
    let conv = |pass| Op::Conv { spec: spec.clone(), pass };
    let (x, w) = (t([[[1.0f32, 2.0, 3.0, 4.0]]]), t([[[10.0f32, 1.0]]]));
    // Padded: 0 1 2 3 4; windows (0, 2) and (2, 4).
    assert_eq!(vec_of::<f32>(&conv(ConvPass::Forward), &[x.clone(), w.clone()]), [2.0, 24.0]);
    let grad = t([[[1.0f32, 100.0]]]);
    let to_x = conv(ConvPass::Input { size: vec![4] });
    assert_eq!(vec_of::<f32>(&to_x, &[grad.clone(), w]), [0.0, 1001.0, 0.0, 100.0]);
    let to_w = conv(ConvPass::Weight { size: vec![2] });
    assert_eq!(vec_of::<f32>(&to_w, &[x, grad]), [200.0, 402.0]);
}

#[test]
fn grouped_conv() {
    let spec = ConvSpec { groups: 2, ..ConvSpec::new(2) };
    let x = shaped(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1, 2, 2, 2]);
    let w = shaped(&[1.0f32, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0], &[2, 1, 2, 2]);
    let y = run(&Op::Conv { spec, pass: ConvPass::Forward }, &[x, w]);
    assert_eq!((y.shape()[..].to_vec(), y.into_vec::<f32>().unwrap()), (vec![1, 2, 1, 1], vec![5.0, 13.0]));
}

#[test]
fn max_pool() {
    let mut spec = PoolSpec::new(PoolKind::Max, &[2]);
    (spec.stride, spec.padding) = (vec![1], vec![(1, 0)]);
    let x = t([[[-1.0f32, -1.0, f32::NAN, -3.0]]]);
    let y = vec_of::<f32>(&Op::Pool(spec.clone()), from_ref(&x));
    assert_eq!(y[..2], [-1.0, -1.0]);
    assert!(y[2].is_nan() && y[3].is_nan());
    let grad = Op::PoolGrad { spec: spec.clone(), size: vec![4] };
    let back = vec_of::<f32>(&grad, &[t([[[1.0f32, 2.0, 4.0, 8.0]]]), x]);
    assert_eq!(back, [3.0, 0.0, 12.0, 0.0]);
    assert_eq!(vec_of::<i32>(&Op::Pool(spec), &[t([[[1i32, 3, 2]]])]), [1, 3, 3]);
}

#[test]
fn avg_pool() {
    let spec = |include_padding| {
        let mut spec = PoolSpec::new(PoolKind::Average { include_padding }, &[3]);
        (spec.padding, spec.overhang) = (vec![(1, 0)], vec![1]);
        spec
    };
    // Windows (pad 1 2), (3 4 overhang).
    let x = t([[[1.0f32, 2.0, 3.0, 4.0]]]);
    assert_close(&run(&Op::Pool(spec(true)), from_ref(&x)), &[1.0, 3.5]);
    assert_close(&run(&Op::Pool(spec(false)), &[x]), &[1.5, 3.5]);
    let grad = Op::PoolGrad { spec: spec(true), size: vec![4] };
    assert_close(&run(&grad, &[t([[[3.0f32, 4.0]]])]), &[1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn pooling_2d() {
    let x = shaped(&(0..16).map(|i| i as f32).collect::<Vec<_>>(), &[1, 1, 4, 4]);
    let max = Op::Pool(PoolSpec::new(PoolKind::Max, &[2, 2]));
    assert_eq!(vec_of::<f32>(&max, from_ref(&x)), [5.0, 7.0, 13.0, 15.0]);
    let mean = Op::Pool(PoolSpec::new(PoolKind::Average { include_padding: true }, &[2, 2]));
    assert_eq!(vec_of::<f32>(&mean, &[x]), [2.5, 4.5, 10.5, 12.5]);
    let none = outcome(&max, &[shaped::<f32>(&[], &[0, 1, 2, 2])]).unwrap();
    assert_eq!(none[0].shape()[..], [0, 1, 1, 1]);
}
