//! Block kernels as WGSL.

use super::walk::{Syntax, body, primary};
use super::{
    atomic_function, atomic_name, atomics, cooperative, entry_name, param_name, place_dtype, place_name,
    shared_name, vectors,
};
use crate::Compute;
use crate::block::{
    ArrayType, Atomic, BlockKernel, BlockParam, BlockParamKind, Cooperative, Expression, Kind, LANES, Place,
    Statement, Type,
};
use crate::print::Dialect;
use crate::print::prelude::used_helpers;
use crate::print::wgsl::{
    buffer_type, compute, constant, element_type, encode, entry_head, from_element, held, load_packed,
    number, per_word, store_packed, to_element, uniform_buffer, word,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use kiln_ir::{DType, Scalar};

/// The source of a module with the kernel.
pub(super) fn print(kernel: &BlockKernel) -> String {
    let wgsl = Wgsl { kernel, vectors: vectors(kernel) };
    let mut functions = wgsl.flags();
    for (place, operation) in atomics(kernel) {
        functions.push_str(&wgsl.exchange(place, operation));
    }
    functions.push_str(&wgsl.entry());
    if functions.contains("kiln_mul_high(") {
        functions.insert_str(0, MUL_HIGH);
    }
    let (enabled, tiles) = (cooperative::enabled(kernel), cooperative::memory(kernel));
    let helpers = used_helpers(Dialect::Wgsl, &functions);
    format!("{enabled}{}{tiles}\n{helpers}{functions}", wgsl.memory())
}

const MUL_HIGH: &str = "fn kiln_mul_high(a: u32, b: u32) -> u32 {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let left = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let right = (a & 0xffffu) * (b >> 16u) + (left & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (left >> 16u) + (right >> 16u);
}
";

struct Wgsl<'a> {
    kernel: &'a BlockKernel,
    /// The memory that is accessed by vectors.
    vectors: Vec<Place>,
}

/// The words of the uniform buffer before the first tensor's: the number of blocks.
const BEFORE_TENSORS: usize = 1;

