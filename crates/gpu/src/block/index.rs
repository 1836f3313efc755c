//! Block kernels that read and write by index.
//!
//! Tensors are `[before, length, after]`, indexed along the second axis. An index has `count` entries, or is
//! `[before, count, after]`: see [`Entries`].

use crate::index::{Entries, MOST_SUMS};
use crate::suspicion::WORDS;
use kiln_ir::{Binary, DType, Scalar};
use kiln_kernel::block::{Atomic, BlockKernel, Buffer, Builder, Expression, Type, constant, index};

/// Threads per block.
const THREADS: u32 = 256;

/// The number of 32-bit masks that mark the flags of a page.
const MASKS: usize = WORDS / 32;

/// A point of the read or written elements, and its entry of the index.
struct Hit {
    /// The number of the point.
    point: Expression,
    /// The number of the entry along the axis.
    number: Expression,
    /// The index that the entry holds.
    at: Expression,
    /// The indexed element of the tensor. Valid only for an index in range.
    place: Expression,
}

impl Hit {
    /// The place where the winner among entries with equal targets is recorded.
    fn winner(&self, entries: Entries) -> &Expression {
        match entries {
            Entries::List => &self.at,
            Entries::Each => &self.place,
        }
    }
}

/// Copies the indexed elements; 0 for an index out of range. `dtype` has the bits of the elements.
pub(crate) fn take(entries: Entries, dtype: DType, index_dtype: DType) -> BlockKernel {
    let k = Builder::new("take", THREADS);
    let (x, indices) = (k.input("x", dtype), k.input("index", index_dtype));
    let (y, failed) = (k.output("y", dtype), k.flag("failed"));
    let inside = |hit: &Hit| k.store(&y, &hit.point, &x.at(&hit.place));
    let outside = |hit: &Hit| k.store(&y, &hit.point, &constant(Scalar::UInt(0), dtype));
    for_entries(&k, entries, [&indices, &failed], inside, outside);
    k.finish()
}

/// Checks that entries are in range; moves no elements.
pub(crate) fn check_index(index_dtype: DType) -> BlockKernel {
    let k = Builder::new("check_index", THREADS);
    let (indices, failed) = (k.input("index", index_dtype), k.flag("failed"));
    let [total, length] = k.lengths(["total", "length"]);
    k.for_points(&total, |p| {
        let at = k.bind(&indices.at(&p).to_index());
        k.when(&!in_range(&at, &length), || k.fail(&failed, &at, &p));
    });
    k.finish()
}

/// Writes a single entry, so there are no duplicates. `dtype` has the bits of the elements.
pub(crate) fn set_one(entries: Entries, dtype: DType, index_dtype: DType) -> BlockKernel {
    let k = Builder::new("set_one", THREADS);
    let (source, indices) = (k.input("source", dtype), k.input("index", index_dtype));
    let (y, failed) = (k.output("y", dtype), k.flag("failed"));
    let inside = |hit: &Hit| k.store(&y, &hit.place, &source.at(&hit.point));
    for_entries(&k, entries, [&indices, &failed], inside, |_| {});
    k.finish()
}

/// Records the last entry of each target, which wins. Winners are -1 before.
pub(crate) fn claim(entries: Entries, index_dtype: DType) -> BlockKernel {
    let k = Builder::new("claim", THREADS);
    let indices = k.input("index", index_dtype);
    let (winner, failed) = (k.atomic_output("winner", DType::I32), k.flag("failed"));
    let inside =
        |hit: &Hit| k.atomic(&winner, hit.winner(entries), Atomic::Max, &hit.number.cast(DType::I32));
    for_entries(&k, entries, [&indices, &failed], inside, |_| {});
    k.finish()
}

