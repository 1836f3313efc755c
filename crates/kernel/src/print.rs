//! Code generation: kernels as CUDA, HIP or WGSL source.
//!
//! [`cpp()`] prints C++ for CUDA and HIP, [`wgsl()`] the shading language of WebGPU. [`print()`] prints the language of
//! a [`Target`]. All print the same loops. The output for a kernel and schedule is deterministic, byte for byte.
//! [`Printed`] lists the arguments of the entry points, [`helpers()`] the functions that they call. [`block()`] prints a
//! [block kernel](crate::block).

mod block;
mod columns;
mod cpp;
mod functions;
mod kinds;
mod prelude;
mod row_column;
mod rows;
mod wgsl;
mod writer;

use crate::schedule::{splits, takes_vectors};
use crate::{Compute, GpuSchedule, Kernel, KernelKind, ParamKind, StrideClass};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
pub use block::block;
use core::fmt;
pub use cpp::{cpp, cpp_joined, held_type, memory_type, narrowed, widened, with_prelude};
use kiln_ir::{DType, DTypeSet};
pub use prelude::helpers;
pub use wgsl::{split_tensors, wgsl};

/// The language of a device's kernels, and the features of it that the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The language.
    pub dialect: Dialect,
    /// The dtypes that kernels compute with. Of dtypes of 64 bits, WGSL has those that the device offers.
    pub dtypes: DTypeSet,
    /// Whether 64-bit integers have atomic operations.
    pub atomics_64: bool,
}

impl Target {
    /// A target with all features.
    pub const fn new(dialect: Dialect) -> Target {
        Target { dialect, dtypes: DTypeSet::ALL, atomics_64: true }
    }
}

/// The language of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// CUDA C++, as NVRTC and nvcc compile it.
    Cuda,
    /// HIP C++, as HIPRTC and hipcc compile it.
    Hip,
    /// WGSL, the shading language of WebGPU.
    Wgsl,
}

/// An entry point with its typed parameters, in the order in which a launch passes arguments.
///
/// In C++ they are the parameters of the function. In WGSL, tensors are storage buffers, bound in this order in group 0.
/// One more binding, a uniform buffer of 32-bit words, follows them. Its words are: the number of blocks; for each tensor,
/// the index of its first element in the bound buffer; then the words, in this order, two for each of 64 bits. A tensor
/// that exceeds the limit of a binding is bound in parts, by the module of [`split_tensors`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The name of the function.
    pub name: Cow<'static, str>,
    /// Threads per block.
    pub threads: u32,
    /// The parameters. Empty for hand-written C++, whose arguments are not checked.
    pub parameters: Vec<EntryParameter>,
    /// Whether a driver for WGSL adds what WGSL specifies: shared memory starts as zeros, indices beyond an array access
    /// another element of it, and loops end. Kernels of users may rely on it. Printed kernels do without: no result depends
    /// on an element that no thread wrote, all indices are within bounds, and all loops end.
    pub is_guarded: bool,
}

/// A parameter of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryParameter {
    /// A tensor.
    Tensor {
        /// The dtype of its elements in memory.
        dtype: DType,
        /// Whether the kernel writes to it.
        is_written: bool,
    },
    /// A number in that dtype; 16-bit floats as `f32`, integers of up to 16 bits and `bool` in 32 bits.
    Word(DType),
    /// An extent, stride or offset: in C++ of 32 or 64 bits, in WGSL of 32.
    Index,
}

/// The source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The source of one module.
    pub text: String,
    /// The entry points in execution order; [`GpuSchedule::grid`] returns their block counts. All have the same
    /// parameters.
    pub entries: Vec<Entry>,
    /// Arguments of each entry point, one for each of its [parameters](Entry::parameters).
    pub arguments: Vec<GpuArgument>,
}