impl Wgsl<'_> {
    /// Tensors, the uniform buffer and shared memory.
    fn memory(&self) -> String {
        let mut text = String::new();
        let tensors = self.tensors();
        for (binding, &param) in tensors.iter().enumerate() {
            let BlockParam { kind, dtype, .. } = self.kernel.params[param as usize];
            let (access, ty) = match kind {
                BlockParamKind::Atomic => ("read_write", format!("atomic<{}>", cell(dtype))),
                BlockParamKind::Flag => ("read_write", "atomic<u32>".into()),
                BlockParamKind::Input if self.has_vectors(Place::Param(param)) => {
                    ("read", self.vector(Place::Param(param)))
                }
                BlockParamKind::Output if self.has_vectors(Place::Param(param)) => {
                    ("read_write", self.vector(Place::Param(param)))
                }
                BlockParamKind::Output => ("read_write", buffer_type(dtype, true).into()),
                BlockParamKind::Input | BlockParamKind::Number | BlockParamKind::Length => {
                    ("read", buffer_type(dtype, false).into())
                }
            };
            let name = param_name(self.kernel, param);
            let _ =
                writeln!(text, "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{ty}>;");
        }
        text.push_str(&uniform_buffer(tensors.len(), self.words()));
        for (place, array) in (0..).zip(&self.kernel.shared) {
            let (ty, len) = if self.has_vectors(Place::Shared(place)) {
                (self.vector(Place::Shared(place)), array.len / LANES)
            } else if array.is_atomic {
                (format!("atomic<{}>", cell(array.ty.dtype())), array.len)
            } else {
                (element_type(array.ty.dtype()).into(), array.len)
            };
            let _ = writeln!(text, "var<workgroup> {}: array<{ty}, {len}>;", shared_name(place));
        }
        text
    }

    /// The parameters that are tensors, in the order of their bindings.
    fn tensors(&self) -> Vec<u32> {
        let params = (0..).zip(&self.kernel.params);
        params.filter(|(_, param)| is_tensor(param)).map(|(place, _)| place).collect()
    }

    /// The number of words of the uniform buffer.
    fn words(&self) -> usize {
        let others = self.kernel.params.iter().filter(|param| !is_tensor(param));
        let others: usize = others.map(|param| number(0, word_dtype(param)).1).sum();
        BEFORE_TENSORS + self.tensors().len() + others
    }

    /// The index of a tensor's first element in its buffer.
    fn first(&self, param: u32) -> String {
        let binding = self.tensors().iter().position(|tensor| *tensor == param).unwrap_or(0);
        format!("i32({})", word(BEFORE_TENSORS + binding))
    }

    fn entry(&self) -> String {
        let builtins = cooperative::builtins(self.kernel);
        let mut text = entry_head(&entry_name(self.kernel), self.kernel.threads, builtins);
        text.push_str("  let blocks = i32(launch[0].x);\n");
        text.push_str("  let block = i32(group.y * groups.x + group.x);\n  let thread = i32(local.x);\n");
        for param in self.tensors() {
            let _ = writeln!(text, "  let {}_first = {};", param_name(self.kernel, param), self.first(param));
        }
        let mut at = BEFORE_TENSORS + self.tensors().len();
        for (param, kind) in (0..).zip(&self.kernel.params).filter(|(_, param)| !is_tensor(param)) {
            let (value, count) = number(at, word_dtype(kind));
            let _ = writeln!(text, "  let {} = {value};", param_name(self.kernel, param));
            at += count;
        }
        text.push_str(&body(self, &self.kernel.body));
        text.push_str("}\n");
        text
    }

    /// A function for each flag that a statement sets. WGSL has no atomic operations of 64 bits on the two words. A thread
    /// with a lower point may fail after the test of the mark: then the flag has its point, but possibly this index.
    fn flags(&self) -> String {
        let mut flags: Vec<u32> = Vec::new();
        self.kernel.for_each_statement(|statement| {
            if let Statement::Fail(flag, ..) = statement
                && !flags.contains(flag)
            {
                flags.push(*flag);
            }
        });
        let mut text = String::new();
        for flag in flags {
            let (name, first) = (param_name(self.kernel, flag), self.first(flag));
            let _ = write!(
                text,
                "fn kiln_fail_{name}(index: i32, point: i32) {{
  let first = {first};
  let mark = 0xffffffffu - u32(point);
  atomicMax(&{name}[first + 1], mark);
  if (atomicLoad(&{name}[first + 1]) == mark) {{ atomicStore(&{name}[first], bitcast<u32>(index)); }}
}}
"
            );
        }
        text
    }

    /// The function of an atomic operation by compare-and-swap. Empty where WGSL has the operation.
    fn exchange(&self, place: Place, operation: Atomic) -> String {
        let (memory, dtype) = (place_name(self.kernel, place), place_dtype(self.kernel, place));
        if native(operation, dtype).is_some() {
            return String::new();
        }
        let operands = [(String::from("old"), dtype), (String::from("x"), dtype)];
        let combined = compute(&Compute::Binary(atomic_function(operation), 0, 1), dtype, &operands);
        let (name, ty, cell) = (exchange_name(operation, &memory), held(dtype), cell(dtype));
        format!(
            "fn {name}(at: i32, x: {ty}) -> {ty} {{
  var seen = atomicLoad(&{memory}[at]);
  loop {{
    let old = bitcast<{ty}>(seen);
    let next = bitcast<{cell}>({combined});
    if (next == seen) {{ break; }}
    let swapped = atomicCompareExchangeWeak(&{memory}[at], seen, next);
    if (swapped.exchanged) {{ break; }}
    seen = swapped.old_value;
  }}
  return bitcast<{ty}>(seen);
}}
"
        )
    }

    fn has_vectors(&self, place: Place) -> bool {
        self.vectors.contains(&place)
    }

    /// The type of a vector in memory: two words of packed elements, or four elements.
    fn vector(&self, place: Place) -> String {
        if self.is_packed(place) {
            return "vec2<u32>".into();
        }
        format!("vec4<{}>", held(place_dtype(self.kernel, place)))
    }

    /// Whether elements have 16 bits in memory. Shared memory holds them as values.
    fn is_packed(&self, place: Place) -> bool {
        matches!(place, Place::Param(_)) && per_word(place_dtype(self.kernel, place)) == 2
    }

    /// A vector in memory.
    fn vector_at(&self, place: Place, at: &str) -> String {
        let (name, at) = (place_name(self.kernel, place), primary(at.into()));
        match place {
            Place::Param(_) => format!("{name}[({name}_first >> 2u) + {at}]"),
            Place::Shared(_) => format!("{name}[{at}]"),
        }
    }

    /// The index of an element in a tensor's buffer.
    fn place(&self, param: u32, at: &str) -> String {
        format!("{}_first + {}", param_name(self.kernel, param), primary(at.into()))
    }
}

