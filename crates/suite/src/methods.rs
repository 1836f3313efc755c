//! Every method of [`AnyTensor`], as tables: one [`Method`] for each, with test operands.
//!
//! A row describes the call of a method and its expected properties:
//!
//! ```
//! use kiln_suite::methods::{Method, normal, one};
//!
//! let row = Method::new("sum_dims", |x| one(x[0].clone().reduce(kiln_ir::Reduction::Sum, &[1])))
//!     .on(&[normal(&[2, 3])])
//!     .on(&[normal(&[0, 3])]);
//! assert_eq!(row.cases.len(), 2);
//! ```
//!
//! * [`check_value`] runs a row in every float dtype and memory layout on an engine, plain and under automatic
//!   differentiation, and compares with the reference. [`check_gradient`] and [`check_second`] compare gradients with
//!   finite differences in `f64`.
//! * [`all`] joins the tables of the families, one file each. A row's [`key`](Method::key) is the name of its method, with
//!   a variant where there are several rows. Goldens in the families `method_*` carry these keys as their ops.
//! * [`surface`] reads the names of all public methods from the sources; a method without a row fails the tests, unless
//!   [`EXEMPT`] lists it with a reason.
//!
//! With the feature `linalg` the functions of `kiln_linalg::any` have rows too, in the family `decompositions`. Their names
//! begin with `linalg::`. The tests of `kiln-linalg` check them, so that those here compile no `faer`.

mod activation;
mod check;
mod core;
mod create;
#[cfg(feature = "linalg")]
mod decompositions;
mod einsum;
mod elementwise;
mod grid;
mod index;
mod linalg;
mod loss;
mod module;
mod order;
mod quantize;
mod random;
mod reduce;
mod signal;
mod special;
mod stats;
mod surface;
mod view;

pub use check::{check_gradient, check_second, check_value};
pub use surface::{EXEMPT, surface};

use crate::case::Fill;
use kiln_ir::{DType, TensorType};
use kiln_tensor::{AnyTensor, Result};

/// A method of [`AnyTensor`], its call, and its expected properties.
#[derive(Clone)]
pub struct Method {
    /// The name of the method.
    pub name: &'static str,
    /// A name that distinguishes this row from others of the method; empty if there is only one.
    pub variant: &'static str,
    /// Calls the method.
    pub call: fn(&[AnyTensor]) -> Result<Vec<AnyTensor>>,
    /// Test operands.
    pub cases: Vec<Vec<Argument>>,
    /// The differentiability of the method.
    pub gradient: Gradient,
    /// Allowed difference from the reference, in units of the dtype's epsilon times 1 plus the magnitude.
    pub tolerance: f64,
    /// The reason not to test it in `f16` and `bf16`, if any.
    pub no_half: Option<&'static str>,
    /// The dtype of the method's intermediates, if it is not that of the result. A device may lack it.
    pub intermediate_dtype: Option<DType>,
}

/// The differentiability of a method in its float operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// First and second derivatives are checked.
    Twice,
    /// Only first derivatives are checked; the reason.
    Once(&'static str),
    /// No derivatives are checked; the reason.
    None(&'static str),
}

/// The shape and contents of a test operand.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The shape.
    pub shape: &'static [usize],
    /// The kind of its elements.
    pub kind: ArgumentKind,
    /// The rule that fills it.
    pub fill: Fill,
    /// Whether its gradient is checked.
    pub differentiated: bool,
}

/// The kind of an operand's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// The float dtype of the run.
    Float,
    /// `i32`.
    Int,
    /// `bool`.
    Bool,
}

impl Method {
    /// Creates a row without operands.
    pub fn new(name: &'static str, call: fn(&[AnyTensor]) -> Result<Vec<AnyTensor>>) -> Method {
        Method {
            name,
            variant: "",
            call,
            cases: Vec::new(),
            gradient: Gradient::Twice,
            tolerance: 16.0,
            no_half: None,
            intermediate_dtype: None,
        }
    }

    /// Names the row, to distinguish it from others of the same method.
    pub fn variant(mut self, variant: &'static str) -> Method {
        self.variant = variant;
        self
    }

    /// Adds test operands.
    pub fn on(mut self, arguments: &[Argument]) -> Method {
        self.cases.push(arguments.to_vec());
        self
    }

    /// Adds the test shapes of an elementwise function: rank 0, one element, empty, several axes.
    pub fn elementwise(self, fill: Fill) -> Method {
        let float = |shape| Argument { shape, kind: ArgumentKind::Float, fill, differentiated: true };
        self.on(&[float(&[])]).on(&[float(&[1])]).on(&[float(&[2, 0, 3])]).on(&[float(&[2, 3, 4])])
    }

