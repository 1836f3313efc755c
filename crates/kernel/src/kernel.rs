//! The kernel IR: one fused loop nest.

use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, DType, Reduction, Scalar, Unary};

/// A loop nest over a body of scalar instructions. A value: two equal kernels print the same text and compile to the same
/// code.
///
/// The axes span an index space. The body is in static single assignment form: instruction `i` defines value `i`, a
/// number for each point of the index space along the axes that it [depends on](Kernel::dependence). A
/// [`Compute::Reduce`] combines its operand along all [`Axis::Reduce`] axes, and what it defines no longer depends on
/// them; other instructions may combine it again with values that do (a softmax does).
///
/// Values of 16-bit float dtypes are computed in `f32` and rounded where they are stored, and where a
/// [`Compute::Cast`] makes them, be it from the same dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The kind of loop nest, from which machines choose their schedule.
    pub kind: KernelKind,
    /// The axes, outermost first.
    pub axes: Vec<Axis>,
    /// Inputs, numbers and outputs, in the order in which a launch binds them.
    pub params: Vec<Param>,
    /// The instructions, each after those whose values it uses.
    pub body: Vec<Instruction>,
}

/// The kind of a kernel: map, reduction, scan or matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelKind {
    /// Each point on its own, along memory.
    Map,
    /// Each point on its own, but some parameter runs along memory on another axis than the results do.
    Transpose,
    /// Reductions along the innermost axes, whose results may be combined with the elements of the same row again.
    RowReduce,
    /// Reductions along outer axes, with an axis that is not reduced innermost.
    ColReduce,
    /// Reductions along all axes.
    FullReduce,
    /// Running reductions along the innermost axis.
    Scan,
    /// A sum of products of two values, each of which lacks an axis of the result: a matrix product. What leads to the
    /// factors is its prologue, what follows the sum its epilogue. The value is that of the sum.
    MatMul(ValueId),
}

/// The role of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Points along it are independent.
    Parallel,
    /// Reductions (and scans) run along it.
    Reduce,
}

/// An operand or a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// What it is for.
    pub kind: ParamKind,
    /// The dtype of its elements in memory.
    pub dtype: DType,
    /// How memory is crossed along each axis of the kernel; empty for numbers.
    pub strides: Vec<StrideClass>,
}

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParamKind {
    /// A tensor that is read.
    Input,
    /// A plain number, given with each launch.
    Number,
    /// A tensor that is written: each of its elements exactly once.
    Output,
}

/// What a kernel knows of a stride; the stride itself comes with the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StrideClass {
    /// The same element all along the axis.
    Zero,
    /// Neighbouring elements.
    One,
    /// Anything else, negative strides included.
    Any,
}

/// A value of the body, by the number of its instruction.
pub type ValueId = u32;

/// One instruction: what is computed, and the dtype of the value (for a [`Compute::Store`], of what is stored).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What is computed.
    pub compute: Compute,
    /// Of the value.
    pub dtype: DType,
}

/// The scalar alphabet. Functions mean what the ops of those names mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// The element of an input at this point.
    Load(u32),
    /// The element of an input at this point where the value (a `bool`) holds. Elsewhere 0, and memory is not touched: the
    /// parameter may lie outside of its elements there.
    LoadWhere(u32, ValueId),
    /// The number given for that parameter.
    Number(u32),
    /// A number known beforehand.
    Constant(Scalar),
    /// The index along an axis, as a number.
    Index(u32),
    /// A function of one value.
    Unary(Unary, ValueId),
    /// A function of two values of the same dtype.
    Binary(Binary, ValueId, ValueId),
    /// A comparison of two values of the same dtype: a `bool`.
    Compare(Comparison, ValueId, ValueId),
    /// The second value where the first (a `bool`) holds, otherwise the third.
    Select(ValueId, ValueId, ValueId),
    /// The value in the instruction's dtype. To a 16-bit float: rounded.
    Cast(ValueId),
    /// The value's bits as the instruction's dtype, of the same size. Neither is `bool` or a 16-bit float.
    Bitcast(ValueId),
    /// The value, combined along all [`Axis::Reduce`] axes. The value must not depend on another reduction's result in
    /// a kernel that is not a [`KernelKind::RowReduce`]. Over no elements: the reduction's identity.
    Reduce(Reduction, ValueId),
    /// The value, reduced along all [`Axis::Parallel`] axes: over rows. Only in a [`KernelKind::RowReduce`], and its operand must not
    /// depend on another such value. Values that depend on it change along reduced axes alone.
    ColumnReduce(Reduction, ValueId),
    /// The running reduction along the one [`Axis::Reduce`] axis.
    Scan {
        /// How elements combine.
        reduction: Reduction,
        /// From the last to the first.
        reverse: bool,
        /// Leaving the element itself out.
        exclusive: bool,
        /// What is combined.
        value: ValueId,
    },
    /// The first value, an integer, which must lie in `0..` the second (an integer that depends on no axis); where it does
    /// not, the launch fails with an index out of range, and what it wrote is not used.
    Checked(ValueId, ValueId),
    /// Writes a value to an output. It has no value of its own.
    Store(u32, ValueId),
}

