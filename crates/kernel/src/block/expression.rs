//! Expressions of block kernels: trees with a type, built by operators.

use crate::Compute;
use alloc::sync::Arc;
use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};
use kiln_ir::{Binary, Comparison, DType, Scalar, Unary};
use smallvec::{SmallVec, smallvec};

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// An index: a signed integer of 32 bits in WGSL, of 64 in C++. Division truncates; operands are not negative.
    Index,
    /// A value as kernels compute it: 16-bit floats are held in `f32`.
    Value(DType),
}

impl Type {
    /// The dtype of a value; [`DType::I32`] of an index.
    pub fn dtype(self) -> DType {
        match self {
            Type::Index => DType::I32,
            Type::Value(dtype) => dtype,
        }
    }
}

/// An expression without side effects. Clones share the tree, but its text is printed at each use:
/// [`bind`](super::Builder::bind) a value with several uses.
#[derive(Clone, Debug)]
pub struct Expression(Arc<Node>);

#[derive(Debug)]
struct Node {
    kind: Kind,
    ty: Type,
}

/// The operation of an expression.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An index literal.
    Index(i64),
    /// A literal of the expression's dtype.
    Constant(Scalar),
    /// A variable.
    Variable(u32),
    /// A parameter of kind number or length.
    Param(u32),
    /// The number of the thread in its block.
    Thread,
    /// The number of the block.
    Block,
    /// The number of blocks of the launch.
    Blocks,
    /// An element of a tensor: parameter and index.
    Load(u32, Expression),
    /// An element of an array in shared memory.
    LoadShared(u32, Expression),
    /// As `LoadShared`, of one element for all threads of the block, which makes control flow by it uniform. A barrier
    /// for all threads.
    LoadUniform(u32, Expression),
    /// An element of an array of one thread.
    LoadArray(u32, Expression),
    /// A function of operands.
    Call(Function, [Option<Expression>; 3]),
}

/// A function of an expression's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// A function with the semantics of the op. On indices: `Neg`, `Abs`, `Sign`, `Not`.
    Unary(Unary),
    /// As above. On indices all but `Atan2`; `Div` and `Rem` by zero are undefined there.
    Binary(Binary),
    /// A comparison; the result is a `bool`.
    Compare(Comparison),
    /// The second operand where the first is true, else the third. All operands may be evaluated.
    Select,
    /// Conversion to the type of the expression, of values and indices.
    Cast,
    /// The same bits as another dtype of the same size.
    Bitcast,
    /// The upper 32 bits of the product of two `u32`.
    MulHigh,
}

impl Expression {
    pub(super) fn new(kind: Kind, ty: Type) -> Expression {
        Expression(Arc::new(Node { kind, ty }))
    }

    /// The operation.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The type.
    pub fn ty(&self) -> Type {
        self.0.ty
    }

    /// The dtype of a value; [`DType::I32`] of an index.
    pub fn dtype(&self) -> DType {
        self.0.ty.dtype()
    }

    fn call(function: Function, operands: [Option<&Expression>; 3], ty: Type) -> Expression {
        Expression::new(Kind::Call(function, operands.map(|operand| operand.cloned())), ty)
    }

    /// A function of this value, with the semantics of the op.
    pub fn unary(&self, function: Unary) -> Expression {
        Expression::call(Function::Unary(function), [Some(self), None, None], self.ty())
    }

    /// A function of two values of the same type.
    ///
    /// # Panics
    /// When the types differ.
    pub fn binary(&self, function: Binary, other: &Expression) -> Expression {
        assert_eq!(
            self.ty(),
            other.ty(),
            "[block kernel] operands of {function:?} differ: {self:?}, {other:?}"
        );
        Expression::call(Function::Binary(function), [Some(self), Some(other), None], self.ty())
    }

    fn compare(&self, comparison: Comparison, other: &Expression) -> Expression {
        assert_eq!(
            self.ty(),
            other.ty(),
            "[block kernel] operands of {comparison:?} differ: {self:?}, {other:?}"
        );
        Expression::call(
            Function::Compare(comparison),
            [Some(self), Some(other), None],
            Type::Value(DType::Bool),
        )
    }

    /// Whether it is less than another.
    pub fn lt(&self, other: &Expression) -> Expression {
        self.compare(Comparison::Lt, other)
    }

    /// Whether it is at most another.
    pub fn le(&self, other: &Expression) -> Expression {
        self.compare(Comparison::Le, other)
    }

    /// Whether it is greater than another.
    pub fn gt(&self, other: &Expression) -> Expression {
        other.lt(self)
    }

    /// Whether it is at least another.
    pub fn ge(&self, other: &Expression) -> Expression {
        other.le(self)
    }

    /// Whether both are equal. NaN is not.
    pub fn eq(&self, other: &Expression) -> Expression {
        self.compare(Comparison::Eq, other)
    }

    /// Whether they differ. NaN does.
    pub fn ne(&self, other: &Expression) -> Expression {
        self.compare(Comparison::Ne, other)
    }

    /// The lesser of two; of NaN and a number, NaN.
    pub fn min(&self, other: &Expression) -> Expression {
        self.binary(Binary::Min, other)
    }

    /// The greater of two; of NaN and a number, NaN.
    pub fn max(&self, other: &Expression) -> Expression {
        self.binary(Binary::Max, other)
    }

