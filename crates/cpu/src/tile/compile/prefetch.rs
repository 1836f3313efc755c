//! Prefetching of large operands, and non-temporal stores of large results.

use super::Compiler;
use crate::copy::stream;
use crate::tile::code::{Form, Slot, SlotKind};
use crate::tile::registers;
use alloc::vec::Vec;
use kiln_kernel::ParamKind;

/// The minimum size in bytes of an operand that is prefetched: smaller ones have few tiles.
const PREFETCH_BYTES: usize = 32 << 10;

impl Compiler<'_> {
    /// The size of a parameter in bytes.
    fn bytes(&self, param: usize) -> usize {
        let strides = self.launch.bindings[param].strides.iter().zip(&self.launch.extents);
        let elements: usize =
            strides.filter(|(stride, _)| **stride != 0).map(|(_, extent)| *extent).product();
        elements * self.kernel.params[param].dtype.size()
    }

    /// Whether non-temporal stores of a result are worthwhile: it would leave the caches before the next read, and it
    /// has its own memory.
    pub(super) fn bypasses_cache(&self, param: usize) -> bool {
        self.in_place.taken.is_empty() && stream::pays(self.bytes(param))
    }

    /// Finds the large inputs to prefetch: the next tile's part is prefetched while a tile is computed.
    pub(super) fn find_prefetches(&mut self) {
        if self.tiling.form == Form::Columns || self.tiling.form == Form::Parts {
            return;
        }
        let mut ahead: Vec<(Slot, usize)> = Vec::new();
        for step in &self.code.stages[0].tiles {
            for slot in registers::operands(step) {
                if let SlotKind::AtTile(param) = self.code.slots[usize::from(slot)]
                    && self.kernel.params[param].kind == ParamKind::Input
                    && self.bytes(param) >= PREFETCH_BYTES
                    && ahead.iter().all(|&(other, _)| other != slot)
                {
                    ahead.push((slot, self.kernel.params[param].dtype.size()));
                }
            }
        }
        self.code.stages[0].ahead = ahead;
    }
}
