//! Block kernels: kernels written statement by statement, once for all vendors.
//!
//! A [`Kernel`](crate::Kernel) is a loop nest, which a planner builds from ops. Work that is no loop nest, such as a sort
//! or a write by index, is a [`BlockKernel`]: a program of the threads of a block, with loops, shared memory, barriers
//! and atomic operations. Rust code builds it, so dtypes and sizes are ordinary parameters of a function.
//! [`print::block`](crate::print::block()) prints it as CUDA, HIP or WGSL.
//!
//! ```
//! use kiln_ir::DType;
//! use kiln_kernel::block::{Builder, index};
//!
//! // y[p] = x[total - 1 - p]
//! let k = Builder::new("reverse", 256);
//! let (x, y) = (k.input("x", DType::F32), k.output("y", DType::F32));
//! let total = k.length("total");
//! k.for_points(&total, |p| k.store(&y, &p, &x.at(&(&total - index(1) - &p))));
//! let kernel = k.finish();
//! assert_eq!(kernel.params.len(), 3);
//! ```

mod builder;
mod cooperative;
mod expression;
mod visit;

pub use builder::{Array, Buffer, Builder, Variable};
pub use cooperative::{
    Cooperative, FactorTile, Matrix, MatrixMemory, MatrixPlace, MatrixRole, MatrixType, Packed, TileType,
};
pub use expression::{Expression, Function, Kind, Type, constant, index, select};

use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::DType;

/// The number of elements of a vector: see [`Statement::LoadVector`].
pub const LANES: usize = 4;

/// Whether elements of a dtype are read and written by vectors, in every language.
pub fn has_vectors(dtype: DType) -> bool {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U32 => true,
        DType::F64
        | DType::I64
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U16
        | DType::U8
        | DType::Bool => false,
    }
}

/// A kernel of statements that all threads of a block execute.
#[derive(Clone, Debug)]
pub struct BlockKernel {
    /// The name of the entry point is `kiln_` and this name.
    pub name: &'static str,
    /// Threads per block.
    pub threads: u32,
    /// The parameters, in the order in which a launch passes them.
    pub params: Vec<BlockParam>,
    /// The arrays in shared memory, by number.
    pub shared: Vec<ArrayType>,
    /// The tiles of cooperative matrices' factors in shared memory, by number.
    pub tiles: Vec<TileType>,
    /// The statements.
    pub body: Vec<Statement>,
}

/// A parameter of a block kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockParam {
    /// The name in the source.
    pub name: String,
    /// The role of the parameter.
    pub kind: BlockParamKind,
    /// The dtype of elements, or of the number. Lengths and flags have [`DType::U32`].
    pub dtype: DType,
}

/// The role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockParamKind {
    /// A tensor that is only read.
    Input,
    /// A tensor that is written. Its elements may also be read.
    Output,
    /// A tensor with atomic operations. Elements have 32 bits, or 64 where the device has such atomics.
    Atomic,
    /// The deferred bounds-check flag of a launch: 8 bytes, see [`Statement::Fail`].
    Flag,
    /// A number of that dtype, passed with each launch.
    Number,
    /// A length, as an index, passed with each launch.
    Length,
}

/// The element type and the length of an array in shared memory or of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// The type of elements.
    pub ty: Type,
    /// The number of elements.
    pub len: usize,
    /// Whether elements are changed by atomic operations. They then have 32 bits and are not stored otherwise, except by
    /// [`Statement::StoreShared`], which is an atomic store.
    pub is_atomic: bool,
}

/// A statement of a block kernel. Expressions are evaluated where the statement is executed.
#[derive(Clone, Debug)]
pub enum Statement {
    /// Defines an immutable value.
    Let(u32, Expression),
    /// Defines a mutable variable with its first value.
    Var(u32, Expression),
    /// Assigns to a mutable variable.
    Assign(u32, Expression),
    /// Defines an array of one thread, without values.
    Array(u32, ArrayType),
    /// Stores to an element of a tensor: parameter, index, value. The value has the parameter's dtype; a 16-bit float is
    /// rounded. Threads must not store different values to one element: in WGSL, elements of fewer than 32 bits could get
    /// a mixture of their bits.
    Store(u32, Expression, Expression),
    /// Stores to an element of an array in shared memory: array, index, value.
    StoreShared(u32, Expression, Expression),
    /// Stores to an element of an array of one thread: variable, index, value.
    StoreArray(u32, Expression, Expression),
    /// Defines [`LANES`] immutable values as the elements of a vector. A tensor with vectors has no other access; an array
    /// in shared memory may have. Their dtypes [have vectors](has_vectors).
    LoadVector {
        /// The memory.
        place: Place,
        /// The number of the vector: a tensor's first element and its number of elements are multiples of [`LANES`].
        at: Expression,
        /// Where it is false, the vector is not read, and the values are 0.
        condition: Option<Expression>,
        /// The first of the variables, which have successive numbers.
        first: u32,
    },
    /// Stores to the elements of a vector, see [`Statement::LoadVector`].
    StoreVector {
        /// The memory.
        place: Place,
        /// The number of the vector.
        at: Expression,
        /// The values, as of [`Statement::Store`].
        values: [Expression; LANES],
    },
    /// An atomic operation.
    Atomic {
        /// The element's place.
        place: Place,
        /// The index of the element.
        at: Expression,
        /// The operation.
        operation: Atomic,
        /// The operand.
        value: Expression,
        /// The variable that this statement defines as the element's value before.
        before: Option<u32>,
    },
    /// Reports an index out of range to a flag: flag parameter, index, and the number of the point, of which the lowest
    /// is kept. The upper 32 bits of the flag are `u32::MAX` minus the point, the lower ones the index, saturated to
    /// `i32`. If several points fail at once, the index may be that of another one in WGSL.
    Fail(u32, Expression, Expression),
    /// Executes the first statements where the condition is true, otherwise the second.
    If(Expression, Vec<Statement>, Vec<Statement>),
    /// A loop over an index: counter, start, exclusive end, step.
    For {
        /// The loop counter, an immutable index in the body.
        counter: u32,
        /// Start, exclusive end, and step.
        range: [Expression; 3],
        /// The body.
        body: Vec<Statement>,
    },
    /// Repeats the body while the condition is true.
    While(Expression, Vec<Statement>),
    /// Ends the innermost loop.
    Break,
    /// Starts the next iteration of the innermost loop.
    Continue,
    /// Waits for all threads of the block. Control flow around it must be uniform: conditions depend only on numbers,
    /// lengths, the block and loop counters of uniform ranges, not on the thread or on memory.
    Barrier,
    /// A statement about cooperative matrices.
    Cooperative(Cooperative),
}

/// The memory of an atomic operation or of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A parameter; of kind [`BlockParamKind::Atomic`] for atomic operations.
    Param(u32),
    /// An array in shared memory.
    Shared(u32),
}

/// An atomic operation with an operand of the element's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// Sum; integers wrap.
    Add,
    /// Product; integers wrap.
    Mul,
    /// Minimum, with NaN as in [`Binary::Min`](kiln_ir::Binary::Min).
    Min,
    /// Maximum, with NaN as in [`Binary::Max`](kiln_ir::Binary::Max).
    Max,
    /// Bitwise or of an integer.
    Or,
}