    /// Conversion to a dtype, with the semantics of [`Op::Cast`](kiln_ir::Op::Cast). An index converts to an integer or
    /// to a float; bits beyond the dtype's are lost.
    pub fn cast(&self, dtype: DType) -> Expression {
        if self.ty() == Type::Value(dtype) {
            return self.clone();
        }
        Expression::call(Function::Cast, [Some(self), None, None], Type::Value(dtype))
    }

    /// An integer as an index. Integers that an index cannot hold saturate to its least and greatest value.
    pub fn to_index(&self) -> Expression {
        if self.ty() == Type::Index {
            return self.clone();
        }
        Expression::call(Function::Cast, [Some(self), None, None], Type::Index)
    }

    /// The same bits as another dtype of the same size. `bool` and 16-bit floats have no bits here.
    pub fn bitcast(&self, dtype: DType) -> Expression {
        Expression::call(Function::Bitcast, [Some(self), None, None], Type::Value(dtype))
    }

    /// The upper 32 bits of the product of two `u32`.
    pub fn mul_high(&self, other: &Expression) -> Expression {
        Expression::call(Function::MulHigh, [Some(self), Some(other), None], self.ty())
    }

    /// Bits shifted up by a constant count below the width.
    pub fn shl(&self, count: u32) -> Expression {
        self.binary(Binary::Shl, &self.of_count(count))
    }

    /// Bits shifted down by a constant count below the width.
    pub fn shr(&self, count: u32) -> Expression {
        self.binary(Binary::Shr, &self.of_count(count))
    }

    fn of_count(&self, count: u32) -> Expression {
        match self.ty() {
            Type::Index => index(count as usize),
            Type::Value(dtype) => constant(u64::from(count), dtype),
        }
    }

    /// The operands: indices of loads and operands of functions.
    pub fn operands(&self) -> SmallVec<[&Expression; 3]> {
        match self.kind() {
            Kind::Index(_)
            | Kind::Constant(_)
            | Kind::Variable(_)
            | Kind::Param(_)
            | Kind::Thread
            | Kind::Block
            | Kind::Blocks => SmallVec::new(),
            Kind::Load(_, at)
            | Kind::LoadShared(_, at)
            | Kind::LoadUniform(_, at)
            | Kind::LoadArray(_, at) => {
                smallvec![at]
            }
            Kind::Call(_, operands) => operands.iter().flatten().collect(),
        }
    }
}

/// An index literal.
pub fn index(value: usize) -> Expression {
    Expression::new(Kind::Index(value as i64), Type::Index)
}

/// A literal of that dtype.
pub fn constant(scalar: impl Into<Scalar>, dtype: DType) -> Expression {
    Expression::new(Kind::Constant(scalar.into()), Type::Value(dtype))
}

/// The first value where the condition is true, else the second. C++ evaluates only that one, WGSL both. A load of the
/// other one may have an index out of range: WGSL keeps it within the memory.
///
/// # Panics
/// When the types differ.
pub fn select(condition: &Expression, then: &Expression, otherwise: &Expression) -> Expression {
    assert_eq!(
        then.ty(),
        otherwise.ty(),
        "[block kernel] the branches of a selection differ: {then:?}, {otherwise:?}"
    );
    Expression::call(Function::Select, [Some(condition), Some(then), Some(otherwise)], then.ty())
}

impl Function {
    /// The scalar instruction with these semantics, whose operands are numbered 0, 1, 2. `None` for [`Function::MulHigh`].
    pub fn compute(self) -> Option<Compute> {
        Some(match self {
            Function::Unary(function) => Compute::Unary(function, 0),
            Function::Binary(function) => Compute::Binary(function, 0, 1),
            Function::Compare(comparison) => Compute::Compare(comparison, 0, 1),
            Function::Select => Compute::Select(0, 1, 2),
            Function::Cast => Compute::Cast(0),
            Function::Bitcast => Compute::Bitcast(0),
            Function::MulHigh => return None,
        })
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $binary:ident;)*) => {$(
        impl $trait<&Expression> for &Expression {
            type Output = Expression;
            fn $method(self, other: &Expression) -> Expression {
                self.binary(Binary::$binary, other)
            }
        }
        impl $trait<Expression> for &Expression {
            type Output = Expression;
            fn $method(self, other: Expression) -> Expression {
                self.binary(Binary::$binary, &other)
            }
        }
        impl $trait<&Expression> for Expression {
            type Output = Expression;
            fn $method(self, other: &Expression) -> Expression {
                self.binary(Binary::$binary, other)
            }
        }
        impl $trait<Expression> for Expression {
            type Output = Expression;
            fn $method(self, other: Expression) -> Expression {
                self.binary(Binary::$binary, &other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
}

impl Not for &Expression {
    type Output = Expression;
    fn not(self) -> Expression {
        self.unary(Unary::Not)
    }
}

impl Not for Expression {
    type Output = Expression;
    fn not(self) -> Expression {
        self.unary(Unary::Not)
    }
}

impl Neg for &Expression {
    type Output = Expression;
    fn neg(self) -> Expression {
        self.unary(Unary::Neg)
    }
}

impl Neg for Expression {
    type Output = Expression;
    fn neg(self) -> Expression {
        self.unary(Unary::Neg)
    }
}
