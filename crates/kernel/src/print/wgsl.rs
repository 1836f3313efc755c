//! WGSL, the shading language of [WebGPU](https://www.w3.org/TR/WGSL/).
//!
//! Elements of 8 and 16 bits are packed in 32-bit words. A load unpacks them; a store clears and sets the bits of one
//! word by two atomic operations. Integers are computed in 32 bits and wrapped to their width.

mod prelude;

use super::functions;
use super::kinds::{self, Entry};
use super::writer::{Language, name};
use super::{GpuArgument, Printed, Unprintable, arguments, check, entries};
use crate::{Compute, GpuSchedule, Kernel, ParamKind, ValueId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use kiln_ir::{Binary, Comparison, DType, Scalar};

/// Prints a kernel as WGSL.
///
/// ```
/// use kiln_kernel::print::wgsl;
/// use kiln_kernel::{GpuSchedule, Kernel, Launch};
///
/// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
///   v0: f32 = load %0
///   v1: f32 = exp v0
///   v2: f32 = store %1, v1
/// }".parse()?;
/// let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse()?;
/// let printed = wgsl(&kernel, &GpuSchedule::choose(&kernel, &launch)).unwrap();
/// assert!(printed.text.contains("exp(v0)"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Errors
/// When a value or index needs 64 bits, scratch memory would hold `bool`, the schedule does not suit this kernel, or
/// the kernel has more than one scan.
pub fn wgsl(kernel: &Kernel, schedule: &GpuSchedule) -> Result<Printed, Unprintable> {
    check(kernel, schedule)?;
    let arguments = arguments(kernel, schedule, true);
    let lacks = lacks(kernel, schedule, &arguments);
    if !lacks.is_empty() {
        return Err(Unprintable { lacks });
    }
    let language = Wgsl { kernel };
    let names = entries(kernel, schedule);
    let mut functions = String::new();
    let mut shared: Vec<String> = Vec::new();
    for (name, entry) in names.iter().zip(kinds::entries(kernel, schedule, &language)) {
        functions.push_str(&language.function(name, schedule, &arguments, &entry));
        shared.extend(entry.shared);
    }
    shared.sort();
    shared.dedup();
    let mut text = language.bindings(&arguments);
    for shared in shared {
        let _ = writeln!(text, "{shared}");
    }
    text.push('\n');
    text.push_str(&prelude::used(&functions));
    text.push_str(&functions);
    Ok(Printed { text, entries: names, arguments })
}

/// The features that the kernel needs and WGSL lacks.
fn lacks(kernel: &Kernel, schedule: &GpuSchedule, arguments: &[GpuArgument]) -> Vec<String> {
    let mut lacks: Vec<String> = Vec::new();
    for dtype in DType::ALL {
        let used = kernel.body.iter().any(|instruction| instruction.dtype == dtype);
        if dtype.size() == 8 && used {
            lacks.push(dtype.name().into());
        }
    }
    if schedule.wide {
        lacks.push("64-bit indices".into());
    }
    if arguments.contains(&GpuArgument::Scratch(DType::Bool)) {
        lacks.push("scratch memory of bool".into());
    }
    lacks
}

struct Wgsl<'a> {
    kernel: &'a Kernel,
}

/// The type of a value.
fn held(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => "f32",
        DType::I64 | DType::I32 | DType::I16 | DType::I8 => "i32",
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => "u32",
        DType::Bool => "bool",
    }
}

/// The number of elements per word of memory.
fn per_word(dtype: DType) -> usize {
    4 / dtype.size().min(4)
}