/// One argument of a printed kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuArgument {
    /// A tensor, by parameter: in C++ a pointer to the first element, in WGSL a buffer.
    Tensor(u32),
    /// The [offset](crate::Binding::offset) of the tensor's element at index 0 of each axis from its first element, in
    /// elements. Only tensors that are not read at every point have it.
    Offset(u32),
    /// A plain number, by parameter, in its dtype; 16-bit floats, integers of up to 16 bits and `bool` as `f32`, `i32`
    /// and `u32`.
    Number(u32),
    /// The extent of an axis, in 32 bits, or in 64 with [`GpuSchedule::wide`], like strides.
    Extent(u32),
    /// The stride of a parameter (first) along an axis (second). Only those of class [`StrideClass::Any`].
    Stride(u32, u32),
    /// Memory for [`scratch_len`](GpuSchedule::scratch_len) elements of the dtype, which the passes share.
    Scratch(DType),
    /// The bounds-check flags: 8 bytes for each [`Compute::Checked`], in order, initially 0. An index out of range sets
    /// them: in C++ one 64-bit word, in WGSL two 32-bit words, the lower half first. The upper half is `u32::MAX` minus
    /// the point, numbered as [`Check::position`](crate::Check::position) requires. The lower half is the index as an
    /// `i32`; both saturate. The first point is kept. If several points fail at once, the index may be that of another
    /// one in WGSL.
    Failed,
}

/// The error for a kernel that cannot be printed in a language or with a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprintable {
    /// Features that the language lacks, without duplicates.
    pub lacks: Vec<String>,
}

impl fmt::Display for Unprintable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[print] the language has no ")?;
        for (i, lack) in self.lacks.iter().enumerate() {
            write!(f, "{}{lack}", if i == 0 { "" } else { ", no " })?;
        }
        Ok(())
    }
}

impl core::error::Error for Unprintable {}

/// Prints a kernel in the language of a target.
///
/// `aliases` are pairs of an input and an output that share memory: an output may take the memory of an operand.
/// WebGPU refuses to bind a buffer twice if one binding is written. In WGSL the input has therefore no binding and no
/// argument of its own. C++ has no such rule and ignores the aliases.
///
/// ```
/// use kiln_kernel::print::{Dialect, Target, print};
/// use kiln_kernel::{GpuSchedule, Kernel, Launch};
///
/// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
///   v0: f32 = load %0
///   v1: f32 = exp v0
///   v2: f32 = store %1, v1
/// }".parse()?;
/// let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse()?;
/// let schedule = GpuSchedule::choose(&kernel, &launch);
/// let printed = print(&kernel, &schedule, &Target::new(Dialect::Wgsl), &[(0, 1)]).unwrap();
/// assert!(!printed.text.contains("p0"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Errors
/// As for [`cpp()`] and [`wgsl()`]; in WGSL also when the elements of an input and an output that share memory differ
/// in size.
pub fn print(
    kernel: &Kernel,
    schedule: &GpuSchedule,
    target: &Target,
    aliases: &[(u32, u32)],
) -> Result<Printed, Unprintable> {
    match target.dialect {
        Dialect::Cuda | Dialect::Hip => cpp(kernel, schedule, target.dialect),
        Dialect::Wgsl => wgsl::aliased(kernel, schedule, target, aliases),
    }
}

/// The entry points of the first and the second pass.
const ENTRIES: [&str; 2] = ["kiln_kernel", "kiln_finish"];

/// The names of the entry points.
fn names(kernel: &Kernel, schedule: &GpuSchedule) -> Vec<&'static str> {
    ENTRIES[..1 + usize::from(schedule.finishes(kernel))].to_vec()
}

/// The entry points of these names for a list of arguments.
fn entries(
    names: &[&'static str],
    kernel: &Kernel,
    schedule: &GpuSchedule,
    arguments: &[GpuArgument],
) -> Vec<Entry> {
    let parameters = parameters(kernel, arguments);
    let entry = |&name: &&'static str| Entry {
        name: name.into(),
        threads: schedule.block,
        parameters: parameters.clone(),
        is_guarded: false,
    };
    names.iter().map(entry).collect()
}

/// The parameters for a list of arguments.
fn parameters(kernel: &Kernel, arguments: &[GpuArgument]) -> Vec<EntryParameter> {
    let parameter = |argument: &GpuArgument| match *argument {
        GpuArgument::Tensor(param) => {
            let param = &kernel.params[param as usize];
            EntryParameter::Tensor { dtype: param.dtype, is_written: param.kind == ParamKind::Output }
        }
        GpuArgument::Number(param) => EntryParameter::Word(word(kernel.params[param as usize].dtype)),
        GpuArgument::Extent(_) | GpuArgument::Stride(..) | GpuArgument::Offset(_) => EntryParameter::Index,
        GpuArgument::Scratch(dtype) => EntryParameter::Tensor { dtype, is_written: true },
        GpuArgument::Failed => EntryParameter::Tensor { dtype: DType::U32, is_written: true },
    };
    arguments.iter().map(parameter).collect()
}