    /// Works like [`elementwise`](Method::elementwise), with two operands of equal shapes and of shapes that broadcast.
    pub fn pairwise(self, fill: Fill) -> Method {
        let float = |shape| Argument { shape, kind: ArgumentKind::Float, fill, differentiated: true };
        self.on(&[float(&[]), float(&[])])
            .on(&[float(&[2, 3]), float(&[2, 3])])
            .on(&[float(&[2, 1, 3]), float(&[4, 1])])
            .on(&[float(&[0, 3]), float(&[1, 3])])
    }

    /// Checks only first derivatives.
    pub fn once(mut self, why: &'static str) -> Method {
        self.gradient = Gradient::Once(why);
        self
    }

    /// Checks no derivatives.
    pub fn no_gradient(mut self, why: &'static str) -> Method {
        self.gradient = Gradient::None(why);
        self
    }

    /// Sets the allowed difference in epsilons.
    pub fn within(mut self, tolerance: f64) -> Method {
        self.tolerance = tolerance;
        self
    }

    /// Skips `f16` and `bf16`.
    pub fn no_half(mut self, why: &'static str) -> Method {
        self.no_half = Some(why);
        self
    }

    /// Sets the dtype of the method's intermediates.
    pub fn intermediate_dtype(mut self, dtype: DType) -> Method {
        self.intermediate_dtype = Some(dtype);
        self
    }

    /// Returns the name with the variant: `name` or `name/variant`. Unique.
    pub fn key(&self) -> String {
        if self.variant.is_empty() { self.name.into() } else { format!("{}/{}", self.name, self.variant) }
    }
}

impl Argument {
    /// Returns an operand without gradient check, such as positions and counts.
    pub fn constant(self) -> Argument {
        Argument { differentiated: false, ..self }
    }

    /// Returns the type of the operand in a run with a float dtype.
    pub fn ty(&self, float: DType) -> TensorType {
        let dtype = match self.kind {
            ArgumentKind::Float => float,
            ArgumentKind::Int => DType::I32,
            ArgumentKind::Bool => DType::Bool,
        };
        TensorType::new(self.shape, dtype)
    }
}

/// Floats filled by a rule.
pub fn floats(shape: &'static [usize], fill: Fill) -> Argument {
    Argument { shape, kind: ArgumentKind::Float, fill, differentiated: true }
}

/// Returns normal floats.
pub fn normal(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Normal)
}

/// Floats in 0.5 to 2.5.
pub fn positive(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Positive)
}

/// Floats between two numbers.
pub fn uniform(low: f64, high: f64, shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Uniform(low, high))
}

/// Floats away from 0, of both signs.
pub fn away(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Away)
}

/// Floats without ties.
pub fn distinct(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Distinct)
}

/// Integers between two numbers, both included.
pub fn ints(low: i32, high: i32, shape: &'static [usize]) -> Argument {
    let fill = Fill::Uniform(f64::from(low), f64::from(high));
    Argument { shape, kind: ArgumentKind::Int, fill, differentiated: false }
}

/// Integers among these numbers.
pub fn ints_among(numbers: &'static [f64], shape: &'static [usize]) -> Argument {
    Argument { shape, kind: ArgumentKind::Int, fill: Fill::Among(numbers), differentiated: false }
}

/// Returns bools.
pub fn bools(shape: &'static [usize]) -> Argument {
    Argument { shape, kind: ArgumentKind::Bool, fill: Fill::Normal, differentiated: false }
}

/// Returns the only result of a method.
///
/// # Errors
/// The error of `result`.
pub fn one(result: Result<AnyTensor>) -> Result<Vec<AnyTensor>> {
    result.map(|tensor| vec![tensor])
}

/// Returns two results of a method.
///
/// # Errors
/// The error of `result`.
pub fn two(result: Result<(AnyTensor, AnyTensor)>) -> Result<Vec<AnyTensor>> {
    result.map(|(a, b)| vec![a, b])
}

/// The family of a table and its rows.
pub type Family = (&'static str, fn() -> Vec<Method>);

/// The tables, by family.
pub const FAMILIES: &[Family] = &[
    ("activation", activation::rows),
    ("core", core::rows),
    ("create", create::rows),
    #[cfg(feature = "linalg")]
    ("decompositions", decompositions::rows),
    ("einsum", einsum::rows),
    ("elementwise", elementwise::rows),
    ("grid", grid::rows),
    ("index", index::rows),
    ("linalg", linalg::rows),
    ("loss", loss::rows),
    ("module", module::rows),
    ("order", order::rows),
    ("quantize", quantize::rows),
    ("random", random::rows),
    ("reduce", reduce::rows),
    ("signal", signal::rows),
    ("special", special::rows),
    ("stats", stats::rows),
    ("view", view::rows),
];

/// Returns every row.
pub fn all() -> Vec<Method> {
    FAMILIES.iter().flat_map(|(_, rows)| rows()).collect()
}
