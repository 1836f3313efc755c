//! Vectors in memory: neighbouring elements that one access reads or writes.

use super::memory::{decode, encode, per_word};
use super::{from_element, held};
use crate::{Compute, Kernel, KernelKind, ParamKind, StrideClass};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::DType;

/// The elements that one access reads or writes: `width` values of 32 bits, or `width` words of packed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pack {
    dtype: DType,
    /// 1, 2 or 4.
    width: usize,
    /// The number of packs of a vector.
    count: usize,
}

impl Pack {
    /// For vectors of that many elements; `None` where they fill no word, and for 64 bits.
    fn of(dtype: DType, vector: usize) -> Option<Pack> {
        let words = vector * dtype.size() / 4;
        (dtype.size() <= 4 && words > 0).then(|| Pack {
            dtype,
            width: words.min(4),
            count: words.div_ceil(4),
        })
    }

    /// The pack of a buffer that a kernel accesses by vectors of that many elements.
    ///
    /// Vectors of a tensor begin at multiples of their length. A buffer whose elements are stored alone has no packs.
    pub(super) fn of_buffer(kernel: &Kernel, param: u32, vector: u32) -> Option<Pack> {
        let described = &kernel.params[param as usize];
        let is_contiguous = described.strides.last() == Some(&StrideClass::One);
        let pack = Pack::of(described.dtype, vector as usize).filter(|_| vector > 1 && is_contiguous)?;
        match described.kind {
            ParamKind::Input => {
                let is_read = |compute: &Compute| compute.plain_load() == Some(param);
                kernel.body.iter().any(|instruction| is_read(&instruction.compute)).then_some(pack)
            }
            ParamKind::Output => (!is_stored_alone(kernel, param)).then_some(pack),
            ParamKind::Number => None,
        }
    }

    /// The type of an element of the buffer.
    pub(super) fn ty(&self) -> String {
        let ty = if per_word(self.dtype) > 1 { "u32" } else { held(self.dtype) };
        if self.width == 1 { ty.into() } else { format!("vec{}<{ty}>", self.width) }
    }

    /// The pack of the same size for elements of another dtype of the same size.
    pub(super) fn with_dtype(self, dtype: DType) -> Pack {
        Pack { dtype, ..self }
    }

    /// A word of the buffer, by its index among all words.
    pub(super) fn word(&self, buffer: &str, at: &str) -> String {
        if self.width == 1 {
            return format!("{buffer}[{at}]");
        }
        format!("{buffer}[({at}) >> {}u][({at}) & {}]", self.width.ilog2(), self.width - 1)
    }

    /// The declaration of `times` vectors.
    pub(super) fn declaration(&self, name: &str, times: u32) -> String {
        format!("var {name}: array<{}, {}>;", self.ty(), times as usize * self.count)
    }

    /// The statements that load a vector from a place of a buffer whose packs are `other`.
    pub(super) fn load(&self, name: &str, which: &str, buffer: &str, other: &Pack, place: &str) -> String {
        let load = |number: usize| {
            let loaded = self.at(buffer, place, number);
            let is_same = self.ty() == other.ty();
            let value = if is_same { loaded } else { format!("bitcast<{}>({loaded})", self.ty()) };
            format!("{name}[{}] = {value};", self.place(which, number))
        };
        (0..self.count).map(load).collect::<Vec<_>>().join(" ")
    }

    /// One element of a loaded vector as a value.
    pub(super) fn lane(&self, name: &str, which: &str, lane: &str) -> String {
        let each = (self.width * per_word(self.dtype)).ilog2();
        let which = match self.count {
            1 => which.into(),
            count => format!("{which} * {count} + ({lane} >> {each}u)"),
        };
        let word = |at: &str| match self.width {
            1 => format!("{name}[{which}]"),
            width => format!("{name}[{which}][({at}) & {}]", width - 1),
        };
        decode(word, lane, self.dtype)
    }

    /// The statements that store the elements of an array as a vector.
    pub(super) fn store(&self, array: &str, buffer: &str, place: &str) -> String {
        let each = per_word(self.dtype);
        let word = |number: usize| {
            let element = |lane: usize| {
                let value = from_element(&format!("{array}[{}]", number * each + lane), self.dtype);
                let bits = encode(&value, self.dtype);
                if lane == 0 { bits } else { format!("({bits} << {}u)", lane * 32 / each) }
            };
            (0..each).map(element).collect::<Vec<_>>().join(" | ")
        };
        let store = |number: usize| {
            let words: Vec<String> = (0..self.width).map(|lane| word(number * self.width + lane)).collect();
            let all = words.join(", ");
            let value = if self.width == 1 { all } else { format!("{}({all})", self.ty()) };
            format!("{} = {value};", self.at(buffer, place, number))
        };
        (0..self.count).map(store).collect::<Vec<_>>().join(" ")
    }

    /// A pack of the vector at a place of a buffer.
    fn at(&self, buffer: &str, place: &str, number: usize) -> String {
        let by = (self.width * per_word(self.dtype)).ilog2();
        let first = format!("({place}) >> {by}u");
        if number == 0 { format!("{buffer}[{first}]") } else { format!("{buffer}[({first}) + {number}]") }
    }

    /// The index of a pack of a declared vector.
    fn place(&self, which: &str, number: usize) -> String {
        if self.count == 1 { which.into() } else { format!("({which}) * {} + {number}", self.count) }
    }
}

/// Whether a kernel stores an element of an output alone: one for each row or column.
fn is_stored_alone(kernel: &Kernel, param: u32) -> bool {
    if kernel.kind == KernelKind::Map {
        return false;
    }
    let stores = kernel.row_stores().into_iter().chain(kernel.column_stores());
    let mut stored = stores.filter_map(|store| kernel.body[store as usize].compute.store());
    stored.any(|(other, _)| other == param)
}
