//! Gradient rules: for each op, the gradients of its operands in terms of ops.
//!
//! A rule computes a *vector-Jacobian product*: the gradients of an op's operands from the gradients of its results.
//! Rules are written with [`Var`], so they emit ops that are differentiable again: higher-order gradients need no
//! further rules.
//!
//! At a kink, the rules follow common conventions: `abs'(0) = 0`, and ties of a minimum or maximum share the gradient
//! evenly. With a plain number the gradient passes only on the strict side, so `relu'(0) = 0`. An extreme that is NaN
//! passes its gradient to the elements that are NaN.

mod attention;
mod collective;
mod composite;
mod contraction;
mod elementwise;
pub(crate) mod gradient;
mod index;
pub(crate) mod linearity;
mod loops;
mod program;
mod reduce;
pub(crate) mod saved;
mod sum;
mod view;

pub use gradient::{Gradient, gradient_of};
pub use program::{differentiate, gradient_program};
pub use saved::{Saved, SavedOf, saved};
pub use sum::GradientSum;

use crate::{Comparison, Engine, Error, Op, Operand, Result, Value, Var};
use alloc::format;
use alloc::vec::Vec;
use index::Places;

/// Computes the vector-Jacobian product of an op: the gradients of its operands, given those of its results.
///
/// `gradients` has an entry per result, `None` where the gradient is zero. `wanted` and the returned list have one per
/// operand. An entry of the returned list is `None` for a gradient that is not wanted or zero everywhere, and for plain
/// numbers. Of the operands and results, only those named by [`saved`] need data; the types of the others suffice
/// ([`Value::absent`](crate::Value::absent)).
///
/// # Errors
/// When the op has no gradient; the message names the op and suggests an alternative.
///
/// # Panics
/// When the lengths of the lists do not match the op.
pub fn vjp<'e>(
    op: &Op,
    inputs: &[Var<'e>],
    outputs: &[Var<'e>],
    gradients: &[Option<Var<'e>>],
    wanted: &[bool],
) -> Result<Vec<Option<Var<'e>>>> {
    assert_eq!(inputs.len(), wanted.len(), "[{}] one entry of `wanted` per operand", op.name());
    assert_eq!(outputs.len(), gradients.len(), "[{}] one gradient per result", op.name());
    let rule = Rule { op, inputs, outputs, gradients, wanted };
    if gradients.iter().all(Option::is_none) || !wanted.contains(&true) {
        return Ok(rule.zero());
    }
    match gradient_of(op) {
        Gradient::Rule => rule.apply(),
        Gradient::Expansion => rule.through_expansion(),
        Gradient::Constant => Ok(rule.zero()),
        Gradient::Undefined(hint) => Err(rule.undefined().hint(hint)),
    }
}

/// The gradients of operands, in order.
type Gradients<'e> = Vec<Option<Var<'e>>>;

/// An op with all inputs of its gradient rule.
#[derive(Clone, Copy)]
struct Rule<'a, 'e> {
    op: &'a Op,
    inputs: &'a [Var<'e>],
    outputs: &'a [Var<'e>],
    gradients: &'a [Option<Var<'e>>],
    wanted: &'a [bool],
}

