//! Cases of reductions, scans and sorting.

use super::FLOATS;
use crate::case::{Case, Fill, Grad, tensor};
use kiln_ir::{Axes, DType, Extremum, Op, Reduction};

/// NaN and infinities among small numbers.
const NOT_FINITE: Fill =
    Fill::Among(&[1.0, -2.0, 0.5, 3.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0]);
/// Few distinct numbers, for many ties.
const TIES: Fill = Fill::Among(&[0.0, 1.0, 2.0, 1.0, 3.0]);
/// Factors whose products neither underflow nor overflow soon.
const FACTORS: Fill = Fill::Uniform(0.7, 1.4);

const CONSTANT: Grad = Grad::None("the result is an integer");

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        for &reduction in Reduction::ALL {
            cases.extend(reductions(reduction, dtype));
            cases.extend(scans(reduction, dtype));
        }
        cases.extend(arg_reductions(dtype));
        cases.extend(sorts(dtype));
    }
    cases.retain(Case::is_valid);
    cases
}

fn fill(reduction: Reduction, dtype: DType) -> Fill {
    match reduction {
        Reduction::Sum => Fill::Normal,
        Reduction::Prod if dtype.is_float() => FACTORS,
        Reduction::Prod => Fill::Special,
        Reduction::Min | Reduction::Max => Fill::Distinct,
    }
}

/// The tolerance for a reduction of `count` elements. 16-bit floats round only the final sum.
fn tolerance(case: Case, reduction: Reduction, count: usize) -> Case {
    let count = count as f64;
    match reduction {
        Reduction::Sum => case.near(4.0, 8.0 + 0.5 * count),
        Reduction::Prod => case.near(4.0 + count, 0.0),
        Reduction::Min | Reduction::Max => case,
    }
}

fn grad(reduction: Reduction) -> Grad {
    match reduction {
        Reduction::Sum | Reduction::Prod => Grad::Smooth,
        Reduction::Min | Reduction::Max => Grad::Piecewise,
    }
}

fn reductions(reduction: Reduction, dtype: DType) -> Vec<Case> {
    let table: [(&[usize], &[usize]); 17] = [
        (&[], &[]),
        (&[1], &[0]),
        (&[0], &[0]),
        (&[5], &[0]),
        (&[5], &[]),
        (&[2, 0, 3], &[1]),
        (&[2, 0, 3], &[0]),
        (&[3, 4], &[0]),
        (&[3, 4], &[1]),
        (&[3, 4], &[0, 1]),
        (&[2, 3, 4], &[1]),
        (&[2, 3, 4], &[0, 2]),
        (&[2, 1, 3, 2], &[0, 1, 3]),
        (&[65_539], &[0]),
        (&[257, 259], &[0]),
        (&[257, 259], &[1]),
        (&[3, 150, 151], &[0, 2]),
    ];
    let case = |shape: &[usize], axes: &[usize], fill| {
        let op = Op::Reduce { reduction, axes: Axes::new(axes) };
        let count: usize = axes.iter().map(|&axis| shape[axis]).product();
        let case =
            Case::new(op, vec![tensor(shape, dtype, fill)]).label(format!("over{axes:?}").replace(' ', ""));
        let case = tolerance(case, reduction, count);
        if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
    };
    // The product of tens of thousands of factors overflows every dtype.
    let fits = |shape: &[usize]| reduction != Reduction::Prod || shape.iter().product::<usize>() < 1000;
    let mut cases: Vec<Case> = table
        .into_iter()
        .map(|(shape, axes)| {
            let fill = if fits(shape) { fill(reduction, dtype) } else { Fill::Among(&[1.0, -1.0]) };
            case(shape, axes, fill).grad(grad(reduction))
        })
        .collect();
    for axes in [&[0][..], &[1], &[0, 1]] {
        let corners = if dtype.is_float() { NOT_FINITE } else { Fill::Special };
        cases.push(case(&[7, 9], axes, corners).label("corners"));
        cases.push(case(&[7, 9], axes, TIES).label("ties"));
    }
    cases
}