/// The dtype in which a launch passes a number: at least 32 bits.
fn word(dtype: DType) -> DType {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => DType::F32,
        DType::I32 | DType::I16 | DType::I8 => DType::I32,
        DType::U32 | DType::U16 | DType::U8 | DType::Bool => DType::U32,
        DType::F64 | DType::I64 | DType::U64 => dtype,
    }
}

/// Where a check reports: its number among the checks, and the number of the point along the axes that the index
/// depends on.
fn check_place(kernel: &Kernel, check: &Compute) -> (usize, String) {
    let mut checks = kernel.body.iter().filter(|other| matches!(other.compute, Compute::Checked(..)));
    let number = checks.position(|other| other.compute == *check).unwrap_or(0);
    let value = kernel.body.iter().position(|other| other.compute == *check).unwrap_or(0);
    let axes = kernel.dependence()[value];
    let along = (0..kernel.axes.len()).filter(|axis| axes & 1 << axis != 0);
    let point = along.fold(None, |outer: Option<String>, axis| {
        Some(outer.map_or(format!("i{axis}"), |outer| format!("({outer}) * e{axis} + i{axis}")))
    });
    (number, point.unwrap_or_else(|| "0".into()))
}

/// Checks the limits shared by both languages, for example at most one scan per kernel.
fn check(kernel: &Kernel, schedule: &GpuSchedule) -> Result<(), Unprintable> {
    let mut lacks = Vec::new();
    let scans = kernel.body.iter().filter(|i| i.compute.is_scan()).count();
    if scans > 1 {
        lacks.push("kernel with more than one scan".into());
    }
    let threads = |count: u32| count.is_power_of_two() && (32..=1024).contains(&count);
    let product = matches!(kernel.kind, KernelKind::MatMul(_) | KernelKind::Transpose);
    if !threads(schedule.block)
        || !schedule.shares_rows(kernel)
        || (product && schedule.block != 256)
        || schedule.splits == 0
        || (schedule.splits > 1 && !splits(kernel))
        || schedule.vector == 0
        || schedule.unroll == 0
        || (schedule.vector > 1 && !takes_vectors(kernel.kind))
        || (schedule.unroll > 1 && kernel.kind != KernelKind::Map)
        || (schedule.resident > 0 && kernel.kind != KernelKind::RowReduce)
        || !schedule.resident.is_multiple_of(schedule.vector)
        || (kernel.has_columns() && (schedule.resident == 0 || schedule.block != schedule.row_threads))
    {
        lacks.push("such schedule for this kernel".into());
    }
    if lacks.is_empty() { Ok(()) } else { Err(Unprintable { lacks }) }
}

/// All arguments: tensors and numbers, extents and strides, scratch memory and the flags.
fn arguments(kernel: &Kernel, schedule: &GpuSchedule) -> Vec<GpuArgument> {
    let mut list = Vec::new();
    let params = || kernel.params.iter().enumerate().map(|(i, param)| (i as u32, param));
    for (i, param) in params() {
        match param.kind {
            ParamKind::Input | ParamKind::Output => list.push(GpuArgument::Tensor(i)),
            ParamKind::Number => list.push(GpuArgument::Number(i)),
        }
    }
    list.extend((0..kernel.axes.len() as u32).map(GpuArgument::Extent));
    for (i, param) in params().filter(|(_, param)| param.kind != ParamKind::Number) {
        if param.kind == ParamKind::Input && !kernel.is_read_everywhere(i) {
            list.push(GpuArgument::Offset(i));
        }
        let any = param.strides.iter().enumerate().filter(|(_, class)| **class == StrideClass::Any);
        list.extend(any.map(|(axis, _)| GpuArgument::Stride(i, axis as u32)));
    }
    if schedule.finishes(kernel) {
        let columns = kernel.has_columns();
        let is_shared = |compute: &Compute| {
            if columns { compute.column_reduce().is_some() } else { compute.is_reduction() }
        };
        let totals = kernel.body.iter().filter(|i| is_shared(&i.compute));
        list.extend(totals.map(|total| GpuArgument::Scratch(total.dtype.accumulator())));
    }
    if kernel.body.iter().any(|i| matches!(i.compute, Compute::Checked(..))) {
        list.push(GpuArgument::Failed);
    }
    list
}
