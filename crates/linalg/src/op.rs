//! The custom ops of this crate: results are computed on the host, gradients are expressions of ops.

mod cholesky;
mod complex;
mod determinant;
mod eig;
mod eigh;
mod exp;
mod ldl;
mod lu;
mod pinv;
mod qr;
mod solve;
mod svd;
mod triangular;

pub(crate) use cholesky::Cholesky;
pub(crate) use complex::{
    ComplexCholesky, ComplexCofactor, ComplexDet, ComplexEig, ComplexEigh, ComplexEigvalsh, ComplexInverse,
    ComplexQr, ComplexSlogdet, ComplexSolve, ComplexSolveTriangular, ComplexSvd, ComplexSvdvals,
};
pub(crate) use determinant::{Cofactor, Det, Slogdet};
pub(crate) use eig::Eig;
pub(crate) use eigh::{Eigh, Eigvalsh};
pub(crate) use exp::MatrixExp;
pub(crate) use ldl::{LdlFactor, LdlSolve, LdlUnpack, ldl_pivots_fit};
pub(crate) use lu::{LuFactor, RowOrder, permutation, pivots_fit, unpack};
pub(crate) use pinv::{Lstsq, Pinv};
pub(crate) use qr::Qr;
pub(crate) use solve::{Inverse, Solve};
pub(crate) use svd::{Svd, Svdvals};
pub(crate) use triangular::SolveTriangular;

use crate::host::Real;
use kiln_ir::{
    Custom, CustomOp, DType, Error, Op, OperandType, Operands, Result, ResultTypes, Shape, TensorData,
    TensorType, Var, infer,
};
use std::fmt;
use std::sync::Once;

/// The namespace of the op names.
const NAMESPACE: &str = "linalg::";

/// The gradients of the operands, in order.
pub(crate) type Gradients<'e> = Result<Vec<Option<Var<'e>>>>;

/// An op on matrices of `f32` or `f64`.
pub(crate) trait MatrixOp: fmt::Debug + Send + Sync + Sized + 'static {
    /// The full name: [`NAMESPACE`] and the name in messages.
    const NAME: &'static str;

    /// Returns the attributes as text.
    fn attributes(&self) -> String {
        String::new()
    }

    /// Parses the attributes that [`attributes`](MatrixOp::attributes) writes; `None` if they are invalid.
    fn parse(attributes: &str) -> Option<Self>;

    /// Infers the types of the results, after checking the operands.
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes>;

    /// Computes the results. The operand types were accepted by inference.
    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>>;

    /// Computes the gradients of the operands.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e>;

    /// Returns the name in messages.
    fn short_name() -> &'static str {
        Self::NAME.strip_prefix(NAMESPACE).unwrap_or(Self::NAME)
    }
}

/// Wraps a [`MatrixOp`] as a custom op for engines.
#[derive(Debug)]
struct Host<O>(O);

impl<O: MatrixOp> CustomOp for Host<O> {
    fn name(&self) -> &str {
        O::NAME
    }

    fn attributes(&self) -> String {
        self.0.attributes()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        self.0.infer(Signature { op: O::short_name(), operands: inputs, with_halves: false })
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let is_double = inputs.iter().any(|input| input.dtype() == DType::F64);
        Some(if is_double { self.0.evaluate::<f64>(inputs) } else { self.0.evaluate::<f32>(inputs) })
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Gradients<'e>> {
        Some(self.0.vjp(inputs, outputs, gradients))
    }

    /// Dimensions before the last two are batch dimensions, so vmap adds one more.
    fn batched(&self) -> Option<Custom> {
        O::parse(&self.0.attributes()).map(|op| Custom::new(Host(op)))
    }
}

/// Runs an op and returns all results.
pub(crate) fn run<'e, O: MatrixOp>(op: O, inputs: &[&Var<'e>]) -> Result<Vec<Var<'e>>> {
    register();
    let engine = inputs[0].engine();
    let operands: Operands = inputs.iter().map(|var| var.operand().clone()).collect();
    let op = Op::Custom(Custom::new(Host(op)));
    let types = infer(&op, &OperandType::list(&operands))?;
    let results = engine.execute(&op, operands, &types);
    Ok(results.into_iter().map(|value| Var::new(engine, value)).collect())
}

/// Runs an op and returns its first result.
pub(crate) fn run_one<'e, O: MatrixOp>(op: O, inputs: &[&Var<'e>]) -> Result<Var<'e>> {
    run(op, inputs).map(|mut results| results.swap_remove(0))
}

/// Registers the ops of this crate, so that programs that contain them can be parsed from text or received over the
/// network. The functions of this crate register them; a program that only parses must call it.
///
/// ```
/// use kiln_ir::Custom;
///
/// kiln_linalg::register();
/// let op = Custom::from_parts("linalg::svd", "full=false").unwrap();
/// assert_eq!(op.name(), "linalg::svd");
/// ```
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_one::<Cholesky>();
        register_one::<SolveTriangular>();
        register_one::<LuFactor>();
        register_one::<RowOrder>();
        register_one::<Solve>();
        register_one::<Inverse>();
        register_one::<Det>();
        register_one::<Cofactor>();
        register_one::<Slogdet>();
        register_one::<Qr>();
        register_one::<Svd>();
        register_one::<Svdvals>();
        register_one::<Eigh>();
        register_one::<Eigvalsh>();
        register_one::<Eig>();
        register_one::<Pinv>();
        register_one::<Lstsq>();
        register_one::<MatrixExp>();
        register_one::<LdlFactor>();
        register_one::<LdlUnpack>();
        register_one::<LdlSolve>();
        register_one::<ComplexCholesky>();
        register_one::<ComplexSolveTriangular>();
        register_one::<ComplexSolve>();
        register_one::<ComplexInverse>();
        register_one::<ComplexDet>();
        register_one::<ComplexCofactor>();
        register_one::<ComplexSlogdet>();
        register_one::<ComplexQr>();
        register_one::<ComplexSvd>();
        register_one::<ComplexSvdvals>();
        register_one::<ComplexEigh>();
        register_one::<ComplexEigvalsh>();
        register_one::<ComplexEig>();
    });
}

