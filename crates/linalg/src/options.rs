//! Choices that the functions take.

/// One half of a matrix, its diagonal included.
#[doc(alias = "UPLO")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// On and below the diagonal.
    #[default]
    Lower,
    /// On and above the diagonal.
    Upper,
}

impl Triangle {
    pub(crate) fn is_upper(self) -> bool {
        self == Triangle::Upper
    }
}

/// On which side of a product the unknown stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// The matrix is on the left: `A X = B`.
    #[default]
    Left,
    /// The matrix is on the right: `X A = B`.
    Right,
}

/// How much of a [QR decomposition](crate::qr) is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QrMode {
    /// `Q` is `[.., m, k]` and `R` is `[.., k, n]` with `k = min(m, n)`.
    #[default]
    Reduced,
    /// `Q` is `[.., m, m]` and `R` is `[.., m, n]`. Without gradient where `m > n`.
    Complete,
}

/// A norm of matrices, with PyTorch's `ord` in brackets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatrixNorm {
    /// The root of the sum of squares (`"fro"`).
    #[default]
    Frobenius,
    /// The sum of singular values (`"nuc"`).
    Nuclear,
    /// The greatest singular value (`2`).
    Spectral,
    /// The least singular value (`-2`).
    LeastSingularValue,
    /// The greatest sum of magnitudes over a column (`1`).
    GreatestColumnSum,
    /// The least sum of magnitudes over a column (`-1`).
    LeastColumnSum,
    /// The greatest sum of magnitudes over a row (`inf`).
    GreatestRowSum,
    /// The least sum of magnitudes over a row (`-inf`).
    LeastRowSum,
}

/// From which size on a singular value counts as different from zero: `s > max(absolute, relative * greatest)`.
///
/// ```
/// use kiln_linalg::Tolerance;
///
/// assert_eq!(Tolerance::relative(1e-3), Tolerance { absolute: None, relative: Some(1e-3) });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// By default 0.
    pub absolute: Option<f64>,
    /// By default `max(m, n)` times the distance from 1 to the next number of the dtype; 0 if an absolute tolerance
    /// above 0 is given.
    pub relative: Option<f64>,
}

impl Tolerance {
    /// A tolerance relative to the greatest singular value.
    pub fn relative(relative: f64) -> Tolerance {
        Tolerance { absolute: None, relative: Some(relative) }
    }

    /// An absolute tolerance.
    pub fn absolute(absolute: f64) -> Tolerance {
        Tolerance { absolute: Some(absolute), relative: None }
    }

    /// Both, for matrices of these sizes whose dtype has this distance from 1 to the next number.
    pub(crate) fn resolve(self, rows: usize, cols: usize, epsilon: f64) -> (f64, f64) {
        let absolute = self.absolute.unwrap_or(0.0);
        let standard = if absolute > 0.0 { 0.0 } else { rows.max(cols) as f64 * epsilon };
        (absolute, self.relative.unwrap_or(standard))
    }
}
