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

pub(crate) use complex::ComplexOp;
pub(crate) use ldl::ldl_pivots_fit;
pub(crate) use lu::{permutation, pivots_fit, unpack};

use crate::host::Number;
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

/// The text form of an op.
pub(crate) trait OpText: fmt::Debug + Send + Sync + Sized + 'static {
    /// The full name: [`NAMESPACE`] and the name in messages.
    const NAME: &'static str;

    /// Returns the attributes as text.
    fn attributes(&self) -> String;

    /// Parses the attributes that [`attributes`](OpText::attributes) writes; `None` if they are invalid.
    fn parse(attributes: &str) -> Option<Self>;

    /// Returns the name in messages.
    fn short_name() -> &'static str {
        Self::NAME.strip_prefix(NAMESPACE).unwrap_or(Self::NAME)
    }
}

/// An op on matrices of `f32` or `f64`.
pub(crate) trait MatrixOp: OpText {
    /// Infers the types of the results, after checking the operands.
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes>;

    /// Computes the results. The operand types were accepted by inference.
    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>>;

    /// Computes the gradients of the operands.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e>;
}

/// Declares an op by its name and attributes.
macro_rules! matrix_op {
    ($(#[$doc:meta])* $op:ident $name:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $op;

        impl OpText for $op {
            const NAME: &'static str = $name;

            fn attributes(&self) -> String {
                String::new()
            }

            fn parse(attributes: &str) -> Option<Self> {
                attributes.is_empty().then_some($op)
            }
        }
    };
    ($(#[$doc:meta])* $op:ident $name:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $format:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $op {
            $($(#[$field_doc])* pub(crate) $field: $type,)+
        }

        impl OpText for $op {
            const NAME: &'static str = $name;

            fn attributes(&self) -> String {
                [$(format!(concat!(stringify!($field), "=", $format), self.$field)),+].join(" ")
            }

            fn parse(attributes: &str) -> Option<Self> {
                Some($op { $($field: attribute(attributes, stringify!($field))?),+ })
            }
        }
    };
}

/// Declares all ops. `complex` marks those that [`ComplexOp`] applies to complex matrices.
macro_rules! matrix_ops {
    ($($(#[$doc:meta])* $op:ident $name:literal $({ $($attributes:tt)* })? $(, complex $complex:literal)?;)*) => {
        $(
            matrix_op! { $(#[$doc])* $op $name $({ $($attributes)* })? }

            $(impl complex::ComplexName for $op {
                const COMPLEX_NAME: &'static str = $complex;
            })?
        )*

        fn register_all() {
            $(
                register_one::<$op>();
                $({
                    const _: &str = $complex;
                    register_one::<ComplexOp<$op>>();
                })?
            )*
        }
    };
}

matrix_ops! {
    /// `(A) -> L`: `A = L Lᵀ` for symmetric positive definite matrices. Reads the lower triangle.
    Cholesky "linalg::cholesky", complex "linalg::complex_cholesky";
    /// `(A, B) -> X`: `A X = B`. Reads one triangle of `A`, without its diagonal if that is taken to be ones. A zero on the
    /// diagonal results in infinities and NaNs.
    SolveTriangular "linalg::solve_triangular" {
        /// Whether the upper triangle is read.
        upper: bool = "{}",
        /// Whether the diagonal is taken to be ones.
        unit: bool = "{}",
    }, complex "linalg::complex_solve_triangular";
    /// `(A) -> (LU, pivots)`: `A = P L U` with `L` and `U` in one matrix, and LAPACK's pivots, counted from 1: row `i` was
    /// exchanged with row `pivots[i] - 1`.
    LuFactor "linalg::lu_factor";
    /// `(pivots) -> order`: the row of the matrix for each row of the factors.
    RowOrder "linalg::row_order" {
        /// Number of rows.
        rows: usize = "{}",
    };
    /// `(A, B) -> X`: `A X = B`.
    Solve "linalg::solve", complex "linalg::complex_solve";
    /// `(A) -> A⁻¹`.
    Inverse "linalg::inverse" {
        /// Whether a singular matrix returns infinities instead of an error.
        infinite: bool = "{}",
    }, complex "linalg::complex_inverse";
    /// `(A) -> det A`, `[..]`.
    Det "linalg::det", complex "linalg::complex_det";
    /// `(A) -> det(A) A⁻ᵀ`: the cofactor matrix, for singular matrices too.
    Cofactor "linalg::cofactor", complex "linalg::complex_cofactor";
    /// `(A) -> (sign, ln |det A|)`, each `[..]`.
    Slogdet "linalg::slogdet", complex "linalg::complex_slogdet";
    /// `(A) -> (Q, R)`: `A = Q R` with orthonormal columns of `Q` and upper triangular `R`.
    Qr "linalg::qr" {
        /// Whether `Q` is square. Otherwise it has `min(m, n)` columns.
        complete: bool = "{}",
    }, complex "linalg::complex_qr";
    /// `(A) -> (U, S, Vᵀ)`: `A = U diag(S) Vᵀ`, singular values in descending order.
    Svd "linalg::svd" {
        /// Whether `U` and `V` are square. Otherwise they have `min(m, n)` columns.
        full: bool = "{}",
    }, complex "linalg::complex_svd";
    /// `(A) -> S`: the singular values in descending order.
    Svdvals "linalg::svdvals", complex "linalg::complex_svdvals";
    /// `(A) -> (values, V)`: `A = V diag(values) Vᵀ`, values ascending. Reads the lower triangle.
    Eigh "linalg::eigh", complex "linalg::complex_eigh";
    /// `(A) -> values`: the eigenvalues, ascending. Reads the lower triangle.
    Eigvalsh "linalg::eigvalsh", complex "linalg::complex_eigvalsh";
    /// `(A) -> (re w, im w, re V, im V)`: `A V = V diag(w)`, columns of norm 1 whose largest element is real.
    Eig "linalg::eig", complex "linalg::complex_eig";
    /// `(A) -> A⁺`, `[.., n, m]`: the Moore-Penrose inverse. Singular values up to `max(atol, rtol * maximum)` are treated
    /// as zero.
    Pinv "linalg::pinv" {
        atol: f64 = "{:e}",
        rtol: f64 = "{:e}",
    };
    /// `(A, B) -> (X, S)`: the minimum-norm least-squares solution of `A X = B`, and the singular values of `A`.
    Lstsq "linalg::lstsq" {
        /// Singular values up to this factor times the largest are treated as zero.
        rcond: f64 = "{:e}",
    };
    /// `(A) -> exp(A)`.
    MatrixExp "linalg::matrix_exp";
    /// `(A) -> (LD, pivots)`: `L` and `D` of symmetric matrices in the lower triangle, and LAPACK's pivots. Reads the lower
    /// triangle.
    LdlFactor "linalg::ldl_factor";
    /// `(LD, pivots) -> (L, D)`: `A = L D Lᵀ`, with the row exchanges in `L`.
    LdlUnpack "linalg::ldl_unpack";
    /// `(LD, pivots, B) -> X`: `A X = B`. A singular `D` results in infinities and NaNs.
    LdlSolve "linalg::ldl_solve";
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
    ONCE.call_once(register_all);
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
