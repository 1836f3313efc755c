//! Cases of structured loops.

use crate::case::{Case, Fill, Grad, tensor};
use kiln_ir::{DType, LoopAttributes, LoopOp, Op, Program, Recorder, TensorType, Var};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for reverse in [false, true] {
        for dtype in [DType::F64, DType::F32] {
            for (shape, steps) in [(&[][..], 3), (&[1], 1), (&[0], 2), (&[2, 3], 4), (&[3], 0)] {
                cases.push(cell(shape, dtype, steps, reverse));
                cases.push(power(shape, dtype, steps, reverse));
            }
            cases.push(recurrent(dtype, reverse));
            cases.push(counting(dtype, reverse));
        }
        cases.push(cell(&[2501], DType::F32, 2, reverse).large());
        cases.push(integers(reverse));
    }
    cases
}

fn op(body: Program, carried: usize, scanned: usize, steps: usize, reverse: bool) -> Op {
    let attributes = LoopAttributes { carried, scanned, steps, reverse };
    Op::Loop(LoopOp::new(body, attributes).expect("a valid body"))
}

fn labelled(case: Case, name: &str, steps: usize, reverse: bool) -> Case {
    let direction = if reverse { "reverse" } else { "forward" };
    case.label(format!("{name}_{steps}_{direction}"))
}

fn stacked(shape: &[usize], steps: usize) -> Vec<usize> {
    [&[steps], shape].concat()
}

/// `h = tanh(h w + x)`, with the outputs `h` and `x h`.
fn cell(shape: &[usize], dtype: DType, steps: usize, reverse: bool) -> Case {
    let ty = TensorType::new(shape, dtype);
    let body = Recorder::trace(&[ty, ty, ty], |inputs| {
        let [h, x, w] = inputs else { panic!("three inputs") };
        let new = (h * w + x).tanh();
        let output = x * h;
        vec![new.clone(), new, output]
    });
    let inputs = vec![
        tensor(shape, dtype, Fill::Away),
        tensor(stacked(shape, steps), dtype, Fill::Away),
        tensor(shape, dtype, Fill::Away),
    ];
    let case = Case::new(op(body, 1, 1, steps, reverse), inputs).near(64.0, 64.0).grad(Grad::Smooth);
    labelled(case, "cell", steps, reverse)
}

/// `h = sin(h w)` without scanned tensors; the first carried value alone changes the second.
fn power(shape: &[usize], dtype: DType, steps: usize, reverse: bool) -> Case {
    let ty = TensorType::new(shape, dtype);
    let body = Recorder::trace(&[ty, ty, ty], |inputs| {
        let [h, sum, w] = inputs else { panic!("three inputs") };
        let new = (h * w).unary(kiln_ir::Unary::Sin);
        let sum = sum + h;
        vec![new, sum]
    });
    let inputs = vec![tensor(shape, dtype, Fill::Away); 3];
    let case = Case::new(op(body, 2, 0, steps, reverse), inputs).near(64.0, 64.0).grad(Grad::Smooth);
    labelled(case, "power", steps, reverse)
}

/// A recurrent cell: `h = tanh(x w + h u)`, in a state of two rows.
fn recurrent(dtype: DType, reverse: bool) -> Case {
    let of = |shape: &[usize]| TensorType::new(shape, dtype);
    let types = [of(&[2, 3]), of(&[2, 4]), of(&[4, 3]), of(&[3, 3])];
    let body = Recorder::trace(&types, |inputs| {
        let [h, x, w, u] = inputs else { panic!("four inputs") };
        let new = (x.matmul(w) + h.matmul(&u.transpose())).tanh();
        vec![new.clone(), new]
    });
    let steps = 5;
    let inputs = vec![
        tensor([2, 3], dtype, Fill::Normal),
        tensor([steps, 2, 4], dtype, Fill::Normal),
        tensor([4, 3], dtype, Fill::Normal),
        tensor([3, 3], dtype, Fill::Normal),
    ];
    let case = Case::new(op(body, 1, 1, steps, reverse), inputs).near(512.0, 512.0).grad(Grad::Smooth);
    labelled(case, "recurrent", steps, reverse)
}

/// A carried integer counts the steps. The product with it is carried, and so are a constant and an unread value.
fn counting(dtype: DType, reverse: bool) -> Case {
    let ty = TensorType::new([2], dtype);
    let count = TensorType::new([], DType::I32);
    let body = Recorder::trace(&[count, ty, ty, ty], |inputs| {
        let [count, product, unread, x] = inputs else { panic!("four inputs") };
        let next: Var<'_> = count + 1.0;
        let factor = count.cast(product.dtype()).broadcast([2]);
        vec![next, product * x + &factor, unread.clone(), factor * x]
    });
    let inputs = vec![
        tensor([], DType::I32, Fill::Uniform(0.0, 3.0)),
        tensor([2], dtype, Fill::Away),
        tensor([2], dtype, Fill::Away),
        tensor([4, 2], dtype, Fill::Away),
    ];
    let case = Case::new(op(body, 3, 1, 4, reverse), inputs).near(64.0, 64.0).grad(Grad::Smooth);
    labelled(case, "counting", 4, reverse)
}

/// Integers and flags: the carried flag is whether all elements so far are positive.
fn integers(reverse: bool) -> Case {
    let (flag, row) = (TensorType::new([3], DType::Bool), TensorType::new([3], DType::I64));
    let body = Recorder::trace(&[flag, row], |inputs| {
        let [flag, x] = inputs else { panic!("two inputs") };
        let new = flag.and(&x.scalar(0i64).less(x));
        vec![new.clone(), x * x, new]
    });
    let inputs = vec![tensor([3], DType::Bool, Fill::Normal), tensor([6, 3], DType::I64, Fill::Normal)];
    labelled(Case::new(op(body, 1, 1, 6, reverse), inputs), "integers", 6, reverse)
}
