//! Loads from parameters.

use super::{Class, Compiler, List, Located, register};
use crate::kernels;
use crate::tile::code::{Action, SlotKind};
use kiln_kernel::ValueId;

impl Compiler<'_> {
    pub(super) fn load(&mut self, value: usize, param: usize, stage: usize) -> Located {
        let dtype = self.kernel.body[value].dtype;
        let access = &self.code.accesses[param];
        let class = self.class(value);
        let hoisted = class == Class::Full && self.is_hoisted(value) && stage == 0;
        let (list, by_row) = match class {
            Class::Uniform => (List::Once, true),
            Class::Row => (List::Rows(stage), true),
            Class::Full if hoisted => (List::Hoisted, false),
            Class::Full => (List::Tiles(stage), false),
        };
        let copied = self.is_copied_first(param, list);
        let memory = match class {
            Class::Uniform => Some(SlotKind::Element(param)),
            Class::Row => self.tiling.is_flat_by_row(access).then_some(SlotKind::AtRow(param)),
            Class::Full => {
                let flat = self.tiling.is_flat(access, self.group(stage));
                (flat && !copied).then_some(SlotKind::AtTile(param))
            }
        };
        let mut slot = match memory {
            Some(place) => self.slot(place),
            None => {
                let to = if class == Class::Row { self.row_slot() } else { self.register_slot() };
                self.push(list, Action::Gather(param), to, by_row);
                self.code.cost += 2;
                to
            }
        };
        if let Some((widen, _)) = kernels::half_loops(dtype) {
            let to = self.intermediate_slot(value);
            self.push(list, Action::One(widen, slot), to, by_row);
            self.code.cost += 1;
            slot = to;
        }
        Located { slot, class, stage, dtype: register(dtype), load: Some(value as ValueId) }
    }

    /// A load that accesses memory only where a condition is true.
    pub(super) fn load_where(&mut self, value: usize, param: usize, condition: ValueId) -> Located {
        let condition = self.lanes_of(condition, value);
        self.guarded_load(value, Action::GatherWhere(param, condition))
    }

    /// A load that is moved by an offset, where a condition is true.
    pub(super) fn load_at(
        &mut self,
        value: usize,
        param: usize,
        offset: ValueId,
        condition: ValueId,
    ) -> Located {
        let is_wide = self.kernel.body[offset as usize].dtype.size() == 8;
        let (offset, condition) = (self.lanes_of(offset, value), self.lanes_of(condition, value));
        self.guarded_load(value, Action::GatherAt(param, [offset, condition], is_wide))
    }

    fn guarded_load(&mut self, value: usize, action: Action) -> Located {
        let Some((widen, _)) = kernels::half_loops(self.kernel.body[value].dtype) else {
            return self.emit_costly(value, action, 2);
        };
        let narrow = self.intermediate_slot(value);
        let (list, by_row) = self.list(value);
        self.push(list, action, narrow, by_row);
        self.emit_costly(value, Action::One(widen, narrow), 3)
    }
}
