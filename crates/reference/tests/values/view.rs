use super::{n, outcome, run, shaped, t, vec_of};
use kiln_ir::{Axes, DType, Op, PadAxis, Shape, SliceAxis, TensorType};

fn counting(shape: &[usize]) -> kiln_ir::Operand {
    let count = shape.iter().product::<usize>() as i32;
    shaped(&(0..count).collect::<Vec<i32>>(), shape)
}

#[test]
fn full_and_iota() {
    let ty = TensorType::new([2, 2], DType::U8);
    assert_eq!(vec_of::<u8>(&Op::Full(ty), &[n(7)]), [7; 4]);
    assert_eq!(vec_of::<bool>(&Op::Full(TensorType::new([1], DType::Bool)), &[n(true)]), [true]);
    assert_eq!(vec_of::<u8>(&Op::Iota { ty, axis: 1 }, &[]), [0, 1, 0, 1]);
    let long = Op::Iota { ty: TensorType::new([300], DType::U8), axis: 0 };
    assert_eq!(vec_of::<u8>(&long, &[])[255..258], [255, 0, 1]);
    assert_eq!(
        vec_of::<f64>(&Op::Iota { ty: ty.with_dtype(DType::F64), axis: 0 }, &[]),
        [0.0, 0.0, 1.0, 1.0]
    );
}

#[test]
fn permute_and_reshape() {
    let y = run(&Op::Permute(Axes::new(&[2, 0, 1])), &[counting(&[2, 1, 3])]);
    assert_eq!(
        (y.shape()[..].to_vec(), y.into_vec::<i32>().unwrap()),
        (vec![3, 2, 1], vec![0, 3, 1, 4, 2, 5])
    );
    let y = run(&Op::Reshape([3, 2].into()), &[counting(&[2, 3])]);
    assert_eq!(y.into_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(run(&Op::Permute(Axes::new(&[])), &[counting(&[])]).num_elements(), 1);
}

#[test]
fn broadcast() {
    let y = run(&Op::Broadcast([2, 2, 3].into()), &[counting(&[2, 1])]);
    assert_eq!(y.into_vec::<i32>().unwrap(), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
    assert_eq!(run(&Op::Broadcast([0, 3].into()), &[counting(&[1, 3])]).num_elements(), 0);
    assert_eq!(vec_of::<i32>(&Op::Broadcast(Shape::default()), &[counting(&[])]), [0]);
}

#[test]
fn slices() {
    let backwards = SliceAxis { start: 4, len: 3, step: -2 };
    assert_eq!(vec_of::<i32>(&Op::Slice(vec![backwards]), &[counting(&[5])]), [4, 2, 0]);
    let slices = vec![SliceAxis::range(1..2), SliceAxis { start: 0, len: 2, step: 2 }];
    assert_eq!(vec_of::<i32>(&Op::Slice(slices), &[counting(&[2, 3])]), [3, 5]);
    let nothing = SliceAxis { start: 3, len: 0, step: -1 };
    assert_eq!(run(&Op::Slice(vec![nothing]), &[counting(&[3])]).num_elements(), 0);
}

#[test]
fn padding() {
    let pads = vec![PadAxis { low: 1, high: 2, interior: 1 }];
    assert_eq!(vec_of::<i32>(&Op::Pad(pads.clone()), &[counting(&[3]), n(9)]), [9, 0, 9, 1, 9, 2, 9, 9]);
    assert_eq!(vec_of::<i32>(&Op::Pad(pads), &[counting(&[0]), n(9)]), [9, 9, 9]);
    let y = run(&Op::Pad(vec![PadAxis::new(0, 1), PadAxis::new(1, 0)]), &[t([[1.0f32]]), n(0.5)]);
    assert_eq!(y.into_vec::<f32>().unwrap(), [0.5, 1.0, 0.5, 0.5]);
}

#[test]
fn concatenation() {
    let parts = [counting(&[2, 1]), counting(&[2, 0]), counting(&[2, 2])];
    assert_eq!(vec_of::<i32>(&Op::Concat { axis: 1 }, &parts), [0, 0, 1, 1, 2, 3]);
    assert_eq!(vec_of::<i32>(&Op::Concat { axis: 0 }, &[t([1i32]), t([2i32, 3])]), [1, 2, 3]);
}

#[test]
fn windows() {
    let op = Op::Windows { axis: 0, size: 2, step: 2, dilation: 3 };
    let y = run(&op, &[counting(&[7, 1])]);
    assert_eq!(y.shape()[..], [2, 1, 2]);
    assert_eq!(y.into_vec::<i32>().unwrap(), [0, 3, 2, 5]);
}

#[test]
fn views_keep_bits() {
    let nan = f32::from_bits(0x7f80_0001);
    let y = outcome(&Op::Permute(Axes::new(&[0])), &[t([nan, -0.0])]).unwrap().remove(0);
    assert_eq!(y.bytes(), kiln_ir::TensorData::from([nan, -0.0]).bytes());
}
