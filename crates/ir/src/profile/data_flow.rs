//! The bytes that enter and leave each part of a program.

use super::{INPUT, Place};
use crate::{FxBuildHasher, Op, Operands, TensorType, Traffic, Value, Values};
use alloc::vec::Vec;
use std::collections::HashMap;

/// The values of a program, by address, and the bytes that moved between its parts.
///
/// An address identifies a value only while it lives. A later value at the same address replaces it here, since every
/// result of an op is added.
pub(super) struct DataFlow {
    place: Place,
    /// The number of the current run of a part.
    visit: u32,
    buffers: Vec<Buffer>,
    /// The buffer of each value.
    values: HashMap<usize, usize, FxBuildHasher>,
    moved: Vec<(Place, u64)>,
}

/// Elements in memory, which several values may view.
#[derive(Clone, Copy)]
struct Buffer {
    bytes: u64,
    /// The run that computed it, with its part; `None` for values from before the profile.
    source: Option<(u32, Place)>,
    /// The run that read it last.
    reader: Option<u32>,
    /// Whether another run read it.
    has_left: bool,
    /// Whether an op took the last clone.
    is_consumed: bool,
}

impl Default for DataFlow {
    fn default() -> DataFlow {
        DataFlow {
            place: Place { part: INPUT, is_backward: false },
            visit: 0,
            buffers: Vec::new(),
            values: HashMap::default(),
            moved: Vec::new(),
        }
    }
}

impl DataFlow {
    /// Starts a run of a part.
    pub(super) fn enter(&mut self, place: Place) {
        self.visit += 1;
        self.place = place;
    }

    /// Adds the operands of an op, before it runs. Returns the buffers that the results view, if they are views.
    pub(super) fn read(&mut self, op: &Op, inputs: &Operands, results: &[TensorType]) -> Vec<usize> {
        let traffic = op.info().traffic;
        let mut values = inputs.iter().filter_map(|operand| operand.value());
        match traffic {
            Traffic::Free => return values.map(|value| self.buffer(value)).collect(),
            Traffic::Picked => {
                // Only the selected elements of the table are read.
                let written = results.iter().map(|ty| ty.num_bytes() as u64).sum();
                if let Some(table) = values.next() {
                    self.read_some(table, written);
                }
            }
            Traffic::Read | Traffic::All => {}
        }
        values.for_each(|value| self.read_all(value));
        Vec::new()
    }

    /// Adds the results of an op. Each views the buffer at its place, if there is one.
    pub(super) fn produce(&mut self, viewed: &[usize], results: &Values) {
        for (place, value) in results.iter().enumerate() {
            let bytes = value.ty().num_bytes() as u64;
            let buffer = match viewed.get(place).copied() {
                Some(buffer) if self.buffers[buffer].bytes <= bytes => buffer,
                // A part of a buffer moves on its own.
                Some(buffer) => self.add(bytes, self.buffers[buffer].source),
                None => self.add(bytes, Some((self.visit, self.place))),
            };
            self.values.insert(value.address(), buffer);
        }
    }

    /// The bytes of each part. `keeps_results` says whether values of a part that no op consumed outlive the step.
    pub(super) fn finish(mut self, keeps_results: impl Fn(Place) -> bool) -> Vec<(Place, u64)> {
        for buffer in core::mem::take(&mut self.buffers) {
            if let Some((_, place)) = buffer.source
                && !buffer.has_left
                && !buffer.is_consumed
                && keeps_results(place)
            {
                self.moved.push((place, buffer.bytes));
            }
        }
        self.moved
    }

    fn add(&mut self, bytes: u64, source: Option<(u32, Place)>) -> usize {
        self.buffers.push(Buffer { bytes, source, reader: None, has_left: false, is_consumed: false });
        self.buffers.len() - 1
    }

    fn buffer(&mut self, value: &Value) -> usize {
        if let Some(buffer) = self.values.get(&value.address()) {
            return *buffer;
        }
        let buffer = self.add(value.ty().num_bytes() as u64, None);
        self.values.insert(value.address(), buffer);
        buffer
    }

    fn read_all(&mut self, value: &Value) {
        let index = self.buffer(value);
        let (visit, place) = (self.visit, self.place);
        let buffer = &mut self.buffers[index];
        buffer.is_consumed |= value.is_unique();
        if buffer.source.is_some_and(|(source, _)| source == visit) || buffer.reader == Some(visit) {
            return;
        }
        buffer.reader = Some(visit);
        let bytes = buffer.bytes;
        if let Some((_, source)) = buffer.source
            && !core::mem::replace(&mut buffer.has_left, true)
        {
            self.moved.push((source, bytes));
        }
        self.moved.push((place, bytes));
    }

    /// Reads some elements of a value.
    fn read_some(&mut self, value: &Value, bytes: u64) {
        let index = self.buffer(value);
        let buffer = self.buffers[index];
        if buffer.source.is_none_or(|(source, _)| source != self.visit) {
            let bytes = bytes.min(buffer.bytes);
            self.moved.push((self.place, bytes));
        }
    }
}
