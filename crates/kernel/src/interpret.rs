//! The reference interpreter of kernels.
//!
//! Each value of the body becomes a table over the axes that it [depends on](Kernel::dependence), instruction by
//! instruction. Floats are computed in `f64` and rounded to the value's dtype after each instruction (16-bit ones to
//! `f32`). Integers are computed exactly and wrapped. A reduction accumulates in `f64` or exactly, and is rounded once.
//! Slow, and for tests.

mod number;

use crate::{AxisSet, Compute, Instruction, Kernel, Launch, ParamKind, StrideClass, ValueId, verify};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::number::Number;
use kiln_ir::{DType, Elements, Error, Reduction, Result, Scalar};
use number::Numbers;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A tensor: its elements in memory, and the offset of the element at index 0.
    Tensor {
        /// All elements that strides may reach.
        elements: &'a Elements,
        /// The element at index 0 of every axis.
        offset: usize,
    },
    /// A plain number.
    Number(Scalar),
}

/// Runs a kernel. `arguments` are looked up by the [`place`](crate::Binding::place)s of inputs and numbers. Returns the
/// outputs in the order of their places, each as long as its strides reach.
///
/// ```
/// use kiln_ir::{Binary, DType, Elements, Op, Scalar, TensorType};
/// use kiln_kernel::{Argument, Layout, Nest, interpret};
///
/// let ty = TensorType::new([3], DType::F32);
/// let mut nest = Nest::default();
/// let x = nest.input(ty);
/// let y = nest.push(&Op::Binary(Binary::Mul), &[x.into(), Scalar::Float(2.0).into()], &[ty]).unwrap();
/// let lowered = nest.lower(&[y], &[Layout(vec![-1])]).unwrap();
///
/// let elements = Elements::F32(vec![1.0, 2.0, 3.0]);
/// let backwards = Argument::Tensor { elements: &elements, offset: 2 };
/// let results = interpret(&lowered.kernel, &lowered.launch, &[backwards]).unwrap();
/// assert_eq!(results, [Elements::F32(vec![6.0, 4.0, 2.0])]);
/// ```
///
/// # Errors
/// When the kernel is not [valid](verify()), or the launch or an argument does not match it. When an access is out of
/// bounds, an output is not written exactly once at each place, or a [`Compute::Checked`] index is out of range.
pub fn interpret(kernel: &Kernel, launch: &Launch, arguments: &[Argument<'_>]) -> Result<Vec<Elements>> {
    verify(kernel).map_err(|invalid| refused(format!("{invalid}")))?;
    launch.fits(kernel).map_err(refused)?;
    let mut machine = Machine {
        kernel,
        launch,
        arguments,
        dependence: kernel.dependence(),
        tables: Vec::with_capacity(kernel.body.len()),
        outputs: Vec::new(),
    };
    for (value, instruction) in kernel.body.iter().enumerate() {
        let table = machine.run(value, *instruction)?;
        machine.tables.push(table);
    }
    machine.outputs.sort_by_key(|(place, _)| *place);
    Ok(machine.outputs.into_iter().map(|(_, elements)| elements).collect())
}

fn refused(problem: impl Into<alloc::string::String>) -> Error {
    Error::value("kernel", problem)
}

struct Machine<'a> {
    kernel: &'a Kernel,
    launch: &'a Launch,
    arguments: &'a [Argument<'a>],
    dependence: Vec<AxisSet>,
    /// For each value so far, its table over the points of its axes, row-major.
    tables: Vec<Numbers>,
    /// The outputs with their places.
    outputs: Vec<(usize, Elements)>,
}