fn is_tensor(param: &BlockParam) -> bool {
    match param.kind {
        BlockParamKind::Input | BlockParamKind::Output | BlockParamKind::Atomic | BlockParamKind::Flag => {
            true
        }
        BlockParamKind::Number | BlockParamKind::Length => false,
    }
}

/// The dtype of a parameter's words: indices are `i32`.
fn word_dtype(param: &BlockParam) -> DType {
    if param.kind == BlockParamKind::Length { DType::I32 } else { param.dtype }
}

/// The type of the memory of atomic operations: floats have none.
fn cell(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "u64",
        DType::F32 | DType::F16 | DType::BF16 | DType::Bool => "u32",
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => held(dtype),
    }
}

/// The builtin function of an atomic operation, where WGSL has it for the dtype.
fn native(operation: Atomic, dtype: DType) -> Option<&'static str> {
    if !dtype.is_int() {
        return None;
    }
    match operation {
        Atomic::Add => Some("atomicAdd"),
        Atomic::Min => Some("atomicMin"),
        Atomic::Max => Some("atomicMax"),
        Atomic::Or => Some("atomicOr"),
        Atomic::Mul => None,
    }
}

fn exchange_name(operation: Atomic, memory: &str) -> String {
    format!("kiln_atomic_{}_{memory}", atomic_name(operation))
}

