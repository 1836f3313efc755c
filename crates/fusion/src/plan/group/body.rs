//! The loop nest of a growing group: entries are pushed one by one, and rolled back if the kernel is not worthwhile.

use super::{Finder, Kind, number_dtype};
use crate::plan::graph::ValueNumber;
use crate::record::Source;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_ir::{Op, Role, Scalar};
use kiln_kernel::{Nest, Operand, Savepoint, Slot};
use smallvec::SmallVec;

/// The maximum number of views between an operand and its base: each view is a value of the kernel.
const MAX_VIEWS: usize = 64;

/// The computation of a group as a loop nest.
#[derive(Default)]
pub(super) struct Body {
    pub(super) nest: Nest,
    pub(super) slots: BTreeMap<ValueNumber, Slot>,
    /// The values with slots, in order of insertion.
    order: Vec<ValueNumber>,
    /// The slots of padded or concatenated operands.
    around: Vec<Slot>,
    /// The number of values that the kernel loads.
    inputs: usize,
}

/// A savepoint of a body.
pub(super) struct BodySavepoint {
    nest: Savepoint,
    order: usize,
    around: usize,
    inputs: usize,
}

impl Body {
    pub(super) fn new(nest: Nest) -> Body {
        Body { nest, ..Body::default() }
    }

    pub(super) fn savepoint(&self) -> BodySavepoint {
        let Body { nest, order, around, inputs, .. } = self;
        BodySavepoint { nest: nest.savepoint(), order: order.len(), around: around.len(), inputs: *inputs }
    }

    /// Restores the body to a savepoint.
    pub(super) fn rollback(&mut self, to: BodySavepoint) {
        for value in self.order.drain(to.order..) {
            self.slots.remove(&value);
        }
        self.nest.rollback(to.nest);
        self.around.truncate(to.around);
        self.inputs = to.inputs;
    }

    pub(super) fn insert(&mut self, value: ValueNumber, slot: Slot) {
        if self.slots.insert(value, slot).is_none() {
            self.order.push(value);
        }
    }
}

impl Finder<'_> {
    /// Pushes an entry into a body, with the views and constants that lead to its operands. If the entry is refused,
    /// the body may keep some of these.
    pub(super) fn push(&self, entry: u32, members: &[u32], body: &mut Body) -> Result<(), String> {
        let recorded = self.graph.entry(entry);
        let mut operands: SmallVec<[Operand; 4]> = SmallVec::new();
        for &source in &recorded.operands {
            operands.push(match (self.graph.value(source), source) {
                (Some(value), _) => self.operand(value, members, body)?.into(),
                (None, Source::Constant(scalar)) => scalar.into(),
                (None, _) => placeholder(number_dtype(self.graph, entry)).into(),
            });
        }
        let pushed = body.nest.push(&recorded.op, &operands, &recorded.results);
        let slot = pushed.map_err(|refusal| refusal.to_string())?;
        self.note(self.graph.first[entry as usize], slot, body);
        Ok(())
    }

    /// The slot of a value: computed in the region, read through foldable views, or loaded.
    fn operand(&self, value: ValueNumber, members: &[u32], body: &mut Body) -> Result<Slot, String> {
        let is_inside = self.graph.is_made_by(value, |maker| members.binary_search(&maker).is_ok());
        let mut views: SmallVec<[(ValueNumber, u32); 4]> = SmallVec::new();
        let mut seen = value;
        let mut slot = loop {
            if let Some(&slot) = body.slots.get(&seen) {
                break slot;
            }
            let Some((entry, op)) = self.graph.producer(seen).filter(|_| is_inside) else {
                body.inputs += 1;
                break body.nest.input(self.graph.types[seen as usize]);
            };
            match op.info().role {
                Role::Constant => {
                    let number = placeholder(self.graph.types[seen as usize].dtype);
                    let operands: &[Operand] =
                        if matches!(op, Op::Full(_)) { &[Operand::Scalar(number)] } else { &[] };
                    break self.push_inside(entry, operands, body)?;
                }
                Role::View if views.len() == MAX_VIEWS => {
                    return Err("there are too many views before it".into());
                }
                Role::View => {
                    views.push((seen, entry));
                    seen = self.graph.operands(entry)[0];
                }
                Role::Fusable | Role::Anchor | Role::Alone => return Err("it is computed later".into()),
            }
        };
        self.note(seen, slot, body);
        for (value, entry) in views.into_iter().rev() {
            slot = self.push_inside(entry, &[slot.into()], body)?;
            self.note(value, slot, body);
        }
        Ok(slot)
    }

    /// Pushes a view or a constant.
    fn push_inside(&self, entry: u32, operands: &[Operand], body: &mut Body) -> Result<Slot, String> {
        let recorded = self.graph.entry(entry);
        let pushed = body.nest.push(&recorded.op, operands, &recorded.results);
        pushed.map_err(|refusal| format!("{} on the way: {refusal}", recorded.op.name()))
    }

    fn note(&self, value: ValueNumber, slot: Slot, body: &mut Body) {
        let producer = self.graph.producer(value);
        let is_new = body.slots.get(&value) != Some(&slot);
        if is_new && producer.is_some_and(|(_, op)| matches!(op, Op::Pad(_) | Op::Concat { .. })) {
            body.around.push(slot);
        }
        body.insert(value, slot);
    }

    /// Whether a kernel of that body is valid and worthwhile.
    pub(super) fn accepts(&self, kind: Kind, body: &Body) -> Result<(), String> {
        let Body { nest, slots, around, inputs, .. } = body;
        if around.iter().any(|&slot| !nest.is_input(slot) && !nest.is_storable(slot)) {
            return Err("a padded tensor has another index space than the region".to_string());
        }
        if *inputs > self.limits.inputs {
            return Err("the region would read too many tensors".to_string());
        }
        if nest.num_values() > self.limits.kernel_ops {
            return Err("the region would exceed the maximum number of operations".to_string());
        }
        if matches!(kind, Kind::Anchor(_)) && nest.reduces() {
            return Err("an epilogue of a matmul or convolution has no reductions".to_string());
        }
        if nest.column_reduce_bytes() > 0 && !self.holds_columns(nest, slots) {
            return Err("registers cannot hold rows and column totals".to_string());
        }
        if !nest.reduces() || !nest.is_resident() {
            return Ok(());
        }
        let (row, rows) = (nest.row_len(), nest.num_points() / nest.row_len().max(1));
        if !nest.rows_are_innermost() || (self.limits.contiguous_rows && !nest.rows_are_whole()) {
            return Err("the rows to combine with their own reductions are not contiguous".to_string());
        }
        if row > self.limits.resident_row && rows < self.limits.many_rows {
            return Err(format!("rows of {row} elements are too long for the cache"));
        }
        Ok(())
    }
}

/// A stand-in for a plain number: the structure of a kernel does not depend on its value.
fn placeholder(dtype: kiln_ir::DType) -> Scalar {
    if dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(1) }
}
