//! WGSL, the shading language of [WebGPU](https://www.w3.org/TR/WGSL/).
//!
//! Elements of 8 and 16 bits are packed in 32-bit words. A load unpacks them; a store of one element clears and sets the
//! bits of a word by two atomic operations. A tensor that a kernel accesses by vectors is bound as an array of vectors.
//! Integers of up to 32 bits are computed in 32 bits and wrapped to their width. Dtypes of 64 bits are native types, which
//! a device may lack.
//!
//! Tensors are storage buffers. All other parameters are words of one uniform buffer, see [`Entry`](super::Entry).
//! Workgroups have two dimensions, since one has at most 65,535.

mod cast;
mod expression;
mod functions64;
mod integers;
mod memory;
pub(super) mod prelude;
mod rounded;
mod split;
mod trigonometry;
mod vector;

use super::kinds::{self, Function};
use super::prelude::used_helpers;
use super::writer::{Language, name};
use super::{
    Dialect, GpuArgument, Printed, Target, Unprintable, arguments, check, check_place, entries, names,
};
use crate::{Compute, GpuSchedule, Kernel, KernelKind, ParamKind, ValueId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
pub(super) use expression::{abs, compute, constant, neg, not, recip, rsqrt, sign};
pub(super) use functions64::unary as unary64;
use kiln_ir::{DType, Scalar};
pub(super) use memory::{buffer_type, encode, load_packed, per_word, store_packed};
pub use split::split_tensors;
use vector::Pack;

/// Prints a kernel as WGSL.
///
/// ```
/// use kiln_kernel::print::{Dialect, Target, wgsl};
/// use kiln_kernel::{GpuSchedule, Kernel, Launch};
///
/// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
///   v0: f32 = load %0
///   v1: f32 = exp v0
///   v2: f32 = store %1, v1
/// }".parse()?;
/// let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse()?;
/// let schedule = GpuSchedule::choose(&kernel, &launch);
/// let printed = wgsl(&kernel, &schedule, &Target::new(Dialect::Wgsl)).unwrap();
/// assert!(printed.text.contains("exp(v0)"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Errors
/// When the target lacks a dtype of the kernel, or an index needs 64 bits. When the schedule does not suit this kernel,
/// or the kernel has more than one scan. `f64` also needs `u64`, for the bits of numbers.
pub fn wgsl(kernel: &Kernel, schedule: &GpuSchedule, target: &Target) -> Result<Printed, Unprintable> {
    aliased(kernel, schedule, target, &[])
}

/// Prints a kernel whose inputs share memory with outputs: pairs of parameters.
pub(super) fn aliased(
    kernel: &Kernel,
    schedule: &GpuSchedule,
    target: &Target,
    aliases: &[(u32, u32)],
) -> Result<Printed, Unprintable> {
    check(kernel, schedule)?;
    let language = Wgsl { kernel, aliases, vector: schedule.vector };
    let lacks = language.lacks(schedule, target);
    if !lacks.is_empty() {
        return Err(Unprintable { lacks });
    }
    let arguments = language.arguments(schedule);
    let names = names(kernel, schedule);
    let mut functions = String::new();
    let mut shared: Vec<String> = Vec::new();
    for (name, function) in names.iter().zip(kinds::entries(kernel, schedule, &language)) {
        functions.push_str(&language.function(name, schedule, &arguments, &function));
        shared.extend(function.shared);
    }
    shared.sort();
    shared.dedup();
    let mut text = language.bindings(&arguments);
    for shared in shared {
        let _ = writeln!(text, "{shared}");
    }
    text.push('\n');
    text.push_str(&used_helpers(Dialect::Wgsl, &functions));
    text.push_str(&functions);
    let entries = entries(&names, kernel, schedule, &arguments);
    Ok(Printed { text, entries, arguments })
}

/// The type of a value.
pub(super) fn held(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 | DType::F16 | DType::BF16 => "f32",
        DType::I64 => "i64",
        DType::I32 | DType::I16 | DType::I8 => "i32",
        DType::U64 => "u64",
        DType::U32 | DType::U16 | DType::U8 => "u32",
        DType::Bool => "bool",
    }
}

