//! Cases of views, copies, padding and concatenation.

use super::MOVED;
use crate::case::{Case, Fill, Grad, tensor};
use kiln_ir::{Axes, DType, Op, PadAxis, Scalar, Shape, SliceAxis};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in MOVED {
        let mut add = |op: Op, shape: &[usize], label: &str| {
            let fill = if dtype.is_float() { Fill::Normal } else { Fill::Bits };
            let case = Case::new(op, vec![tensor(shape, dtype, fill)]).label(label).bits().grad(Grad::Smooth);
            cases.push(if shape.iter().product::<usize>() > 1000 { case.large() } else { case });
        };
        reshapes(&mut add);
        permutes(&mut add);
        broadcasts(&mut add);
        slices(&mut add);
        windows(&mut add);
        for shape in super::SHAPES.into_iter().chain(super::LARGE) {
            add(Op::Copy, shape, "copy");
        }
        cases.extend(pads(dtype));
        cases.extend(concats(dtype));
    }
    cases
}

type Add<'a> = &'a mut dyn FnMut(Op, &[usize], &str);

fn reshapes(add: Add<'_>) {
    let table: [(&[usize], &[usize]); 10] = [
        (&[], &[1, 1]),
        (&[1], &[]),
        (&[0, 3], &[2, 0]),
        (&[6], &[2, 3]),
        (&[2, 3, 4], &[24]),
        (&[2, 3, 4], &[4, 3, 2]),
        (&[2, 3, 4], &[2, 12]),
        (&[4, 6], &[2, 2, 3, 2]),
        (&[1, 5, 1], &[5]),
        (&[256, 260], &[260, 256]),
    ];
    for (from, to) in table {
        add(Op::Reshape(Shape::new(to)), from, &format!("to{to:?}").replace(' ', ""));
    }
}

fn permutes(add: Add<'_>) {
    let table: [(&[usize], &[usize]); 8] = [
        (&[], &[]),
        (&[1], &[0]),
        (&[3, 4], &[1, 0]),
        (&[2, 0, 3], &[2, 0, 1]),
        (&[2, 3, 4], &[1, 2, 0]),
        (&[2, 3, 4, 5], &[3, 1, 0, 2]),
        (&[2, 1, 2, 1, 2, 1], &[5, 4, 3, 2, 1, 0]),
        (&[257, 259], &[1, 0]),
    ];
    for (shape, axes) in table {
        add(Op::Permute(Axes::new(axes)), shape, &format!("by{axes:?}").replace(' ', ""));
    }
}

fn broadcasts(add: Add<'_>) {
    let table: [(&[usize], &[usize]); 8] = [
        (&[], &[]),
        (&[], &[2, 3]),
        (&[1], &[4]),
        (&[3], &[2, 3]),
        (&[3, 1], &[2, 3, 4]),
        (&[1, 3], &[0, 3]),
        (&[2, 1, 3], &[2, 4, 3]),
        (&[259], &[257, 259]),
    ];
    for (from, to) in table {
        add(Op::Broadcast(Shape::new(to)), from, &format!("to{to:?}").replace(' ', ""));
    }
}

fn slices(add: Add<'_>) {
    let s = |start, len, step| SliceAxis { start, len, step };
    let table: [(&[usize], Vec<SliceAxis>); 11] = [
        (&[], vec![]),
        (&[1], vec![s(0, 1, 1)]),
        (&[5], vec![s(0, 0, 1)]),
        (&[5], vec![s(5, 0, -2)]),
        (&[5], vec![s(4, 5, -1)]),
        (&[7], vec![s(1, 3, 2)]),
        (&[7], vec![s(5, 3, -2)]),
        (&[4, 6], vec![s(1, 2, 1), s(5, 2, -3)]),
        (&[2, 3, 4], vec![s(1, 1, 1), s(0, 3, 1), s(3, 4, -1)]),
        (&[0, 3], vec![s(0, 0, 1), s(1, 2, 1)]),
        (&[257, 259], vec![s(256, 128, -2), s(1, 257, 1)]),
    ];
    for (shape, slices) in table {
        let label: Vec<String> = slices.iter().map(|s| format!("{}+{}*{}", s.start, s.len, s.step)).collect();
        add(Op::Slice(slices), shape, &label.join(","));
    }
}