/// Writes the entries that [won](claim). `dtype` has the bits of the elements.
pub(crate) fn set(entries: Entries, dtype: DType, index_dtype: DType) -> BlockKernel {
    let k = Builder::new("set", THREADS);
    let (source, indices) = (k.input("source", dtype), k.input("index", index_dtype));
    let winner = k.input("winner", DType::I32);
    let (y, failed) = (k.output("y", dtype), k.flag("failed"));
    let inside = |hit: &Hit| {
        let wins = winner.at(hit.winner(entries)).eq(&hit.number.cast(DType::I32));
        k.when(&wins, || k.store(&y, &hit.place, &source.at(&hit.point)));
    };
    for_entries(&k, entries, [&indices, &failed], inside, |_| {});
    k.finish()
}

/// Combines entries with their targets by atomic operations.
pub(crate) fn combine(entries: Entries, operation: Atomic, dtype: DType, index_dtype: DType) -> BlockKernel {
    let k = Builder::new("combine", THREADS);
    let (source, indices) = (k.input("source", dtype), k.input("index", index_dtype));
    let (y, failed) = (k.atomic_output("y", dtype), k.flag("failed"));
    let inside = |hit: &Hit| k.atomic(&y, &hit.place, operation, &source.at(&hit.point));
    for_entries(&k, entries, [&indices, &failed], inside, |_| {});
    k.finish()
}

/// Sums for few targets along the only axis: each block accumulates in shared memory, and then adds its sums to the
/// tensor.
pub(crate) fn combine_few(dtype: DType, index_dtype: DType) -> BlockKernel {
    let k = Builder::new("combine_few", THREADS);
    let (source, indices) = (k.input("source", dtype), k.input("index", index_dtype));
    let (y, failed) = (k.atomic_output("y", dtype), k.flag("failed"));
    let [total, length] = k.lengths(["total", "length"]);
    let sums = k.shared_atomic(dtype, MOST_SUMS);
    // The sum of no negative zeros is a positive zero, which a tensor of negative zeros must not get.
    let nothing = if dtype.is_float() { Scalar::Float(-0.0) } else { Scalar::Int(0) };
    k.for_threads(&length, |at| k.put(&sums, &at, &constant(nothing, dtype)));
    k.barrier();
    k.for_points(&total, |p| {
        let at = k.bind(&indices.at(&p).to_index());
        let add = || {
            k.atomic_shared(&sums, &at, Atomic::Add, &source.at(&p));
        };
        k.when_else(&in_range(&at, &length), add, || k.fail(&failed, &at, &p));
    });
    k.barrier();
    k.for_threads(&length, |at| k.atomic(&y, &at, Atomic::Add, &sums.at(&at)));
    k.finish()
}

/// Combines entries with their targets without atomic operations: the thread of a target reads all entries of its
/// line, in order. `total` counts the targets. It does not check the index.
pub(crate) fn combine_lines(
    entries: Entries,
    operation: Atomic,
    dtype: DType,
    index_dtype: DType,
) -> BlockKernel {
    let k = Builder::new("combine_lines", THREADS);
    let (source, indices) = (k.input("source", dtype), k.input("index", index_dtype));
    let y = k.output("y", dtype);
    let [total, length, count, after] = k.lengths(["total", "length", "count", "after"]);
    k.for_points(&total, |p| {
        let (line, column) = (k.bind(&(&p / &after)), k.bind(&(&p % &after)));
        let (before, target) = (k.bind(&(&line / &length)), k.bind(&(&line % &length)));
        let value = k.var(&y.at(&p));
        k.for_each(&count, |i| {
            let point = k.bind(&((&before * &count + &i) * &after + &column));
            let entry = if entries == Entries::List { &i } else { &point };
            let hits = indices.at(entry).to_index().eq(&target);
            k.when(&hits, || k.update(&value, function(operation), &source.at(&point)));
        });
        k.store(&y, &p, &value.get());
    });
    k.finish()
}