/// The type of elements of arrays and of shared memory. Drivers read arrays of `bool` in shared memory wrongly.
pub(super) fn element_type(dtype: DType) -> &'static str {
    if dtype.is_bool() { "u32" } else { held(dtype) }
}

/// The value of an element of an array.
pub(super) fn from_element(element: &str, dtype: DType) -> String {
    if dtype.is_bool() { format!("({element} != 0u)") } else { element.into() }
}

/// A value as an element of an array.
pub(super) fn to_element(value: &str, dtype: DType) -> String {
    if dtype.is_bool() { format!("select(0u, 1u, {value})") } else { value.into() }
}

/// The declaration of the uniform buffer with that many words.
pub(super) fn uniform_buffer(binding: usize, words: usize) -> String {
    let vectors = words.div_ceil(4);
    format!("@group(0) @binding({binding}) var<uniform> launch: array<vec4<u32>, {vectors}>;\n")
}

/// The start of an entry point with further parameters. Blocks beyond those of the launch return.
pub(super) fn entry_head(name: &str, threads: u32, parameters: &str) -> String {
    let head = "@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>";
    let mut text = format!("\n@compute @workgroup_size({threads})\nfn {name}({head}{parameters}) {{\n");
    text.push_str("  if (group.y * groups.x + group.x >= launch[0].x) { return; }\n");
    text
}

/// A word of the uniform buffer.
pub(super) fn word(number: usize) -> String {
    format!("launch[{}].{}", number / 4, ["x", "y", "z", "w"][number % 4])
}

/// A number of the uniform buffer, and the count of its words.
pub(super) fn number(first: usize, dtype: DType) -> (String, usize) {
    let low = word(first);
    if dtype.size() == 8 {
        let bits = format!("u64({low}) | (u64({}) << 32u)", word(first + 1));
        return (if dtype == DType::U64 { bits } else { format!("bitcast<{}>({bits})", held(dtype)) }, 2);
    }
    let value = match held(dtype) {
        "bool" => format!("{low} != 0u"),
        "u32" => low,
        ty => format!("bitcast<{ty}>({low})"),
    };
    (value, 1)
}

/// The dtype of scratch memory for values of a dtype. Elements have at least 32 bits.
fn scratch_dtype(dtype: DType) -> DType {
    super::word(dtype)
}

struct Wgsl<'a> {
    kernel: &'a Kernel,
    /// Inputs that are read through the binding of an output.
    aliases: &'a [(u32, u32)],
    /// The schedule's vector width.
    vector: u32,
}

