//! Operator overloading for ops: expansions and gradient rules as arithmetic.

use crate::infer::infer_unsized;
use crate::within::{Within, fail};
use crate::*;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops;
use smallvec::smallvec;

/// An operand bound to an engine, used to write expansions and gradient rules.
///
/// Methods infer the result types, execute the op and wrap the result. Operands are taken by reference, and a clone
/// shares the value. `&x + &y` and `x + y` both work; the latter lets the engine reuse memory. A number may be on either
/// side: `x * 0.5`, `1.0 - x`. Shapes broadcast by NumPy's rule. The test suite checks all rules, so an inference error in one is a bug of Kiln and panics. In the code
/// of a [custom op](CustomOp) the panic names that op and its operands.
#[derive(Clone)]
pub struct Var<'e> {
    engine: &'e dyn Engine,
    operand: Operand,
    within: Option<Arc<Within>>,
}

impl<'e> Var<'e> {
    /// Binds an operand to an engine.
    pub fn new(engine: &'e dyn Engine, operand: impl Into<Operand>) -> Var<'e> {
        Var { engine, operand: operand.into(), within: None }
    }

    /// The same operand, in the code of a custom op or (`None`) outside.
    pub(crate) fn in_code_of(self, within: Option<Arc<Within>>) -> Var<'e> {
        Var { within, ..self }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &'e dyn Engine {
        self.engine
    }

    /// Returns the operand.
    pub fn operand(&self) -> &Operand {
        &self.operand
    }

    /// Unwraps the operand.
    pub fn into_operand(self) -> Operand {
        self.operand
    }

    /// Returns the tensor.
    ///
    /// # Panics
    /// When the operand is a scalar.
    #[track_caller]
    pub fn into_value(self) -> Value {
        match self.operand {
            Operand::Value(value) => value,
            Operand::Scalar(scalar) => {
                fail(self.within.as_deref(), format!("expected a tensor, found the scalar {scalar}"))
            }
        }
    }

    /// Returns whether the operand is a plain number.
    pub fn is_scalar(&self) -> bool {
        self.operand.scalar().is_some()
    }

    /// Returns the type.
    ///
    /// # Panics
    /// When the operand is a scalar.
    #[track_caller]
    pub fn ty(&self) -> TensorType {
        match &self.operand {
            Operand::Value(value) => *value.ty(),
            Operand::Scalar(scalar) => {
                fail(self.within.as_deref(), format!("the scalar {scalar} has no type"))
            }
        }
    }

    /// Returns the shape. Panics for a scalar.
    #[track_caller]
    pub fn shape(&self) -> Shape {
        self.ty().shape
    }

    /// Returns the dtype. Panics for a scalar.
    #[track_caller]
    pub fn dtype(&self) -> DType {
        self.ty().dtype
    }

    /// Returns the number of axes. Panics for a scalar.
    #[track_caller]
    pub fn rank(&self) -> usize {
        self.ty().rank()
    }

    /// Runs an op on this engine; returns all its results.
    #[track_caller]
    pub fn emit(engine: &'e dyn Engine, op: &Op, inputs: Operands) -> Vec<Var<'e>> {
        Var::emit_within(engine, None, op, inputs)
    }

    #[track_caller]
    fn emit_within(
        engine: &'e dyn Engine,
        within: Option<Arc<Within>>,
        op: &Op,
        inputs: Operands,
    ) -> Vec<Var<'e>> {
        let inferred = infer(op, &OperandType::list(&inputs));
        let results = match inferred {
            Ok(types) => engine.execute(op, inputs, &types),
            Err(error) => match infer_unsized(op, &OperandType::list(&inputs)) {
                // An intermediate may be too large where operands and results are not.
                Ok(types) => poisoned(&types, &error),
                Err(_) => fail(within.as_deref(), error),
            },
        };
        let var = |value| Var { engine, operand: Operand::Value(value), within: within.clone() };
        results.into_iter().map(var).collect()
    }

