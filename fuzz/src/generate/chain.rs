//! Long chains of fusible ops.

use super::{Generator, Wanted};
use kiln_ir::{Axes, Binary, DType, Op, OpKind, ProgramOperand, Reduction, Shape, TensorType};

/// Fusible ops and views, weighted by their number of entries.
const KINDS: [OpKind; 20] = [
    OpKind::Unary,
    OpKind::Unary,
    OpKind::Unary,
    OpKind::Unary,
    OpKind::Binary,
    OpKind::Binary,
    OpKind::Binary,
    OpKind::Binary,
    OpKind::Compare,
    OpKind::Select,
    OpKind::Cast,
    OpKind::Full,
    OpKind::Iota,
    OpKind::Reshape,
    OpKind::Permute,
    OpKind::Broadcast,
    OpKind::Slice,
    OpKind::Reduce,
    OpKind::Copy,
    OpKind::MatMul,
];

impl Generator<'_> {
    /// Adds a chain of mostly fusible ops.
    pub(super) fn chain(&mut self) {
        for _ in 0..self.random.between(5, 24) {
            match self.random.below(9) {
                0 | 1 => self.rejoin(),
                2 => self.add_row(),
                3 => self.composite(),
                _ => {
                    let kind = self.random.pick(&KINDS);
                    self.add(kind)
                }
            };
        }
    }

    /// Combines a tensor with its own reduction, as in the expansions of softmax and norms.
    fn rejoin(&mut self) -> Option<()> {
        let x = self.tensor(1, 4, |dtype| !dtype.is_bool());
        let ty = self.ty(x);
        let axes: Vec<usize> = match self.random.below(3) {
            0 => (0..ty.rank()).filter(|_| self.random.chance(50)).collect(),
            1 => vec![self.random.below(ty.rank())],
            _ => vec![ty.rank() - 1],
        };
        let reductions = [Reduction::Sum, Reduction::Sum, Reduction::Max, Reduction::Min];
        let op = Op::Reduce { reduction: self.random.pick(&reductions), axes: Axes::new(&axes) };
        let reduced = self.emit_on(op, &[x])?[0];
        let again = self.emit_on(Op::Broadcast(ty.shape), &[reduced])?[0];
        let functions = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max];
        let function = Op::Binary(self.random.pick(&functions));
        let operands = if self.random.chance(50) { [x, again] } else { [again, x] };
        self.emit_on(function, &operands).map(drop)
    }

    /// Adds a row to all rows, like a bias.
    fn add_row(&mut self) -> Option<()> {
        let x = self.tensor(1, 4, |dtype| !dtype.is_bool());
        let ty = self.ty(x);
        let kept = self.random.below(ty.rank());
        let shape: Shape = (0..ty.rank()).map(|axis| if axis == kept { ty.shape[axis] } else { 1 }).collect();
        let row = self.exact(TensorType::new(shape, ty.dtype), Wanted::Free);
        let row = self.emit_on(Op::Broadcast(ty.shape), &[row])?[0];
        let function = Op::Binary(self.random.pick(&[Binary::Add, Binary::Mul]));
        self.emit_on(function, &[x, row]).map(drop)
    }

    /// `x * sigmoid(x)` or the derivative of `tanh`, as in activations.
    fn composite(&mut self) -> Option<()> {
        use kiln_ir::{Scalar, Unary};
        let x = self.tensor(0, 4, DType::is_float);
        let number = |x: f64| ProgramOperand::Scalar(Scalar::Float(x));
        if self.random.chance(50) {
            let negated = self.emit_on(Op::Unary(Unary::Neg), &[x])?[0];
            let exp = self.emit_on(Op::Unary(Unary::Exp), &[negated])?[0];
            let below = self.emit(Op::Binary(Binary::Add), &[number(1.0), ProgramOperand::Slot(exp)])?[0];
            return self.emit_on(Op::Binary(Binary::Div), &[x, below]).map(drop);
        }
        let tanh = self.emit_on(Op::Unary(Unary::Tanh), &[x])?[0];
        let square = self.emit_on(Op::Binary(Binary::Mul), &[tanh, tanh])?[0];
        self.emit(Op::Binary(Binary::Sub), &[number(1.0), ProgramOperand::Slot(square)]).map(drop)
    }
}
