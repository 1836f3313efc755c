//! Generates ops without tensor operands.

use super::{Generator, Wanted};
use kiln_ir::{DType, Op, ProgramOperand, RandomKind, Scalar, TensorType};
use kiln_suite::case::Fill;

impl Generator<'_> {
    pub(super) fn full(&mut self) -> Option<()> {
        let ty = self.any_type(|_| true, 0);
        let number = self.scalar(ty.dtype);
        self.emit(Op::Full(ty), &[ProgramOperand::Scalar(number)]).map(drop)
    }

    pub(super) fn iota(&mut self) -> Option<()> {
        let ty = self.any_type(|dtype| !dtype.is_bool(), 1);
        let axis = self.random.below(ty.rank());
        self.emit(Op::Iota { ty, axis }, &[]).map(drop)
    }

    pub(super) fn random_numbers(&mut self) -> Option<()> {
        let distribution = self.random.pick(RandomKind::ALL);
        let ty = match distribution {
            RandomKind::Bits => self.any_type(DType::is_int, 0),
            RandomKind::Uniform | RandomKind::Normal => self.any_type(DType::is_float, 0),
        };
        let key = match self.random.below(3) {
            0 => ProgramOperand::Scalar(Scalar::Int(self.random.bits() as i64)),
            1 => ProgramOperand::Scalar(Scalar::UInt(self.random.bits())),
            _ => {
                let key = TensorType::new([], DType::U64);
                ProgramOperand::Slot(self.exact(key, Wanted::Filled(Fill::Bits)))
            }
        };
        self.emit(Op::Random { ty, distribution }, &[key]).map(drop)
    }

    /// A type with a minimum rank.
    fn any_type(&mut self, ok: impl Fn(DType) -> bool, least_rank: usize) -> TensorType {
        let dtype = self.dtype(ok);
        let rank = self.random.between(least_rank, 4);
        TensorType::new(self.shape(rank), dtype)
    }
}
