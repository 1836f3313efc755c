//! C++ for CUDA and HIP, without any header: it compiles unchanged under NVRTC and HIPRTC.

mod joined;
pub(super) mod prelude;

pub use joined::cpp_joined;

use super::functions;
use super::kinds::{self, Function};
use super::prelude::used_helpers;
use super::writer::{Language, name};
use super::{
    Dialect, ENTRIES, GpuArgument, Printed, Unprintable, arguments, check, check_place, entries, names,
};
use crate::{Compute, GpuSchedule, Kernel, KernelKind, ParamKind, ValueId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use kiln_ir::{Binary, Comparison, DType, Reduction, Scalar, Unary};

/// Prints a kernel as C++. Extents and strides are arguments of the entry points, of type `int`, or `long long` with
/// [`GpuSchedule::wide`].
///
/// ```
/// use kiln_kernel::print::{Dialect, cpp};
/// use kiln_kernel::{GpuSchedule, Kernel, Launch};
///
/// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
///   v0: f32 = load %0
///   v1: f32 = exp v0
///   v2: f32 = store %1, v1
/// }".parse()?;
/// let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse()?;
/// let printed = cpp(&kernel, &GpuSchedule::choose(&kernel, &launch), Dialect::Cuda).unwrap();
/// assert!(printed.text.contains("expf(v0)"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Errors
/// When the schedule does not suit the kernel, the kernel has more than one scan, or the dialect is not C++.
pub fn cpp(kernel: &Kernel, schedule: &GpuSchedule, dialect: Dialect) -> Result<Printed, Unprintable> {
    check(kernel, schedule)?;
    is_cpp(dialect)?;
    let language = Cpp { kernel, schedule, dialect };
    let names = names(kernel, schedule);
    let arguments = arguments(kernel, schedule);
    let mut functions = String::new();
    for (name, function) in names.iter().zip(kinds::entries(kernel, schedule, &language)) {
        functions.push_str(&language.function(name, &arguments, &function));
    }
    let entries = entries(&names, kernel, schedule, &arguments);
    Ok(Printed { text: module(schedule, &functions), entries, arguments })
}

/// An error for a dialect that is not C++.
fn is_cpp(dialect: Dialect) -> Result<(), Unprintable> {
    match dialect {
        Dialect::Cuda | Dialect::Hip => Ok(()),
        Dialect::Wgsl => Err(Unprintable { lacks: alloc::vec!["C++".into()] }),
    }
}

/// A module: definitions for the schedule and prelude functions before the functions.
fn module(schedule: &GpuSchedule, functions: &str) -> String {
    let index = if schedule.wide { "long long" } else { "int" };
    let prelude = used_helpers(Dialect::Cuda, functions);
    let separator = if prelude.is_empty() { "" } else { "\n" };
    format!("typedef {index} kiln_index;\n{separator}{prelude}{functions}")
}

/// Prepends the prelude functions that handwritten C++ calls: conversions of 16-bit floats (`kiln_from_f16`), functions
/// with the edge cases of the ops (`kiln_max`), `kiln_bits`.
///
/// ```
/// let text = kiln_kernel::print::with_prelude("float f(unsigned short h) { return kiln_from_bf16(h); }");
/// assert!(text.contains("__forceinline__ float kiln_from_bf16"));
/// ```
pub fn with_prelude(text: &str) -> String {
    let prelude = used_helpers(Dialect::Cuda, text);
    format!("typedef long long kiln_index;\n{prelude}{text}")
}

/// The C++ type of an element in memory.
///
/// ```
/// use kiln_ir::DType;
///
/// assert_eq!(kiln_kernel::print::memory_type(DType::BF16), "unsigned short");
/// ```
pub fn memory_type(dtype: DType) -> &'static str {
    memory(dtype)
}

/// The C++ type of an element in arithmetic.
///
/// ```
/// use kiln_ir::DType;
///
/// assert_eq!(kiln_kernel::print::held_type(DType::BF16), "float");
/// ```
pub fn held_type(dtype: DType) -> &'static str {
    held(dtype)
}

