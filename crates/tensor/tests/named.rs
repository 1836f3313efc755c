//! Tensors with named axes.

use kiln_backends::{Device, Flex};
use kiln_tensor::{AnyTensor, Autodiff, DType, Int, NamedTensor, Tensor, TensorType, axes};
use std::panic::{AssertUnwindSafe, catch_unwind};

axes!(Batch, Seq, Model, Hidden);

type Named<S> = NamedTensor<Flex, S>;

fn counted<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    let count = shape.iter().product::<usize>() as i64;
    Tensor::<Flex, 1, Int>::arange(0..count, &Default::default()).float().reshape(shape)
}

fn message(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    payload.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn operators_broadcast_by_name() {
    let x: Named<(Batch, Seq, Model)> = NamedTensor::new(counted([2, 3, 2]));
    let bias: Named<(Model, Batch)> = NamedTensor::new(counted([2, 2]));
    let found = (x.clone() + bias).into_tensor::<3>();
    let expected = counted([2, 3, 2]) + counted([2, 2]).transpose().reshape([2, 1, 2]);
    assert_eq!(found.into_data().to_vec::<f32>(), expected.into_data().to_vec::<f32>());
    let mean = x.clone().mean(Seq);
    assert_eq!((x - mean).sum(Seq).into_tensor::<2>().into_data().to_vec::<f32>(), [0.0; 4]);
}

#[test]
fn contractions_sum_over_shared_names() {
    let x: Named<(Batch, Seq, Model)> = NamedTensor::new(counted([2, 3, 4]));
    let w: Named<(Hidden, Model)> = NamedTensor::new(counted([5, 4]));
    let y: Named<(Seq, Batch, Hidden)> = x.contract(w);
    let expected = counted([6, 4]).matmul(counted([5, 4]).transpose()).reshape([2, 3, 5]).permute([1, 0, 2]);
    assert_eq!(y.into_tensor::<3>().into_data().to_vec::<f32>(), expected.into_data().to_vec::<f32>());
    let a: Named<(Seq,)> = NamedTensor::new(counted([3]));
    let dot: Named<()> = a.clone().contract(a);
    assert_eq!(dot.into_any().into_data().unwrap().to_vec::<f32>(), [5.0]);
}

#[test]
fn reductions_rename_permute_and_align() {
    let x: Named<(Batch, Seq)> = NamedTensor::new(counted([2, 3]));
    assert_eq!(x.clone().max(Seq).into_tensor::<1>().into_data().to_vec::<f32>(), [2.0, 5.0]);
    assert_eq!(x.clone().min(Batch).into_tensor::<1>().into_data().to_vec::<f32>(), [0.0, 1.0, 2.0]);
    let y: Named<(Seq, Hidden)> = x.clone().rename(Batch, Hidden).permute();
    assert_eq!((y.length(Seq), y.length(Hidden)), (3, 2));
    let wide: Named<(Seq, Model, Batch)> = x.clone().align();
    assert_eq!(format!("{wide:?}"), "NamedTensor(f32, Seq 3, Model 1, Batch 2)");
    let shares = x.softmax(Seq).sum(Seq).into_tensor::<1>();
    assert!(shares.all_close(Tensor::ones([2], &Default::default()), None, None));
}

#[test]
fn dims_are_checked_by_name() {
    let x: Named<(Batch, Seq)> = NamedTensor::new(counted([2, 3]));
    let y: Named<(Seq,)> = NamedTensor::new(counted([4]));
    let (a, b) = (x.clone(), y.clone());
    assert_eq!(
        message(move || drop(a + b)),
        "[add] axis `Seq` is 3 on the left and 4 on the right: f32[2, 3] x f32[4]\n  \
         hint: axes of one name have one length; `rename` one of them if they differ in meaning"
    );
    assert_eq!(
        message(move || drop::<Named<(Batch,)>>(x.contract(y))),
        "[contract] axis `Seq` is 3 on the left and 4 on the right: f32[2, 3] x f32[4]\n  \
         hint: axes of one name have one length; `rename` one of them if they differ in meaning"
    );
}

#[test]
fn dynamic_ranks_are_checked() {
    let zeros =
        |shape: &[usize]| AnyTensor::zeros(TensorType::new(shape, DType::F32), &Device::cpu()).unwrap();
    assert!(Named::<(Batch, Seq)>::try_from_any(zeros(&[2, 3])).is_ok());
    let error = Named::<(Batch, Seq)>::try_from_any(zeros(&[2])).unwrap_err();
    assert_eq!(error.to_string(), "[named] is not a tensor of kind Float with axes (Batch, Seq): f32[2]");
}

#[test]
fn named_tensors_have_gradients() {
    type B = Autodiff<Flex>;
    let x: Tensor<B, 2> =
        Tensor::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default()).require_grad();
    let named: NamedTensor<B, (Batch, Seq)> = NamedTensor::new(x.clone());
    let norm: NamedTensor<B, (Batch,)> = named.clone().contract(named);
    let gradients = norm.into_tensor::<1>().sum().backward();
    assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [2.0, 4.0, 6.0, 8.0]);
}