fn scans(reduction: Reduction, dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize); 8] = [
        (&[1], 0),
        (&[0], 0),
        (&[5], 0),
        (&[2, 0, 3], 2),
        (&[3, 4], 0),
        (&[2, 3, 4], 1),
        (&[130, 517], 1),
        (&[517, 130], 0),
    ];
    let mut cases = Vec::new();
    for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = |shape: &[usize], axis: usize, fill| {
            let op = Op::Scan { reduction, axis, reverse, exclusive };
            let label = format!("axis{axis}{}{}", flag(reverse, "r"), flag(exclusive, "x"));
            let case = Case::new(op, vec![tensor(shape, dtype, fill)]).label(label);
            // Running totals cancel: their errors accumulate over all preceding elements.
            let case = tolerance(case, reduction, 4 * shape[axis]);
            if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
        };
        for (shape, axis) in table {
            let fill = if shape[axis] > 100 && reduction == Reduction::Prod {
                Fill::Among(&[1.0, -1.0])
            } else {
                fill(reduction, dtype)
            };
            cases.push(case(shape, axis, fill).grad(grad(reduction)));
        }
        let corners = if dtype.is_float() { NOT_FINITE } else { Fill::Special };
        cases.push(case(&[9, 11], 1, corners).label("corners"));
        cases.push(case(&[9, 11], 0, TIES).label("ties"));
    }
    cases
}

fn flag(set: bool, text: &str) -> &str {
    if set { text } else { "" }
}

fn arg_reductions(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize, DType); 8] = [
        (&[1], 0, DType::I32),
        (&[5], 0, DType::I64),
        (&[0, 3], 1, DType::I32),
        (&[3, 4], 0, DType::U8),
        (&[3, 4], 1, DType::I32),
        (&[2, 3, 4], 1, DType::U32),
        (&[65_539], 0, DType::I32),
        (&[257, 259], 1, DType::I64),
    ];
    let mut cases = Vec::new();
    for &extremum in Extremum::ALL {
        let case = |shape: &[usize], axis, index, fill| {
            let op = Op::ArgReduce { extremum, axis, index };
            let case = Case::new(op, vec![tensor(shape, dtype, fill)]).label(format!("axis{axis}_{index}"));
            let case = case.grad(CONSTANT);
            if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
        };
        cases.extend(table.map(|(shape, axis, index)| case(shape, axis, index, Fill::Distinct)));
        cases.push(case(&[9, 11], 1, DType::I32, TIES).label("ties"));
        cases.push(case(&[9, 11], 0, DType::I32, Fill::Special).label("corners"));
    }
    cases
}

fn sorts(dtype: DType) -> Vec<Case> {
    let table: [(&[usize], usize); 8] = [
        (&[1], 0),
        (&[0], 0),
        (&[7], 0),
        (&[2, 0, 3], 2),
        (&[4, 3], 0),
        (&[2, 5, 3], 1),
        (&[9000], 0),
        (&[130, 140], 1),
    ];
    let mut cases = Vec::new();
    for order in [false, true] {
        let case = |op: Op, shape: &[usize], fill, label: String| {
            let grad = if dtype.is_float() { Grad::Piecewise } else { CONSTANT };
            let case = Case::new(op, vec![tensor(shape, dtype, fill)]).label(label).grad(grad);
            if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
        };
        for (shape, axis) in table {
            let op = Op::Sort { axis, descending: order, index: DType::I32 };
            cases.push(case(op, shape, Fill::Distinct, format!("axis{axis}{}", flag(order, "d"))));
            for k in [0, 1, shape[axis] / 2, shape[axis]] {
                let op = Op::TopK { axis, k, largest: order, index: DType::I64 };
                cases.push(case(op, shape, Fill::Distinct, format!("axis{axis}k{k}{}", flag(order, "l"))));
            }
        }
        for (fill, label) in [(TIES, "ties"), (Fill::Special, "corners")] {
            let op = Op::Sort { axis: 1, descending: order, index: DType::U16 };
            let text = format!("{label}{}", flag(order, "d"));
            cases.push(case(op, &[9, 21], fill, text).grad(CONSTANT));
            let op = Op::TopK { axis: 0, k: 5, largest: order, index: DType::I32 };
            let text = format!("{label}{}", flag(order, "l"));
            cases.push(case(op, &[21, 9], fill, text).grad(CONSTANT));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    cases.retain(|case| seen.insert(case.name.clone()));
    if !FLOATS.contains(&dtype) {
        cases.iter_mut().for_each(|case| case.grad = CONSTANT);
    }
    cases
}
