//! The memory layout of results: the axis order of their operands.

use crate::lower::Bound;
use crate::nest::{AtomId, Nest, Slot, SlotState};
use crate::{Layout, ParamKind};
use alloc::vec::Vec;

impl Nest {
    /// The best memory order of contiguous results, for [`lower_to`](Nest::lower_to). It is row-major, unless most
    /// inputs read along with the largest result are contiguous along another axis. Then all results take that order,
    /// so that operands and results are traversed together.
    ///
    /// ```
    /// use kiln_ir::{DType, Op, TensorType, Unary};
    /// use kiln_kernel::{Layout, Nest};
    ///
    /// let ty = TensorType::new([2, 3, 5], DType::F32);
    /// let mut nest = Nest::default();
    /// let x = nest.input(ty);
    /// let y = nest.push(&Op::Unary(Unary::Exp), &[x.into()], &[ty]).unwrap();
    /// let channels_last = Layout(vec![15, 1, 3]);
    /// assert_eq!(nest.result_layouts(&[y], &[channels_last.clone()]), [channels_last]);
    /// ```
    ///
    /// # Panics
    /// When the number of layouts differs from the number of inputs and plain numbers.
    pub fn result_layouts(&self, outputs: &[Slot], layouts: &[Layout]) -> Vec<Layout> {
        assert_eq!(layouts.len(), self.num_inputs(), "[kernel] one layout for each input and number");
        let states: Vec<&SlotState> = outputs.iter().map(|&slot| self.state(slot)).collect();
        let along = self.order_of_operands(outputs, &states, layouts);
        let results = along.and_then(|order| states.iter().map(|state| self.dense(state, &order)).collect());
        results.unwrap_or_else(|| states.iter().map(|state| Layout::row_major(&state.ty.shape)).collect())
    }

    /// The atoms of the largest output in the order of the most bytes read; `None` for row-major order.
    fn order_of_operands(
        &self,
        outputs: &[Slot],
        states: &[&SlotState],
        layouts: &[Layout],
    ) -> Option<Vec<AtomId>> {
        let largest = states.iter().rev().max_by_key(|state| state.ty.num_elements())?;
        let own: Vec<AtomId> = self.leaves(largest).into_iter().map(|(_, atom)| atom).collect();
        if own.len() < 2 || self.product.is_some() || self.scans() {
            return None;
        }
        let mut orders = alloc::vec![(own.clone(), 0usize)];
        for param in self.operands(layouts, &self.needed(outputs)) {
            let Some(order) = self.order_within(&param, &own) else { continue };
            let bytes = param.slot.ty.dtype.size();
            match orders.iter_mut().find(|(other, _)| *other == order) {
                Some((_, sum)) => *sum += bytes,
                None => orders.push((order, bytes)),
            }
        }
        // Of orders with equally many bytes, the first: row-major, if it is among them.
        let (order, _) = orders.into_iter().rev().max_by_key(|(_, bytes)| *bytes)?;
        (order.last() != own.last()).then_some(order)
    }

    /// Some atoms in the memory order of an operand that has them all.
    fn order_within(&self, param: &Bound<'_>, atoms: &[AtomId]) -> Option<Vec<AtomId>> {
        if param.kind != ParamKind::Input {
            return None;
        }
        let crossed = self.in_memory(param).into_iter().filter(|&(_, stride)| stride != 0);
        let order: Vec<AtomId> = crossed.map(|(atom, _)| atom).filter(|atom| atoms.contains(atom)).collect();
        (order.len() == atoms.len()).then_some(order)
    }

    /// The strides of a contiguous tensor in the given atom order; `None` if an axis would be split in memory.
    fn dense(&self, state: &SlotState, order: &[AtomId]) -> Option<Layout> {
        let mut places: Vec<(usize, u8)> = Vec::new();
        for (axis, atom) in self.leaves(state) {
            places.push((order.iter().position(|other| *other == atom)?, axis));
        }
        let whole = |pair: &[(usize, u8)]| pair[0].1 != pair[1].1 || pair[0].0 < pair[1].0;
        if !places.windows(2).all(whole) {
            return None;
        }
        places.sort_unstable();
        let mut strides: Vec<isize> = alloc::vec![0; state.ty.rank()];
        let mut step = 1isize;
        let mut before: Option<u8> = None;
        let mut seen: Vec<u8> = Vec::new();
        for &(_, axis) in places.iter().rev() {
            if before == Some(axis) {
                continue;
            }
            if seen.contains(&axis) {
                return None;
            }
            strides[axis as usize] = step;
            step *= state.ty.shape[axis as usize] as isize;
            seen.push(axis);
            before = Some(axis);
        }
        Some(Layout(strides))
    }
}
