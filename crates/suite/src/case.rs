//! A test case: an op, generated operands, and the expected properties of the results.

use kiln_ir::{BlockFormat, DType, Float8, Op, Operand, OperandType, Scalar, Shape, TensorType, infer};

/// One row of the suite: an op on operands of given types and contents.
///
/// Every engine must return the results of [`Reference`](kiln_reference::Reference), within the tolerance, in every
/// layout of the operands.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique in the suite: `op/types`, then `/label` where several cases share these.
    pub name: String,
    /// The op.
    pub op: Op,
    /// How the operands are made.
    pub inputs: Vec<Input>,
    /// How close results must be.
    pub tolerance: Tolerance,
    /// The differentiability of the op at the operands.
    pub grad: Grad,
    /// The memory layouts in which the operands are passed.
    pub layouts: Layouts,
}

/// How an operand is made.
#[derive(Clone, Debug)]
pub enum Input {
    /// A tensor filled by a rule, from a seed of the case's name and the operand's index.
    Tensor(TensorType, Fill),
    /// A scalar operand.
    Scalar(Scalar),
    /// The same value as another operand: the engine gets one value twice.
    SameAs(usize),
    /// A result of another op on filled operands: `attention_grad` takes results of `attention`.
    Result {
        /// The op.
        op: Op,
        /// The indices of its operands.
        inputs: Vec<usize>,
        /// The index of the result.
        place: usize,
    },
}

/// How a tensor is filled. Numbers out of range of the dtype are converted as by a cast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal with mean 0 and variance 1; integers uniform in `-20..=20`, unsigned in `0..=40`; `bool` with probability
    /// 1/2.
    Normal,
    /// Uniform between the two; integers uniform among those in between, both included.
    Uniform(f64, f64),
    /// Uniform in 0.5 to 2.5; integers in `1..=20`.
    Positive,
    /// Uniform in 0.5 to 2 with a random sign: away from poles and kinks at 0.
    Away,
    /// Distinct numbers, at least 0.05 apart, in random order: away from ties of sorting ops.
    Distinct,
    /// Drawn from the edge cases of the dtype: NaN, infinities, signed zeros, minimum and maximum, subnormals, halves;
    /// for integers minimum, maximum, their neighbours, and small numbers.
    Special,
    /// Uniform bits.
    Bits,
    /// Drawn from these numbers.
    Among(&'static [f64]),
    /// The bytes of quantized blocks of normal numbers, for `u8`. A tensor is a whole number of blocks.
    Blocks(BlockFormat),
}

impl Fill {
    /// Bits of multiples of 1/2 up to ±3: products sum exactly, however tensor cores truncate small summands.
    pub fn halves(format: Float8) -> Fill {
        Fill::Among(match format {
            Float8::E4M3 => &[0.0, 48.0, 56.0, 60.0, 64.0, 68.0, 128.0, 176.0, 184.0, 188.0, 192.0, 196.0],
            Float8::E5M2 => &[0.0, 56.0, 60.0, 62.0, 64.0, 66.0, 128.0, 184.0, 188.0, 190.0, 192.0, 194.0],
        })
    }
}

/// How close a result must be to the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// The same bits.
    Bits,
    /// Equal, where NaN equals NaN and zeros of both signs are equal.
    Exact,
    /// `|actual - expected| <= epsilon * (absolute + relative * |expected|)`, with the epsilon of the result's
    /// dtype. Integers and `bool` must be equal.
    Near {
        /// Factor of the expected magnitude.
        relative: f64,
        /// Factor of 1.
        absolute: f64,
    },
}

/// The differentiability of a case in its float operands. Only cases in `f64` are differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grad {
    /// Differentiable twice around the operands.
    Smooth,
    /// Differentiable once around the operands, with kinks or jumps elsewhere.
    Piecewise,
    /// Not differentiated, for this reason.
    None(&'static str),
}

/// The memory layouts in which the operands of a case are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layouts {
    /// Every [`Layout`](crate::layout::Layout).
    All,
    /// Dense and permuted only: for large operands.
    Few,
}

/// A dense tensor operand.
pub(crate) fn tensor(shape: impl Into<Shape>, dtype: DType, fill: Fill) -> Input {
    Input::Tensor(TensorType::new(shape, dtype), fill)
}

/// A scalar operand.
pub(crate) fn number(x: impl Into<Scalar>) -> Input {
    Input::Scalar(x.into())
}