impl Wgsl<'_> {
    /// The statement that writes a value to memory.
    fn store_element(&self, param: u32, dtype: DType, place: &str, value: &str) -> String {
        let place = format!("o{param} + {place}");
        let count = per_word(dtype);
        if count == 1 {
            return format!("p{param}[{place}] = {value};");
        }
        let (bits, mask) = (32 / count, if count == 4 { "0xffu" } else { "0xffffu" });
        let element = match dtype {
            DType::F16 => format!("kiln_to_f16({value})"),
            DType::BF16 => format!("kiln_to_bf16({value})"),
            DType::Bool => format!("select(0u, 1u, {value})"),
            DType::I16 | DType::I8 => format!("(bitcast<u32>({value}) & {mask})"),
            DType::F64
            | DType::F32
            | DType::I64
            | DType::I32
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8 => value.into(),
        };
        format!(
            "{{ let at = {place}; let shift = u32(at) % {count}u * {bits}u; atomicAnd(&p{param}[at / {count}], ~({mask} << shift)); atomicOr(&p{param}[at / {count}], {element} << shift); }}"
        )
    }

    fn bindings(&self, arguments: &[GpuArgument]) -> String {
        let mut text = String::new();
        let mut number = 0;
        let mut bind = |text: &mut String, access: &str, name: &str, ty: &str| {
            let _ =
                writeln!(text, "@group(0) @binding({number}) var<storage, {access}> {name}: array<{ty}>;");
            number += 1;
        };
        for argument in arguments {
            let GpuArgument::Tensor(param) = *argument else { continue };
            let (kind, dtype) = self.param(param);
            let output = kind == ParamKind::Output;
            let ty = match (per_word(dtype), output) {
                (1, _) => held(dtype),
                (_, false) => "u32",
                (_, true) => "atomic<u32>",
            };
            bind(&mut text, if output { "read_write" } else { "read" }, &format!("p{param}"), ty);
        }
        bind(&mut text, "read", "launch", "u32");
        let scratch = arguments.iter().filter_map(|argument| match argument {
            GpuArgument::Scratch(dtype) => Some(held(*dtype)),
            GpuArgument::Tensor(_)
            | GpuArgument::Offset(_)
            | GpuArgument::Number(_)
            | GpuArgument::Extent(_)
            | GpuArgument::Stride(..)
            | GpuArgument::Failed => None,
        });
        for (i, ty) in scratch.enumerate() {
            bind(&mut text, "read_write", &format!("t{i}"), ty);
        }
        if arguments.contains(&GpuArgument::Failed) {
            bind(&mut text, "read_write", "failed", "atomic<u32>");
        }
        text
    }

    fn function(
        &self,
        name: &str,
        schedule: &GpuSchedule,
        arguments: &[GpuArgument],
        entry: &Entry,
    ) -> String {
        let mut text = format!(
            "\n@compute @workgroup_size({})\nfn {name}(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {{\n",
            schedule.block
        );
        text.push_str("  let block = i32(group.x);\n  let thread = i32(local.x);\n");
        let mut word = 0;
        for argument in arguments {
            let (name, value) = match *argument {
                GpuArgument::Number(param) => {
                    let value = match held(self.param(param).1) {
                        "bool" => format!("launch[{word}] != 0u"),
                        ty => format!("bitcast<{ty}>(launch[{word}])"),
                    };
                    (format!("n{param}"), value)
                }
                GpuArgument::Extent(axis) => (format!("e{axis}"), format!("bitcast<i32>(launch[{word}])")),
                GpuArgument::Offset(param) => (format!("o{param}"), format!("bitcast<i32>(launch[{word}])")),
                GpuArgument::Stride(param, axis) => {
                    (format!("s{param}_{axis}"), format!("bitcast<i32>(launch[{word}])"))
                }
                GpuArgument::Tensor(_) | GpuArgument::Scratch(_) | GpuArgument::Failed => continue,
            };
            let _ = writeln!(text, "  let {name} = {value};");
            word += 1;
        }
        text.push_str(&entry.body);
        text.push_str("}\n");
        text
    }

    fn param(&self, param: u32) -> (ParamKind, DType) {
        let param = &self.kernel.params[param as usize];
        (param.kind, param.dtype)
    }
}

