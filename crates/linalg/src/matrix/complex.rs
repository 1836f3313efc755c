//! Complex matrices as pairs of expressions: real and imaginary parts.

use super::{as_matrix, columns, or_zeros, rows, sum, symmetric_from_lower, tril};
use crate::op::{ComplexOp, MatrixOp, Solve, run};
use kiln_ir::{Result, Var};
use std::ops::{Add, Neg, Range, Sub};

/// Real and imaginary parts of equal shape.
#[derive(Clone)]
pub(crate) struct Complex<'e> {
    pub(crate) re: Var<'e>,
    pub(crate) im: Var<'e>,
}

impl<'e> Complex<'e> {
    pub(crate) fn new(re: Var<'e>, im: Var<'e>) -> Complex<'e> {
        Complex { re, im }
    }

    /// Returns the complex value with imaginary part zero.
    pub(crate) fn from_real(re: Var<'e>) -> Complex<'e> {
        let im = Var::zeros(re.engine(), re.ty());
        Complex { re, im }
    }

    /// Returns the two consecutive variables from an index on.
    pub(crate) fn at(parts: &[Var<'e>], place: usize) -> Complex<'e> {
        Complex::new(parts[place].clone(), parts[place + 1].clone())
    }

    /// Returns an operand of an op whose operands are all real parts, then all imaginary parts.
    pub(crate) fn operand(operands: &[Var<'e>], place: usize) -> Complex<'e> {
        Complex::new(operands[place].clone(), operands[operands.len() / 2 + place].clone())
    }

    /// Returns the gradient of the complex result with parts at `place` and `place + 1`; `None` if both are zero.
    pub(crate) fn gradient(
        gradients: &[Option<Var<'e>>],
        place: usize,
        result: &Complex<'e>,
    ) -> Option<Complex<'e>> {
        match (&gradients[place], &gradients[place + 1]) {
            (None, None) => None,
            (re, im) => Some(Complex::new(or_zeros(re, &result.re), or_zeros(im, &result.im))),
        }
    }

    /// Runs an op whose operands are all real parts, then all imaginary parts. Returns all results.
    pub(crate) fn run<O: MatrixOp>(op: O, operands: &[&Complex<'e>]) -> Result<Vec<Var<'e>>> {
        let re = operands.iter().map(|operand| &operand.re);
        let all: Vec<&Var<'e>> = re.chain(operands.iter().map(|operand| &operand.im)).collect();
        run(op, &all)
    }

    /// Runs an op whose operands are all real parts, then all imaginary parts. Returns its first result, which is
    /// complex.
    pub(crate) fn run_one<O: MatrixOp>(op: O, operands: &[&Complex<'e>]) -> Result<Complex<'e>> {
        Ok(Complex::at(&Complex::run(op, operands)?, 0))
    }

    /// Applies a linear function with real coefficients to both parts.
    pub(crate) fn each(&self, f: impl Fn(&Var<'e>) -> Var<'e>) -> Complex<'e> {
        Complex::new(f(&self.re), f(&self.im))
    }

    /// Returns a range of columns.
    pub(crate) fn columns(&self, range: Range<usize>) -> Complex<'e> {
        self.each(|part| columns(part, range.clone()))
    }

    /// Returns a range of rows.
    pub(crate) fn rows(&self, range: Range<usize>) -> Complex<'e> {
        self.each(|part| rows(part, range.clone()))
    }

    pub(crate) fn transpose(&self) -> Complex<'e> {
        self.each(Var::transpose)
    }

    pub(crate) fn conj(&self) -> Complex<'e> {
        Complex::new(self.re.clone(), -&self.im)
    }

    /// Returns the conjugate transpose.
    pub(crate) fn adjoint(&self) -> Complex<'e> {
        Complex::new(self.re.transpose(), -self.im.transpose())
    }

    /// One element per matrix: `[..]` to `[.., 1, 1]`.
    pub(crate) fn as_matrix(&self) -> Complex<'e> {
        self.each(as_matrix)
    }

    /// The sum of each matrix, `[.., 1, 1]`.
    pub(crate) fn sum(&self) -> Complex<'e> {
        self.each(sum)
    }

    /// The matrix product.
    pub(crate) fn matmul(&self, other: &Complex<'e>) -> Complex<'e> {
        let re = self.re.matmul(&other.re) - self.im.matmul(&other.im);
        let im = self.re.matmul(&other.im) + self.im.matmul(&other.re);
        Complex::new(re, im)
    }

    /// The elementwise product.
    pub(crate) fn times(&self, other: &Complex<'e>) -> Complex<'e> {
        let re = &self.re * &other.re - &self.im * &other.im;
        let im = &self.re * &other.im + &self.im * &other.re;
        Complex::new(re, im)
    }

    /// The elementwise quotient.
    pub(crate) fn divide(&self, other: &Complex<'e>) -> Complex<'e> {
        let square = other.re.square() + other.im.square();
        let re = (&self.re * &other.re + &self.im * &other.im) / &square;
        let im = (&self.im * &other.re - &self.re * &other.im) / &square;
        Complex::new(re, im)
    }

    /// The Hermitian matrix with this lower triangle and the real part of its diagonal.
    pub(crate) fn hermitian_from_lower(&self) -> Complex<'e> {
        let below = tril(&self.im, -1);
        Complex::new(symmetric_from_lower(&self.re), &below - below.transpose())
    }

    /// Solves `self X = b`.
    pub(crate) fn solve(&self, b: &Complex<'e>) -> Result<Complex<'e>> {
        Complex::run_one(ComplexOp(Solve), &[self, b])
    }
}

impl<'e> Add for Complex<'e> {
    type Output = Complex<'e>;
    fn add(self, other: Complex<'e>) -> Complex<'e> {
        Complex::new(self.re + other.re, self.im + other.im)
    }
}

impl<'e> Sub for Complex<'e> {
    type Output = Complex<'e>;
    fn sub(self, other: Complex<'e>) -> Complex<'e> {
        Complex::new(self.re - other.re, self.im - other.im)
    }
}

impl<'e> Neg for Complex<'e> {
    type Output = Complex<'e>;
    fn neg(self) -> Complex<'e> {
        Complex::new(-self.re, -self.im)
    }
}
