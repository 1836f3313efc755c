//! Options of the functions.

/// A triangle of a matrix, including its diagonal.
#[doc(alias = "UPLO")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// The lower triangle: on and below the diagonal.
    #[default]
    Lower,
    /// The upper triangle: on and above the diagonal.
    Upper,
}

impl Triangle {
    pub(crate) fn is_upper(self) -> bool {
        self == Triangle::Upper
    }
}

/// The side of the product on which the matrix is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// The matrix is on the left: `A X = B`.
    #[default]
    Left,
    /// The matrix is on the right: `X A = B`.
    Right,
}

/// The mode of a [QR decomposition](crate::qr): reduced or complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QrMode {
    /// Reduced: `Q` is `[.., m, k]` and `R` is `[.., k, n]` with `k = min(m, n)`.
    #[default]
    Reduced,
    /// Complete: `Q` is `[.., m, m]` and `R` is `[.., m, n]`. It has no gradient if `m > n`.
    Complete,
}

/// A matrix norm, with PyTorch's `ord` in parentheses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatrixNorm {
    /// Frobenius norm: the square root of the sum of squares (`"fro"`).
    #[default]
    Frobenius,
    /// Nuclear norm: the sum of singular values (`"nuc"`).
    Nuclear,
    /// Spectral norm: the largest singular value (`2`).
    Spectral,
    /// The smallest singular value (`-2`).
    LeastSingularValue,
    /// 1-norm: the maximum absolute column sum (`1`).
    GreatestColumnSum,
    /// The minimum absolute column sum (`-1`).
    LeastColumnSum,
    /// ∞-norm: the maximum absolute row sum (`inf`).
    GreatestRowSum,
    /// The minimum absolute row sum (`-inf`).
    LeastRowSum,
}

/// The threshold of nonzero singular values: `s > max(absolute, relative * maximum)`.
///
/// ```
/// use kiln_linalg::Tolerance;
///
/// assert_eq!(Tolerance::relative(1e-3), Tolerance { absolute: None, relative: Some(1e-3) });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// The absolute tolerance (`atol`). Default (`None`): 0.
    pub absolute: Option<f64>,
    /// The relative tolerance (`rtol`). Default (`None`): `max(m, n)` times the machine epsilon of the dtype; 0 if an
    /// absolute tolerance above 0 is set.
    pub relative: Option<f64>,
}

impl Tolerance {
    /// Returns a tolerance relative to the largest singular value.
    pub fn relative(relative: f64) -> Tolerance {
        Tolerance { absolute: None, relative: Some(relative) }
    }

    /// Returns an absolute tolerance.
    pub fn absolute(absolute: f64) -> Tolerance {
        Tolerance { absolute: Some(absolute), relative: None }
    }

    /// Returns both tolerances for matrices of these sizes and machine epsilon.
    pub(crate) fn resolve(self, rows: usize, cols: usize, epsilon: f64) -> (f64, f64) {
        let absolute = self.absolute.unwrap_or(0.0);
        let standard = if absolute > 0.0 { 0.0 } else { rows.max(cols) as f64 * epsilon };
        (absolute, self.relative.unwrap_or(standard))
    }
}