/// The C++ expression that converts an element in memory to the type of arithmetic.
///
/// ```
/// use kiln_ir::DType;
///
/// assert_eq!(kiln_kernel::print::widened(DType::BF16, "x[i]"), "kiln_from_bf16(x[i])");
/// ```
pub fn widened(dtype: DType, element: &str) -> String {
    match dtype {
        DType::F16 => format!("kiln_from_f16({element})"),
        DType::BF16 => format!("kiln_from_bf16({element})"),
        DType::Bool => format!("{element} != 0"),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => element.into(),
    }
}

/// The C++ expression that converts a value to its type in memory.
///
/// ```
/// use kiln_ir::DType;
///
/// assert_eq!(kiln_kernel::print::narrowed(DType::F16, "sum"), "kiln_to_f16(sum)");
/// ```
pub fn narrowed(dtype: DType, value: &str) -> String {
    match dtype {
        DType::F16 => format!("kiln_to_f16({value})"),
        DType::BF16 => format!("kiln_to_bf16({value})"),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => value.into(),
    }
}

struct Cpp<'a> {
    kernel: &'a Kernel,
    schedule: &'a GpuSchedule,
    dialect: Dialect,
}

/// The type of an element in memory.
fn memory(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 | DType::BF16 | DType::U16 => "unsigned short",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::I16 => "short",
        DType::I8 => "signed char",
        DType::U64 => "unsigned long long",
        DType::U32 => "unsigned",
        DType::U8 | DType::Bool => "unsigned char",
    }
}

/// The type of a value.
fn held(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 => "float",
        DType::Bool => "bool",
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => memory(dtype),
    }
}

/// The unsigned type for integer addition and multiplication, since signed overflow is undefined.
fn wrapping(dtype: DType) -> &'static str {
    if dtype.size() == 8 { "unsigned long long" } else { "unsigned" }
}

