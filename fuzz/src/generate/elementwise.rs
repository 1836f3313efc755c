//! Generates elementwise ops.

use super::{Generator, Wanted};
use kiln_ir::{Binary, Comparison, DType, Op, ProgramOperand, TensorType, Unary};
use kiln_suite::case::Fill;

impl Generator<'_> {
    pub(super) fn unary(&mut self) -> Option<()> {
        let function = self.random.pick(Unary::ALL);
        let suits = |dtype| function.info().domain.contains(dtype);
        let of_positive =
            matches!(function, Unary::Sqrt | Unary::Rsqrt | Unary::Ln | Unary::Log1p | Unary::Recip);
        let x =
            if of_positive && self.random.chance(60) { self.positive() } else { self.tensor(0, 5, suits) };
        self.emit_on(Op::Unary(function), &[x]).map(drop)
    }

    /// A float tensor of positive numbers.
    fn positive(&mut self) -> usize {
        let dtype = self.dtype(DType::is_float);
        let rank = self.random.below(4);
        let ty = TensorType::new(self.shape(rank), dtype);
        self.fresh(ty, Wanted::Filled(Fill::Positive))
    }

    pub(super) fn binary(&mut self) -> Option<()> {
        let function = self.random.pick(Binary::ALL);
        let suits: fn(DType) -> bool = match function {
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Rem
            | Binary::Pow
            | Binary::Min
            | Binary::Max => |dtype| !dtype.is_bool(),
            Binary::Atan2 => DType::is_float,
            Binary::And | Binary::Or | Binary::Xor => |dtype| !dtype.is_float(),
            Binary::Shl | Binary::Shr => DType::is_int,
        };
        let a = if function == Binary::Pow && self.style.smooth && self.random.chance(70) {
            self.positive()
        } else {
            self.tensor(0, 5, suits)
        };
        let operands = self.beside(a);
        self.emit(Op::Binary(function), &operands).map(drop)
    }

    pub(super) fn compare(&mut self) -> Option<()> {
        let comparison = self.random.pick(Comparison::ALL);
        let a = self.tensor(0, 5, |_| true);
        let operands = self.beside(a);
        self.emit(Op::Compare(comparison), &operands).map(drop)
    }

    /// A tensor and a second operand: another tensor, itself, or a scalar on either side.
    fn beside(&mut self, a: usize) -> [ProgramOperand; 2] {
        let ty = self.ty(a);
        let a = ProgramOperand::Slot(a);
        match self.random.below(10) {
            0 => [a, a],
            1 | 2 => [a, ProgramOperand::Scalar(self.scalar(ty.dtype))],
            3 => [ProgramOperand::Scalar(self.scalar(ty.dtype)), a],
            4 => [ProgramOperand::Slot(self.exact(ty, Wanted::Free)), a],
            _ => [a, ProgramOperand::Slot(self.exact(ty, Wanted::Free))],
        }
    }

    pub(super) fn select(&mut self) -> Option<()> {
        let a = self.tensor(0, 5, |_| true);
        let condition = TensorType::new(self.ty(a).shape, DType::Bool);
        let condition = ProgramOperand::Slot(self.exact(condition, Wanted::Free));
        let [a, b] = self.beside(a);
        self.emit(Op::Select, &[condition, a, b]).map(drop)
    }

    pub(super) fn cast(&mut self) -> Option<()> {
        let x = self.tensor(0, 5, |_| true);
        let dtype = self.random.pick(&DType::ALL);
        if !self.allows(dtype) {
            return None;
        }
        self.emit_on(Op::Cast(dtype), &[x]).map(drop)
    }

    pub(super) fn bitcast(&mut self) -> Option<()> {
        let smooth = self.style.smooth;
        // Floats read as integers jump; integers read as floats have arbitrary values.
        let x = self.tensor(0, 5, |dtype| dtype.is_int() || dtype.is_float() && !smooth);
        let size = self.ty(x).dtype.size();
        let suits = |dtype: &DType| dtype.size() == size && (dtype.is_int() || dtype.is_float() && !smooth);
        let list: Vec<DType> = DType::ALL.into_iter().filter(suits).collect();
        let dtype = self.random.pick(&list);
        self.emit_on(Op::Bitcast(dtype), &[x]).map(drop)
    }
}
