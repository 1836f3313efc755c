//! Cases of indexing ops.

use super::MOVED;
use crate::case::{Case, Fill, Grad, Input, tensor};
use kiln_ir::{DType, IndexUser, Op, SliceAxis, UpdateMode};

const CONSTANT: Grad = Grad::None("the result is an integer");

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in MOVED {
        cases.extend(takes(dtype));
        cases.extend(gathers(dtype));
        cases.extend(slice_updates(dtype));
    }
    for dtype in DType::ALL {
        cases.extend(nonzeros(dtype));
    }
    cases.extend(index_dtypes());
    cases.extend(checked());
    cases.extend(recovered());
    cases.retain(Case::is_valid);
    cases
}

/// The fill of a source. Copies use edge values; their sums and products would overflow 16-bit floats.
fn source(dtype: DType, mode: UpdateMode) -> Fill {
    match mode {
        UpdateMode::Set | UpdateMode::Add => Fill::Normal,
        UpdateMode::Mul => Fill::Away,
        UpdateMode::Min | UpdateMode::Max if dtype.is_float() => Fill::Distinct,
        UpdateMode::Min | UpdateMode::Max => Fill::Normal,
    }
}

fn tolerance(case: Case, mode: UpdateMode) -> Case {
    match mode {
        UpdateMode::Set | UpdateMode::Min | UpdateMode::Max => case,
        // 16-bit floats may round after each of the few updates of an element.
        UpdateMode::Add | UpdateMode::Mul => case.near(12.0, 24.0),
    }
}

fn grad(mode: UpdateMode) -> Grad {
    match mode {
        UpdateMode::Set | UpdateMode::Add | UpdateMode::Mul => Grad::Smooth,
        UpdateMode::Min | UpdateMode::Max => Grad::Piecewise,
    }
}

fn below(n: usize) -> Fill {
    Fill::Uniform(0.0, n.max(1) as f64 - 1.0)
}

fn sized(case: Case, shape: &[usize]) -> Case {
    if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
}

/// Cases of `Take`, and of `Put` in every mode, on the same shapes.
fn takes(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize, &[usize]); 12] = [
        (&[1], 0, &[]),
        (&[1], 0, &[1]),
        (&[5], 0, &[]),
        (&[5], 0, &[0]),
        (&[5], 0, &[8]),
        (&[0, 3], 1, &[4]),
        (&[4, 0], 0, &[2]),
        (&[4, 3], 0, &[2, 3]),
        (&[4, 3], 1, &[5]),
        (&[2, 5, 3], 1, &[2, 2]),
        (&[300, 130], 0, &[600]),
        (&[130, 300], 1, &[600]),
    ];
    let mut cases = Vec::new();
    for (shape, axis, index) in table {
        let places = || tensor(index, DType::I32, below(shape[axis]));
        let fill = if dtype.is_float() { Fill::Normal } else { Fill::Bits };
        let take = Case::new(Op::Take { axis }, vec![tensor(shape, dtype, fill), places()]);
        cases.push(sized(take.label(format!("axis{axis}")).bits().grad(Grad::Smooth), shape));
        let taken: Vec<usize> = [&shape[..axis], index, &shape[axis + 1..]].concat();
        for &mode in UpdateMode::ALL {
            let fill = source(dtype, mode);
            let inputs = vec![tensor(shape, dtype, fill), places(), tensor(&*taken, dtype, fill)];
            let case = Case::new(Op::Put { axis, mode }, inputs).label(format!("axis{axis}_{}", mode.name()));
            cases.push(sized(tolerance(case, mode).grad(grad(mode)), shape));
        }
    }
    cases
}

/// Cases of `Gather`, and of `Scatter` in every mode, on the same shapes.
fn gathers(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize, usize); 10] = [
        (&[1], 0, 1),
        (&[1], 0, 3),
        (&[5], 0, 0),
        (&[5], 0, 7),
        (&[3, 0], 0, 2),
        (&[4, 3], 0, 2),
        (&[4, 3], 1, 6),
        (&[2, 5, 3], 1, 4),
        (&[300, 130], 0, 400),
        (&[130, 300], 1, 400),
    ];
    let mut cases = Vec::new();
    for (shape, axis, count) in table {
        let mut index = shape.to_vec();
        index[axis] = count;
        let places = || tensor(&*index, DType::I64, below(shape[axis]));
        let fill = if dtype.is_float() { Fill::Normal } else { Fill::Bits };
        let gather = Case::new(Op::Gather { axis }, vec![tensor(shape, dtype, fill), places()]);
        cases.push(sized(gather.label(format!("axis{axis}")).bits().grad(Grad::Smooth), shape));
        for &mode in UpdateMode::ALL {
            let fill = source(dtype, mode);
            let inputs = vec![tensor(shape, dtype, fill), places(), tensor(&*index, dtype, fill)];
            let case =
                Case::new(Op::Scatter { axis, mode }, inputs).label(format!("axis{axis}_{}", mode.name()));
            cases.push(sized(tolerance(case, mode).grad(grad(mode)), shape));
        }
    }
    cases
}