impl Cpp<'_> {
    fn function(&self, name: &str, arguments: &[GpuArgument], function: &Function) -> String {
        let list: Vec<String> =
            arguments.iter().enumerate().map(|(i, a)| self.argument(i, arguments, a)).collect();
        let mut text = format!(
            "\nextern \"C\" __global__ void __launch_bounds__({}) {name}({}) {{\n",
            self.bounds(name),
            list.join(", ")
        );
        for shared in &function.shared {
            let _ = writeln!(text, "  {shared}");
        }
        text.push_str("  kiln_begin();\n  const kiln_index block = blockIdx.x, thread = threadIdx.x;\n");
        text.push_str(&function.body);
        text.push_str("}\n");
        text
    }

    /// The launch bounds of a kernel: the block size, and for a pass over rows also the resident blocks per
    /// multiprocessor. The second number has another meaning in HIP.
    fn bounds(&self, name: &str) -> String {
        let block = self.schedule.block;
        if name == ENTRIES[0] && self.kernel.has_columns() && self.dialect == Dialect::Cuda {
            format!("{block}, {}", self.schedule.resident_blocks(self.kernel))
        } else {
            block.to_string()
        }
    }

    fn argument(&self, place: usize, all: &[GpuArgument], argument: &GpuArgument) -> String {
        match *argument {
            GpuArgument::Tensor(param) => {
                let Param { kind, dtype } = self.param(param);
                // `__restrict__` inputs would be read through the constant cache. Its lines stay stale after an early
                // kernel has waited for the previous one.
                let [before, after] = match kind {
                    ParamKind::Input => ["const ", ""],
                    // Outputs may alias an operand whose memory is reused.
                    ParamKind::Number | ParamKind::Output if self.kernel.kind == KernelKind::Map => ["", ""],
                    ParamKind::Number | ParamKind::Output => ["", " __restrict__"],
                };
                format!("{before}{}*{after} p{param}", memory(dtype))
            }
            GpuArgument::Number(param) => format!("{} n{param}", number(self.param(param).dtype)),
            GpuArgument::Extent(axis) => format!("kiln_index e{axis}"),
            GpuArgument::Stride(param, axis) => format!("kiln_index s{param}_{axis}"),
            GpuArgument::Offset(param) => format!("kiln_index o{param}"),
            GpuArgument::Scratch(dtype) => {
                let before = all[..place].iter().filter(|a| matches!(a, GpuArgument::Scratch(_))).count();
                format!("{}* t{before}", held(dtype))
            }
            GpuArgument::Failed => "unsigned long long* failed".into(),
        }
    }

    /// The rounding of a value of the kernel to `bf16`.
    fn rounding(&self, value: ValueId) -> Rounding {
        let instruction = self.kernel.body[value as usize];
        let same = instruction.dtype == DType::BF16;
        match instruction.compute {
            Compute::Load(_) | Compute::LoadWhere(..) | Compute::LoadAt { .. } | Compute::Cast(_) if same => {
                Rounding::Done
            }
            Compute::Cast(a) => match self.rounding(a) {
                // A cast to a wider dtype.
                Rounding::Done
                    if instruction.dtype == DType::F32
                        && self.kernel.body[a as usize].dtype == DType::BF16 =>
                {
                    Rounding::Done
                }
                Rounding::Quick => Rounding::Quick,
                Rounding::Done | Rounding::Careful => Rounding::Careful,
            },
            Compute::Select(_, a, b) | Compute::Binary(Binary::Min | Binary::Max, a, b) => self.one_of(a, b),
            Compute::Unary(Unary::Neg | Unary::Abs, a) => self.rounding(a),
            Compute::Unary(..)
            | Compute::Binary(..)
            | Compute::Reduce(Reduction::Sum | Reduction::Prod, _) => Rounding::Quick,
            Compute::Load(_)
            | Compute::LoadWhere(..)
            | Compute::LoadAt { .. }
            | Compute::Number(_)
            | Compute::Constant(_)
            | Compute::Index(_)
            | Compute::Compare(..)
            | Compute::Bitcast(_)
            | Compute::Reduce(..)
            | Compute::ColumnReduce(..)
            | Compute::Scan { .. }
            | Compute::Checked(..)
            | Compute::Store(..) => Rounding::Careful,
        }
    }

    /// The word of a check, and the number of the point along the axes that the index depends on.
    fn failed(&self, check: &Compute) -> String {
        let (found, point) = check_place(self.kernel, check);
        let word = if found == 0 { "failed".into() } else { format!("failed + {found}") };
        format!("{word}, {point}")
    }

    /// The rounding of a value that is one of two operands. NaN payloads of plain numbers need not be preserved.
    fn one_of(&self, a: ValueId, b: ValueId) -> Rounding {
        let is_number = |value: ValueId| {
            matches!(self.kernel.body[value as usize].compute, Compute::Number(_) | Compute::Constant(_))
        };
        let (of_a, of_b) = (self.rounding(a), self.rounding(b));
        if of_a == of_b || (of_a == Rounding::Quick && is_number(b)) {
            of_a
        } else if of_b == Rounding::Quick && is_number(a) {
            Rounding::Quick
        } else {
            Rounding::Careful
        }
    }

    fn param(&self, param: u32) -> Param {
        let param = &self.kernel.params[param as usize];
        Param { kind: param.kind, dtype: param.dtype }
    }
}

/// The rounding of a float of at most 32 bits to `bf16`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    /// Already a `bf16` value: the lower half is truncated.
    Done,
    /// Computed: a NaN stays a NaN, but its payload may change.
    Quick,
    /// Possibly only moved: a NaN keeps the payload bits that fit.
    Careful,
}

struct Param {
    kind: ParamKind,
    dtype: DType,
}

/// The C++ type of a plain number parameter.
pub(super) fn number(dtype: DType) -> &'static str {
    match dtype {
        DType::I16 | DType::I8 => "int",
        DType::U16 | DType::U8 | DType::Bool => "unsigned",
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::U64
        | DType::U32 => held(dtype),
    }
}