impl Wgsl<'_> {
    /// The features that the kernel needs and the target lacks.
    fn lacks(&self, schedule: &GpuSchedule, target: &Target) -> Vec<String> {
        let mut lacks: Vec<String> = Vec::new();
        if target.dialect != Dialect::Wgsl {
            lacks.push("WGSL".into());
        }
        let used = |dtype: DType| {
            self.kernel.body.iter().any(|instruction| instruction.dtype == dtype)
                || self.kernel.params.iter().any(|param| param.dtype == dtype)
        };
        for dtype in DType::ALL {
            let has = |dtype: DType| dtype.size() < 8 || target.dtypes.contains(dtype);
            if used(dtype) && !(has(dtype) && (dtype != DType::F64 || has(DType::U64))) {
                lacks.push(dtype.name().into());
            }
        }
        if schedule.wide {
            lacks.push("64-bit indices".into());
        }
        let size = |param: u32| self.kernel.params[param as usize].dtype.size();
        if self.aliases.iter().any(|&(input, output)| size(input) != size(output)) {
            lacks.push("operand in the memory of a result with elements of another size".into());
        }
        if !self.aliases.is_empty() && self.kernel.kind != KernelKind::Map {
            lacks.push("operand in the memory of a result except in maps".into());
        }
        lacks
    }

    /// The arguments: aliased inputs have none.
    fn arguments(&self, schedule: &GpuSchedule) -> Vec<GpuArgument> {
        let of_wgsl = |argument: GpuArgument| match argument {
            GpuArgument::Tensor(param) if self.alias(param).is_some() => None,
            GpuArgument::Scratch(dtype) => Some(GpuArgument::Scratch(scratch_dtype(dtype))),
            GpuArgument::Tensor(_)
            | GpuArgument::Offset(_)
            | GpuArgument::Number(_)
            | GpuArgument::Extent(_)
            | GpuArgument::Stride(..)
            | GpuArgument::Failed => Some(argument),
        };
        arguments(self.kernel, schedule).into_iter().filter_map(of_wgsl).collect()
    }

    /// The output through which an input is read.
    fn alias(&self, param: u32) -> Option<u32> {
        self.aliases.iter().find(|(input, _)| *input == param).map(|&(_, output)| output)
    }

    fn dtype(&self, param: u32) -> DType {
        self.kernel.params[param as usize].dtype
    }

    /// The pack of a parameter's buffer, if it is accessed by vectors.
    fn pack(&self, param: u32) -> Option<Pack> {
        Pack::of_buffer(self.kernel, self.alias(param).unwrap_or(param), self.vector)
    }

    /// The packs of a parameter and of its buffer, if both are accessed by vectors.
    fn packs(&self, param: u32) -> Option<(Pack, Pack)> {
        let of_buffer = self.pack(param)?;
        Some((of_buffer.with_dtype(self.dtype(param)), of_buffer))
    }

    /// The name, element type and access of each binding, in order.
    fn tensors(&self, arguments: &[GpuArgument]) -> Vec<(String, String, &'static str)> {
        let mut scratch = 0;
        let tensor = |argument: &GpuArgument| match *argument {
            GpuArgument::Tensor(param) => {
                let is_written = self.kernel.params[param as usize].kind == ParamKind::Output;
                let access = if is_written { "read_write" } else { "read" };
                let plain = || buffer_type(self.dtype(param), is_written).into();
                Some((format!("p{param}"), self.pack(param).map_or_else(plain, |pack| pack.ty()), access))
            }
            GpuArgument::Scratch(dtype) => {
                scratch += 1;
                Some((format!("t{}", scratch - 1), held(dtype).into(), "read_write"))
            }
            GpuArgument::Failed => Some(("failed".into(), "atomic<u32>".into(), "read_write")),
            GpuArgument::Offset(_)
            | GpuArgument::Number(_)
            | GpuArgument::Extent(_)
            | GpuArgument::Stride(..) => None,
        };
        arguments.iter().filter_map(tensor).collect()
    }

    fn bindings(&self, arguments: &[GpuArgument]) -> String {
        let mut text = String::new();
        let tensors = self.tensors(arguments);
        for (number, (name, ty, access)) in tensors.iter().enumerate() {
            let _ =
                writeln!(text, "@group(0) @binding({number}) var<storage, {access}> {name}: array<{ty}>;");
        }
        let words: usize =
            1 + tensors.len() + arguments.iter().map(|argument| self.words(argument)).sum::<usize>();
        text.push_str(&uniform_buffer(tensors.len(), words));
        text
    }

    /// The words of an argument after those of tensors.
    fn words(&self, argument: &GpuArgument) -> usize {
        match *argument {
            GpuArgument::Tensor(_) | GpuArgument::Scratch(_) | GpuArgument::Failed => 0,
            GpuArgument::Number(param) => self.dtype(param).size().div_ceil(4),
            GpuArgument::Extent(_) | GpuArgument::Stride(..) | GpuArgument::Offset(_) => 1,
        }
    }

    fn function(
        &self,
        name: &str,
        schedule: &GpuSchedule,
        arguments: &[GpuArgument],
        function: &Function,
    ) -> String {
        let mut text = entry_head(name, schedule.block, "");
        text.push_str("  let block = i32(group.y * groups.x + group.x);\n  let thread = i32(local.x);\n");
        for (name, value) in self.words_by_name(arguments) {
            let _ = writeln!(text, "  let {name} = {value};");
        }
        text.push_str(&function.body);
        text.push_str("}\n");
        text
    }

    /// The names of numbers and indices, and their expressions.
    fn words_by_name(&self, arguments: &[GpuArgument]) -> Vec<(String, String)> {
        let tensors = self.tensors(arguments);
        let first = |name: &str| {
            let binding = tensors.iter().position(|tensor| tensor.0 == name).unwrap_or(0);
            format!("i32({})", word(1 + binding))
        };
        let mut named = Vec::new();
        let mut offsets = alloc::vec![None; self.kernel.params.len()];
        let mut at = 1 + tensors.len();
        for argument in arguments {
            match *argument {
                GpuArgument::Number(param) => {
                    named.push((format!("n{param}"), number(at, self.dtype(param)).0))
                }
                GpuArgument::Extent(axis) => named.push((format!("e{axis}"), number(at, DType::I32).0)),
                GpuArgument::Stride(param, axis) => {
                    named.push((format!("s{param}_{axis}"), number(at, DType::I32).0));
                }
                GpuArgument::Offset(param) => offsets[param as usize] = Some(number(at, DType::I32).0),
                GpuArgument::Tensor(_) | GpuArgument::Scratch(_) | GpuArgument::Failed => {}
            }
            at += self.words(argument);
        }
        for (param, offset) in offsets.into_iter().enumerate() {
            if self.kernel.params[param].kind != ParamKind::Number {
                let bound = self.alias(param as u32).map_or(param, |output| output as usize);
                let first = first(&format!("p{bound}"));
                let place = offset.map_or(first.clone(), |offset| format!("{first} + {offset}"));
                named.push((format!("o{param}"), place));
            }
        }
        for (name, ..) in tensors.iter().filter(|tensor| !tensor.0.starts_with('p')) {
            named.push((format!("{name}_first"), first(name)));
        }
        named
    }

    /// The statement that writes a value to memory.
    fn store_element(&self, param: u32, place: &str, value: &str) -> String {
        store_packed(&format!("p{param}"), &format!("o{param} + {place}"), self.dtype(param), value)
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
        format!("var {name}: array<{}, {len}>;", element_type(dtype))
    }

    fn shared(&self, name: &str, dtype: DType, len: usize) -> String {
        format!("var<workgroup> {name}: array<{}, {len}>;", element_type(dtype))
    }

    fn element(&self, element: &str, dtype: DType) -> String {
        from_element(element, dtype)
    }

    fn set_element(&self, element: &str, dtype: DType, value: &str) -> String {
        format!("{element} = {};", to_element(value, dtype))
    }

    fn barrier(&self) -> &'static str {
        "workgroupBarrier();"
    }

    fn shuffle(&self, _value: &str, _dtype: DType, _distance: u32) -> Option<String> {
        None
    }

    fn compute(&self, compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
        if let Compute::Checked(..) = compute {
            let (number, point) = check_place(self.kernel, compute);
            let (index, bound) = (&operands[0].0, &operands[1].0);
            return format!(
                "kiln_checked_{}({index}, {bound}, failed_first + {}, {point})",
                held(dtype),
                2 * number
            );
        }
        expression::compute(compute, dtype, operands)
    }

    fn constant(&self, scalar: Scalar, dtype: DType) -> String {
        constant(scalar, dtype)
    }

    fn of_index(&self, index: &str, dtype: DType) -> String {
        expression::wrapped(format!("{}({index})", held(dtype)), dtype)
    }

    fn load(&self, param: u32, dtype: DType, place: &str) -> String {
        let place = format!("o{param} + {place}");
        let output = self.alias(param);
        let (buffer, other) = (output.unwrap_or(param), output.map_or(dtype, |output| self.dtype(output)));
        let name = format!("p{buffer}");
        let element = match self.pack(param) {
            Some(pack) => memory::decode(|at| pack.word(&name, at), &place, dtype),
            None => load_packed(&name, &place, dtype, output.is_some() && per_word(other) > 1),
        };
        if held(dtype) == held(other) || per_word(other) > 1 {
            return element;
        }
        format!("bitcast<{}>({element})", held(dtype))
    }

    fn load_where(&self, param: u32, dtype: DType, place: &str, condition: &str) -> String {
        // Both operands of `select` are evaluated, so that the place is chosen first.
        let load = self.load(param, dtype, &format!("select(0, {place}, {condition})"));
        self.choice(condition, &load, &self.constant(Scalar::Int(0), dtype))
    }

    fn choice(&self, condition: &str, a: &str, b: &str) -> String {
        format!("select({b}, {a}, {condition})")
    }

    fn store(&self, param: u32, _dtype: DType, place: &str, value: ValueId) -> String {
        self.store_element(param, place, &name(value))
    }

    fn declare_loads(&self, param: u32, count: u32, times: u32) -> String {
        if let Some((pack, _)) = self.packs(param) {
            return pack.declaration(&format!("x{param}"), times);
        }
        let ty = element_type(self.dtype(param));
        format!("var x{param}: array<array<{ty}, {count}>, {times}>;")
    }

    fn load_vector(&self, param: u32, count: u32, which: &str, place: &str) -> String {
        let dtype = self.dtype(param);
        if let Some((pack, of_buffer)) = self.packs(param) {
            let buffer = format!("p{}", self.alias(param).unwrap_or(param));
            return pack.load(
                &format!("x{param}"),
                which,
                &buffer,
                &of_buffer,
                &format!("o{param} + {place}"),
            );
        }
        let element = |lane: u32| to_element(&self.load(param, dtype, &format!("{place} + {lane}")), dtype);
        let elements: Vec<String> = (0..count).map(element).collect();
        format!("x{param}[{which}] = array<{}, {count}>({});", element_type(dtype), elements.join(", "))
    }

    fn lane(&self, param: u32, dtype: DType, which: &str, lane: &str) -> String {
        if let Some((pack, _)) = self.packs(param) {
            return pack.lane(&format!("x{param}"), which, lane);
        }
        from_element(&format!("x{param}[{which}][{lane}]"), dtype)
    }

    fn declare_stores(&self, param: u32, count: u32) -> String {
        self.array(&format!("y{param}"), self.dtype(param), count as usize)
    }

    fn set_lane(&self, param: u32, _dtype: DType, lane: &str, value: &str) -> String {
        self.set_element(&format!("y{param}[{lane}]"), self.dtype(param), value)
    }

    fn store_vector(&self, param: u32, count: u32, place: &str, _value: ValueId) -> String {
        if let Some(pack) = self.pack(param) {
            return pack.store(&format!("y{param}"), &format!("p{param}"), &format!("o{param} + {place}"));
        }
        let value = |lane: u32| self.element(&format!("y{param}[{lane}]"), self.dtype(param));
        let element = |lane| self.store_element(param, &format!("{place} + {lane}"), &value(lane));
        (0..count).map(element).collect::<Vec<_>>().join(" ")
    }

    fn load_scratch(&self, number: usize, dtype: DType, place: &str) -> String {
        from_element(&format!("t{number}[t{number}_first + {place}]"), dtype)
    }

    fn store_scratch(&self, number: usize, dtype: DType, place: &str, value: &str) -> String {
        format!("t{number}[t{number}_first + {place}] = {};", to_element(value, dtype))
    }

    fn least(&self, a: &str, b: &str) -> String {
        format!("min({a}, {b})")
    }
}