impl Machine<'_> {
    fn run(&mut self, value: usize, Instruction { compute, dtype }: Instruction) -> Result<Numbers> {
        let space = self.dependence[value];
        let at = |operand: ValueId| self.spread(operand, space);
        Ok(match compute {
            Compute::Load(param) => self.load(param, space, None, None)?,
            Compute::LoadWhere(param, condition) => {
                self.load(param, space, None, Some(at(condition).wholes()))?
            }
            Compute::LoadAt { param, offset, condition } => {
                self.load(param, space, Some(at(offset).wholes()), Some(at(condition).wholes()))?
            }
            Compute::Number(param) => self.number(param, dtype)?,
            Compute::Constant(scalar) => Numbers::repeated(scalar, dtype, 1),
            Compute::Index(axis) => {
                let indices = 0..self.launch.extents[axis as usize] as i128;
                Numbers::Whole(indices.collect()).cast(DType::I64, dtype)
            }
            Compute::Unary(function, a) => at(a).unary(function, dtype),
            Compute::Binary(function, a, b) => at(a).binary(function, at(b), dtype),
            Compute::Compare(comparison, a, b) => at(a).compare(comparison, at(b)),
            Compute::Select(condition, a, b) => at(condition).select(at(a), at(b)),
            Compute::Cast(a) => at(a).cast(self.dtype(a), dtype),
            Compute::Bitcast(a) => at(a).bitcast(self.dtype(a), dtype)?,
            Compute::Reduce(reduction, a) => self.reduce(reduction, a, space, self.kernel.reduced(), dtype),
            Compute::ColumnReduce(reduction, a) => {
                let over = self.kernel.all_axes() & !self.kernel.reduced();
                self.reduce(reduction, a, space, over, dtype)
            }
            Compute::Scan { reduction, reverse, exclusive, value } => {
                self.scan(reduction, reverse, exclusive, value, space, dtype)
            }
            Compute::Checked(a, bound) => {
                let (indices, bound) = (at(a), at(bound).wholes());
                let numbers = indices.clone().wholes();
                if let Some((&index, &bound)) =
                    numbers.iter().zip(&bound).find(|(index, bound)| !(0..**bound).contains(index))
                {
                    return Err(refused(format!(
                        "index {index} is out of range for an axis of length {bound}"
                    )));
                }
                indices
            }
            Compute::Store(param, a) => {
                self.store(param, a, dtype)?;
                Numbers::Whole(Vec::new())
            }
        })
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.kernel.body[value as usize].dtype
    }

    /// The offsets of all points of some axes, in row-major order.
    fn offsets(&self, space: AxisSet, strides: &[isize], start: isize) -> Vec<isize> {
        let mut places = alloc::vec![start];
        for (axis, &extent) in self.launch.extents.iter().enumerate() {
            if space >> axis & 1 == 1 {
                let along = |place: isize| (0..extent as isize).map(move |i| place + i * strides[axis]);
                places = places.into_iter().flat_map(along).collect();
            }
        }
        places
    }

    /// The strides of a table over some axes; 0 along other axes.
    fn strides(&self, space: AxisSet) -> Vec<isize> {
        let mut strides = alloc::vec![0; self.launch.extents.len()];
        let mut step = 1;
        for (axis, &extent) in self.launch.extents.iter().enumerate().rev() {
            if space >> axis & 1 == 1 {
                strides[axis] = step;
                step *= extent as isize;
            }
        }
        strides
    }

    /// Broadcasts the table of a value to a larger set of axes.
    fn spread(&self, value: ValueId, space: AxisSet) -> Numbers {
        let own = self.dependence[value as usize];
        let table = &self.tables[value as usize];
        if own == space { table.clone() } else { table.pick(&self.offsets(space, &self.strides(own), 0)) }
    }

    /// The elements of an input, moved by offsets; 0 where a condition is false.
    fn load(
        &self,
        param: u32,
        space: AxisSet,
        moved: Option<Vec<i128>>,
        condition: Option<Vec<i128>>,
    ) -> Result<Numbers> {
        let binding = &self.launch.bindings[param as usize];
        let dtype = self.kernel.params[param as usize].dtype;
        let Some(&Argument::Tensor { elements, offset }) = self.arguments.get(binding.place) else {
            return Err(refused(format!("operand {} must be a tensor", binding.place)));
        };
        if elements.dtype() != dtype {
            let found = elements.dtype();
            return Err(refused(format!("operand {} must be of {dtype}, not {found}", binding.place)));
        }
        let places = self.offsets(space, &binding.strides, offset as isize + binding.offset);
        let is_read = |point: usize| condition.as_ref().is_none_or(|holds| holds[point] != 0);
        let mut numbers = Numbers::repeated(Scalar::Int(0), dtype, places.len());
        let memory = Numbers::of(elements);
        for (point, &place) in places.iter().enumerate().filter(|(point, _)| is_read(*point)) {
            let place = place as i128 + moved.as_ref().map_or(0, |moved| moved[point]);
            if place < 0 || place >= elements.len() as i128 {
                let (operand, len) = (binding.place, elements.len());
                return Err(refused(format!("element {place} of operand {operand} is read, of {len}")));
            }
            numbers.set(point, &memory, place as usize);
        }
        Ok(numbers)
    }

    fn number(&self, param: u32, dtype: DType) -> Result<Numbers> {
        let place = self.launch.bindings[param as usize].place;
        match self.arguments.get(place) {
            Some(Argument::Number(scalar)) => Ok(Numbers::repeated(*scalar, dtype, 1)),
            Some(Argument::Tensor { .. }) | None => Err(refused(format!("operand {place} must be a number"))),
        }
    }

    /// Reduces a value along the axes that are not in `space`.
    fn reduce(
        &self,
        reduction: Reduction,
        value: ValueId,
        space: AxisSet,
        over: AxisSet,
        dtype: DType,
    ) -> Numbers {
        let identity = reduction.identity(dtype);
        let count = self.offsets(space, &self.strides(space), 0).len();
        let all = space | over;
        let targets = self.offsets(all, &self.strides(space), 0);
        let mut totals = Numbers::repeated(identity, dtype, count);
        match (&mut totals, self.spread(value, all)) {
            (Numbers::Real(totals), Numbers::Real(numbers)) => {
                for (target, number) in targets.into_iter().zip(numbers) {
                    let total = &mut totals[target as usize];
                    *total = total.combined(reduction, number);
                }
            }
            (Numbers::Whole(totals), Numbers::Whole(numbers)) => {
                for (target, number) in targets.into_iter().zip(numbers) {
                    let total = &mut totals[target as usize];
                    *total = total.combined(reduction, number);
                }
            }
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("a verified kernel reduces values of one dtype")
            }
        }
        totals.rounded_to(dtype)
    }

    fn scan(
        &self,
        reduction: Reduction,
        reverse: bool,
        exclusive: bool,
        value: ValueId,
        space: AxisSet,
        dtype: DType,
    ) -> Numbers {
        let along = self.kernel.reduced();
        let strides = self.strides(space);
        let mut numbers = self.spread(value, space);
        for start in self.offsets(space & !along, &strides, 0) {
            let mut places = self.offsets(along, &strides, start);
            if reverse {
                places.reverse();
            }
            match &mut numbers {
                Numbers::Real(numbers) => {
                    let mut total = reduction.identity(dtype).to_f64();
                    for place in places {
                        let before = total;
                        total = total.combined(reduction, numbers[place as usize]);
                        numbers[place as usize] = if exclusive { before } else { total };
                    }
                }
                Numbers::Whole(numbers) => {
                    let mut total = i128::from_scalar(reduction.identity(dtype));
                    for place in places {
                        let before = total;
                        total = total.combined(reduction, numbers[place as usize]);
                        numbers[place as usize] = if exclusive { before } else { total };
                    }
                }
            }
        }
        numbers.rounded_to(dtype)
    }

    fn store(&mut self, param: u32, value: ValueId, dtype: DType) -> Result<()> {
        let classes = self.kernel.params[param as usize].strides.iter().enumerate();
        let crossed = classes.filter(|(_, class)| **class != StrideClass::Zero);
        let space = crossed.fold(0, |set, (axis, _)| set | 1 << axis);
        let binding = &self.launch.bindings[param as usize];
        let places = self.offsets(space, &binding.strides, 0);
        let least = places.iter().copied().min().unwrap_or(0).min(0);
        // The source of each element: every place of a contiguous output is written once.
        let mut sources = alloc::vec![usize::MAX; places.len()];
        for (source, place) in places.iter().enumerate() {
            let slot = sources.get_mut((place - least) as usize).filter(|slot| **slot == usize::MAX);
            *slot.ok_or_else(|| {
                refused(format!("output {} is not written once at each place", binding.place))
            })? = source;
        }
        let sources: Vec<isize> = sources.into_iter().map(|source| source as isize).collect();
        let numbers = self.spread(value, space).pick(&sources);
        let place = binding.place;
        self.outputs.push((place, numbers.stored(dtype)));
        Ok(())
    }
}

impl Launch {
    /// Checks that extents and bindings match the kernel's axes and parameters, and strides their classes.
    pub(crate) fn fits(&self, kernel: &Kernel) -> core::result::Result<(), &'static str> {
        if self.extents.len() != kernel.axes.len() {
            return Err("the launch has another number of axes");
        }
        if self.bindings.len() != kernel.params.len() {
            return Err("the launch has another number of parameters");
        }
        for (number, (binding, param)) in self.bindings.iter().zip(&kernel.params).enumerate() {
            let is_everywhere = param.kind != ParamKind::Input || kernel.is_read_everywhere(number as u32);
            if binding.offset != 0 && is_everywhere {
                return Err("a parameter that is used at every point has an offset");
            }
            if param.kind == ParamKind::Number {
                continue;
            }
            if binding.strides.len() != kernel.axes.len() {
                return Err("a parameter is bound with another number of strides");
            }
            let agrees = |(&stride, &class): (&isize, &StrideClass)| match class {
                StrideClass::Zero => stride == 0,
                StrideClass::One => stride == 1,
                StrideClass::Any => true,
            };
            if !binding.strides.iter().zip(&param.strides).all(agrees) {
                return Err("a stride is not of its class");
            }
        }
        Ok(())
    }
}