impl Language for Cpp<'_> {
    fn index(&self, name: &str, expression: &str) -> String {
        format!("const kiln_index {name} = {expression};")
    }

    fn for_loop(&self, name: &str, from: &str, below: &str, next: &str) -> String {
        format!("for (kiln_index {name} = {from}; {name} < {below}; {name} = {next})")
    }

    fn unroll_partly(&self) -> &'static str {
        "#pragma unroll 4"
    }

    fn unroll(&self) -> &'static str {
        "#pragma unroll"
    }

    fn value(&self, name: &str, dtype: DType, expression: &str) -> String {
        format!("const {} {name} = {expression};", held(dtype))
    }

    fn variable(&self, name: &str, dtype: DType, expression: &str) -> String {
        format!("{} {name} = {expression};", held(dtype))
    }

    fn array(&self, name: &str, dtype: DType, len: usize) -> String {
        format!("{} {name}[{len}];", held(dtype))
    }

    fn shared(&self, name: &str, dtype: DType, len: usize) -> String {
        format!("__shared__ {} {name}[{len}];", held(dtype))
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn shuffle(&self, value: &str, dtype: DType, distance: u32) -> Option<String> {
        if dtype.accumulator().size() < 4 {
            return None;
        }
        Some(match self.dialect {
            Dialect::Cuda => format!("__shfl_xor_sync(0xffffffffu, {value}, {distance})"),
            Dialect::Hip | Dialect::Wgsl => format!("__shfl_xor({value}, {distance}, 32)"),
        })
    }

    fn compute(&self, compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
        let at = |i: usize| operands[i].0.as_str();
        match compute {
            Compute::Cast(value)
                if dtype == DType::BF16 && operands[0].1.is_float() && operands[0].1 != DType::F64 =>
            {
                match self.rounding(*value) {
                    Rounding::Done => at(0).to_string(),
                    Rounding::Quick => format!("kiln_round_bf16({})", at(0)),
                    Rounding::Careful => cast(at(0), operands[0].1, dtype),
                }
            }
            Compute::Checked(..) => format!("kiln_checked({}, {}, {})", at(0), at(1), self.failed(compute)),
            Compute::Load(_)
            | Compute::LoadWhere(..)
            | Compute::LoadAt { .. }
            | Compute::Number(_)
            | Compute::Constant(_)
            | Compute::Index(_)
            | Compute::Unary(..)
            | Compute::Binary(..)
            | Compute::Compare(..)
            | Compute::Select(..)
            | Compute::Cast(_)
            | Compute::Bitcast(_)
            | Compute::Reduce(..)
            | Compute::ColumnReduce(..)
            | Compute::Scan { .. }
            | Compute::Store(..) => self::compute(compute, dtype, operands),
        }
    }

    fn constant(&self, scalar: Scalar, dtype: DType) -> String {
        constant(scalar, dtype)
    }

    fn of_index(&self, index: &str, dtype: DType) -> String {
        // 16-bit floats are computed in 32 bits.
        format!("({}){index}", held(dtype))
    }

    fn load(&self, param: u32, dtype: DType, place: &str) -> String {
        let offset =
            if self.kernel.is_read_everywhere(param) { String::new() } else { format!("o{param} + ") };
        widened(dtype, &format!("p{param}[{offset}{place}]"))
    }

    fn load_where(&self, param: u32, dtype: DType, place: &str, condition: &str) -> String {
        let load = self.load(param, dtype, place);
        self.choice(condition, &load, &self.constant(Scalar::Int(0), dtype))
    }

    fn choice(&self, condition: &str, a: &str, b: &str) -> String {
        format!("{condition} ? {a} : {b}")
    }

    fn store(&self, param: u32, dtype: DType, place: &str, value: ValueId) -> String {
        let x = name(value);
        let element = match (dtype, self.rounding(value)) {
            (DType::BF16, Rounding::Done) => format!("kiln_cut_bf16({x})"),
            (DType::BF16, Rounding::Quick) => format!("kiln_cut_bf16(kiln_round_bf16({x}))"),
            _ => narrowed(dtype, &x),
        };
        format!("p{param}[{place}] = {element};")
    }

    fn declare_loads(&self, param: u32, count: u32, times: u32) -> String {
        format!("kiln_pack<{}, {count}> x{param}[{times}];", memory(self.param(param).dtype))
    }

    fn load_vector(&self, param: u32, count: u32, which: &str, place: &str) -> String {
        let pack = format!("kiln_pack<{}, {count}>", memory(self.param(param).dtype));
        format!("x{param}[{which}] = *reinterpret_cast<const {pack}*>(p{param} + {place});")
    }

    fn lane(&self, param: u32, dtype: DType, which: &str, lane: &str) -> String {
        widened(dtype, &format!("x{param}[{which}].at[{lane}]"))
    }

    fn declare_stores(&self, param: u32, count: u32) -> String {
        let dtype = self.param(param).dtype;
        // Rounded in pairs at the store.
        let ty = if dtype == DType::BF16 { held(dtype) } else { memory(dtype) };
        format!("kiln_pack<{ty}, {count}> y{param};")
    }

    fn set_lane(&self, param: u32, dtype: DType, lane: &str, value: &str) -> String {
        let element = if dtype == DType::BF16 { value.into() } else { narrowed(dtype, value) };
        format!("y{param}.at[{lane}] = {element};")
    }

    fn store_vector(&self, param: u32, count: u32, place: &str, value: ValueId) -> String {
        let dtype = self.param(param).dtype;
        let (mut ty, mut elements) = (memory(dtype), format!("y{param}"));
        if dtype == DType::BF16 {
            let pairs = match self.rounding(value) {
                Rounding::Done => "kiln_cut_pairs",
                Rounding::Quick => "kiln_round_pairs",
                Rounding::Careful => "kiln_to_pairs",
            };
            elements = format!("{pairs}({elements})");
            ty = "unsigned";
        }
        let count = if dtype == DType::BF16 { count / 2 } else { count };
        format!("*reinterpret_cast<kiln_pack<{ty}, {count}>*>(p{param} + {place}) = {elements};")
    }

    fn load_scratch(&self, number: usize, _dtype: DType, place: &str) -> String {
        format!("t{number}[{place}]")
    }

    fn store_scratch(&self, number: usize, _dtype: DType, place: &str, value: &str) -> String {
        format!("t{number}[{place}] = {value};")
    }

    fn least(&self, a: &str, b: &str) -> String {
        format!("kiln_least({a}, {b})")
    }
}