fn slice_updates(dtype: DType) -> Vec<Case> {
    let s = |start, len, step| SliceAxis { start, len, step };
    let table: [(&[usize], Vec<SliceAxis>); 9] = [
        (&[], vec![]),
        (&[1], vec![s(0, 1, 1)]),
        (&[5], vec![s(2, 0, 1)]),
        (&[5], vec![s(1, 3, 1)]),
        (&[7], vec![s(6, 3, -2)]),
        (&[0, 3], vec![s(0, 0, 1), s(0, 2, 1)]),
        (&[4, 6], vec![s(1, 2, 2), s(5, 6, -1)]),
        (&[2, 3, 4], vec![s(0, 2, 1), s(1, 1, 1), s(0, 2, 3)]),
        (&[257, 259], vec![s(1, 128, 2), s(2, 255, 1)]),
    ];
    let mut cases = Vec::new();
    for (shape, slices) in table {
        let label: Vec<String> = slices.iter().map(|s| format!("{}+{}*{}", s.start, s.len, s.step)).collect();
        let lengths: Vec<usize> = slices.iter().map(|s| s.len).collect();
        for &mode in UpdateMode::ALL {
            let fill = source(dtype, mode);
            let inputs = vec![tensor(shape, dtype, fill), tensor(&*lengths, dtype, fill)];
            let case = Case::new(Op::SliceUpdate { slices: slices.clone(), mode }, inputs);
            let case = case.label(format!("{}_{}", label.join(","), mode.name()));
            cases.push(sized(tolerance(case, mode).grad(grad(mode)), shape));
        }
    }
    cases
}

fn nonzeros(dtype: DType) -> Vec<Case> {
    let shapes: [&[usize]; 8] = [&[], &[1], &[0], &[2, 0, 3], &[9], &[4, 5], &[2, 3, 4], &[257, 131]];
    let few = Fill::Among(&[0.0, 1.0, 0.0, 2.0, -0.0]);
    let case = |shape: &[usize], fill, label: &str, index| {
        let case =
            Case::new(Op::NonZero { index }, vec![tensor(shape, dtype, fill)]).label(label).grad(CONSTANT);
        sized(case, shape)
    };
    let mut cases: Vec<Case> = shapes.map(|shape| case(shape, few, "few", DType::I32)).into();
    cases.push(case(&[6], Fill::Among(&[0.0]), "none", DType::I64));
    cases.push(case(&[2, 3], Fill::Among(&[1.0]), "all", DType::U16));
    cases.push(case(&[9, 9], Fill::Special, "corners", DType::I32));
    cases
}

/// Cases of `CheckIndex` with indices in range.
fn checked() -> Vec<Case> {
    let mut cases = Vec::new();
    for &user in IndexUser::ALL {
        for shape in [&[][..], &[0], &[1], &[4, 3], &[257, 131]] {
            for index in [DType::I64, DType::I32, DType::U8] {
                let case =
                    Case::new(Op::CheckIndex { length: 100, user }, vec![tensor(shape, index, below(100))]);
                cases.push(sized(case.label(user.name()).bits().grad(CONSTANT), shape));
            }
        }
    }
    cases
}

/// Cases of `Recover` with values that are not poisoned.
fn recovered() -> Vec<Case> {
    const OUTSIDE: Grad = Grad::None("the result of a recovery has no gradient");
    let mut cases = Vec::new();
    for dtype in MOVED {
        let x = |shape: &[usize]| tensor(shape, dtype, Fill::Normal);
        let lists: [(&str, usize, Vec<Input>); 5] = [
            ("large", 0, vec![x(&[257, 131])]),
            ("one", 0, vec![x(&[4, 3])]),
            ("empty", 0, vec![x(&[0])]),
            ("several", 0, vec![x(&[2, 3]), x(&[]), x(&[5])]),
            ("watched", 1, vec![x(&[1]), x(&[3, 2])]),
        ];
        for (label, watched, inputs) in lists {
            let case = Case::new(Op::Recover { watched }, inputs).label(label).bits().grad(OUTSIDE);
            cases.push(if label == "large" { case.large() } else { case });
        }
    }
    cases
}

/// Cases with every integer dtype as index dtype.
fn index_dtypes() -> Vec<Case> {
    let mut cases = Vec::new();
    for index in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let x = || tensor([5, 3], DType::F32, Fill::Normal);
        let mode = UpdateMode::Add;
        let taken: Input = tensor([4, 3], DType::F32, Fill::Normal);
        let line = || tensor([4], index, below(5));
        let grid = || tensor([4, 3], index, below(5));
        cases.push(Case::new(Op::Take { axis: 0 }, vec![x(), line()]));
        cases.push(Case::new(Op::Gather { axis: 0 }, vec![x(), grid()]));
        cases.push(tolerance(Case::new(Op::Put { axis: 0, mode }, vec![x(), line(), taken.clone()]), mode));
        cases.push(tolerance(Case::new(Op::Scatter { axis: 0, mode }, vec![x(), grid(), taken]), mode));
    }
    cases.into_iter().map(|case| case.label("index")).collect()
}
