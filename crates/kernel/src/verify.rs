//! The verifier of kernels.

use crate::passes::Product;
use crate::{Axis, AxisSet, Compute, Instruction, Kernel, KernelKind, ParamKind, ValueId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use kiln_ir::{Axes, DType, Op, OperandType, TensorType, infer};

/// A verification error of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The invalid instruction, if the error concerns one.
    pub instruction: Option<usize>,
    /// Description of the error.
    pub problem: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instruction {
            Some(number) => write!(f, "v{number}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl core::error::Error for Invalid {}

impl Invalid {
    fn whole(problem: impl Into<String>) -> Invalid {
        Invalid { instruction: None, problem: problem.into() }
    }

    fn at(instruction: usize, problem: impl Into<String>) -> Invalid {
        Invalid { instruction: Some(instruction), problem: problem.into() }
    }
}

/// Checks the invariants of a kernel, which its users rely on. Instructions use earlier values of the right dtypes.
/// Parameters match the axes. Each output is stored once and has every parallel axis, or exactly the reduced ones if it
/// is constant across rows. Axes match the kind. Nothing is unused.
///
/// ```
/// use kiln_kernel::{KernelKind, Kernel, verify};
///
/// let nothing = Kernel { kind: KernelKind::Map, axes: vec![], params: vec![], body: vec![] };
/// assert_eq!(verify(&nothing).unwrap_err().to_string(), "the kernel has no stores");
/// ```
///
/// # Errors
/// The first violated invariant.
pub fn verify(kernel: &Kernel) -> Result<(), Invalid> {
    params(kernel)?;
    for (number, instruction) in kernel.body.iter().enumerate() {
        operands(kernel, number, instruction)?;
        dtypes(kernel, number, instruction)?;
    }
    uses(kernel)?;
    let dependence = kernel.dependence();
    outputs(kernel, &dependence)?;
    checks(kernel, &dependence)?;
    stages(kernel, &dependence)?;
    columns(kernel)?;
    kind(kernel, &dependence)
}

fn params(kernel: &Kernel) -> Result<(), Invalid> {
    if kernel.axes.len() > crate::Nest::MAX_AXES {
        return Err(Invalid::whole("the kernel has too many axes"));
    }
    if kernel.params.len() > crate::Nest::MAX_PARAMS {
        return Err(Invalid::whole("the kernel has too many parameters"));
    }
    for (number, param) in kernel.params.iter().enumerate() {
        let axes = match param.kind {
            ParamKind::Number => 0,
            ParamKind::Input | ParamKind::Output => kernel.axes.len(),
        };
        if param.strides.len() != axes {
            let found = param.strides.len();
            return Err(Invalid::whole(format!("parameter {number} has {found} strides for {axes} axes")));
        }
    }
    Ok(())
}

/// Checks that the operands of an instruction exist and precede it.
fn operands(kernel: &Kernel, number: usize, instruction: &Instruction) -> Result<(), Invalid> {
    for value in instruction.compute.operands() {
        if value as usize >= number {
            return Err(Invalid::at(number, format!("uses v{value}, which is not computed before")));
        }
        if kernel.body[value as usize].compute.store().is_some() {
            return Err(Invalid::at(number, format!("uses v{value}, a store, which has no value")));
        }
    }
    let compute = instruction.compute;
    if let Compute::Index(axis) = compute
        && axis as usize >= kernel.axes.len()
    {
        return Err(Invalid::at(number, format!("counts along axis {axis}, which the kernel does not have")));
    }
    let Some(param) = compute.param() else { return Ok(()) };
    let (kind, wanted) = if compute.load().is_some() {
        (ParamKind::Input, "an input")
    } else if compute.store().is_some() {
        (ParamKind::Output, "an output")
    } else {
        (ParamKind::Number, "a number")
    };
    if kernel.params.get(param as usize).is_none_or(|found| found.kind != kind) {
        return Err(Invalid::at(number, format!("parameter {param} is not {wanted}")));
    }
    Ok(())
}

/// Checks that dtypes are those that the ops of the same names infer.
fn dtypes(kernel: &Kernel, number: usize, instruction: &Instruction) -> Result<(), Invalid> {
    let dtype = instruction.dtype;
    let of = |value: ValueId| kernel.body[value as usize].dtype;
    let inferred = |op: Op| {
        let operands = instruction.compute.operands();
        let types: Vec<TensorType> = operands.iter().map(|&v| TensorType::new([1], of(v))).collect();
        let types: Vec<OperandType<'_>> = types.iter().map(OperandType::Tensor).collect();
        match infer(&op, &types) {
            Ok(results) => Ok(results[0].dtype),
            Err(error) => Err(Invalid::at(number, error.to_string())),
        }
    };
    if let Some(param) = instruction.compute.param() {
        let found = kernel.params[param as usize].dtype;
        if found != dtype {
            return Err(Invalid::at(number, format!("parameter {param} is of {found}, not {dtype}")));
        }
    }
    let expected = match instruction.compute {
        Compute::Load(_) | Compute::Number(_) => dtype,
        Compute::LoadWhere(_, condition) => {
            if !of(condition).is_bool() {
                return Err(Invalid::at(number, "the condition of a load is a bool"));
            }
            dtype
        }
        Compute::LoadAt { offset, condition, .. } => {
            if !matches!(of(offset), DType::I32 | DType::I64) || !of(condition).is_bool() {
                let problem = "an offset is an i32 or i64, and the condition of a load is a bool";
                return Err(Invalid::at(number, problem));
            }
            dtype
        }
        Compute::Store(_, value) => of(value),
        Compute::Constant(scalar) => {
            if !scalar.fits(dtype) {
                return Err(Invalid::at(number, format!("the number {scalar} is not a value of {dtype}")));
            }
            dtype
        }
        Compute::Index(_) => {
            if dtype.is_bool() {
                return Err(Invalid::at(number, "an index must not be bool"));
            }
            dtype
        }
        Compute::Unary(function, _) => inferred(Op::Unary(function))?,
        Compute::Binary(function, ..) => inferred(Op::Binary(function))?,
        Compute::Compare(comparison, ..) => inferred(Op::Compare(comparison))?,
        Compute::Select(..) => inferred(Op::Select)?,
        Compute::Cast(_) => inferred(Op::Cast(dtype))?,
        Compute::Bitcast(value) => {
            let narrow = |dtype: DType| dtype.is_float() && dtype.size() == 2;
            if narrow(dtype) || narrow(of(value)) {
                return Err(Invalid::at(number, "16-bit floats have no bits in kernels"));
            }
            inferred(Op::Bitcast(dtype))?
        }
        Compute::Reduce(reduction, _) | Compute::ColumnReduce(reduction, _) => {
            inferred(Op::Reduce { reduction, axes: Axes::one(0) })?
        }
        Compute::Scan { reduction, reverse, exclusive, .. } => {
            inferred(Op::Scan { reduction, axis: 0, reverse, exclusive })?
        }
        Compute::Checked(index, bound) => {
            if !dtype.is_int() || of(bound) != of(index) {
                return Err(Invalid::at(number, "an index and its bound are integers of one dtype"));
            }
            of(index)
        }
    };
    if expected == dtype {
        return Ok(());
    }
    Err(Invalid::at(number, format!("is of {expected}, not {dtype}")))
}

/// Checks that each output is stored once, and that every value and parameter is used.
fn uses(kernel: &Kernel) -> Result<(), Invalid> {
    let mut values = alloc::vec![false; kernel.body.len()];
    let mut params = alloc::vec![0; kernel.params.len()];
    for (number, instruction) in kernel.body.iter().enumerate() {
        instruction.compute.operands().iter().for_each(|&value| values[value as usize] = true);
        if let Some(param) = instruction.compute.param() {
            params[param as usize] += 1;
        }
        values[number] |= instruction.compute.store().is_some();
    }
    if let Some(number) = values.iter().position(|used| !used) {
        return Err(Invalid::at(number, "is not used"));
    }
    for (number, (param, &uses)) in kernel.params.iter().zip(&params).enumerate() {
        match (param.kind, uses) {
            (ParamKind::Output, 0) => {
                return Err(Invalid::whole(format!("output {number} is not stored")));
            }
            (ParamKind::Input | ParamKind::Number, 0) => {
                return Err(Invalid::whole(format!("parameter {number} is not used")));
            }
            (_, 1) => {}
            (ParamKind::Output, _) => {
                return Err(Invalid::whole(format!("output {number} is stored more than once")));
            }
            (ParamKind::Input | ParamKind::Number, _) => {
                return Err(Invalid::whole(format!("parameter {number} is read more than once")));
            }
        }
    }
    if !kernel.params.iter().any(|param| param.kind == ParamKind::Output) {
        return Err(Invalid::whole("the kernel has no stores"));
    }
    Ok(())
}

fn outputs(kernel: &Kernel, dependence: &[AxisSet]) -> Result<(), Invalid> {
    let reduced = kernel.reduced();
    for (number, instruction) in kernel.body.iter().enumerate() {
        let Some((param, _)) = instruction.compute.store() else { continue };
        let crossed = kernel.crossed(param);
        let of_columns = crossed == reduced && kernel.kind == KernelKind::RowReduce;
        if kernel.all_axes() & !reduced & !crossed != 0 && !of_columns {
            return Err(Invalid::at(number, "the output does not cross every parallel axis"));
        }
        if crossed & reduced != 0 && reduced & !crossed != 0 {
            return Err(Invalid::at(number, "the output crosses some of the reduced axes only"));
        }
        if dependence[number] & !crossed != 0 {
            return Err(Invalid::at(
                number,
                "the stored value changes along an axis that the output does not have",
            ));
        }
    }
    Ok(())
}

/// Checks that index bounds depend on no axis.
fn checks(kernel: &Kernel, dependence: &[AxisSet]) -> Result<(), Invalid> {
    for (number, instruction) in kernel.body.iter().enumerate() {
        if let Compute::Checked(_, bound) = instruction.compute
            && dependence[bound as usize] != 0
        {
            return Err(Invalid::at(number, "the bound of an index changes along an axis"));
        }
    }
    Ok(())
}

/// Checks that only row reductions combine results of reductions with values along the reduced axes.
fn stages(kernel: &Kernel, dependence: &[AxisSet]) -> Result<(), Invalid> {
    if kernel.kind == KernelKind::RowReduce {
        return Ok(());
    }
    let reduced = kernel.reduced();
    let mut after: Vec<bool> = Vec::with_capacity(kernel.body.len());
    for (number, instruction) in kernel.body.iter().enumerate() {
        let operands = instruction.compute.operands();
        let behind = operands.iter().any(|&value| after[value as usize]);
        let is_reduction = instruction.compute.is_reduction();
        let crossed = match instruction.compute.store() {
            Some((param, _)) => kernel.crossed(param),
            None => dependence[number],
        };
        if behind && (is_reduction || crossed & reduced != 0) {
            return Err(Invalid::at(
                number,
                "combines a reduction's result along reduced axes outside of a row",
            ));
        }
        after.push(behind || is_reduction);
    }
    Ok(())
}

/// Checks that row values and values that are constant across rows meet only in column reductions.
fn columns(kernel: &Kernel) -> Result<(), Invalid> {
    let across: Vec<bool> = kernel.body.iter().map(|i| i.compute.column_reduce().is_some()).collect();
    let behind = kernel.column_stores();
    if behind.is_empty() && !across.contains(&true) {
        return Ok(());
    }
    if kernel.kind != KernelKind::RowReduce || kernel.reduced() == kernel.all_axes() {
        return Err(Invalid::whole("only row reductions combine over rows"));
    }
    let in_rows = kernel.in_rows();
    if let Some(number) = (0..kernel.body.len()).find(|&number| across[number] && in_rows[number]) {
        return Err(Invalid::at(number, "is needed before all rows are combined"));
    }
    let needed = kernel.needed_for(&behind);
    let reduction = needed.into_iter().find(|&value| kernel.body[value as usize].compute.is_reduction());
    match reduction {
        Some(value) => Err(Invalid::at(value as usize, "is of one row, and needed for all rows")),
        None => Ok(()),
    }
}

fn kind(kernel: &Kernel, dependence: &[AxisSet]) -> Result<(), Invalid> {
    let reduces = kernel.body.iter().any(|i| i.compute.is_reduction());
    let scans = kernel.body.iter().any(|i| i.compute.is_scan());
    let num_reduced = kernel.axes.iter().filter(|axis| **axis == Axis::Reduce).count();
    let inner_reduced = kernel.axes.iter().rev().take_while(|axis| **axis == Axis::Reduce).count();
    let fail = |holds: bool, problem: &str| if holds { Ok(()) } else { Err(Invalid::whole(problem)) };
    fail(!scans || kernel.kind == KernelKind::Scan, "only a scan kernel scans")?;
    match kernel.kind {
        KernelKind::Map | KernelKind::Transpose => {
            fail(num_reduced == 0 && !reduces, "a map has no reductions")
        }
        KernelKind::RowReduce => fail(
            num_reduced > 0 && inner_reduced == num_reduced,
            "a row reduction reduces along its innermost axes, and along no others",
        ),
        KernelKind::ColReduce => fail(
            reduces && num_reduced > 0 && inner_reduced == 0,
            "a column reduction reduces along outer axes, and not along the innermost",
        ),
        KernelKind::FullReduce => fail(
            reduces && num_reduced > 0 && num_reduced == kernel.axes.len(),
            "a full reduction reduces along every axis",
        ),
        KernelKind::Scan => fail(
            scans && !reduces && num_reduced == 1 && inner_reduced == 1,
            "a scan runs along its innermost axis, without reductions",
        ),
        KernelKind::MatMul(_) => {
            fail(num_reduced > 0 && inner_reduced == num_reduced, "a matmul sums along its innermost axes")?;
            is_product(kernel, dependence)
        }
    }
}

/// Checks that the kernel is a sum of products of two values, each of which lacks an axis of the result.
fn is_product(kernel: &Kernel, dependence: &[AxisSet]) -> Result<(), Invalid> {
    let fail = || Invalid::whole("a matmul is a sum of products that each lack an axis");
    let Product { total, factors } = kernel.product().ok_or_else(fail)?;
    let parallel = kernel.all_axes() & !kernel.reduced();
    let lacks = |value: ValueId| parallel & !dependence[value as usize] != 0;
    let others =
        kernel.body.iter().enumerate().any(|(number, instruction)| {
            number != total.value as usize && instruction.compute.is_reduction()
        });
    if factors.into_iter().all(lacks) && !others { Ok(()) } else { Err(fail()) }
}
