use super::{outcome, run, shaped, t, vec_of};
use kiln_ir::{DType, Op, SliceAxis, UpdateMode};

#[test]
fn take() {
    let x = t([[0i32, 1, 2], [3, 4, 5]]);
    let y = run(&Op::Take { axis: 1 }, &[x.clone(), t([[2i64, 0], [1, 1]])]);
    assert_eq!(y.shape()[..], [2, 2, 2]);
    assert_eq!(y.into_vec::<i32>().unwrap(), [2, 0, 1, 1, 5, 3, 4, 4]);
    let one = run(&Op::Take { axis: 0 }, &[x, shaped(&[1u8], &[])]);
    assert_eq!((one.shape()[..].to_vec(), one.into_vec::<i32>().unwrap()), (vec![3], vec![3, 4, 5]));
}

#[test]
fn gather() {
    let x = t([[0i32, 1, 2], [3, 4, 5]]);
    assert_eq!(vec_of::<i32>(&Op::Gather { axis: 1 }, &[x.clone(), t([[2i32], [0]])]), [2, 3]);
    assert_eq!(vec_of::<i32>(&Op::Gather { axis: 0 }, &[x, t([[1i32, 0, 1]])]), [3, 1, 5]);
}

#[test]
fn indices_out_of_range() {
    let index = shaped(&[0i32, 1, 2, 12], &[4, 1]);
    let error = outcome(&Op::Take { axis: 0 }, &[shaped(&[0.0f32; 10], &[10]), index]).unwrap_err();
    let expected = "[take] index 12 at position [3, 0] is out of range for axis 0 of length 10\n  hint: indices \
                    range from 0 to 9";
    assert_eq!(error.to_string(), expected);
    let negative = outcome(&Op::Gather { axis: 0 }, &[t([1i32]), t([-1i32])]).unwrap_err();
    assert!(negative.to_string().contains("index -1 at position [0]"));
    let put = Op::Put { axis: 0, mode: UpdateMode::Add };
    assert!(outcome(&put, &[t([1i32]), t([u64::MAX]), t([1i32])]).is_err());
}

#[test]
fn put() {
    let put = |mode| Op::Put { axis: 0, mode };
    let operands = [t([1.0f32, 2.0, 3.0]), t([0i32, 2, 0]), t([10.0f32, 20.0, 30.0])];
    assert_eq!(vec_of::<f32>(&put(UpdateMode::Set), &operands), [30.0, 2.0, 20.0]);
    assert_eq!(vec_of::<f32>(&put(UpdateMode::Add), &operands), [41.0, 2.0, 23.0]);
    assert_eq!(vec_of::<f32>(&put(UpdateMode::Mul), &operands), [300.0, 2.0, 60.0]);
    assert_eq!(vec_of::<f32>(&put(UpdateMode::Min), &operands), [1.0, 2.0, 3.0]);
    assert_eq!(vec_of::<f32>(&put(UpdateMode::Max), &operands), [30.0, 2.0, 20.0]);
    let columns = Op::Put { axis: 1, mode: UpdateMode::Set };
    let y = vec_of::<i32>(&columns, &[t([[1i32, 2], [3, 4]]), shaped(&[1i32], &[]), t([8i32, 9])]);
    assert_eq!(y, [1, 8, 3, 9]);
}

#[test]
fn scatter() {
    let scatter = |mode| Op::Scatter { axis: 1, mode };
    let operands = [t([[0i8, 1], [2, 3]]), t([[1i32, 1], [0, 0]]), t([[100i8, 100], [5, 6]])];
    assert_eq!(vec_of::<i8>(&scatter(UpdateMode::Add), &operands), [0, 201u8 as i8, 13, 3]);
    assert_eq!(vec_of::<i8>(&scatter(UpdateMode::Set), &operands), [0, 100, 6, 3]);
}

#[test]
fn slice_update() {
    let slices = vec![SliceAxis { start: 3, len: 2, step: -2 }];
    let operands = [t([0i32, 1, 2, 3]), t([10i32, 20])];
    let set = Op::SliceUpdate { slices: slices.clone(), mode: UpdateMode::Set };
    assert_eq!(vec_of::<i32>(&set, &operands), [0, 20, 2, 10]);
    let add = Op::SliceUpdate { slices, mode: UpdateMode::Add };
    assert_eq!(vec_of::<i32>(&add, &operands), [0, 21, 2, 13]);
}

#[test]
fn nonzero() {
    let op = Op::NonZero { index: DType::I32 };
    let y = run(&op, &[t([[0.0f32, f32::NAN], [-0.0, 2.0]])]);
    assert_eq!((y.shape()[..].to_vec(), y.into_vec::<i32>().unwrap()), (vec![2, 2], vec![0, 1, 1, 1]));
    assert_eq!(run(&op, &[t([false, false])]).shape()[..], [0, 1]);
    assert_eq!(run(&op, &[shaped(&[3i32], &[])]).shape()[..], [1, 0]);
}