fn windows(add: Add<'_>) {
    let table: [(&[usize], usize, usize, usize, usize); 8] = [
        (&[1], 0, 1, 1, 1),
        (&[5], 0, 2, 1, 1),
        (&[7], 0, 3, 2, 1),
        (&[9], 0, 3, 2, 3),
        (&[2, 6, 3], 1, 2, 2, 2),
        (&[2, 6, 3], 1, 2, 5, 1),
        (&[0, 4], 1, 2, 1, 1),
        (&[1030, 33], 0, 3, 2, 1),
    ];
    for (shape, axis, size, step, dilation) in table {
        let label = format!("axis{axis},{size}by{step}d{dilation}");
        add(Op::Windows { axis, size, step, dilation }, shape, &label);
    }
}

fn pads(dtype: DType) -> Vec<Case> {
    let p = |low, high, interior| PadAxis { low, high, interior };
    let table: [(&[usize], Vec<PadAxis>); 9] = [
        (&[], vec![]),
        (&[1], vec![p(0, 0, 3)]),
        (&[0], vec![p(1, 2, 0)]),
        (&[0, 2], vec![p(0, 0, 1), p(1, 1, 1)]),
        (&[5], vec![p(2, 1, 0)]),
        (&[5], vec![p(0, 3, 2)]),
        (&[2, 3], vec![p(1, 0, 1), p(0, 2, 0)]),
        (&[2, 3, 4], vec![p(0, 0, 0), p(1, 1, 1), p(2, 0, 0)]),
        (&[257, 255], vec![p(1, 1, 0), p(2, 2, 0)]),
    ];
    let x = if dtype.is_bool() {
        Scalar::Bool(true)
    } else if dtype.is_float() {
        Scalar::Float(-0.5)
    } else {
        Scalar::Int(9)
    };
    let case = |(shape, pads): (&[usize], Vec<PadAxis>)| {
        let label: Vec<String> =
            pads.iter().map(|p| format!("{}+{}i{}", p.low, p.high, p.interior)).collect();
        let inputs = vec![tensor(shape, dtype, Fill::Normal), crate::case::number(x)];
        let case = Case::new(Op::Pad(pads), inputs).label(label.join(",")).bits().grad(Grad::Smooth);
        if shape.iter().product::<usize>() > 1000 { case.large() } else { case }
    };
    table.into_iter().map(case).collect()
}

fn concats(dtype: DType) -> Vec<Case> {
    let table: [(usize, &[&[usize]]); 9] = [
        (0, &[&[1]]),
        (0, &[&[3]]),
        (0, &[&[2], &[3]]),
        (0, &[&[0], &[3], &[1]]),
        (1, &[&[2, 3], &[2, 1], &[2, 0]]),
        (0, &[&[0, 2], &[0, 2]]),
        (2, &[&[2, 3, 1], &[2, 3, 4]]),
        (1, &[&[2, 1, 3], &[2, 2, 3], &[2, 1, 3], &[2, 1, 3]]),
        (1, &[&[257, 130], &[257, 129]]),
    ];
    let case = |(axis, shapes): (usize, &[&[usize]])| {
        let inputs = shapes.iter().map(|&shape| tensor(shape, dtype, Fill::Normal)).collect();
        let case =
            Case::new(Op::Concat { axis }, inputs).label(format!("axis{axis}")).bits().grad(Grad::Smooth);
        if shapes[0].iter().product::<usize>() > 1000 { case.large() } else { case }
    };
    table.into_iter().map(case).collect()
}