impl Language for Wgsl<'_> {
    fn index(&self, name: &str, expression: &str) -> String {
        format!("let {name} = {expression};")
    }

    fn for_loop(&self, name: &str, from: &str, below: &str, next: &str) -> String {
        format!("for (var {name} = {from}; {name} < {below}; {name} = {next})")
    }

    fn unroll_partly(&self) -> &'static str {
        ""
    }

    fn unroll(&self) -> &'static str {
        ""
    }

    fn value(&self, name: &str, dtype: DType, expression: &str) -> String {
        format!("let {name}: {} = {expression};", held(dtype))
    }

    fn variable(&self, name: &str, dtype: DType, expression: &str) -> String {
        format!("var {name}: {} = {expression};", held(dtype))
    }

    fn array(&self, name: &str, dtype: DType, len: usize) -> String {
        format!("var {name}: array<{}, {len}>;", held(dtype))
    }

    fn shared(&self, name: &str, dtype: DType, len: usize) -> String {
        format!("var<workgroup> {name}: array<{}, {len}>;", held(dtype))
    }

    fn barrier(&self) -> &'static str {
        "workgroupBarrier();"
    }

    fn shuffle(&self, _value: &str, _dtype: DType, _distance: u32) -> Option<String> {
        None
    }

    fn compute(&self, compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
        let at = |i: usize| operands[i].0.as_str();
        match compute {
            Compute::Unary(function, _) => functions::in_wgsl(*function, at(0), dtype),
            Compute::Binary(function, ..) => binary(*function, at(0), at(1), dtype),
            Compute::Compare(comparison, ..) => compare(*comparison, at(0), at(1), operands[0].1),
            Compute::Select(..) => format!("select({}, {}, {})", at(2), at(1), at(0)),
            Compute::Cast(_) => cast(at(0), operands[0].1, dtype),
            Compute::Bitcast(_) => wrapped(format!("bitcast<{}>({})", held(dtype), at(0)), dtype),
            Compute::Checked(..) if dtype.is_signed_int() => format!("kiln_checked({}, {})", at(0), at(1)),
            Compute::Checked(..) => format!("u32(kiln_checked(i32({}), i32({})))", at(0), at(1)),
            Compute::Load(_)
            | Compute::LoadWhere(..)
            | Compute::Number(_)
            | Compute::Constant(_)
            | Compute::Index(_)
            | Compute::Reduce(..)
            | Compute::ColumnReduce(..)
            | Compute::Scan { .. }
            | Compute::Store(..) => at(0).to_string(),
        }
    }

    fn constant(&self, scalar: Scalar, dtype: DType) -> String {
        constant(scalar, dtype)
    }

    fn of_index(&self, index: &str, dtype: DType) -> String {
        wrapped(format!("{}({index})", held(dtype)), dtype)
    }

    fn load(&self, param: u32, dtype: DType, place: &str) -> String {
        let place = format!("o{param} + {place}");
        let count = per_word(dtype);
        if count == 1 {
            return format!("p{param}[{place}]");
        }
        let (bits, mask) = (32 / count, if count == 4 { "0xffu" } else { "0xffffu" });
        let element =
            format!("(p{param}[({place}) / {count}] >> (u32({place}) % {count}u * {bits}u)) & {mask}");
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

    fn choice(&self, condition: &str, a: &str, b: &str) -> String {
        // Both operands are evaluated; out-of-bounds reads are safe in WGSL.
        format!("select({b}, {a}, {condition})")
    }

    fn store(&self, param: u32, dtype: DType, place: &str, value: ValueId) -> String {
        self.store_element(param, dtype, place, &name(value))
    }

    fn declare_loads(&self, param: u32, count: u32, times: u32) -> String {
        let ty = held(self.param(param).1);
        format!("var x{param}: array<array<{ty}, {count}>, {times}>;")
    }

    fn load_vector(&self, param: u32, count: u32, which: &str, place: &str) -> String {
        let dtype = self.param(param).1;
        let elements: Vec<String> =
            (0..count).map(|lane| self.load(param, dtype, &format!("{place} + {lane}"))).collect();
        format!("x{param}[{which}] = array<{}, {count}>({});", held(dtype), elements.join(", "))
    }

    fn lane(&self, param: u32, _dtype: DType, which: &str, lane: &str) -> String {
        format!("x{param}[{which}][{lane}]")
    }

    fn declare_stores(&self, param: u32, count: u32) -> String {
        self.array(&format!("y{param}"), self.param(param).1, count as usize)
    }

    fn set_lane(&self, param: u32, _dtype: DType, lane: &str, value: &str) -> String {
        format!("y{param}[{lane}] = {value};")
    }

    fn store_vector(&self, param: u32, count: u32, place: &str, _value: ValueId) -> String {
        let dtype = self.param(param).1;
        let element = |lane| {
            self.store_element(param, dtype, &format!("{place} + {lane}"), &format!("y{param}[{lane}]"))
        };
        (0..count).map(element).collect::<Vec<_>>().join(" ")
    }

    fn scratch(&self, number: usize, place: &str) -> String {
        format!("t{number}[{place}]")
    }

    fn least(&self, a: &str, b: &str) -> String {
        format!("min({a}, {b})")
    }
}

/// An integer computed in 32 bits, wrapped to its width.
fn wrapped(expression: String, dtype: DType) -> String {
    match dtype {
        DType::I16 => format!("(({expression}) << 16u) >> 16u"),
        DType::I8 => format!("(({expression}) << 24u) >> 24u"),
        DType::U16 => format!("({expression}) & 0xffffu"),
        DType::U8 => format!("({expression}) & 0xffu"),
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::U64
        | DType::U32
        | DType::Bool => expression,
    }
}

pub(super) fn neg(x: &str, dtype: DType) -> String {
    wrapped(format!("-{x}"), dtype)
}

pub(super) fn abs(x: &str, dtype: DType) -> String {
    wrapped(format!("abs({x})"), dtype)
}

pub(super) fn sign(x: &str, dtype: DType) -> String {
    if dtype.is_float() {
        format!("kiln_sign({x})")
    } else if dtype.is_signed_int() {
        format!("sign({x})")
    } else {
        format!("min({x}, 1u)")
    }
}

pub(super) fn recip(x: &str, _dtype: DType) -> String {
    format!("1.0f / {x}")
}