impl Syntax for Wgsl<'_> {
    const INDEX: DType = DType::I32;

    fn ty(&self, ty: Type) -> &'static str {
        held(ty.dtype())
    }

    fn constant(&self, scalar: Scalar, dtype: DType) -> String {
        constant(scalar, dtype)
    }

    fn number(&self, param: u32) -> String {
        param_name(self.kernel, param)
    }

    fn load(&self, param: u32, at: &str) -> String {
        let BlockParam { kind, dtype, .. } = self.kernel.params[param as usize];
        let is_atomic = match kind {
            BlockParamKind::Atomic | BlockParamKind::Flag => true,
            BlockParamKind::Output => per_word(dtype) > 1,
            BlockParamKind::Input | BlockParamKind::Number | BlockParamKind::Length => false,
        };
        load_packed(&param_name(self.kernel, param), &self.place(param, at), dtype, is_atomic)
    }

    fn load_shared(&self, array: u32, at: &str) -> String {
        let (name, ArrayType { ty, is_atomic, .. }) =
            (shared_name(array), self.kernel.shared[array as usize]);
        match is_atomic {
            true => load_packed(&name, at, ty.dtype(), true),
            false if self.has_vectors(Place::Shared(array)) => format!("{name}[({at}) >> 2u][({at}) & 3]"),
            false => from_element(&format!("{name}[{at}]"), ty.dtype()),
        }
    }

    fn load_uniform(&self, array: u32, at: &str) -> String {
        let (name, dtype) = (shared_name(array), self.kernel.shared[array as usize].ty.dtype());
        match self.has_vectors(Place::Shared(array)) {
            true => format!("workgroupUniformLoad(&{name}[({at}) >> 2u])[({at}) & 3]"),
            false => from_element(&format!("workgroupUniformLoad(&{name}[{at}])"), dtype),
        }
    }

    fn compute(&self, function: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
        compute(function, dtype, operands)
    }

    fn to_index(&self, x: String, from: DType) -> String {
        match from {
            DType::I64 => format!("i32(clamp({x}, -2147483648li, 2147483647li))"),
            DType::U64 => format!("i32(min({x}, 2147483647lu))"),
            DType::U32 => format!("i32(min({x}, 2147483647u))"),
            DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U16
            | DType::U8
            | DType::Bool => compute(&Compute::Cast(0), Self::INDEX, &[(x, from)]),
        }
    }

    fn mul_high(&self, a: &str, b: &str) -> String {
        format!("kiln_mul_high({a}, {b})")
    }

    fn define(&self, name: &str, ty: Type, value: &str) -> String {
        format!("let {name}: {} = {value};", self.ty(ty))
    }

    fn variable(&self, name: &str, ty: Type, value: &str) -> String {
        format!("var {name}: {} = {value};", self.ty(ty))
    }

    fn array(&self, name: &str, array: &ArrayType) -> String {
        format!("var {name}: array<{}, {}>;", element_type(array.ty.dtype()), array.len)
    }

    fn load_array(&self, name: &str, at: &str, ty: Type) -> String {
        from_element(&format!("{name}[{at}]"), ty.dtype())
    }

    fn store_array(&self, name: &str, at: &str, ty: Type, value: &str) -> String {
        format!("{name}[{at}] = {};", to_element(value, ty.dtype()))
    }

    fn store(&self, param: u32, at: &str, value: &str) -> String {
        let BlockParam { kind, dtype, .. } = self.kernel.params[param as usize];
        let (name, place) = (param_name(self.kernel, param), self.place(param, at));
        match kind {
            BlockParamKind::Atomic | BlockParamKind::Flag => {
                format!("atomicStore(&{name}[{place}], bitcast<{}>({value}));", cell(dtype))
            }
            BlockParamKind::Input
            | BlockParamKind::Output
            | BlockParamKind::Number
            | BlockParamKind::Length => store_packed(&name, &place, dtype, &primary(value.into())),
        }
    }

    fn store_shared(&self, array: u32, at: &str, value: &str) -> String {
        let (name, ArrayType { ty, is_atomic, .. }) =
            (shared_name(array), self.kernel.shared[array as usize]);
        match is_atomic {
            true => format!("atomicStore(&{name}[{at}], bitcast<{}>({value}));", cell(ty.dtype())),
            false if self.has_vectors(Place::Shared(array)) => {
                format!("{name}[({at}) >> 2u][({at}) & 3] = {value};")
            }
            false => format!("{name}[{at}] = {};", to_element(value, ty.dtype())),
        }
    }

    fn load_vector(
        &self,
        place: Place,
        at: &str,
        condition: Option<&str>,
        names: &[String; LANES],
    ) -> String {
        let (vector, dtype) = (self.vector(place), place_dtype(self.kernel, place));
        let (all, loaded) = (format!("{}_vector", names[0]), self.vector_at(place, at));
        let mut text = match condition {
            Some(condition) => format!("var {all} = {vector}(); if ({condition}) {{ {all} = {loaded}; }}"),
            None => format!("let {all} = {loaded};"),
        };
        let packed = ["x & 0xffffu", "x >> 16u", "y & 0xffffu", "y >> 16u"];
        for (lane, name) in names.iter().enumerate() {
            let value = match self.is_packed(place) {
                true if dtype == DType::BF16 => format!("kiln_from_bf16({all}.{})", packed[lane]),
                true => format!("kiln_from_f16({all}.{})", packed[lane]),
                false => format!("{all}.{}", ["x", "y", "z", "w"][lane]),
            };
            let _ = write!(text, " let {name} = {value};");
        }
        text
    }

    fn store_vector(&self, place: Place, at: &str, values: &[String; LANES]) -> String {
        let at = self.vector_at(place, at);
        let vector = self.vector(place);
        if !self.is_packed(place) {
            return format!("{at} = {vector}({});", values.join(", "));
        }
        let dtype = place_dtype(self.kernel, place);
        let [a, b, c, d] = values.each_ref().map(|value| encode(value, dtype));
        format!("{at} = {vector}({a} | ({b} << 16u), {c} | ({d} << 16u));")
    }

    fn atomic(&self, place: Place, at: &str, operation: Atomic, value: &str) -> String {
        let (name, value) = (place_name(self.kernel, place), primary(value.into()));
        let at = match place {
            Place::Param(param) => self.place(param, at),
            Place::Shared(_) => at.into(),
        };
        match native(operation, place_dtype(self.kernel, place)) {
            Some(function) => format!("{function}(&{name}[{at}], {value})"),
            None => format!("{}({}, {value})", exchange_name(operation, &name), primary(at)),
        }
    }

    fn fail(&self, flag: u32, at: &str, point: &str) -> String {
        format!(
            "kiln_fail_{}({}, {});",
            param_name(self.kernel, flag),
            primary(at.into()),
            primary(point.into())
        )
    }

    /// WGSL has a barrier for shared memory and one for tensors. Kernels that read tensors they write need both.
    fn barrier(&self) -> &'static str {
        let mut reads_results = false;
        self.kernel.for_each_expression(|expression| {
            if let Kind::Load(param, _) = expression.kind() {
                reads_results |= self.kernel.params[*param as usize].kind != BlockParamKind::Input;
            }
        });
        self.kernel.for_each_statement(|statement| {
            if let Statement::LoadVector { place: Place::Param(param), .. } = statement {
                reads_results |= self.kernel.params[*param as usize].kind != BlockParamKind::Input;
            }
        });
        if reads_results { "workgroupBarrier(); storageBarrier();" } else { "workgroupBarrier();" }
    }

    fn cooperative(&self, statement: &Cooperative, text: &dyn Fn(&Expression) -> String) -> String {
        cooperative::statement(self.kernel, statement, text)
    }
}