    /// Runs an op with a single result.
    #[track_caller]
    pub fn apply(&self, op: Op, rest: &[&Var<'e>]) -> Var<'e> {
        self.clone().apply_owned(op, rest)
    }

    #[track_caller]
    fn apply_owned(self, op: Op, rest: &[&Var<'e>]) -> Var<'e> {
        let Var { engine, operand, mut within } = self;
        let mut inputs: Operands = smallvec![operand];
        for var in rest {
            inputs.push(var.operand.clone());
            within = within.or_else(|| var.within.clone());
        }
        Var::emit_within(engine, within, &op, inputs).remove(0)
    }

    /// Returns a plain number.
    pub fn scalar(&self, x: impl Into<Scalar>) -> Var<'e> {
        Var::new(self.engine, x.into()).in_code_of(self.within.clone())
    }

    /// Returns a tensor filled with a number.
    #[track_caller]
    pub fn full(engine: &'e dyn Engine, ty: TensorType, x: impl Into<Scalar>) -> Var<'e> {
        Var::emit(engine, &Op::Full(ty), smallvec![x.into().into()]).remove(0)
    }

    /// Returns a tensor of zeros (`false`) of that type.
    #[track_caller]
    pub fn zeros(engine: &'e dyn Engine, ty: TensorType) -> Var<'e> {
        let zero = if ty.dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(0) };
        Var::full(engine, ty, zero)
    }

    /// Returns indices along an axis; see [`Op::Iota`].
    #[track_caller]
    pub fn iota(engine: &'e dyn Engine, ty: TensorType, axis: usize) -> Var<'e> {
        Var::emit(engine, &Op::Iota { ty, axis }, smallvec![]).remove(0)
    }

    /// Emits [`Op::Binary`]; broadcasts.
    #[track_caller]
    pub fn binary(&self, function: Binary, other: &Var<'e>) -> Var<'e> {
        self.clone().binary_owned(function, other.clone())
    }

    #[track_caller]
    fn binary_owned(self, function: Binary, other: Var<'e>) -> Var<'e> {
        let (a, b) = together(self, other, function.name());
        let (engine, within) = (a.engine, a.within.or(b.within));
        Var::emit_within(engine, within, &Op::Binary(function), smallvec![a.operand, b.operand]).remove(0)
    }

    /// Emits [`Op::Compare`]; broadcasts. A plain number may be outside the range of the tensor's dtype.
    #[track_caller]
    pub fn compare(&self, comparison: Comparison, other: &Var<'e>) -> Var<'e> {
        let (mut a, mut b) = together(self.clone(), other.clone(), comparison.name());
        let mut comparison = comparison;
        match (&mut a.operand, &mut b.operand) {
            (Operand::Value(value), Operand::Scalar(number)) => {
                (comparison, *number) = comparison.bounded(*number, value.dtype(), false);
            }
            (Operand::Scalar(number), Operand::Value(value)) => {
                (comparison, *number) = comparison.bounded(*number, value.dtype(), true);
            }
            (Operand::Value(_), Operand::Value(_)) | (Operand::Scalar(_), Operand::Scalar(_)) => {}
        }
        a.apply_owned(Op::Compare(comparison), &[&b])
    }

    /// Computes `self == other`.
    #[track_caller]
    pub fn equal(&self, other: &Var<'e>) -> Var<'e> {
        self.compare(Comparison::Eq, other)
    }

    /// Computes `self < other`.
    #[track_caller]
    pub fn less(&self, other: &Var<'e>) -> Var<'e> {
        self.compare(Comparison::Lt, other)
    }

    /// Selects `a` where this `bool` is true, otherwise `b`; broadcasts.
    #[track_caller]
    pub fn select(&self, a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
        let mut shape = self.shape();
        for var in [a, b] {
            if let Operand::Value(value) = &var.operand {
                shape = self.broadcast_with(&shape, value.shape(), "select");
            }
        }
        let fit = |var: &Var<'e>| if var.is_scalar() { var.clone() } else { var.broadcast(shape) };
        fit(self).apply_owned(Op::Select, &[&fit(a), &fit(b)])
    }

    /// Emits [`Op::Cast`]; emits nothing if the dtype is right already.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Var<'e> {
        if self.is_scalar() || self.dtype() == dtype {
            self.clone()
        } else {
            self.apply(Op::Cast(dtype), &[])
        }
    }

    /// Emits [`Op::Reshape`]; emits nothing if the shape is right already.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Var<'e> {
        let shape = shape.into();
        if self.shape() == shape { self.clone() } else { self.apply(Op::Reshape(shape), &[]) }
    }

    /// Emits [`Op::Broadcast`]; emits nothing if the shape is right already.
    #[track_caller]
    pub fn broadcast(&self, shape: impl Into<Shape>) -> Var<'e> {
        let shape = shape.into();
        if self.shape() == shape { self.clone() } else { self.apply(Op::Broadcast(shape), &[]) }
    }

    /// Exchanges two axes.
    #[track_caller]
    pub fn swap(&self, a: usize, b: usize) -> Var<'e> {
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// Exchanges the last two axes.
    #[track_caller]
    pub fn transpose(&self) -> Var<'e> {
        self.swap(self.rank() - 2, self.rank() - 1)
    }

    /// Returns a range of one axis.
    #[track_caller]
    pub fn slice_axis(&self, axis: usize, slice: SliceAxis) -> Var<'e> {
        let mut slices: Vec<SliceAxis> = self.shape().iter().map(|&len| SliceAxis::all(len)).collect();
        slices[axis] = slice;
        self.slice(slices)
    }

    /// Computes the elements of one axis in reverse order.
    #[track_caller]
    pub fn flip(&self, axis: usize) -> Var<'e> {
        let len = self.shape()[axis];
        self.slice_axis(axis, SliceAxis { start: len.saturating_sub(1), len, step: -1 })
    }

    /// Emits [`Op::Pad`].
    #[track_caller]
    pub fn pad(&self, pads: Vec<PadAxis>, x: impl Into<Scalar>) -> Var<'e> {
        self.apply(Op::Pad(pads), &[&self.scalar(x)])
    }

    /// Emits [`Op::Concat`].
    #[track_caller]
    pub fn concat(vars: &[Var<'e>], axis: usize) -> Var<'e> {
        let rest: Vec<&Var<'e>> = vars[1..].iter().collect();
        vars[0].apply(Op::Concat { axis }, &rest)
    }

    /// Emits [`Op::Reduce`]; reduced axes keep length 1. Emits nothing without axes.
    #[track_caller]
    pub fn reduce(&self, reduction: Reduction, axes: &[usize]) -> Var<'e> {
        if axes.is_empty() {
            return self.clone();
        }
        self.apply(Op::Reduce { reduction, axes: Axes::new(axes) }, &[])
    }

    /// Computes the sum along axes, which keep length 1.
    #[track_caller]
    pub fn sum(&self, axes: &[usize]) -> Var<'e> {
        self.reduce(Reduction::Sum, axes)
    }

    /// Computes the mean along axes, which keep length 1. 32-bit and 64-bit floats are multiplied by the reciprocal of
    /// the count, which takes one instruction where a division takes ten. 16-bit floats and integers are divided.
    #[track_caller]
    pub fn mean(&self, axes: &[usize]) -> Var<'e> {
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        let is_wide = self.dtype().is_float() && self.dtype().size() >= 4;
        if is_wide { self.sum(axes) * (1.0 / count as f64) } else { self.sum(axes) / count as f64 }
    }

    /// Sums over the dims that broadcasting from `shape` repeated: the gradient of [`broadcast`](Var::broadcast) from
    /// `shape`.
    #[track_caller]
    pub fn sum_to(&self, shape: impl Into<Shape>) -> Var<'e> {
        let shape = shape.into();
        let extra = self.rank() - shape.rank();
        let here = self.shape();
        let repeated = |axis: &usize| *axis < extra || (shape[*axis - extra] == 1 && here[*axis] != 1);
        let axes: Vec<usize> = (0..self.rank()).filter(repeated).collect();
        self.sum(&axes).reshape(shape)
    }

    /// Emits [`Op::MatMul`]; the axes before the last two broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Var<'e>) -> Var<'e> {
        let (a, b) = (self.shape(), other.shape());
        let (Some(m), Some(n)) = (a.rank().checked_sub(2), b.rank().checked_sub(2)) else {
            return self.clone().apply_owned(Op::MatMul, &[other]);
        };
        let batch = self.broadcast_with(&a[..m].into(), &b[..n].into(), "matmul");
        let fit = |var: &Var<'e>, last: &[usize]| {
            var.broadcast(batch.iter().chain(last).copied().collect::<Shape>())
        };
        fit(self, &a[m..]).apply_owned(Op::MatMul, &[&fit(other, &b[n..])])
    }

    /// Computes `self * self`.
    #[track_caller]
    pub fn square(&self) -> Var<'e> {
        self * self
    }

    /// Computes the upper and the lower halves of the products of `u32` or `u64` elements with a number of their dtype:
    /// 64 or 128 bits.
    #[track_caller]
    pub fn mul_wide(&self, factor: u64) -> (Var<'e>, Var<'e>) {
        let times = |x: &Var<'e>, y: u64| x.binary(Binary::Mul, &x.scalar(y));
        let upper = |x: &Var<'e>, bits: usize| x.binary(Binary::Shr, &x.scalar(bits));
        let plus = |a: &Var<'e>, b: &Var<'e>| a.binary(Binary::Add, b);
        let low = times(self, factor);
        if self.dtype() == DType::U32 && self.engine().caps().dtypes.contains(DType::U64) {
            return (upper(&times(&self.cast(DType::U64), factor), 32).cast(DType::U32), low);
        }
        // In limbs of half the bits: no product or sum below exceeds the bits of the dtype.
        let bits = 4 * self.dtype().size();
        let mask = (1_u64 << bits) - 1;
        let bottom = |x: &Var<'e>| x.binary(Binary::And, &x.scalar(mask));
        let (x_low, x_high) = (bottom(self), upper(self, bits));
        let (y_low, y_high) = (factor & mask, factor >> bits);
        let middle = plus(&times(&x_high, y_low), &upper(&times(&x_low, y_low), bits));
        let carry = plus(&times(&x_low, y_high), &bottom(&middle));
        (plus(&plus(&times(&x_high, y_high), &upper(&middle, bits)), &upper(&carry, bits)), low)
    }
}

