//! Views, concatenation and creation: edge cases of shapes, and messages of invalid calls.

use kiln_backends::{Device, Flex, FlexDevice};
use kiln_tensor::{AnyTensor, Autodiff, DType, Int, PadMode, Result, Tensor, TensorType, s};

const DEVICE: FlexDevice = FlexDevice;

fn ints<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D, Int> {
    let count: usize = shape.iter().product();
    Tensor::<Flex, 1, Int>::arange(0..count as i64, &DEVICE).reshape(shape)
}

fn any(shape: &[usize]) -> AnyTensor {
    AnyTensor::zeros(TensorType::new(shape, DType::F32), &Device::cpu()).unwrap()
}

#[track_caller]
fn holds<const D: usize>(tensor: Tensor<Flex, D, Int>, shape: [usize; D], expected: &[i32]) {
    assert_eq!(tensor.dims(), shape);
    assert_eq!(tensor.into_data().to_vec::<i32>(), expected);
}

/// The first line of the message; `messages.rs` has the hints.
#[track_caller]
fn fails(expected: &str, result: Result<impl std::fmt::Debug>) {
    let message = result.unwrap_err().to_string();
    assert_eq!(message.lines().next(), Some(expected), "{message}");
}

#[test]
fn negative_dims_count_from_the_end() {
    let x = ints([2, 3, 4]);
    assert_eq!(x.clone().swap_dims(-3, 2).dims(), [4, 3, 2]);
    assert_eq!(x.clone().movedim([-1, 0], [0, -1]).dims(), [4, 3, 2]);
    assert_eq!(x.clone().permute([2, 0, 1]).dims(), [4, 2, 3]);
    assert_eq!(x.clone().unsqueeze_dims::<5>([0, -1]).dims(), [1, 2, 3, 4, 1]);
    assert_eq!(x.clone().unsqueeze_dim::<4>(-1).squeeze_dim::<3>(3).dims(), [2, 3, 4]);
    assert_eq!(x.flatten::<2>(-2, -1).dims(), [2, 12]);
}

#[test]
fn empty_tensors_and_single_elements_keep_their_shapes() {
    let empty = ints([2, 0, 3]);
    assert_eq!(empty.clone().reshape([0, 5]).dims(), [0, 5]);
    assert_eq!(empty.clone().flip([1, 2]).roll(&[1, 2], [1, 2]).dims(), [2, 0, 3]);
    assert_eq!(empty.clone().repeat([1, 2, 2]).dims(), [2, 0, 6]);
    assert_eq!(empty.clone().split(2, 1).len(), 1);
    assert_eq!(empty.clone().unbind::<2>(1).len(), 0);
    assert_eq!(empty.clone().tril(0).dims(), [2, 0, 3]);
    assert_eq!(empty.clone().diagonal::<2>(0, 1, 2).dims(), [2, 0]);
    assert_eq!(empty.pad([(0, 0), (2, 1), (0, 1)], 7).dims(), [2, 3, 4]);
    let one = ints([1]).reshape([0; 0]);
    assert_eq!(one.clone().unsqueeze::<3>().squeeze::<0>().dims(), [0usize; 0]);
    holds(one.atleast_2d::<2>(), [1, 1], &[0]);
}

#[test]
fn slices_follow_numpy() {
    let x = ints([5]);
    holds(x.clone().slice(s![1..9]), [4], &[1, 2, 3, 4]);
    holds(x.clone().slice([-2..]), [2], &[3, 4]);
    holds(x.clone().slice([..-3]), [2], &[0, 1]);
    holds(x.clone().slice(s![-9..2]), [2], &[0, 1]);
    let (late, early) = (3, 1);
    holds(x.clone().slice(s![late..early]), [0], &[]);
    holds(x.clone().slice(s![..;2]), [3], &[0, 2, 4]);
    holds(x.clone().slice(s![1..4;-2]), [2], &[3, 1]);
    holds(x.clone().slice(s![-1]), [1], &[4]);
    holds(x.clone().slice_fill(s![..;2], 9), [5], &[9, 1, 9, 3, 9]);
    holds(x.slice_assign(s![1..3], ints([1])), [5], &[0, 0, 0, 3, 4]);
}