fn register_one<O: MatrixOp>() {
    Custom::register(O::NAME, |attributes| match O::parse(attributes) {
        Some(op) => Ok(Custom::new(Host(op))),
        None => {
            let problem = format!("the attributes `{attributes}` are not this op's");
            Err(Error::value(O::NAME, problem).hint("write them in the form of `CustomOp::attributes`"))
        }
    });
}

/// Parses an op without attributes.
pub(crate) fn bare<O>(attributes: &str, op: O) -> Option<O> {
    attributes.is_empty().then_some(op)
}

/// Parses the value of the attribute `name=value` in a space-separated list.
pub(crate) fn attribute<V: std::str::FromStr>(attributes: &str, name: &str) -> Option<V> {
    let mut pairs = attributes.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name)?.1.parse().ok()
}

/// The operands of an op, for checking.
#[derive(Clone, Copy)]
pub(crate) struct Signature<'a> {
    op: &'static str,
    operands: &'a [OperandType<'a>],
    /// Whether 16-bit floats are accepted too.
    with_halves: bool,
}

impl<'a> Signature<'a> {
    /// Returns the operands of a function, which computes 16-bit floats in `f32`.
    pub(crate) fn of_function(op: &'static str, operands: &'a [OperandType<'a>]) -> Signature<'a> {
        Signature { op, operands, with_halves: true }
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::type_error(self.op, problem, self.operands)
    }

    pub(crate) fn count(&self, count: usize) -> Result<()> {
        let found = self.operands.len();
        if found == count {
            Ok(())
        } else {
            Err(self.error(format!("expects {count} operands, got {found}")))
        }
    }

    /// Returns the real parts, after checking that the second half of the operands are imaginary parts of equal types.
    pub(crate) fn complex(self) -> Result<Signature<'a>> {
        let (re, im) = self.operands.split_at(self.operands.len() / 2);
        let alike = re.len() == im.len() && re.iter().zip(im).all(|(re, im)| re.tensor() == im.tensor());
        if alike {
            return Ok(Signature { operands: re, ..self });
        }
        Err(self
            .error("real and imaginary parts differ in type")
            .hint("pass all real parts and then all imaginary parts, in the same order"))
    }

    pub(crate) fn tensor(&self, place: usize) -> Result<&'a TensorType> {
        let tensor = self.operands.get(place).and_then(|operand| operand.tensor());
        tensor.ok_or_else(|| self.error(format!("operand {place} must be a tensor")))
    }

    /// Checks that an operand is a float tensor of a supported dtype.
    pub(crate) fn float(&self, place: usize) -> Result<&'a TensorType> {
        let ty = self.tensor(place)?;
        let computes = ty.dtype == DType::F32 || ty.dtype == DType::F64;
        if computes || (self.with_halves && ty.dtype.is_float()) {
            return Ok(ty);
        }
        let wanted = if self.with_halves { "a float dtype" } else { "f32 or f64" };
        Err(self.error(format!("needs {wanted}, not {}", ty.dtype)).hint("cast the tensor first"))
    }

    /// Checks that an operand has matrices in its last two dimensions.
    pub(crate) fn matrix(&self, place: usize) -> Result<&'a TensorType> {
        let ty = self.float(place)?;
        if ty.rank() >= 2 {
            return Ok(ty);
        }
        Err(self
            .error("needs matrices, in the last two dimensions")
            .hint("add dimensions of length 1 with `unsqueeze_dim`, or reshape"))
    }

    /// Checks that an operand has square matrices in its last two dimensions.
    pub(crate) fn square(&self, place: usize) -> Result<&'a TensorType> {
        let ty = self.matrix(place)?;
        let (rows, cols) = last_two(&ty.shape);
        if rows == cols {
            return Ok(ty);
        }
        Err(self
            .error("needs square matrices")
            .hint(format!("each matrix is {rows} x {cols}; the last two dimensions must be equal")))
    }

    /// Checks that batch dimensions and dtypes are equal.
    pub(crate) fn alike(&self, a: &TensorType, b: &TensorType) -> Result<()> {
        self.same_dtype(a, b)?;
        if leading(&a.shape) == leading(&b.shape) {
            return Ok(());
        }
        Err(self.error("batch dimensions differ").hint("broadcast them to one shape first"))
    }

    pub(crate) fn same_dtype(&self, a: &TensorType, b: &TensorType) -> Result<()> {
        if a.dtype == b.dtype {
            return Ok(());
        }
        Err(self.error("dtypes differ").hint("cast one operand to the other's dtype"))
    }
}

/// The last two dimensions.
pub(crate) fn last_two(shape: &Shape) -> (usize, usize) {
    (shape[shape.rank() - 2], shape[shape.rank() - 1])
}

/// The batch dimensions: those before the last two.
pub(crate) fn leading(shape: &Shape) -> &[usize] {
    &shape[..shape.rank() - 2]
}

/// The type with `last` in place of the last two dimensions.
pub(crate) fn with_last(ty: &TensorType, last: &[usize]) -> TensorType {
    ty.with_shape(leading(&ty.shape).iter().chain(last).copied().collect::<Shape>())
}
