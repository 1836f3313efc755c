//! Binary functions and selection: the choice of a loop by which operands are plain numbers.

use super::{Compiler, List, Located, Source, register};
use crate::kernels;
use crate::tile::code::Action;
use crate::tile::cost::function_cost;
use crate::tile::forms::{self, Side};
use crate::tile::pairs::{Arithmetic, pair_of};
use kiln_ir::{Binary, Comparison, DType, Scalar};
use kiln_kernel::ValueId;

impl Compiler<'_> {
    pub(super) fn binary(&mut self, value: usize, function: Binary, a: ValueId, b: ValueId) -> Located {
        let dtype = register(self.kernel.body[value].dtype);
        let number = self.constants[b as usize].map(Scalar::to_f64).filter(|_| dtype.is_float());
        if function == Binary::Pow && number == Some(2.0) {
            let a = self.lanes_of(a, value);
            return self.emit(value, Action::Two(kernels::binary(Binary::Mul, dtype), [a, a]));
        }
        let cost = function_cost(function.info(), dtype);
        let sources = [self.source(a, value), self.source(b, value)];
        if dtype == DType::F32
            && let Some(located) = self.paired(value, function, [a, b], sources)
        {
            return located;
        }
        let form = |side| forms::binary(function, dtype, side);
        let with_number = match sources {
            [Source::Lanes(a), Source::Number(b)] => form(Side::Right).map(|form| (form, [a, b])),
            [Source::Number(a), Source::Lanes(b)] => form(Side::Left).map(|form| (form, [a, b])),
            [Source::Lanes(_), Source::Lanes(_)] | [Source::Number(_), Source::Number(_)] => None,
        };
        if let Some((form, operands)) = with_number {
            return self.emit_costly(value, Action::Two(form, operands), cost);
        }
        let operands = [self.lanes_of(a, value), self.lanes_of(b, value)];
        self.emit_costly(value, Action::Two(kernels::binary(function, dtype), operands), cost)
    }

    /// Fuses this function with the one that computed an operand, if that has no other use.
    fn paired(
        &mut self,
        value: usize,
        function: Binary,
        operands: [ValueId; 2],
        sources: [Source; 2],
    ) -> Option<Located> {
        let (List::Tiles(stage), false) = self.list(value) else { return None };
        if let Some((operand, second, other)) = (0..2).find_map(|side| {
            let second = Arithmetic::of(function, side == 1)?;
            let operand = operands[side];
            let made = self.arithmetic.contains_key(&operand) && self.uses[operand as usize] == 1;
            (made && self.stages[operand as usize] == stage).then_some((operand, second, sources[1 - side]))
        }) {
            let (first, [x, y], is_number) = self.arithmetic[&operand];
            let slot = self.located[operand as usize].slot;
            let steps = &mut self.code.stages[stage].tiles;
            let at = steps.iter().rposition(|step| step.to == slot)?;
            steps.remove(at);
            let (other, other_is_number) = other.slot();
            let function = pair_of(first, second, [is_number, other_is_number]);
            let located = self.emit(value, Action::Three(function, [x, y, other]));
            self.in_place.safe.push(located.slot);
            return Some(located);
        }
        // Records the operation, so that the next function may be fused with it.
        let (exchanged, x, y) = match sources {
            [Source::Lanes(x), y] => (false, x, y),
            [y, Source::Lanes(x)] => (true, x, y),
            [Source::Number(_), Source::Number(_)] => return None,
        };
        if let Some(arithmetic) = Arithmetic::of(function, exchanged) {
            let (y, is_number) = y.slot();
            self.arithmetic.insert(value as ValueId, (arithmetic, [x, y], is_number));
        }
        None
    }

    pub(super) fn compare(
        &mut self,
        value: usize,
        comparison: Comparison,
        a: ValueId,
        b: ValueId,
    ) -> Located {
        let dtype = self.located[a as usize].dtype;
        let sources = [self.source(a, value), self.source(b, value)];
        let form = |side| forms::compare(comparison, dtype, side);
        let with_number = match sources {
            [Source::Lanes(a), Source::Number(b)] => form(Side::Right).map(|form| (form, [a, b])),
            [Source::Number(a), Source::Lanes(b)] => form(Side::Left).map(|form| (form, [a, b])),
            [Source::Lanes(_), Source::Lanes(_)] | [Source::Number(_), Source::Number(_)] => None,
        };
        if let Some((form, operands)) = with_number {
            return self.emit(value, Action::Two(form, operands));
        }
        let operands = [self.lanes_of(a, value), self.lanes_of(b, value)];
        self.emit(value, Action::Two(kernels::compare(comparison, dtype), operands))
    }

    pub(super) fn select(&mut self, value: usize, [condition, a, b]: [ValueId; 3]) -> Located {
        let size = register(self.kernel.body[value].dtype).size();
        let condition = self.lanes_of(condition, value);
        let sources = [self.source(a, value), self.source(b, value)];
        let slots = sources.map(|source| source.slot().0);
        let numbers = sources.map(|source| source.slot().1);
        // Uniform values are numbers too, but have one element anyway.
        let function = if numbers == [false, false] || self.list(value).0 == List::Once {
            kernels::select(size)
        } else {
            forms::select(size, numbers)
        };
        self.emit(value, Action::Three(function, [condition, slots[0], slots[1]]))
    }
}
