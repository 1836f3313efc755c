//! Block kernels as C++ for CUDA and HIP.

use super::walk::{Syntax, body, primary};
use super::{
    atomic_function, atomic_name, atomics, entry_name, param_name, place_dtype, place_name, shared_name,
    vectors,
};
use crate::Compute;
use crate::block::{
    ArrayType, Atomic, BlockKernel, BlockParam, BlockParamKind, Cooperative, Expression, LANES, Place, Type,
};
use crate::print::cpp::{compute, constant, number};
use crate::print::{held_type, memory_type, narrowed, widened, with_prelude};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use kiln_ir::{DType, Scalar};

/// The source of a module with the kernel.
pub(super) fn print(kernel: &BlockKernel) -> String {
    let cpp = Cpp { kernel };
    let statements = body(&cpp, &kernel.body);
    let mut text = String::new();
    if statements.contains("kiln_uniform(") {
        text.push_str(UNIFORM);
    }
    for function in cpp.exchanges() {
        text.push_str(&function);
    }
    let params: Vec<String> =
        (0..).zip(&kernel.params).map(|(place, param)| cpp.param(place, param)).collect();
    let _ = writeln!(
        text,
        "\nextern \"C\" __global__ void __launch_bounds__({}) {}({}) {{",
        kernel.threads,
        entry_name(kernel),
        params.join(", ")
    );
    let with_vectors = vectors(kernel);
    for (place, array) in (0..).zip(&kernel.shared) {
        let alignment = if with_vectors.contains(&Place::Shared(place)) { "alignas(16) " } else { "" };
        let _ = writeln!(text, "  {alignment}__shared__ {}", cpp.array(&shared_name(place), array));
    }
    text.push_str(
        "  kiln_begin();\n  const kiln_index block = blockIdx.x, thread = threadIdx.x, blocks = gridDim.x;\n",
    );
    text.push_str(&statements);
    text.push_str("}\n");
    with_prelude(&text)
}

/// The function of a uniform load.
const UNIFORM: &str = "template <typename T> __device__ __forceinline__ T kiln_uniform(const T* place) {
  __syncthreads();
  const T x = *place;
  __syncthreads();
  return x;
}
";

struct Cpp<'a> {
    kernel: &'a BlockKernel,
}

impl Cpp<'_> {
    /// The declaration of a parameter. `__restrict__` inputs would be read through the constant cache, whose lines stay
    /// stale after an early kernel has waited for the previous one.
    fn param(&self, place: u32, param: &BlockParam) -> String {
        let name = param_name(self.kernel, place);
        match param.kind {
            BlockParamKind::Input => format!("const {}* {name}", memory_type(param.dtype)),
            BlockParamKind::Output | BlockParamKind::Atomic => {
                format!("{}* {name}", memory_type(param.dtype))
            }
            BlockParamKind::Flag => format!("unsigned long long* {name}"),
            BlockParamKind::Number => format!("{} {name}", number(param.dtype)),
            BlockParamKind::Length => format!("kiln_index {name}"),
        }
    }

    /// The type of a vector in memory. Shared memory holds elements as values.
    fn vector(&self, place: Place) -> String {
        let dtype = place_dtype(self.kernel, place);
        let element = match place {
            Place::Param(_) => memory_type(dtype),
            Place::Shared(_) => held_type(dtype),
        };
        format!("kiln_pack<{element}, {LANES}>")
    }

    /// The functions of atomic operations that CUDA does not have, one for each operation and dtype.
    fn exchanges(&self) -> Vec<String> {
        let mut known = Vec::new();
        let mut texts = Vec::new();
        for (place, operation) in atomics(self.kernel) {
            let dtype = place_dtype(self.kernel, place);
            if native(operation, dtype).is_none() && !known.contains(&(operation, dtype)) {
                known.push((operation, dtype));
                texts.push(exchange(operation, dtype));
            }
        }
        texts
    }
}

/// The function of an atomic operation, where CUDA has it for the dtype.
fn native(operation: Atomic, dtype: DType) -> Option<&'static str> {
    let has_integer = matches!(dtype, DType::I32 | DType::U32 | DType::U64);
    match operation {
        Atomic::Add if has_integer || matches!(dtype, DType::F32 | DType::F64) => Some("atomicAdd"),
        Atomic::Min if has_integer => Some("atomicMin"),
        Atomic::Max if has_integer => Some("atomicMax"),
        Atomic::Or if has_integer => Some("atomicOr"),
        Atomic::Add | Atomic::Mul | Atomic::Min | Atomic::Max | Atomic::Or => None,
    }
}

fn exchange_name(operation: Atomic, dtype: DType) -> String {
    format!("kiln_atomic_{}_{}", atomic_name(operation), dtype.name())
}

/// An atomic operation by compare-and-swap.
fn exchange(operation: Atomic, dtype: DType) -> String {
    let operands = [(String::from("old"), dtype), (String::from("x"), dtype)];
    let combined = compute(&Compute::Binary(atomic_function(operation), 0, 1), dtype, &operands);
    let (name, ty) = (exchange_name(operation, dtype), held_type(dtype));
    let word = if dtype.size() == 8 { "unsigned long long" } else { "unsigned" };
    format!(
        "__device__ __forceinline__ {ty} {name}({ty}* place, {ty} x) {{
  {word}* word = reinterpret_cast<{word}*>(place);
  // A cached value may be stale. If the operation changes nothing, no compare-and-swap would detect that.
  {word} seen = *reinterpret_cast<volatile {word}*>(word), expected;
  {ty} old;
  do {{
    expected = seen;
    old = kiln_bits<{ty}>(expected);
    const {word} next = kiln_bits<{word}>(({ty})({combined}));
    if (next == expected) return old;
    seen = atomicCAS(word, expected, next);
  }} while (seen != expected);
  return old;
}}
"
    )
}

