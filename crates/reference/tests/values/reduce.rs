use super::{outcome, run, shaped, t, vec_of};
use kiln_ir::{Axes, DType, Extremum, Op, Reduction};
use std::slice::from_ref;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn reduce(reduction: Reduction, axes: &[usize]) -> Op {
    Op::Reduce { reduction, axes: Axes::new(axes) }
}

#[test]
fn sum_and_prod() {
    let x = t([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Sum, &[1]), from_ref(&x)), [6.0, 15.0]);
    let y = run(&reduce(Reduction::Sum, &[0, 1]), from_ref(&x));
    assert_eq!((y.shape()[..].to_vec(), y.into_vec::<f32>().unwrap()), (vec![1, 1], vec![21.0]));
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Prod, &[0]), from_ref(&x)), [4.0, 10.0, 18.0]);
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Prod, &[]), &[x]).len(), 6);
    assert_eq!(vec_of::<u8>(&reduce(Reduction::Sum, &[0]), &[t([200u8, 100])]), [44]);
    // In an f32 sum, each 1 would be lost.
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Sum, &[0]), &[t([16777216.0f32, 1.0, 1.0])]), [16777218.0]);
}

#[test]
fn reductions_of_empty_tensors() {
    let x = shaped::<f32>(&[], &[2, 0]);
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Sum, &[1]), from_ref(&x)), [0.0, 0.0]);
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Prod, &[1]), from_ref(&x)), [1.0, 1.0]);
    assert_eq!(vec_of::<f32>(&reduce(Reduction::Min, &[1]), from_ref(&x)), [INF, INF]);
    assert_eq!(run(&reduce(Reduction::Max, &[0]), &[x]).num_elements(), 0);
    let x = shaped::<i16>(&[], &[0]);
    assert_eq!(vec_of::<i16>(&reduce(Reduction::Max, &[0]), from_ref(&x)), [i16::MIN]);
    assert_eq!(vec_of::<i16>(&reduce(Reduction::Min, &[0]), &[x]), [i16::MAX]);
    assert_eq!(vec_of::<u64>(&reduce(Reduction::Min, &[0]), &[shaped::<u64>(&[], &[0])]), [u64::MAX]);
    assert_eq!(vec_of::<bool>(&reduce(Reduction::Min, &[0]), &[shaped::<bool>(&[], &[0])]), [true]);
}

#[test]
fn min_and_max() {
    assert!(vec_of::<f32>(&reduce(Reduction::Max, &[0]), &[t([1.0f32, NAN, 2.0])])[0].is_nan());
    assert_eq!(vec_of::<bool>(&reduce(Reduction::Max, &[0]), &[t([false, true])]), [true]);
    assert_eq!(vec_of::<bool>(&reduce(Reduction::Min, &[0]), &[t([false, true])]), [false]);
}

#[test]
fn argmin_and_argmax() {
    let at = |extremum, x| vec_of::<i32>(&Op::ArgReduce { extremum, axis: 0, index: DType::I32 }, &[t(x)]);
    assert_eq!(at(Extremum::Max, [1.0f32, 3.0, 3.0, 2.0]), [1]);
    assert_eq!(at(Extremum::Min, [1.0f32, 3.0, 1.0, 2.0]), [0]);
    assert_eq!(at(Extremum::Max, [1.0f32, NAN, INF, NAN]), [1]);
    assert_eq!(at(Extremum::Min, [1.0f32, NAN, -INF, NAN]), [1]);
    let op = Op::ArgReduce { extremum: Extremum::Max, axis: 1, index: DType::U8 };
    let y = run(&op, &[t([[1i32, 5], [7, 2]])]);
    assert_eq!((y.shape()[..].to_vec(), y.into_vec::<u8>().unwrap()), (vec![2, 1], vec![1, 0]));
    assert!(outcome(&op, &[shaped::<f32>(&[], &[2, 0])]).is_err());
}

#[test]
fn scans() {
    let scan = |reduction, reverse, exclusive| Op::Scan { reduction, axis: 0, reverse, exclusive };
    let x = [t([1i32, 2, 3])];
    assert_eq!(vec_of::<i32>(&scan(Reduction::Sum, false, false), &x), [1, 3, 6]);
    assert_eq!(vec_of::<i32>(&scan(Reduction::Sum, true, false), &x), [6, 5, 3]);
    assert_eq!(vec_of::<i32>(&scan(Reduction::Sum, false, true), &x), [0, 1, 3]);
    assert_eq!(vec_of::<i32>(&scan(Reduction::Prod, true, true), &x), [6, 3, 1]);
    assert_eq!(vec_of::<i32>(&scan(Reduction::Max, false, true), &x), [i32::MIN, 1, 2]);
    let max = vec_of::<f32>(&scan(Reduction::Max, false, false), &[t([1.0f32, NAN, 2.0])]);
    assert!(max[0] == 1.0 && max[1].is_nan() && max[2].is_nan());
    let columns = Op::Scan { reduction: Reduction::Sum, axis: 0, reverse: false, exclusive: false };
    assert_eq!(vec_of::<i32>(&columns, &[t([[1i32, 2], [3, 4]])]), [1, 2, 4, 6]);
}

#[test]
fn sorting() {
    let sort = |descending| Op::Sort { axis: 0, descending, index: DType::I64 };
    let x = [t([2.0f32, NAN, 1.0, 2.0, INF, -0.0, 0.0])];
    let up = outcome(&sort(false), &x).unwrap();
    assert_eq!(up[1].as_slice::<i64>().unwrap(), [5, 6, 2, 0, 3, 4, 1]);
    assert_eq!(up[0].as_slice::<f32>().unwrap()[..6], [-0.0, 0.0, 1.0, 2.0, 2.0, INF]);
    let down = outcome(&sort(true), &x).unwrap();
    assert_eq!(down[1].as_slice::<i64>().unwrap(), [1, 4, 0, 3, 2, 5, 6]);
    let columns = outcome(&sort(false), &[t([[3i32, 1], [2, 2]])]).unwrap();
    assert_eq!(columns[0].as_slice::<i32>().unwrap(), [2, 1, 3, 2]);
    assert_eq!(columns[1].as_slice::<i64>().unwrap(), [1, 0, 0, 1]);
}

#[test]
fn topk() {
    let topk = |k, largest| Op::TopK { axis: 1, k, largest, index: DType::I32 };
    let x = [t([[3i32, 1, 3], [4, 6, 5]])];
    let most = outcome(&topk(2, true), &x).unwrap();
    assert_eq!(most[0].as_slice::<i32>().unwrap(), [3, 3, 6, 5]);
    assert_eq!(most[1].as_slice::<i32>().unwrap(), [0, 2, 1, 2]);
    assert_eq!(outcome(&topk(1, false), &x).unwrap()[0].as_slice::<i32>().unwrap(), [1, 4]);
    assert_eq!(outcome(&topk(0, true), &x).unwrap()[0].shape()[..], [2, 0]);
}