impl<'a, 'e> Rule<'a, 'e> {
    fn apply(&self) -> Result<Gradients<'e>> {
        Ok(match self.op {
            Op::Unary(function) => self.unary(*function),
            Op::Binary(function) => self.binary(*function),
            Op::Select => self.select(),
            Op::Cast(_) => self.linear(|g, x| g.cast(x.dtype())),
            Op::Reshape(_) => self.linear(|g, x| g.reshape(x.shape())),
            Op::Permute(axes) => self.linear(|g, _| g.permute(&axes.inverse().to_vec())),
            Op::Broadcast(_) => self.linear(|g, x| g.sum_to(x.shape())),
            Op::Slice(slices) => self.linear(|g, x| view::unslice(g, slices, x.shape())),
            Op::Pad(pads) => self.pad(pads),
            Op::Concat { axis } => self.concat(*axis),
            Op::Windows { axis, step, dilation, .. } => {
                self.linear(|g, x| view::fold(g, x.shape(), *axis, *step, *dilation))
            }
            Op::Copy => self.linear(|g, _| g.clone()),
            Op::Reduce { reduction, axes } => self.reduce(*reduction, axes),
            Op::Scan { reduction, axis, reverse, exclusive } => {
                self.scan(*reduction, *axis, *reverse, *exclusive)
            }
            Op::Sort { axis, .. } | Op::TopK { axis, .. } => self.sort(*axis),
            Op::Take { axis } => self.read(index::Places::Put { axis: *axis, index: self.x(1) }),
            Op::Gather { axis } => self.read(index::Places::Scatter { axis: *axis, index: self.x(1) }),
            Op::Put { axis, mode } => self.write(index::Places::Put { axis: *axis, index: self.x(1) }, *mode),
            Op::Scatter { axis, mode } => {
                self.write(index::Places::Scatter { axis: *axis, index: self.x(1) }, *mode)
            }
            Op::SliceUpdate { slices, mode } => self.write(index::Places::Slices(slices), *mode),
            Op::MatMul => self.matmul(),
            Op::MatMulBlocks { format } => self.matmul_blocks(*format),
            Op::Conv { spec, pass } => self.conv(spec, pass),
            Op::Pool(spec) => self.pool(spec),
            Op::PoolGrad { spec, .. } => self.pool_grad(spec),
            Op::Softmax { axis, log } => self.softmax(*axis, *log),
            Op::LogSumExp { .. } => self.log_sum_exp(),
            Op::Norm { kind, axes, epsilon } => self.norm(*kind, *axes, epsilon.0),
            Op::Attention(spec) => self.attention(*spec),
            Op::Fft { kind, axis, inverse } => self.fft(*kind, *axis, *inverse),
            Op::Dequantize => self.dequantize(),
            Op::Collective(collective) => self.collective(*collective),
            Op::Loop(op) => return self.looped(op),
            Op::Custom(op) => match op.vjp(self.inputs, self.outputs, self.gradients) {
                Some(gradients) => self.checked(gradients?)?,
                None => return self.through_expansion(),
            },
            Op::Full(_)
            | Op::Iota { .. }
            | Op::Random { .. }
            | Op::Compare(_)
            | Op::Bitcast(_)
            | Op::ArgReduce { .. }
            | Op::NonZero { .. }
            | Op::CheckIndex { .. }
            | Op::Recover { .. }
            | Op::AttentionGrad(_)
            | Op::Resize { .. }
            | Op::Quantize { .. }
            | Op::MatMulFloat8 { .. }
            | Op::DequantizeBlocks { .. }
            | Op::Fused(_) => return Err(self.undefined()),
        })
    }

    /// The gradient of the only result.
    fn g(&self) -> &'a Var<'e> {
        match self.gradients.first() {
            Some(Some(gradient)) => gradient,
            Some(None) | None => panic!("[{}] the result has no gradient", self.op.name()),
        }
    }

    /// The gradient of a result; zeros if there is none.
    fn gradient_or_zeros(&self, place: usize) -> Var<'e> {
        let zeros = || Var::zeros(self.engine(), self.outputs[place].ty());
        self.gradients[place].clone().unwrap_or_else(zeros)
    }

    fn x(&self, place: usize) -> &'a Var<'e> {
        &self.inputs[place]
    }

    fn y(&self) -> &'a Var<'e> {
        &self.outputs[0]
    }

    fn engine(&self) -> &'e dyn Engine {
        self.inputs[0].engine()
    }

    fn zero(&self) -> Gradients<'e> {
        self.inputs.iter().map(|_| None).collect()
    }

    /// The gradients of an op whose first operand alone has one.
    fn linear(&self, rule: impl FnOnce(&Var<'e>, &Var<'e>) -> Var<'e>) -> Gradients<'e> {
        let mut gradients = self.zero();
        if self.wanted[0] {
            gradients[0] = Some(rule(self.g(), self.x(0)));
        }
        gradients
    }

    /// The gradients of a binary op; computes only the wanted ones.
    fn two(&self, a: impl FnOnce() -> Var<'e>, b: impl FnOnce() -> Var<'e>) -> Gradients<'e> {
        alloc::vec![self.wanted[0].then(a), self.wanted[1].then(b)]
    }

    fn undefined(&self) -> Error {
        Error::gradient(self.op.name(), "has no gradient")
    }

    /// The gradients of a custom op, after checking that they have the types of the operands.
    fn checked(&self, mut gradients: Gradients<'e>) -> Result<Gradients<'e>> {
        if gradients.len() != self.inputs.len() {
            let problem =
                format!("its rule returns {} gradients for {} operands", gradients.len(), self.inputs.len());
            return Err(Error::gradient(self.op.name(), problem).hint("return one entry per operand"));
        }
        for (place, gradient) in gradients.iter_mut().enumerate() {
            let (Some(g), Operand::Value(x)) = (gradient.as_ref(), self.inputs[place].operand()) else {
                *gradient = None;
                continue;
            };
            if !self.wanted[place] {
                *gradient = None;
            } else if g.is_scalar() || g.ty() != *x.ty() {
                let problem =
                    format!("its rule returns {} for operand {place} of {}", g.operand().ty(), x.ty());
                return Err(Error::gradient(self.op.name(), problem)
                    .hint("the gradient of an operand has the operand's type"));
            }
        }
        Ok(gradients)
    }

    /// The gradients by differentiating the op's expansion.
    fn through_expansion(&self) -> Result<Gradients<'e>> {
        let hint = "implement an expansion or, for a custom op, a `vjp`; or detach its operands";
        let program = program::expansion(self.op, self.inputs, self.outputs)
            .ok_or_else(|| self.undefined().hint(hint))??;
        let tensors = |place: &usize| !self.inputs[*place].is_scalar();
        let places: Vec<usize> = (0..self.inputs.len()).filter(tensors).collect();
        let inputs: Vec<Var<'e>> = places.iter().map(|&place| self.inputs[place].clone()).collect();
        let wanted: Vec<bool> = places.iter().map(|&place| self.wanted[place]).collect();
        let found = differentiate(self.engine(), &program, &inputs, self.gradients, &wanted)?;
        let mut gradients = self.zero();
        for (place, gradient) in places.into_iter().zip(found) {
            gradients[place] = gradient;
        }
        Ok(gradients)
    }
}

/// Runs an op with a single result.
#[track_caller]
fn emit<'e>(op: Op, inputs: &[&Var<'e>]) -> Var<'e> {
    inputs[0].apply(op, &inputs[1..])
}

/// A mask of the elements of `x` that equal the extreme; for a NaN extreme, of those that are NaN.
fn attains<'e>(x: &Var<'e>, extreme: &Var<'e>) -> Var<'e> {
    let hit = x.equal(extreme);
    if x.dtype().is_float() { hit.or(&x.compare(Comparison::Ne, x)) } else { hit }
}

/// A value of which a rule needs only the type.
fn absent<'e>(engine: &'e dyn Engine, value: &Value) -> Var<'e> {
    Var::new(engine, Value::absent(*value.ty()))
}

/// An index dtype that can represent `len`.
fn index_dtype(len: usize) -> crate::DType {
    if i32::try_from(len).is_ok() { crate::DType::I32 } else { crate::DType::I64 }
}