/// Combines entries with their targets in the order of the entries, of which `keys` are sorted and `order` are the places:
/// those of a list, or of each line of an index `[before, after, count]`. The thread of the first of equal keys combines
/// all of them.
pub(crate) fn combine_sorted(
    entries: Entries,
    operation: Atomic,
    dtype: DType,
    index_dtype: DType,
) -> BlockKernel {
    let k = Builder::new("combine_sorted", THREADS);
    let (source, keys) = (k.input("source", dtype), k.input("keys", index_dtype));
    let (order, y, failed) = (k.input("order", DType::I32), k.output("y", dtype), k.flag("failed"));
    let [total, length, count, after] = k.lengths(["total", "length", "count", "after"]);
    k.for_points(&total, |p| {
        let (column, rest) = (k.bind(&(&p % &after)), k.bind(&(&p / &after)));
        let (first, before) = (k.bind(&(&rest % &count)), k.bind(&(&rest / &count)));
        let line = match entries {
            Entries::List => index(0),
            Entries::Each => k.bind(&((&before * &after + &column) * &count)),
        };
        let key = k.bind(&keys.at(&(&line + &first)));
        // The index before the first key is not read: it may be out of bounds.
        let previous = keys.at(&(&line + (&first - index(1)).max(&index(0))));
        k.when(&(first.eq(&index(0)) | previous.ne(&key)), || {
            let at = k.bind(&key.to_index());
            let combine = || {
                let place = k.bind(&((&before * &length + &at) * &after + &column));
                let value = k.var(&y.at(&place));
                k.for_range(&first, &count, &index(1), |next| {
                    let next = k.bind(&(&line + &next));
                    k.when(&keys.at(&next).ne(&key), || k.break_loop());
                    let i = k.bind(&order.at(&next).to_index());
                    let point = (&before * &count + &i) * &after + &column;
                    k.update(&value, function(operation), &source.at(&point));
                });
                k.store(&y, &place, &value.get());
            };
            let report = || {
                let i = k.bind(&order.at(&(&line + &first)).to_index());
                let entry = match entries {
                    Entries::List => i,
                    Entries::Each => (&before * &count + &i) * &after + &column,
                };
                k.fail(&failed, &at, &entry);
            };
            k.when_else(&in_range(&at, &length), combine, report);
        });
    });
    k.finish()
}

/// Sets the flag to 0 unless all marked words of a page are 0. Masks have a bit for each word, which has 64 bits. The
/// flag is 1 before.
pub(crate) fn recover() -> BlockKernel {
    let k = Builder::new("recover", THREADS);
    let (words, ok) = (k.input("words", DType::U32), k.output("ok", DType::Bool));
    let masks = k.array(Type::Value(DType::U32), MASKS);
    for i in 0..MASKS {
        let mask = k.number(&format!("m{i}"), DType::U32);
        k.put(&masks, &index(i), &mask);
    }
    let total = k.length("total");
    let bit = |number: u64| constant(Scalar::UInt(number), DType::U32);
    k.for_points(&total, |p| {
        let place = (&p % index(32)).cast(DType::U32);
        let mark = masks.at(&(&p / index(32))).binary(Binary::Shr, &place) & bit(1);
        let word = words.at(&(&p * index(2))) | words.at(&(&p * index(2) + index(1)));
        let is_set = mark.ne(&bit(0)) & word.ne(&bit(0));
        k.when(&is_set, || k.store(&ok, &index(0), &constant(Scalar::Bool(false), DType::Bool)));
    });
    k.finish()
}

/// Executes a body for each point with an index in range. Reports the others, and executes the second body for them.
fn for_entries(
    k: &Builder,
    entries: Entries,
    [indices, failed]: [&Buffer; 2],
    inside: impl FnOnce(&Hit),
    outside: impl FnOnce(&Hit),
) {
    let [total, length, count, after] = k.lengths(["total", "length", "count", "after"]);
    k.for_points(&total, |point| {
        let line = k.bind(&(&point / &after));
        let number = k.bind(&(&line % &count));
        let entry = match entries {
            Entries::List => number.clone(),
            Entries::Each => point.clone(),
        };
        let at = k.bind(&indices.at(&entry).to_index());
        let place = (&line / &count * &length + &at) * &after + &point % &after;
        let hit = Hit { point, number, at, place };
        let report = || {
            k.fail(failed, &hit.at, &entry);
            outside(&hit);
        };
        k.when_else(&in_range(&hit.at, &length), || inside(&hit), report);
    });
}