pub(super) fn rsqrt(x: &str, _dtype: DType) -> String {
    format!("1.0f / sqrt({x})")
}

pub(super) fn not(x: &str, dtype: DType) -> String {
    if dtype.is_bool() { format!("!{x}") } else { wrapped(format!("~{x}"), dtype) }
}

fn binary(function: Binary, a: &str, b: &str, dtype: DType) -> String {
    let ty = held(dtype);
    let whole = |name: &str| wrapped(format!("kiln_{name}_{ty}({a}, {b})"), dtype);
    let sign = |sign: &str| wrapped(format!("{a} {sign} {b}"), dtype);
    let shift = |name: &str| {
        let width = constant(Scalar::Int(dtype.size() as i64 * 8), dtype);
        wrapped(format!("kiln_{name}_{ty}({a}, {b}, {width})"), dtype)
    };
    match function {
        Binary::Add => sign("+"),
        Binary::Sub => sign("-"),
        Binary::Mul => sign("*"),
        Binary::Div if dtype.is_float() => sign("/"),
        Binary::Div => whole("div"),
        Binary::Rem if dtype.is_float() => format!("kiln_rem({a}, {b})"),
        Binary::Rem => whole("rem"),
        Binary::Pow if dtype.is_float() => format!("kiln_pow({a}, {b})"),
        Binary::Pow => whole("pow"),
        Binary::Min if dtype.is_float() => format!("kiln_min({a}, {b})"),
        Binary::Min if dtype.is_bool() => format!("{a} && {b}"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Max if dtype.is_float() => format!("kiln_max({a}, {b})"),
        Binary::Max if dtype.is_bool() => format!("{a} || {b}"),
        Binary::Max => format!("max({a}, {b})"),
        Binary::Atan2 => format!("kiln_atan2({a}, {b})"),
        Binary::And => sign("&"),
        Binary::Or => sign("|"),
        Binary::Xor if dtype.is_bool() => format!("{a} != {b}"),
        Binary::Xor => sign("^"),
        Binary::Shl => shift("shl"),
        Binary::Shr => shift("shr"),
    }
}

/// Booleans have no order in WGSL.
fn compare(comparison: Comparison, a: &str, b: &str, dtype: DType) -> String {
    match comparison {
        Comparison::Eq => format!("{a} == {b}"),
        Comparison::Ne => format!("{a} != {b}"),
        Comparison::Lt if dtype.is_bool() => format!("!{a} && {b}"),
        Comparison::Lt => format!("{a} < {b}"),
        Comparison::Le if dtype.is_bool() => format!("!{a} || {b}"),
        Comparison::Le => format!("{a} <= {b}"),
    }
}

fn cast(x: &str, from: DType, to: DType) -> String {
    if to.is_bool() {
        return if from.is_bool() { x.into() } else { format!("{x} != {}", constant(Scalar::Int(0), from)) };
    }
    match to {
        DType::F16 | DType::BF16 => {
            let x = if from.is_float() { x.to_string() } else { format!("f32({x})") };
            let name = if to == DType::F16 { "f16" } else { "bf16" };
            return format!("kiln_from_{name}(kiln_to_{name}({x}))");
        }
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
        | DType::Bool => {}
    }
    if !from.is_float() || to.is_float() {
        return wrapped(format!("{}({x})", held(to)), to);
    }
    let bits = to.size() as i64 * 8 - i64::from(to.is_signed_int());
    let high = constant(Scalar::Float((1i64 << bits) as f64), DType::F32);
    let most = constant(Scalar::Int((1 << bits) - 1), to);
    if to.is_signed_int() {
        let low = constant(Scalar::Float(-((1i64 << bits) as f64)), DType::F32);
        let least = constant(Scalar::Int(-(1i64 << bits)), to);
        return format!("kiln_whole_i32({x}, {low}, {high}, {least}, {most})");
    }
    format!("kiln_whole_u32({x}, {high}, {most})")
}

fn constant(scalar: Scalar, dtype: DType) -> String {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
            let x = scalar.to_f64() as f32;
            if x.is_normal() || x == 0.0 {
                format!("{x:?}f")
            } else {
                format!("kiln_float({:#x}u)", x.to_bits())
            }
        }
        DType::I64 | DType::I32 => format!("i32({})", scalar.to_i64() as i32),
        DType::I16 => format!("i32({})", scalar.to_i64() as i16),
        DType::I8 => format!("i32({})", scalar.to_i64() as i8),
        DType::U64 | DType::U32 => format!("{}u", scalar.to_u64() as u32),
        DType::U16 => format!("{}u", scalar.to_u64() as u16),
        DType::U8 => format!("{}u", scalar.to_u64() as u8),
        DType::Bool => if scalar.to_bool() { "true" } else { "false" }.into(),
    }
}
