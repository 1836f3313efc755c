//! The kernel IR: one fused loop nest.

use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, DType, Reduction, Scalar, Unary};

/// A loop nest over a body of scalar instructions. Equal kernels print the same text and compile to the same code.
///
/// The axes span an index space. The body is in static single assignment (SSA) form: instruction `i` defines value `i`.
/// A value has an element for each point along the axes that it [depends on](Kernel::dependence). A [`Compute::Reduce`]
/// reduces its operand along all [`Axis::Reduce`] axes, and its value does not depend on them. Other instructions may
/// combine that value again with values that do, as softmax does.
///
/// Values of 16-bit float dtypes are computed in `f32`. They are rounded where they are stored, and by each
/// [`Compute::Cast`], even one from the same dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The kind of loop nest, from which machines choose their schedule.
    pub kind: KernelKind,
    /// The axes, outermost first.
    pub axes: Vec<Axis>,
    /// Inputs, numbers and outputs, in the order in which a launch binds them.
    pub params: Vec<Param>,
    /// The instructions, in topological order.
    pub body: Vec<Instruction>,
}

/// The kind of a kernel: map, reduction, scan or matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelKind {
    /// Elementwise: points are independent.
    Map,
    /// Elementwise, with a parameter that is contiguous along another axis than the results.
    Transpose,
    /// Reductions along the innermost axes. The results may be combined with the elements of the same row again.
    RowReduce,
    /// Reductions along outer axes; the innermost axis is not reduced.
    ColReduce,
    /// Reductions along all axes.
    FullReduce,
    /// Scans along the innermost axis.
    Scan,
    /// A matmul: a sum of products of two values, each of which lacks an axis of the result. The ops before the factors
    /// are its prologue, the ops after the sum its epilogue. The [`ValueId`] is that of the sum.
    MatMul(ValueId),
}

/// The role of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Points along the axis are independent.
    Parallel,
    /// The axis is reduced or scanned.
    Reduce,
}

/// An operand or a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// The role of the parameter.
    pub kind: ParamKind,
    /// The dtype of its elements in memory.
    pub dtype: DType,
    /// The stride class for each axis of the kernel; empty for numbers.
    pub strides: Vec<StrideClass>,
}

/// The role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParamKind {
    /// A tensor that the kernel reads.
    Input,
    /// A scalar, passed with each launch.
    Number,
    /// A tensor that the kernel writes, each element exactly once.
    Output,
}

/// The class of a stride, known at compile time. The launch passes the stride itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StrideClass {
    /// Stride 0: broadcast along the axis.
    Zero,
    /// Stride 1: contiguous elements.
    One,
    /// Any other stride, including negative ones.
    Any,
}

/// A value of the body, by the index of its instruction.
pub type ValueId = u32;

/// One instruction: the operation, and the dtype of the value (of the stored value for a [`Compute::Store`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The operation.
    pub compute: Compute,
    /// The dtype of the result.
    pub dtype: DType,
}

/// The scalar instruction set. Functions have the semantics of the ops with the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// The element of an input at this point.
    Load(u32),
    /// The element of an input at this point where the value (a `bool`) is true. Elsewhere 0, without a memory access,
    /// since the address may be out of bounds.
    LoadWhere(u32, ValueId),
    /// The element of an input at this point, moved by an offset, where a condition is true. Elsewhere 0, without a
    /// memory access. The input has no stride along the axis of its tensor that the offset moves along.
    LoadAt {
        /// The input.
        param: u32,
        /// The offset, in elements: a signed integer of 32 or 64 bits, which can represent the span of the tensor.
        offset: ValueId,
        /// The condition, a `bool`.
        condition: ValueId,
    },
    /// The plain number that the launch passes for that parameter.
    Number(u32),
    /// A constant.
    Constant(Scalar),
    /// The index along an axis, as a value.
    Index(u32),
    /// A function of one value.
    Unary(Unary, ValueId),
    /// A function of two values of the same dtype.
    Binary(Binary, ValueId, ValueId),
    /// A comparison of two values of the same dtype: a `bool`.
    Compare(Comparison, ValueId, ValueId),
    /// The second value where the first (a `bool`) is true, otherwise the third.
    Select(ValueId, ValueId, ValueId),
    /// The value converted to the instruction's dtype, rounded to a 16-bit float.
    Cast(ValueId),
    /// The value's bits reinterpreted as the instruction's dtype, of the same size. Neither is `bool` or a 16-bit
    /// float.
    Bitcast(ValueId),
    /// The value, reduced along all [`Axis::Reduce`] axes. The value must not depend on another reduction's result in a
    /// kernel that is not a [`KernelKind::RowReduce`]. Over no elements: the reduction's identity.
    Reduce(Reduction, ValueId),
    /// The value, reduced along all [`Axis::Parallel`] axes: over rows. Only in a [`KernelKind::RowReduce`]. Its
    /// operand must not depend on another such value. Values that depend on it change along reduced axes alone.
    ColumnReduce(Reduction, ValueId),
    /// The scan along the one [`Axis::Reduce`] axis.
    Scan {
        /// The reduction operator.
        reduction: Reduction,
        /// Whether the scan runs from the last element to the first.
        reverse: bool,
        /// Whether the scan is exclusive.
        exclusive: bool,
        /// The reduced value.
        value: ValueId,
    },
    /// The first value, an integer, checked against `0..` the second (an integer that depends on no axis). Otherwise
    /// the launch fails with an index out of range, and its results are not used.
    Checked(ValueId, ValueId),
    /// Stores a value to an output. It defines no value.
    Store(u32, ValueId),
}

