//! The exact text that users see for wrong calls.

use kiln_tensor::{Flex, FlexDevice, Int, Tensor, activation, loss, module, s};
use std::panic::{AssertUnwindSafe, catch_unwind};

const DEVICE: FlexDevice = FlexDevice;

fn x() -> Tensor<Flex, 2> {
    Tensor::ones([2, 3], &DEVICE)
}

fn i() -> Tensor<Flex, 2, Int> {
    Tensor::ones([2, 3], &DEVICE)
}

/// Runs a wrong call and keeps what it said beside what it should say.
fn says<T>(expected: &str, call: impl FnOnce() -> T) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(call));
    std::panic::set_hook(before);
    let Err(panic) = result else { panic!("nothing panicked: {expected}") };
    let message = panic.downcast_ref::<String>().map_or("no text", String::as_str);
    assert_eq!(message, expected);
}

#[test]
fn messages() {
    says(
        "[add] shapes differ: f32[2, 3] x f32[4, 3]\n  hint: shapes must be equal, or broadcast: aligned at the last \
         axis, lengths equal or 1",
        || x() + Tensor::ones([4, 3], &DEVICE),
    );
    says(
        "[matmul] inner sizes differ: f32[2, 3] x f32[2, 3]\n  hint: the last axis of the left operand must be as long \
         as the second last of the right one; transpose one of them?",
        || x().matmul(x()),
    );
    says("[matmul] needs at least 2 axes: f32[3] x f32[3]\n  hint: add an axis to a vector first", || {
        let v = Tensor::<Flex, 1>::ones([3], &DEVICE);
        v.clone().matmul(v)
    });
    says(
        "[mul] the number 0.5 is no i32: i32[2, 3] x 0.5\n  hint: use a number of the tensor's kind, or cast the tensor \
         first",
        || i() * 0.5,
    );
    says(
        "[softmax] axis 2 is out of range for 2 axes: f32[2, 3]\n  hint: axes go from 0 to 1, or from -1 to -2 counted \
         from the end",
        || activation::softmax(x(), 2),
    );
    says("[reduce] axis 5 is out of range for 2 axes: f32[2, 3]", || x().sum_dim(5));
    says(
        "[concat] shapes differ outside axis 1: f32[2, 3] x f32[4, 3]\n  hint: all operands must agree in every axis but \
         the one they are joined along",
        || Tensor::cat(vec![x(), Tensor::ones([4, 3], &DEVICE)], 1),
    );
    says("[reshape] 6 elements do not divide into the other lengths in [4, -1]: f32[2, 3]", || {
        x().reshape([4, -1])
    });
    says(
        "[reshape] 6 elements do not fill shape [2, 2] of 4: f32[2, 3]\n  hint: the lengths of the new shape must multiply \
         to the number of elements",
        || x().reshape([2, 2]),
    );
    says("[slice] the range along axis 1 starts at 7, beyond its length 3", || x().slice(s![.., 7..]));
    says(
        "[data] 3 elements do not fill the shape [2, 2]\n  hint: the lengths of the shape must multiply to the number of \
         elements",
        || kiln_tensor::TensorData::new(vec![1.0f32; 3], [2, 2]).map_err(|e| panic!("{e}")),
    );
    says(
        "[tensor] is no Float tensor with 2 axes: f32[3]\n  hint: check the number of axes and the dtype; `cast` and \
         `reshape` change them",
        || Tensor::<Flex, 2>::from_floats([1.0, 2.0, 3.0], &DEVICE),
    );
    says(
        "[conv] the input has 3 channels, the weight expects 2 in 1 groups: f32[1, 3, 8, 8] x f32[4, 2, 3, 3]\n  hint: the \
         weight is [channels_out, channels_in / groups, kernel..]",
        || {
            module::conv2d::<Flex>(
                Tensor::ones([1, 3, 8, 8], &DEVICE),
                Tensor::ones([4, 2, 3, 3], &DEVICE),
                None,
                &module::ConvOptions::default(),
            )
        },
    );
    says(
        "[linear] the last axis must be as long as the weight's inputs: f32[2, 3] x f32[5, 4]\n  hint: the weight is \
         [out, in]: it takes 4 inputs",
        || module::linear(x(), Tensor::ones([5, 4], &DEVICE), None),
    );
    says(
        "[into_scalar] is not a single element: f32[2, 3]\n  hint: reduce it first: `sum`, `mean`, or pick one with \
         `slice`",
        || x().into_scalar::<f32>(),
    );
    says("[gather] index 9 at position [1, 0] is out of range for axis 1 of length 3", || {
        let targets = Tensor::<Flex, 1, Int>::from_ints([0, 9], &DEVICE);
        loss::cross_entropy_with_logits(x(), targets).into_data()
    });
}