impl Case {
    /// Creates a case that must be exact, in all layouts, without gradient. Op and operands define its name.
    pub fn new(op: Op, inputs: Vec<Input>) -> Case {
        let types: Vec<String> = inputs.iter().filter_map(Input::label).collect();
        let types = if types.is_empty() { result_label(&op, &inputs) } else { types.join(",") };
        Case {
            name: format!("{}/{types}", op.name()),
            op,
            inputs,
            tolerance: Tolerance::Exact,
            grad: Grad::None("gradients are checked in other cases of this op"),
            layouts: Layouts::All,
        }
    }

    /// Adds a label to the name.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<str>) -> Case {
        self.name = format!("{}/{}", self.name, label.as_ref());
        self
    }

    /// Compares results bit for bit.
    #[must_use]
    pub fn bits(mut self) -> Case {
        self.tolerance = Tolerance::Bits;
        self
    }

    /// Compares results within multiples of epsilon.
    #[must_use]
    pub fn near(mut self, relative: f64, absolute: f64) -> Case {
        self.tolerance = Tolerance::Near { relative, absolute };
        self
    }

    /// Sets the differentiability.
    #[must_use]
    pub fn grad(mut self, grad: Grad) -> Case {
        self.grad = grad;
        self
    }

    /// Restricts the case to few layouts.
    #[must_use]
    pub fn large(mut self) -> Case {
        self.layouts = Layouts::Few;
        self
    }

    /// Returns whether the op accepts these operands.
    pub fn is_valid(&self) -> bool {
        self.result_types().is_ok()
    }

    /// Returns the types of the operands as inference sees them.
    pub fn operand_types(&self) -> Vec<OperandKind> {
        let mut types: Vec<OperandKind> = self
            .inputs
            .iter()
            .map(|input| match input {
                Input::Tensor(ty, _) => OperandKind::Tensor(*ty),
                Input::Scalar(scalar) => OperandKind::Scalar(*scalar),
                Input::SameAs(_) | Input::Result { .. } => OperandKind::Scalar(Scalar::Int(0)),
            })
            .collect();
        for (i, input) in self.inputs.iter().enumerate() {
            match input {
                Input::Tensor(..) | Input::Scalar(_) => {}
                Input::SameAs(place) => types[i] = types[*place],
                Input::Result { op, inputs, place } => {
                    let operands: Vec<OperandType<'_>> = inputs.iter().map(|&i| types[i].borrow()).collect();
                    let results = infer(op, &operands).unwrap_or_else(|e| panic!("{}: {e}", self.name));
                    types[i] = OperandKind::Tensor(results[*place]);
                }
            }
        }
        types
    }

    /// Returns the types of the results.
    ///
    /// # Errors
    /// When the op does not accept the operands.
    pub fn result_types(&self) -> kiln_ir::Result<Vec<TensorType>> {
        let types = self.operand_types();
        let operands: Vec<OperandType<'_>> = types.iter().map(OperandKind::borrow).collect();
        Ok(infer(&self.op, &operands)?.into_vec())
    }
}

/// The owned form of [`OperandType`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OperandKind {
    /// A tensor of this type.
    Tensor(TensorType),
    /// A scalar.
    Scalar(Scalar),
}

impl OperandKind {
    /// Borrows it for inference.
    pub fn borrow(&self) -> OperandType<'_> {
        match self {
            OperandKind::Tensor(ty) => OperandType::Tensor(ty),
            OperandKind::Scalar(scalar) => OperandType::Scalar(*scalar),
        }
    }

    /// Returns the tensor's type, if it is one.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            OperandKind::Tensor(ty) => Some(ty),
            OperandKind::Scalar(_) => None,
        }
    }
}

impl Input {
    fn label(&self) -> Option<String> {
        match self {
            Input::Tensor(ty, _) => Some(ty.to_string().replace(' ', "")),
            Input::Scalar(scalar) => Some(scalar.to_string()),
            Input::SameAs(place) => Some(format!("same{place}")),
            Input::Result { .. } => None,
        }
    }
}

/// The types of the results, which name a case without tensor operands.
fn result_label(op: &Op, inputs: &[Input]) -> String {
    let scalars: Vec<Operand> = inputs
        .iter()
        .filter_map(|input| match input {
            Input::Scalar(scalar) => Some(Operand::Scalar(*scalar)),
            Input::Tensor(..) | Input::SameAs(_) | Input::Result { .. } => None,
        })
        .collect();
    match infer(op, &OperandType::list(&scalars)) {
        Ok(types) => types.iter().map(|ty| ty.to_string().replace(' ', "")).collect::<Vec<_>>().join(","),
        Err(_) => "invalid".into(),
    }
}
