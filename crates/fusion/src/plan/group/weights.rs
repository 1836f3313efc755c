//! Fusion of dequantization into matmuls: quantized weights stay integers in memory.
//!
//! The weights would be four times as large as floats, and a matmul with few rows is bound by memory bandwidth. If a
//! matmul is the only consumer, the dequantization joins its region, and the engine may multiply the integers directly.

use super::{Finder, Kind};
use kiln_ir::{DType, Op, OpKind, Pattern, Program};
use kiln_kernel::match_quantized_matmul;

impl Finder<'_> {
    /// Moves the dequantization of a matmul's right operand into the matmul's group.
    pub(super) fn take_quantized(&mut self) {
        for group in 0..self.groups.len() {
            let Kind::Anchor(anchor) = self.groups[group].kind else { continue };
            let Some(dequantize) = self.quantized_weights(anchor) else { continue };
            let Some(other) = self.of_entry[dequantize as usize] else { continue };
            if self.groups[other].kind != Kind::Alone {
                continue;
            }
            // The group stays in place without members, so that the order of steps is kept.
            self.groups[other].kind = Kind::Gone;
            self.groups[other].members.clear();
            self.of_entry[dequantize as usize] = Some(group);
            let state = &mut self.groups[group];
            state.members.push(dequantize);
            state.members.sort_unstable();
            state.pattern = pattern;
        }
    }

    /// The entry that dequantizes the right operand of an `f32` matmul, if the matmul is the floats' only consumer.
    fn quantized_weights(&self, anchor: u32) -> Option<u32> {
        let product = self.graph.entry(anchor);
        let has_kernel = self.limits.kinds.contains(OpKind::Dequantize);
        if !has_kernel || product.op != Op::MatMul || product.results[0].dtype != DType::F32 {
            return None;
        }
        let [left, right] = self.graph.operands(anchor)[..] else { return None };
        let root = self.graph.roots[right as usize];
        let (entry, op) = self.graph.producer(root)?;
        let alone = self.graph.users[root as usize].as_slice() == [anchor]
            && !self.graph.is_alive(root)
            && self.graph.roots[left as usize] != root;
        (*op == Op::Dequantize && alone).then_some(entry)
    }
}

/// The pattern of such a region; a loop if no kernel reads integers in the weights' layout.
fn pattern(program: &Program) -> Pattern {
    match_quantized_matmul(program).map_or(Pattern::Loop, Pattern::QuantizedMatMul)
}
