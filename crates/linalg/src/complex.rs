//! Complex matrices as pairs, for gradients.

use crate::matrix::{below, beside, rows};
use crate::op::{Solve, last_two, run_one};
use kiln_ir::{Result, Var};

/// Real and imaginary parts of the same shape.
#[derive(Clone)]
pub(crate) struct Complex<'e> {
    pub(crate) re: Var<'e>,
    pub(crate) im: Var<'e>,
}

impl<'e> Complex<'e> {
    pub(crate) fn new(re: Var<'e>, im: Var<'e>) -> Complex<'e> {
        Complex { re, im }
    }

    /// The conjugate of the transpose.
    pub(crate) fn adjoint(&self) -> Complex<'e> {
        Complex::new(self.re.transpose(), -self.im.transpose())
    }

    /// The product of matrices.
    pub(crate) fn matmul(&self, other: &Complex<'e>) -> Complex<'e> {
        let re = self.re.matmul(&other.re) - self.im.matmul(&other.im);
        let im = self.re.matmul(&other.im) + self.im.matmul(&other.re);
        Complex::new(re, im)
    }

    /// The quotient, element by element.
    pub(crate) fn divide(&self, other: &Complex<'e>) -> Complex<'e> {
        let square = other.re.square() + other.im.square();
        let re = (&self.re * &other.re + &self.im * &other.im) / &square;
        let im = (&self.im * &other.re - &self.re * &other.im) / &square;
        Complex::new(re, im)
    }

    /// `X` in `self X = b`, through the real matrix `[[re, -im], [im, re]]`.
    pub(crate) fn solve(&self, b: &Complex<'e>) -> Result<Complex<'e>> {
        let n = last_two(&self.re.shape()).0;
        let top = beside(&[self.re.clone(), -&self.im]);
        let bottom = beside(&[self.im.clone(), self.re.clone()]);
        let matrix = below(&[top, bottom]);
        let x = run_one(Solve, &[&matrix, &below(&[b.re.clone(), b.im.clone()])])?;
        Ok(Complex::new(rows(&x, 0..n), rows(&x, n..2 * n)))
    }
}