impl Compute {
    /// The operand values, in order.
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
            Compute::Binary(_, a, b)
            | Compute::Compare(_, a, b)
            | Compute::Checked(a, b)
            | Compute::LoadAt { offset: a, condition: b, .. } => smallvec![a, b],
            Compute::Select(a, b, c) => smallvec![a, b, c],
        }
    }

    /// The input that it loads, by any kind of load.
    pub fn load(&self) -> Option<u32> {
        if let Compute::Load(param) | Compute::LoadWhere(param, _) | Compute::LoadAt { param, .. } = *self {
            Some(param)
        } else {
            None
        }
    }

    /// The input that it loads unconditionally.
    pub fn plain_load(&self) -> Option<u32> {
        if let Compute::Load(param) = *self { Some(param) } else { None }
    }

    /// The parameter that it accesses.
    pub fn param(&self) -> Option<u32> {
        if let Compute::Number(param) | Compute::Store(param, _) = *self { Some(param) } else { self.load() }
    }

    /// The stored output and the value, if it is a store.
    pub fn store(&self) -> Option<(u32, ValueId)> {
        if let Compute::Store(param, value) = *self { Some((param, value)) } else { None }
    }

    /// The reduction along the reduced axes and its operand, if the instruction is one.
    pub fn reduction(&self) -> Option<(Reduction, ValueId)> {
        if let Compute::Reduce(reduction, value) = *self { Some((reduction, value)) } else { None }
    }

    /// Whether it is a reduction along the reduced axes.
    pub fn is_reduction(&self) -> bool {
        self.reduction().is_some()
    }

    /// The reduction along the parallel axes and its operand, if the instruction is one.
    pub fn column_reduce(&self) -> Option<(Reduction, ValueId)> {
        if let Compute::ColumnReduce(reduction, value) = *self { Some((reduction, value)) } else { None }
    }

    /// Whether it is a scan.
    pub fn is_scan(&self) -> bool {
        matches!(self, Compute::Scan { .. })
    }
}

/// A set of axes of a kernel: bit `i` is axis `i`.
pub type AxisSet = u64;

impl Kernel {
    /// The axes along which each value changes: those with a nonzero stride of a load, the axis of an index, and those
    /// of operands. A [`Compute::Reduce`] removes the reduced axes, a [`Compute::ColumnReduce`] the others. A `Store`
    /// has the axes of the stored value.
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
                Compute::Load(param) | Compute::LoadWhere(param, _) | Compute::LoadAt { param, .. } => {
                    of_operands | self.crossed(param)
                }
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

    /// The axes along which a parameter has a nonzero stride.
    pub fn crossed(&self, param: u32) -> AxisSet {
        let strides = self.params[param as usize].strides.iter().enumerate();
        strides.filter(|(_, class)| **class != StrideClass::Zero).fold(0, |set, (i, _)| set | 1 << i)
    }

    /// Whether an input is loaded unconditionally, so that all of its elements exist.
    pub fn is_read_everywhere(&self, param: u32) -> bool {
        self.body.iter().any(|instruction| instruction.compute.plain_load() == Some(param))
    }

    /// The stores in order: instruction and output parameter.
    pub fn stores(&self) -> impl Iterator<Item = (ValueId, u32)> + '_ {
        let all = self.body.iter().enumerate();
        all.filter_map(|(number, instruction)| Some((number as ValueId, instruction.compute.store()?.0)))
    }
}

/// The extents and strides of one launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// The length of each axis.
    pub extents: Vec<usize>,
    /// The binding of each parameter, also for numbers.
    pub bindings: Vec<Binding>,
}

/// The address of a parameter's elements, in elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The index of the operand (for inputs and numbers) or of the result (for outputs) in the region.
    pub place: usize,
    /// The offset of the element at index 0 of each axis from the operand's first element. It is nonzero only where the
    /// elements in between are not read: see [`Compute::LoadWhere`].
    pub offset: isize,
    /// The stride along each axis of the kernel; empty for numbers.
    pub strides: Vec<isize>,
}