/// Whether an index is in range for an axis of that length.
fn in_range(at: &Expression, length: &Expression) -> Expression {
    at.ge(&index(0)) & at.lt(length)
}

/// The function that an atomic operation applies.
fn function(operation: Atomic) -> Binary {
    match operation {
        Atomic::Add => Binary::Add,
        Atomic::Mul => Binary::Mul,
        Atomic::Min => Binary::Min,
        Atomic::Max => Binary::Max,
        Atomic::Or => Binary::Or,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::printed::assert_printed;
    use crate::index::combined_in;
    use crate::strided::bits;

    const ENTRIES: [Entries; 2] = [Entries::List, Entries::Each];

    const OPERATIONS: [Atomic; 4] = [Atomic::Add, Atomic::Mul, Atomic::Min, Atomic::Max];

    /// Calls a function for all pairs of a distinct dtype and a dtype of indices.
    fn for_dtypes(dtype: fn(DType) -> DType, check: impl Fn(Entries, DType, DType)) {
        let dtypes = DType::ALL.map(dtype);
        for (i, &dtype) in dtypes.iter().enumerate().filter(|(i, dtype)| !dtypes[..*i].contains(dtype)) {
            for index_dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
                // Kernels depend on the two dtypes independently.
                check(ENTRIES[(i + index_dtype as usize) % 2], dtype, index_dtype);
            }
        }
    }

    #[test]
    fn copies_are_printed() {
        for_dtypes(bits, |entries, dtype, index_dtype| {
            assert_printed(&take(entries, dtype, index_dtype));
            assert_printed(&set_one(entries, dtype, index_dtype));
            assert_printed(&set(entries, dtype, index_dtype));
        });
    }

    #[test]
    fn checks_are_printed() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
            assert_printed(&check_index(dtype));
            ENTRIES.iter().for_each(|&entries| assert_printed(&claim(entries, dtype)));
        }
        assert_printed(&recover());
    }

    #[test]
    fn combinations_are_printed() {
        for operation in OPERATIONS {
            for_dtypes(combined_in, |entries, dtype, index_dtype| {
                assert_printed(&combine_lines(entries, operation, dtype, index_dtype));
                assert_printed(&combine_sorted(entries, operation, dtype, index_dtype));
                if dtype.size() == 4 {
                    assert_printed(&combine(entries, operation, dtype, index_dtype));
                }
            });
        }
        for_dtypes(combined_in, |_, dtype, index_dtype| {
            if dtype.size() == 4 {
                assert_printed(&combine_few(dtype, index_dtype));
            }
        });
    }

    #[test]
    fn parameters_have_the_order_of_launches() {
        let names = |kernel: BlockKernel| -> Vec<String> {
            kernel.params.into_iter().map(|param| param.name).collect()
        };
        let sizes = ["total", "length", "count", "after"];
        let of_take = names(take(Entries::List, DType::U8, DType::I32));
        assert_eq!(of_take[..4], ["x", "index", "y", "failed"]);
        assert_eq!(of_take[4..], sizes);
        let of_set = names(set(Entries::Each, DType::U32, DType::I64));
        assert_eq!(of_set[..5], ["source", "index", "winner", "y", "failed"]);
        assert_eq!(of_set[5..], sizes);
        let of_recover = names(recover());
        assert_eq!(of_recover.len(), 2 + MASKS + 1);
        assert_eq!(of_recover[2 + MASKS], "total");
    }
}