impl Var<'_> {
    /// The common broadcast shape.
    #[track_caller]
    fn broadcast_with(&self, a: &Shape, b: &Shape, op: &str) -> Shape {
        infer::broadcast_shapes(a, b).unwrap_or_else(|| {
            fail(self.within.as_deref(), format!("[{op}] shapes do not broadcast: {a} x {b}"))
        })
    }
}

/// Broadcasts two operands of an op to their common shape.
#[track_caller]
fn together<'e>(a: Var<'e>, b: Var<'e>, op: &str) -> (Var<'e>, Var<'e>) {
    let (Operand::Value(left), Operand::Value(right)) = (&a.operand, &b.operand) else { return (a, b) };
    if left.shape() == right.shape() {
        return (a, b);
    }
    let is_inside = if a.within.is_some() { &a } else { &b };
    let shape = is_inside.broadcast_with(left.shape(), right.shape(), op);
    (a.broadcast(shape), b.broadcast(shape))
}

macro_rules! op_methods {
    ($($(#[$doc:meta])* $method:ident($($argument:ident: $ty:ty),*) => $op:expr, [$($operand:ident),*];)*) => {
        impl<'e> Var<'e> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self, $($argument: $ty),*) -> Var<'e> {
                self.apply($op, &[$($operand),*])
            }
        )*}
    };
}

