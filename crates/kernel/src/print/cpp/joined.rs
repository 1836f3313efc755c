//! Code generation for horizontal fusion: one elementwise kernel over several sets of tensors.

use super::{Cpp, is_cpp, module};
use crate::print::{Dialect, Entry, EntryParameter, Printed, Unprintable, arguments, check, kinds};
use crate::{GpuSchedule, Kernel, KernelKind};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The entry point.
const ENTRY: &str = "kiln_joined";

/// Prints a map that runs over several sets of tensors at once, each with its own extents (horizontal fusion). Its
/// launches must not depend on each other. The parameters are the [arguments](Printed::arguments) of each set in turn.
/// After them comes the number of the first block of each set but the first, in the type of extents. An unused set
/// begins after the last block, so that no block uses it.
///
/// ```
/// use kiln_kernel::print::{Dialect, cpp_joined};
/// use kiln_kernel::{GpuSchedule, Kernel, Launch};
///
/// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
///   v0: f32 = load %0
///   v1: f32 = exp v0
///   v2: f32 = store %1, v1
/// }".parse()?;
/// let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse()?;
/// let printed = cpp_joined(&kernel, &GpuSchedule::choose(&kernel, &launch), Dialect::Cuda, 2).unwrap();
/// assert!(printed.text.contains("kiln_joined(const float* a0_p0, float* a0_p1, kiln_index a0_e0, const float* a1_p0"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Errors
/// When the kernel is no map, or as for [`cpp`](super::cpp).
pub fn cpp_joined(
    kernel: &Kernel,
    schedule: &GpuSchedule,
    dialect: Dialect,
    sets: usize,
) -> Result<Printed, Unprintable> {
    check(kernel, schedule)?;
    is_cpp(dialect)?;
    if kernel.kind != KernelKind::Map || sets == 0 {
        return Err(Unprintable { lacks: alloc::vec!["form for several sets of tensors".into()] });
    }
    let language = Cpp { kernel, schedule, dialect };
    let arguments = arguments(kernel, schedule);
    let declared: Vec<String> = arguments
        .iter()
        .enumerate()
        .map(|(i, argument)| language.argument(i, &arguments, argument))
        .collect();
    // Type and name.
    let declared: Vec<(&str, &str)> = declared.iter().filter_map(|text| text.rsplit_once(' ')).collect();
    let body: String =
        kinds::entries(kernel, schedule, &language).into_iter().map(|entry| entry.body).collect();
    let function = format!(
        "\nextern \"C\" __global__ void __launch_bounds__({}) {ENTRY}({}) {{\n{}{body}}}\n",
        schedule.block,
        parameters(&declared, sets),
        choice(&declared, sets),
    );
    let of_set = crate::print::parameters(kernel, &arguments);
    let firsts = alloc::vec![EntryParameter::Index; sets - 1];
    let parameters = of_set.repeat(sets).into_iter().chain(firsts).collect();
    let entry = Entry { name: ENTRY.into(), threads: schedule.block, parameters, is_guarded: false };
    Ok(Printed { text: module(schedule, &function), entries: alloc::vec![entry], arguments })
}

fn parameters(declared: &[(&str, &str)], sets: usize) -> String {
    let of_set = |set: usize| declared.iter().map(move |(ty, name)| format!("{ty} a{set}_{name}"));
    let firsts = (1..sets).map(|set| format!("kiln_index first{set}"));
    (0..sets).flat_map(of_set).chain(firsts).collect::<Vec<String>>().join(", ")
}

/// Selects the arguments of a block's set, and its block number in the set.
fn choice(declared: &[(&str, &str)], sets: usize) -> String {
    let mut text = String::from("  kiln_begin();\n  kiln_index block = blockIdx.x;\n");
    text.push_str("  const kiln_index thread = threadIdx.x;\n");
    for (ty, name) in declared {
        text.push_str(&format!("  {ty} {name} = a0_{name};\n"));
    }
    let begun: Vec<String> = (1..sets).map(|set| format!("(block >= first{set})")).collect();
    if begun.is_empty() {
        return text;
    }
    text.push_str(&format!("  switch ({}) {{\n", begun.join(" + ")));
    for set in 1..sets {
        text.push_str(&format!("    case {set}:\n"));
        for (_, name) in declared {
            text.push_str(&format!("      {name} = a{set}_{name};\n"));
        }
        text.push_str(&format!("      block = block - first{set};\n      break;\n"));
    }
    text.push_str("  }\n");
    text
}