impl Syntax for Cpp<'_> {
    const INDEX: DType = DType::I64;

    fn ty(&self, ty: Type) -> &'static str {
        match ty {
            Type::Index => "kiln_index",
            Type::Value(dtype) => held_type(dtype),
        }
    }

    fn constant(&self, scalar: Scalar, dtype: DType) -> String {
        constant(scalar, dtype)
    }

    fn number(&self, param: u32) -> String {
        let name = param_name(self.kernel, param);
        let BlockParam { kind, dtype, .. } = self.kernel.params[param as usize];
        match dtype {
            DType::Bool => format!("{name} != 0u"),
            DType::I16 | DType::I8 | DType::U16 | DType::U8 if kind == BlockParamKind::Number => {
                format!("({}){name}", held_type(dtype))
            }
            DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8 => name,
        }
    }

    fn load(&self, param: u32, at: &str) -> String {
        let name = param_name(self.kernel, param);
        let BlockParam { kind, dtype, .. } = self.kernel.params[param as usize];
        match kind {
            BlockParamKind::Input
            | BlockParamKind::Output
            | BlockParamKind::Number
            | BlockParamKind::Length => widened(dtype, &format!("{name}[{at}]")),
            // Another block may change the element, and a cached value would be stale.
            BlockParamKind::Atomic => {
                format!("reinterpret_cast<const volatile {}*>({name})[{at}]", memory_type(dtype))
            }
            BlockParamKind::Flag => format!("reinterpret_cast<const volatile unsigned*>({name})[{at}]"),
        }
    }

    fn load_shared(&self, array: u32, at: &str) -> String {
        format!("{}[{at}]", shared_name(array))
    }

    fn load_uniform(&self, array: u32, at: &str) -> String {
        format!("kiln_uniform(&{}[{at}])", shared_name(array))
    }

    fn compute(&self, function: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
        compute(function, dtype, operands)
    }

    fn to_index(&self, x: String, from: DType) -> String {
        if from == DType::U64 {
            return format!("(kiln_index)kiln_min<unsigned long long>({x}, 9223372036854775807ull)");
        }
        compute(&Compute::Cast(0), Self::INDEX, &[(x, from)])
    }

    fn mul_high(&self, a: &str, b: &str) -> String {
        format!("__umulhi({a}, {b})")
    }

    fn define(&self, name: &str, ty: Type, value: &str) -> String {
        format!("const {} {name} = {value};", self.ty(ty))
    }

    fn variable(&self, name: &str, ty: Type, value: &str) -> String {
        format!("{} {name} = {value};", self.ty(ty))
    }

    fn array(&self, name: &str, array: &ArrayType) -> String {
        format!("{} {name}[{}];", self.ty(array.ty), array.len)
    }

    fn store(&self, param: u32, at: &str, value: &str) -> String {
        let dtype = self.kernel.params[param as usize].dtype;
        format!("{}[{at}] = {};", param_name(self.kernel, param), narrowed(dtype, value))
    }

    fn store_shared(&self, array: u32, at: &str, value: &str) -> String {
        format!("{}[{at}] = {value};", shared_name(array))
    }

    fn load_vector(
        &self,
        place: Place,
        at: &str,
        condition: Option<&str>,
        names: &[String; LANES],
    ) -> String {
        let (vector, dtype) = (self.vector(place), place_dtype(self.kernel, place));
        let all = format!("{}_vector", names[0]);
        let name = place_name(self.kernel, place);
        let loaded = format!("reinterpret_cast<const {vector}*>({name})[{at}]");
        let mut text = match condition {
            Some(condition) => format!("{vector} {all} = {{}}; if ({condition}) {all} = {loaded};"),
            None => format!("const {vector} {all} = {loaded};"),
        };
        for (lane, name) in names.iter().enumerate() {
            let element = format!("{all}.at[{lane}]");
            let value = match place {
                Place::Param(_) => widened(dtype, &element),
                Place::Shared(_) => element,
            };
            let _ = write!(text, " const {} {name} = {value};", held_type(dtype));
        }
        text
    }

    fn store_vector(&self, place: Place, at: &str, values: &[String; LANES]) -> String {
        let (vector, dtype) = (self.vector(place), place_dtype(self.kernel, place));
        let values = values.each_ref().map(|value| match place {
            Place::Param(_) => format!("({})({})", memory_type(dtype), narrowed(dtype, value)),
            Place::Shared(_) => format!("({})({value})", held_type(dtype)),
        });
        let name = place_name(self.kernel, place);
        format!("reinterpret_cast<{vector}*>({name})[{at}] = {vector}{{{{{}}}}};", values.join(", "))
    }

    fn atomic(&self, place: Place, at: &str, operation: Atomic, value: &str) -> String {
        let (name, dtype) = (place_name(self.kernel, place), place_dtype(self.kernel, place));
        let function = native(operation, dtype).map_or_else(|| exchange_name(operation, dtype), String::from);
        format!("{function}(&{name}[{at}], {})", primary(value.into()))
    }

    fn fail(&self, flag: u32, at: &str, point: &str) -> String {
        format!(
            "kiln_fail({}, {}, {});",
            param_name(self.kernel, flag),
            primary(at.into()),
            primary(point.into())
        )
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    /// No kernel with such statements is printed: see [`lacks`](super::lacks::lacks).
    fn cooperative(&self, _: &Cooperative, _: &dyn Fn(&Expression) -> String) -> String {
        String::new()
    }
}