op_methods! {
    /// Emits [`Op::Permute`].
    permute(axes: &[usize]) => Op::Permute(Axes::new(axes)), [];

    /// Emits [`Op::Slice`]: a range of each axis.
    slice(slices: Vec<SliceAxis>) => Op::Slice(slices), [];

    /// Emits [`Op::Windows`].
    windows(axis: usize, size: usize, step: usize, dilation: usize) =>
        Op::Windows { axis, size, step, dilation }, [];

    /// Emits [`Op::Scan`].
    scan(reduction: Reduction, axis: usize, reverse: bool, exclusive: bool) =>
        Op::Scan { reduction, axis, reverse, exclusive }, [];

    /// Emits [`Op::Take`].
    take(axis: usize, index: &Var<'e>) => Op::Take { axis }, [index];

    /// Emits [`Op::Gather`].
    gather(axis: usize, index: &Var<'e>) => Op::Gather { axis }, [index];

    /// Emits [`Op::Put`].
    put(axis: usize, mode: UpdateMode, index: &Var<'e>, source: &Var<'e>) =>
        Op::Put { axis, mode }, [index, source];

    /// Emits [`Op::Scatter`].
    scatter(axis: usize, mode: UpdateMode, index: &Var<'e>, source: &Var<'e>) =>
        Op::Scatter { axis, mode }, [index, source];

    /// Emits [`Op::Unary`].
    unary(function: Unary) => Op::Unary(function), [];
}

macro_rules! function_methods {
    ($enum:ident $apply:ident $others:tt: $($method:ident $function:ident;)*) => {
        $(function_methods! { @method $enum $apply $others $method $function })*
    };
    (@method $enum:ident $apply:ident ($($other:ident)?) $method:ident $function:ident) => {
        impl<'e> Var<'e> {
            #[doc = concat!("Emits [`", stringify!($enum), "::", stringify!($function), "`].")]
            #[track_caller]
            pub fn $method(&self $(, $other: &Var<'e>)?) -> Var<'e> {
                self.$apply($enum::$function $(, $other)?)
            }
        }
    };
}

function_methods! {
    Binary binary(other):
    pow Pow; min Min; max Max; and And; or Or;
}

function_methods! {
    Unary unary():
    neg Neg; abs Abs; sign Sign; recip Recip; sqrt Sqrt; rsqrt Rsqrt; exp Exp; expm1 Expm1; ln Ln;
    log1p Log1p; sin Sin; cos Cos; tan Tan; tanh Tanh; atan Atan; erf Erf; floor Floor; ceil Ceil;
    round Round; trunc Trunc; not Not;
}

/// A number on the right of an operator of [`Var`]: `f64` or `f32`. It takes the dtype of the tensor. On the left only
/// `f64` is accepted: with more than one type there, the compiler could not infer the type of `(1.0 - x).exp()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number that operators of `Var` accept",
    note = "write `f64` or `f32`, or make it an operand with `Var::scalar`"
)]
pub trait VarNumber: Into<Scalar> {}

impl VarNumber for f64 {}
impl VarNumber for f32 {}

macro_rules! operators {
    ($($trait:ident $method:ident $function:ident;)*) => {$(
        impl<'e> ops::$trait<&Var<'e>> for &Var<'e> {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: &Var<'e>) -> Var<'e> {
                self.binary(Binary::$function, other)
            }
        }

        impl<'e> ops::$trait<Var<'e>> for Var<'e> {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: Var<'e>) -> Var<'e> {
                self.binary_owned(Binary::$function, other)
            }
        }

        impl<'e> ops::$trait<&Var<'e>> for Var<'e> {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: &Var<'e>) -> Var<'e> {
                self.binary_owned(Binary::$function, other.clone())
            }
        }

        impl<'e> ops::$trait<Var<'e>> for &Var<'e> {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: Var<'e>) -> Var<'e> {
                self.clone().binary_owned(Binary::$function, other)
            }
        }

        impl<'e, N: VarNumber> ops::$trait<N> for &Var<'e> {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: N) -> Var<'e> {
                self.binary(Binary::$function, &self.scalar(other))
            }
        }

        impl<'e, N: VarNumber> ops::$trait<N> for Var<'e> {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: N) -> Var<'e> {
                let other = self.scalar(other);
                self.binary_owned(Binary::$function, other)
            }
        }

        impl<'e> ops::$trait<&Var<'e>> for f64 {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: &Var<'e>) -> Var<'e> {
                other.scalar(self).binary_owned(Binary::$function, other.clone())
            }
        }

        impl<'e> ops::$trait<Var<'e>> for f64 {
            type Output = Var<'e>;
            #[track_caller]
            fn $method(self, other: Var<'e>) -> Var<'e> {
                other.scalar(self).binary_owned(Binary::$function, other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}

impl<'e> ops::Neg for &Var<'e> {
    type Output = Var<'e>;
    #[track_caller]
    fn neg(self) -> Var<'e> {
        self.unary(Unary::Neg)
    }
}

impl<'e> ops::Neg for Var<'e> {
    type Output = Var<'e>;
    #[track_caller]
    fn neg(self) -> Var<'e> {
        self.apply_owned(Op::Unary(Unary::Neg), &[])
    }
}