#[test]
fn split_and_chunk_cover_a_dim() {
    let lengths = |parts: Vec<Tensor<Flex, 1, Int>>| parts.iter().map(|p| p.dims()[0]).collect::<Vec<_>>();
    assert_eq!(lengths(ints([7]).split(3, 0)), [3, 3, 1]);
    assert_eq!(lengths(ints([7]).chunk(4, 0)), [2, 2, 2, 1]);
    assert_eq!(lengths(ints([5]).chunk(4, 0)), [2, 2, 1]);
    assert_eq!(lengths(ints([7]).tensor_split(4, 0)), [2, 2, 2, 1]);
    assert_eq!(lengths(ints([2]).tensor_split(3, -1)), [1, 1, 0]);
    assert_eq!(lengths(ints([7]).tensor_split_at(&[2, -1, 20], 0)), [2, 4, 1, 0]);
    assert_eq!(ints([2, 3]).iter_dim(1).next_back().unwrap().dims(), [2, 1]);
}

#[test]
fn padding_modes_and_repeats() {
    let x = ints([3]);
    holds(x.clone().pad([(2, 2)], PadMode::Reflect), [7], &[2, 1, 0, 1, 2, 1, 0]);
    holds(x.clone().pad([(0, 2)], PadMode::Edge), [5], &[0, 1, 2, 2, 2]);
    holds(x.clone().pad([(3, 1)], PadMode::Circular), [7], &[0, 1, 2, 0, 1, 2, 0]);
    holds(ints([1]).pad([(0, 0)], PadMode::Reflect), [1], &[0]);
    holds(x.tile::<2>(&[2, 2]), [2, 6], &[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let counts = Tensor::<Flex, 1, Int>::from_ints([0, 2], &DEVICE);
    holds(ints([2, 2]).repeat_interleave_each(counts, -1), [2, 2], &[1, 1, 3, 3]);
}

#[test]
fn triangles_and_diagonals_take_any_offset() {
    holds(ints([2, 3]).tril(-5), [2, 3], &[0; 6]);
    holds(ints([2, 3]).triu(i64::MIN), [2, 3], &[0, 1, 2, 3, 4, 5]);
    holds(ints([2, 3]).triu(i64::MAX), [2, 3], &[0; 6]);
    assert_eq!(ints([2, 3]).diagonal::<1>(7, 0, 1).dims(), [0]);
    holds(ints([2, 3]).diagonal::<1>(-1, 0, 1), [1], &[3]);
    holds(ints([2, 2]).diag_embed::<3>(1, 0, 2).select_dim::<2>(1, 1).tril(0), [3, 3], &[0; 9]);
    let nan = Tensor::<Flex, 2>::full([2, 2], f32::NAN, &DEVICE).tril(0).into_data().to_vec::<f32>();
    assert!(nan[1] == 0.0 && nan[0].is_nan());
}

#[test]
fn arange_and_linspace_match_numpy() {
    let floats = |x: Tensor<Flex, 1>| x.into_data().to_vec::<f32>();
    assert_eq!(floats(Tensor::linspace(0.0, 1.0, 1, &DEVICE)), [0.0]);
    assert_eq!(floats(Tensor::linspace(0.0, 1.0, 0, &DEVICE)), [0.0f32; 0]);
    let tenth = floats(Tensor::linspace(0.0, 0.7, 8, &DEVICE));
    assert_eq!((tenth[0], tenth[7]), (0.0, 0.7));
    assert_eq!(floats(Tensor::arange_float(1.0..0.0, -0.5, &DEVICE)), [1.0, 0.5]);
    assert_eq!(floats(Tensor::arange_float(0.0..1.0, -0.5, &DEVICE)), [0.0f32; 0]);
    let (late, early) = (3, 1);
    assert_eq!(Tensor::<Flex, 1, Int>::arange(late..early, &DEVICE).dims(), [0]);
    assert_eq!(Tensor::<Flex, 2, Int>::tril_indices(2, 2, -9, &DEVICE).dims(), [2, 0]);
    let hot = Tensor::<Flex, 1, Int>::from_ints([-1, 3, 1], &DEVICE).one_hot_fill::<2>(2, 1, 0, -1);
    holds(hot, [3, 2], &[0, 0, 0, 0, 0, 1]);
}

#[test]
fn errors_of_invalid_calls() {
    let x = any(&[2, 3]);

    fails("[flip] axis 2 is out of range for 2 axes: f32[2, 3]", x.clone().flip(2));
    fails("[permute] axis 0 is named twice: f32[2, 3]", x.clone().permute([0, -2]));
    fails("[permute] [0] is not a permutation of 2 axes: f32[2, 3]", x.clone().permute([0]));
    fails("[movedim] 1 source axes, but 2 destination axes: f32[2, 3]", x.clone().movedim(0, [0, 1]));
    fails("[rot90] a plane has 2 axes, not 1: f32[2, 3]", x.clone().rot90(1, 0));
    fails("[roll] 1 shifts for 2 axes: f32[2, 3]", x.clone().roll(&[1], [0, 1]));
    fails("[flatten] the first axis, 1, comes after the last, 0: f32[2, 3]", x.clone().flatten(1, 0));
    fails("[squeeze_dim] axis 1 has length 3, not 1: f32[2, 3]", x.clone().squeeze_dim(-1));
    fails("[unflatten] 3 elements do not divide into the other lengths in [2, -1]: f32[2, 3]", {
        x.clone().unflatten(1, &[2, -1])
    });
    fails(
        "[unsqueeze_dim] the new axes are not distinct axes of a result of 3 axes: f32[2, 3]",
        x.clone().unsqueeze_dim(3),
    );
    fails("[unsqueeze] 13 axes are more than the 12 that a tensor may have: f32[2, 3]", {
        x.clone().unsqueeze(13)
    });
    fails("[expand] -1 at position 0 is not a length: f32[2, 3]", x.clone().expand_lengths(&[-1, 2, 3]));
    fails("[slice] 3 ranges for 2 axes: f32[2, 3]", x.clone().slice(s![.., .., ..]));
    fails("[slice_assign] the values do not broadcast to the range, [2, 1]: f32[2, 3] x f32[2, 3]", {
        x.clone().slice_assign(s![.., 1], x.clone())
    });
    fails("[select_dim] index -4 is out of range for axis 1 of length 3: f32[2, 3]", {
        x.clone().select_dim(1, -4)
    });
    fails("[split] the length of parts must be at least 1: f32[2, 3]", x.clone().split(0, 1));
    fails("[split_with_sizes] the lengths [1, 1] add up to 2, axis 1 has 3: f32[2, 3]", {
        x.clone().split_with_sizes(&[1, 1], 1)
    });
    fails(
        "[pad] 3 before and 0 after are too many for axis 1 by reflect: f32[2, 3]",
        x.clone().pad(&[(3, 0)], PadMode::Reflect),
    );
    fails("[repeat] 1 counts for 2 axes: f32[2, 3]", x.clone().repeat(&[2]));
    fails("[diagonal] axis 1 twice: f32[2, 3]", x.clone().diagonal(0, 1, -1));
    fails(
        "[stack] shapes differ: f32[2, 3] x f32[3]",
        AnyTensor::stack_tensors(vec![x.clone(), any(&[3])], 0),
    );
    fails("[cat] needs at least one tensor", AnyTensor::cat(vec![], 0));
    fails("[arange] the step must not be 0", AnyTensor::arange(0..3, 0, DType::I32, x.stack()));
    fails("[linspace] creates floats, not i32", AnyTensor::linspace(0.0, 1.0, 3, DType::I32, x.stack()));
}

#[test]
fn negative_widths_crop() {
    let device = Default::default();
    let x = Tensor::<Flex, 1>::from_floats([1.0f32, 2.0, 3.0], &device);
    let of = |pads, mode: PadMode| x.clone().pad_signed([pads], mode).into_data().to_vec::<f32>();
    assert_eq!(of((-1, -1), PadMode::Edge), [2.0]);
    assert_eq!(of((2, -1), PadMode::Edge), [1.0, 1.0, 1.0, 2.0]);
    assert!(of((-3, 0), PadMode::Edge).is_empty());
    // PyTorch's circular padding repeats the cropped tensor.
    assert_eq!(of((-1, 2), PadMode::Circular), [2.0, 3.0, 2.0, 3.0]);
    assert_eq!(of((1, -2), PadMode::Circular), [1.0, 1.0]);
    let error = x.clone().into_any().pad_signed(&[(-1, 3)], PadMode::Circular).unwrap_err().to_string();
    assert!(error.contains("f32[2]"), "{error}");
    let error = x.into_any().pad_signed(&[(-2, -2)], 0).unwrap_err().to_string();
    assert!(error.contains("[pad]") && error.contains("-2"), "{error}");
}

#[test]
fn gradients_of_as_strided_accumulate() {
    let device = Default::default();
    let x = Tensor::<Autodiff<Flex>, 1>::from_floats([1.0f32, 2.0, 3.0], &device).require_grad();
    let gradient = x.grad(&x.clone().as_strided([2, 2], [1, 1], 0).sum().backward()).unwrap();
    assert_eq!(gradient.into_data().to_vec::<f32>(), [1.0, 2.0, 1.0]);
    let error = x.into_any().as_strided(&[2, 2], &[2, usize::MAX], 0).unwrap_err().to_string();
    assert!(error.contains("[as_strided]"), "{error}");
}