impl Compute {
    /// The values that it uses, in order.
    pub fn operands(&self) -> smallvec::SmallVec<[ValueId; 3]> {
        use smallvec::smallvec;
        match *self {
            Compute::Load(_) | Compute::Number(_) | Compute::Constant(_) | Compute::Index(_) => smallvec![],
            Compute::LoadWhere(_, a)
            | Compute::Unary(_, a)
            | Compute::Cast(a)
            | Compute::Bitcast(a)
            | Compute::Reduce(_, a)
            | Compute::ColumnReduce(_, a)
            | Compute::Scan { value: a, .. }
            | Compute::Store(_, a) => smallvec![a],
            Compute::Binary(_, a, b) | Compute::Compare(_, a, b) | Compute::Checked(a, b) => smallvec![a, b],
            Compute::Select(a, b, c) => smallvec![a, b, c],
        }
    }

    /// The input that it reads, by any kind of load.
    pub fn load(&self) -> Option<u32> {
        if let Compute::Load(param) | Compute::LoadWhere(param, _) = *self { Some(param) } else { None }
    }

    /// The input that it reads at every point.
    pub fn plain_load(&self) -> Option<u32> {
        if let Compute::Load(param) = *self { Some(param) } else { None }
    }

    /// The parameter that it names, of any kind.
    pub fn param(&self) -> Option<u32> {
        if let Compute::Number(param) | Compute::Store(param, _) = *self { Some(param) } else { self.load() }
    }

    /// The output that it writes, and the value.
    pub fn store(&self) -> Option<(u32, ValueId)> {
        if let Compute::Store(param, value) = *self { Some((param, value)) } else { None }
    }

    /// How it combines a value along all reduced axes.
    pub fn reduction(&self) -> Option<(Reduction, ValueId)> {
        if let Compute::Reduce(reduction, value) = *self { Some((reduction, value)) } else { None }
    }

    /// Whether it combines a value along all reduced axes.
    pub fn is_reduction(&self) -> bool {
        self.reduction().is_some()
    }

    /// The reduction along all parallel axes and its operand, if the instruction is one.
    pub fn column_reduce(&self) -> Option<(Reduction, ValueId)> {
        if let Compute::ColumnReduce(reduction, value) = *self { Some((reduction, value)) } else { None }
    }

    /// Whether it is a running reduction.
    pub fn is_scan(&self) -> bool {
        matches!(self, Compute::Scan { .. })
    }
}

/// A set of axes of a kernel: bit `i` is axis `i`.
pub type AxisSet = u64;

impl Kernel {
    /// The axes along which each value changes: those that a load crosses with a stride other than 0, an index counts, or
    /// an operand depends on; less the reduced ones after a [`Compute::Reduce`], and the others after a
    /// [`Compute::ColumnReduce`]. A `Store` has those of what it stores.
    pub fn dependence(&self) -> Vec<AxisSet> {
        let mut sets: Vec<AxisSet> = Vec::with_capacity(self.body.len());
        for instruction in &self.body {
            let operands = instruction.compute.operands();
            let of_operands = operands.iter().fold(0, |set, &value| set | sets[value as usize]);
            sets.push(match instruction.compute {
                Compute::Index(axis) => 1 << axis,
                Compute::Reduce(..) => of_operands & !self.reduced(),
                Compute::ColumnReduce(..) => of_operands & self.reduced(),
                Compute::Scan { .. } => of_operands | self.reduced(),
                Compute::Load(param) | Compute::LoadWhere(param, _) => of_operands | self.crossed(param),
                Compute::Number(_)
                | Compute::Constant(_)
                | Compute::Unary(..)
                | Compute::Binary(..)
                | Compute::Compare(..)
                | Compute::Select(..)
                | Compute::Cast(_)
                | Compute::Bitcast(_)
                | Compute::Checked(..)
                | Compute::Store(..) => of_operands,
            });
        }
        sets
    }

    /// The reduced axes.
    pub fn reduced(&self) -> AxisSet {
        let reduce = self.axes.iter().enumerate().filter(|(_, axis)| **axis == Axis::Reduce);
        reduce.fold(0, |set, (i, _)| set | 1 << i)
    }

    /// All axes.
    pub fn all_axes(&self) -> AxisSet {
        (1 << self.axes.len()) - 1
    }

    /// The axes that a parameter crosses.
    pub fn crossed(&self, param: u32) -> AxisSet {
        let strides = self.params[param as usize].strides.iter().enumerate();
        strides.filter(|(_, class)| **class != StrideClass::Zero).fold(0, |set, (i, _)| set | 1 << i)
    }

    /// Whether the elements of an input are read at every point, so that all of them exist.
    pub fn is_read_everywhere(&self, param: u32) -> bool {
        self.body.iter().any(|instruction| instruction.compute.plain_load() == Some(param))
    }

    /// The stores, in order: their numbers, and the outputs that they write.
    pub fn stores(&self) -> impl Iterator<Item = (ValueId, u32)> + '_ {
        let all = self.body.iter().enumerate();
        all.filter_map(|(number, instruction)| Some((number as ValueId, instruction.compute.store()?.0)))
    }
}

/// The numbers that go with one run of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// The length of each axis.
    pub extents: Vec<usize>,
    /// Where each parameter lies; one for each, also for numbers.
    pub bindings: Vec<Binding>,
}

/// Where a parameter's elements lie, counted in elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Which operand (for inputs and numbers) or which result (for outputs) of the region it is.
    pub place: usize,
    /// Where the element at index 0 of each axis would lie, counted from the operand's first. Other than 0 only where the
    /// elements there are not read: see [`Compute::LoadWhere`].
    pub offset: isize,
    /// The step along each axis of the kernel; empty for numbers.
    pub strides: Vec<isize>,
}
