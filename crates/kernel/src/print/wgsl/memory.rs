//! Elements in memory in WGSL: those of 8 and 16 bits are packed in 32-bit words.

use super::expression::wrapped;
use super::held;
use alloc::format;
use alloc::string::String;
use kiln_ir::DType;

/// The number of elements per word of memory.
pub(in crate::print) fn per_word(dtype: DType) -> usize {
    4 / dtype.size().min(4)
}

/// The type of a buffer's elements. Packed elements are written by atomic operations.
pub(in crate::print) fn buffer_type(dtype: DType, is_written: bool) -> &'static str {
    match (per_word(dtype), is_written) {
        (1, _) => held(dtype),
        (_, false) => "u32",
        (_, true) => "atomic<u32>",
    }
}

/// The element at a place of a buffer as a value. `is_atomic`: whether the buffer has atomic words.
pub(in crate::print) fn load_packed(buffer: &str, place: &str, dtype: DType, is_atomic: bool) -> String {
    let word = |at: &str| match is_atomic {
        true => format!("atomicLoad(&{buffer}[{at}])"),
        false => format!("{buffer}[{at}]"),
    };
    if is_atomic && per_word(dtype) == 1 {
        return format!("bitcast<{}>({})", held(dtype), word(place));
    }
    decode(word, place, dtype)
}

/// The element at a place as a value; `word` returns the word of an index.
pub(super) fn decode(word: impl Fn(&str) -> String, place: &str, dtype: DType) -> String {
    let count = per_word(dtype);
    if count == 1 {
        return word(place);
    }
    let [by, mask] = layout(count);
    let word = word(&format!("({place}) >> {by}u"));
    let element = format!("({word} >> {}) & {mask}", shift(place, count));
    match dtype {
        DType::F16 => format!("kiln_from_f16({element})"),
        DType::BF16 => format!("kiln_from_bf16({element})"),
        DType::Bool => format!("({element}) != 0u"),
        DType::I16 | DType::I8 => wrapped(format!("bitcast<i32>({element})"), dtype),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => element,
    }
}

/// The bits of a packed element; other elements are themselves.
pub(in crate::print) fn encode(value: &str, dtype: DType) -> String {
    let count = per_word(dtype);
    match dtype {
        DType::F16 => format!("kiln_to_f16({value})"),
        DType::BF16 => format!("kiln_to_bf16({value})"),
        DType::Bool => format!("select(0u, 1u, {value})"),
        DType::I16 | DType::I8 => format!("(bitcast<u32>({value}) & {})", layout(count)[1]),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => value.into(),
    }
}

/// The statement that writes a value to a place of a buffer. A packed element is cleared and set by two atomic
/// operations.
pub(in crate::print) fn store_packed(buffer: &str, place: &str, dtype: DType, value: &str) -> String {
    let count = per_word(dtype);
    if count == 1 {
        return format!("{buffer}[{place}] = {value};");
    }
    let [by, mask] = layout(count);
    let element = encode(value, dtype);
    let (word, shift) = (format!("{buffer}[at >> {by}u]"), shift("at", count));
    format!(
        "{{ let at = {place}; let shift = {shift}; let element = {element}; atomicAnd(&{word}, ~({mask} << shift)); atomicOr(&{word}, element << shift); }}"
    )
}

/// The logarithm of the elements per word, and the mask of an element.
fn layout(count: usize) -> [&'static str; 2] {
    if count == 4 { ["2", "0xffu"] } else { ["1", "0xffffu"] }
}

/// The bits before an element in its word.
fn shift(place: &str, count: usize) -> String {
    format!("((u32({place}) & {}u) * {}u)", count - 1, 32 / count)
}