/// The expression of a function of values. Instructions that are no functions, and checks, are their first operand.
pub(super) fn compute(compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
    let at = |i: usize| operands[i].0.as_str();
    match compute {
        Compute::Unary(function, _) => functions::in_cpp(*function, at(0), dtype),
        Compute::Binary(function, ..) => binary(*function, at(0), at(1), dtype),
        Compute::Compare(comparison, ..) => {
            let sign = match comparison {
                Comparison::Eq => "==",
                Comparison::Ne => "!=",
                Comparison::Lt => "<",
                Comparison::Le => "<=",
            };
            format!("{} {sign} {}", at(0), at(1))
        }
        Compute::Select(..) => format!("{} ? {} : {}", at(0), at(1), at(2)),
        Compute::Cast(_) => cast(at(0), operands[0].1, dtype),
        Compute::Bitcast(_) => format!("kiln_bits<{}>({})", held(dtype), at(0)),
        Compute::Load(_)
        | Compute::LoadWhere(..)
        | Compute::LoadAt { .. }
        | Compute::Number(_)
        | Compute::Constant(_)
        | Compute::Index(_)
        | Compute::Reduce(..)
        | Compute::ColumnReduce(..)
        | Compute::Scan { .. }
        | Compute::Checked(..)
        | Compute::Store(..) => at(0).to_string(),
    }
}

/// The suffix of functions and literals of a float dtype.
pub(super) fn suffix(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "" } else { "f" }
}

pub(super) fn neg(x: &str, dtype: DType) -> String {
    if dtype.is_float() { format!("-{x}") } else { negated(x, dtype) }
}

/// The negation of an integer, which wraps.
fn negated(x: &str, dtype: DType) -> String {
    format!("({})(({})0 - ({1}){x})", held(dtype), wrapping(dtype))
}

pub(super) fn abs(x: &str, dtype: DType) -> String {
    if dtype.is_float() {
        format!("fabs{}({x})", suffix(dtype))
    } else if dtype.is_signed_int() {
        format!("{x} < 0 ? {} : {x}", negated(x, dtype))
    } else {
        x.into()
    }
}

pub(super) fn sign(x: &str, _dtype: DType) -> String {
    format!("kiln_sign({x})")
}

pub(super) fn recip(x: &str, dtype: DType) -> String {
    format!("1.0{} / {x}", suffix(dtype))
}

pub(super) fn not(x: &str, dtype: DType) -> String {
    if dtype.is_bool() { format!("!{x}") } else { format!("({})~{x}", held(dtype)) }
}

