//! Constant folding of reductions over a filled tensor.

use super::Rewritten;
use crate::limits::Limits;
use crate::record::{Entry, Source};
use alloc::vec::Vec;
use kiln_ir::{Binary, DType, Op, Reduction, Scalar, TensorType};

/// Folds sums, minima and maxima over a filled tensor, or over a view of one, to a filled tensor. Product reductions
/// stay: every multiplication rounds. So do [exact](Limits::exact) sums of floats.
pub(super) fn folded(given: Rewritten, limits: Limits) -> Rewritten {
    let filled = Filled::of(&given, limits.exact);
    if !given.structure.entries.iter().any(|entry| filled.reduced(entry).is_some()) {
        return given;
    }
    let mut out = Rewritten::new(&given.structure.externals);
    let mut places: Vec<u32> = Vec::new();
    for entry in &given.structure.entries {
        let first = places.len();
        let seen = |result: usize| (given.originals[result], given.structure.alive[result]);
        match filled.reduced(entry) {
            Some((number, Combined::Same)) => {
                let (original, alive) = seen(first);
                let ty = entry.results[0];
                places.push(out.push(Op::Full(ty), &[number], ty, original, alive));
            }
            Some((number, Combined::Times(count))) => {
                let place = out.multiple(number, count, entry.results[0], seen(first));
                places.push(place);
            }
            None => {
                let seen: Vec<_> = (first..first + entry.results.len()).map(seen).collect();
                out.add(out.moved(entry, &places), &seen, &mut places);
            }
        }
    }
    out
}

/// For each result, the fill value if it is filled with one number, and the number of elements.
struct Filled {
    exact: bool,
    numbers: Vec<Option<Source>>,
    elements: Vec<usize>,
}

/// The reduction of copies of one number.
enum Combined {
    Same,
    Times(usize),
}

impl Filled {
    fn of(given: &Rewritten, exact: bool) -> Filled {
        let mut filled = Filled { exact, numbers: Vec::new(), elements: Vec::new() };
        for entry in &given.structure.entries {
            let number = match (&entry.op, entry.operands.as_slice()) {
                (Op::Full(_), [number @ (Source::Number(_) | Source::Constant(_))]) => Some(*number),
                (Op::Bitcast(_), _) => None,
                (op, [Source::Result(x)]) if op.is_view() => filled.numbers[*x as usize],
                _ => None,
            };
            for ty in &entry.results {
                filled.numbers.push(number);
                filled.elements.push(ty.num_elements());
            }
        }
        filled
    }

    /// The fill value that a reduction combines, and the kind of result.
    fn reduced(&self, entry: &Entry) -> Option<(Source, Combined)> {
        let (Op::Reduce { reduction, .. }, [Source::Result(x)]) = (&entry.op, entry.operands.as_slice())
        else {
            return None;
        };
        let (number, elements) = (self.numbers[*x as usize]?, self.elements[*x as usize]);
        let results = entry.results[0].num_elements();
        // A reduction over no elements is the identity.
        if elements == 0 || results == 0 {
            return None;
        }
        match reduction {
            Reduction::Min | Reduction::Max => Some((number, Combined::Same)),
            Reduction::Sum if self.exact && entry.results[0].dtype.is_float() => None,
            Reduction::Sum => Some((number, Combined::Times(elements / results))),
            Reduction::Prod => None,
        }
    }
}

impl Rewritten {
    /// A number times a count. 16-bit floats are multiplied in `f32`, the accumulator type of their sums; integers
    /// wrap.
    fn multiple(
        &mut self,
        number: Source,
        count: usize,
        ty: TensorType,
        (original, alive): (Option<usize>, bool),
    ) -> u32 {
        let is_narrow = matches!(ty.dtype, DType::F16 | DType::BF16);
        let wide = if is_narrow { ty.with_dtype(DType::F32) } else { ty };
        let mut value = self.push(Op::Full(ty), &[number], ty, None, false);
        if wide != ty {
            value = self.push(Op::Cast(wide.dtype), &[Source::Result(value)], wide, None, false);
        }
        let factor = Source::Constant(factor(count, wide.dtype));
        let operands = [Source::Result(value), factor];
        if wide == ty {
            return self.push(Op::Binary(Binary::Mul), &operands, ty, original, alive);
        }
        value = self.push(Op::Binary(Binary::Mul), &operands, wide, None, false);
        self.push(Op::Cast(ty.dtype), &[Source::Result(value)], ty, original, alive)
    }
}

/// A count as a number of a dtype; it wraps for integers.
fn factor(count: usize, dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::Int((count as i8).into()),
        DType::I16 => Scalar::Int((count as i16).into()),
        DType::I32 => Scalar::Int((count as i32).into()),
        DType::I64 => Scalar::Int(count as i64),
        DType::U8 => Scalar::Int((count as u8).into()),
        DType::U16 => Scalar::Int((count as u16).into()),
        DType::U32 => Scalar::Int((count as u32).into()),
        DType::U64 => Scalar::UInt(count as u64),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Bool => Scalar::Float(count as f64),
    }
}
