//! `kiln dump`: prints the IR of a program at a stage.

use clap::ValueEnum;
use kiln_fusion::{Plan, Step, StepKind};
use kiln_ir::{Machine, Op, Program, verify};
use kiln_kernel::print::{self, Dialect};
use kiln_kernel::{GpuSchedule, Layout, Lowered, Nest, Refusal, Slot};
use std::fmt::Write;

/// The compilation stages of a program, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// The parsed program
    Ops,
    /// The steps of the fusion plan, with the reasons why regions end
    Plan,
    /// The kernel of each region, with extents, strides and cost
    Kernel,
    /// CUDA C++
    Cuda,
    /// HIP C++
    Hip,
    /// WGSL
    Wgsl,
}

/// The machine that a program is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// A CPU
    Cpu,
    /// A data-centre GPU with vendor libraries
    Gpu,
}

impl Target {
    fn machine(self) -> Machine {
        match self {
            Target::Cpu => Machine::processor(),
            Target::Gpu => Machine::gpu(),
        }
    }

    /// Builds the loop nest of a region. GPU kernels may include column reductions over the rows of the kernel.
    fn region(self, program: &Program, numbers: &[bool]) -> Result<(Nest, Vec<Slot>), (usize, Refusal)> {
        match self {
            Target::Cpu => Nest::of_program(program, numbers),
            Target::Gpu => Nest::of_program_with_columns(program, numbers),
        }
    }
}

/// Parses a program and verifies it.
pub(crate) fn program(text: &str) -> Result<Program, String> {
    let program = Program::parse(text).map_err(|error| error.to_string())?;
    verify(&program).map_err(|error| error.to_string())?;
    Ok(program)
}

/// Returns the text of a stage of the plan for a machine. With `region`, only of that region.
pub(crate) fn dump(
    program: &Program,
    stage: Stage,
    target: Target,
    region: Option<usize>,
) -> Result<String, String> {
    let plan = Plan::for_machine(program, &target.machine());
    let regions: Vec<(usize, &Step)> =
        plan.steps().iter().enumerate().filter(|(_, step)| step.kind() == StepKind::Region).collect();
    if let Some(number) = region
        && number >= regions.len()
    {
        let has = if regions.len() == 1 { "1 region".into() } else { format!("{} regions", regions.len()) };
        return Err(format!("no region {number}: the plan has {has}\n  hint: regions are counted from 0"));
    }
    match (stage, region) {
        (Stage::Ops, None) => Ok(format!("{program}\n")),
        (Stage::Ops, Some(number)) => Ok(format!("{}\n", of_region(regions[number].1))),
        (Stage::Plan, None) => Ok(plan.describe_all()),
        (Stage::Plan, Some(number)) => Ok(plan.describe_step(regions[number].0)),
        (Stage::Kernel | Stage::Cuda | Stage::Hip | Stage::Wgsl, _) => {
            let chosen = regions.iter().enumerate().filter(|(number, _)| region.is_none_or(|r| r == *number));
            let mut text = String::new();
            for (number, (step, region)) in chosen {
                let _ = writeln!(text, "// region {number}, step {step} of the plan");
                text += &of_stage(stage, target, region);
            }
            if text.is_empty() {
                text += "// the plan has no regions: every op runs by its own kernel\n";
            }
            Ok(text)
        }
    }
}

/// Returns the program of a region.
fn of_region(step: &Step) -> &Program {
    let Op::Fused(fused) = step.op() else { unreachable!("{} is not a region", step.op().name()) };
    fused.program()
}

fn of_stage(stage: Stage, target: Target, step: &Step) -> String {
    let lowered = match lowered(target, step) {
        Ok(lowered) => lowered,
        Err(reason) => return format!("// runs op by op: {reason}\n"),
    };
    let schedule = || GpuSchedule::choose(&lowered.kernel, &lowered.launch);
    let printed = match stage {
        Stage::Ops | Stage::Plan | Stage::Kernel => {
            let cost = lowered.kernel.cost(&lowered.launch);
            return format!("{}\n{}\n// {cost:?}\n", lowered.kernel, lowered.launch);
        }
        Stage::Cuda => print::cpp(&lowered.kernel, &schedule(), Dialect::Cuda),
        Stage::Hip => print::cpp(&lowered.kernel, &schedule(), Dialect::Hip),
        Stage::Wgsl => print::wgsl(&lowered.kernel, &schedule(), &print::Target::new(Dialect::Wgsl)),
    };
    match printed {
        Ok(printed) => printed.text + "\n",
        Err(reason) => format!("// {reason}\n"),
    }
}

/// Lowers a region whose operands are contiguous in row-major order to a kernel.
fn lowered(target: Target, step: &Step) -> Result<Lowered, String> {
    let program = of_region(step);
    let numbers = step.numbers();
    let (nest, outputs) = target
        .region(program, &numbers)
        .map_err(|(number, refusal)| format!("op {number} of the region: {refusal}"))?;
    let layouts = program.inputs.iter().zip(&numbers).map(|(ty, &number)| {
        let strides = if number { &[][..] } else { &ty.shape.row_major_strides()[..ty.rank()] };
        Layout(strides.iter().map(|&stride| stride as isize).collect())
    });
    nest.lower(&outputs, &layouts.collect::<Vec<_>>()).map_err(|reason| reason.to_string())
}