fn binary(function: Binary, a: &str, b: &str, dtype: DType) -> String {
    let (ty, wide, f) = (held(dtype), wrapping(dtype), suffix(dtype));
    let arithmetic = |sign: &str| match dtype.is_float() {
        true => format!("{a} {sign} {b}"),
        false => format!("({ty})(({wide}){a} {sign} ({wide}){b})"),
    };
    let bits = |sign: &str| format!("({ty})({a} {sign} {b})");
    match function {
        Binary::Add => arithmetic("+"),
        Binary::Sub => arithmetic("-"),
        Binary::Mul => arithmetic("*"),
        Binary::Div if dtype.is_float() => format!("{a} / {b}"),
        Binary::Div => format!("kiln_div<{ty}, {wide}>({a}, {b})"),
        Binary::Rem if dtype.is_float() => format!("fmod{f}({a}, {b})"),
        Binary::Rem => format!("kiln_rem<{ty}>({a}, {b})"),
        Binary::Pow if dtype.is_float() => format!("pow{f}({a}, {b})"),
        Binary::Pow => format!("kiln_pow<{ty}, {wide}>({a}, {b})"),
        Binary::Min => format!("kiln_min<{ty}>({a}, {b})"),
        Binary::Max => format!("kiln_max<{ty}>({a}, {b})"),
        Binary::Atan2 => format!("atan2{f}({a}, {b})"),
        Binary::And => bits("&"),
        Binary::Or => bits("|"),
        Binary::Xor => bits("^"),
        Binary::Shl => format!("kiln_shl<{ty}, {wide}>({a}, {b})"),
        Binary::Shr => format!("kiln_shr<{ty}>({a}, {b})"),
    }
}

pub(super) fn cast(x: &str, from: DType, to: DType) -> String {
    let half = |x: &str| {
        let name = if to == DType::F16 { "f16" } else { "bf16" };
        format!("kiln_from_{name}(kiln_to_{name}({x}))")
    };
    if to.is_bool() {
        return format!("{x} != {}", constant(Scalar::Int(0), from));
    }
    if to.is_float() && to.size() == 2 {
        return match from {
            DType::F32 | DType::F16 | DType::BF16 => half(x),
            DType::F64
            | DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => half(&format!("kiln_odd((double){x})")),
        };
    }
    if !from.is_float() || to.is_float() {
        return format!("({}){x}", held(to));
    }
    let (ty, real) = (held(to), held(from));
    let bits = to.size() * 8 - usize::from(to.is_signed_int());
    let least = if to.is_signed_int() { -(1i128 << bits) } else { 0 };
    let literal = |x: i128| match i64::try_from(x) {
        Ok(x) => constant(Scalar::Int(x), to),
        Err(_) => constant(Scalar::UInt(x as u64), to),
    };
    let bound = |x: i128| constant(Scalar::Float(x as f64), from);
    let (low, high) = (bound(least), bound(1 << bits));
    format!("kiln_whole<{ty}, {real}>({x}, {low}, {high}, {}, {})", literal(least), literal((1 << bits) - 1))
}

/// A literal of the dtype.
pub(super) fn constant(scalar: Scalar, dtype: DType) -> String {
    match dtype {
        DType::F64 => {
            let x = scalar.to_f64();
            if x.is_finite() { format!("{x:?}") } else { format!("kiln_bits<double>({:#x}ull)", x.to_bits()) }
        }
        DType::F32 | DType::F16 | DType::BF16 => {
            let x = scalar.to_f64() as f32;
            if x.is_finite() { format!("{x:?}f") } else { format!("kiln_bits<float>({:#x}u)", x.to_bits()) }
        }
        DType::I64 if scalar.to_i64() == i64::MIN => "(-9223372036854775807ll - 1)".into(),
        DType::I64 => format!("{}ll", scalar.to_i64()),
        DType::I32 if scalar.to_i64() as i32 == i32::MIN => "(-2147483647 - 1)".into(),
        DType::I32 => format!("{}", scalar.to_i64() as i32),
        DType::I16 => format!("(short){}", scalar.to_i64() as i16),
        DType::I8 => format!("(signed char){}", scalar.to_i64() as i8),
        DType::U64 => format!("{}ull", scalar.to_u64()),
        DType::U32 => format!("{}u", scalar.to_u64() as u32),
        DType::U16 => format!("(unsigned short){}", scalar.to_u64() as u16),
        DType::U8 => format!("(unsigned char){}", scalar.to_u64() as u8),
        DType::Bool => if scalar.to_bool() { "true" } else { "false" }.into(),
    }
}
