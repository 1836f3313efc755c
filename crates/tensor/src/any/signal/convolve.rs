//! Convolution of signals.

use crate::any::fft::{FftNorm, fitted};
use crate::{AnyTensor, Error, Result};
use alloc::vec::Vec;
use kiln_ir::{Op, PadAxis, SliceAxis};

/// The part of a convolution that is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConvolveMode {
    /// All positions where the signals overlap: `n + m - 1`.
    #[default]
    Full,
    /// The middle part, as long as the first signal.
    Same,
    /// Positions where the shorter signal overlaps the longer one completely: `|n - m| + 1`.
    Valid,
}

impl AnyTensor {
    /// Computes the direct convolution of signals along the last axis. See
    /// [`signal::convolve`](crate::signal::convolve).
    ///
    /// # Errors
    /// When a signal has no elements along the last axis, the axes before it do not broadcast, or the dtypes differ or
    /// are `bool`.
    pub fn convolve(self, other: AnyTensor, mode: ConvolveMode) -> Result<AnyTensor> {
        let (n, m) = lengths("convolve", &self, &other)?;
        let (rank, size) = (self.rank(), m);
        let mut pads = alloc::vec![PadAxis::default(); rank];
        pads[rank - 1] = PadAxis::new(m - 1, m - 1);
        let windows =
            self.pad_axes(pads, 0)?.apply(&Op::Windows { axis: rank - 1, size, step: 1, dilation: 1 })?;
        let last = other.rank() - 1;
        let reversed = other.slice_axis(last, SliceAxis { start: m - 1, len: m, step: -1 })?;
        let full = windows.matvec(reversed)?;
        kept(full, n, m, mode)
    }

    /// Computes the [`convolve`](AnyTensor::convolve) of signals by Fourier transforms. See
    /// [`signal::fftconvolve`](crate::signal::fftconvolve).
    ///
    /// # Errors
    /// When a dtype is not a float, a signal has no elements along the last axis, or the axes before it do not
    /// broadcast.
    pub fn fftconvolve(self, other: AnyTensor, mode: ConvolveMode) -> Result<AnyTensor> {
        let (n, m) = lengths("fftconvolve", &self, &other)?;
        // A power of two is transformed fastest.
        let points = (n + m - 1).next_power_of_two();
        let spectrum =
            self.rfft(points, -1, FftNorm::Backward)?.mul(other.rfft(points, -1, FftNorm::Backward)?)?;
        let whole = spectrum.irfft(points, -1, FftNorm::Backward)?;
        let last = whole.rank() - 1;
        kept(fitted(whole, last, n + m - 1)?, n, m, mode)
    }
}

fn lengths(op: &str, x: &AnyTensor, y: &AnyTensor) -> Result<(usize, usize)> {
    match (x.shape().last(), y.shape().last()) {
        (Some(&n), Some(&m)) if n > 0 && m > 0 => Ok((n, m)),
        _ => {
            let types: Vec<_> = [x, y].iter().map(|tensor| tensor.ty().into()).collect();
            Err(Error::type_error(op, "needs at least one element along the last axis of both", &types)
                .hint("the convolution of an empty signal is undefined"))
        }
    }
}

fn kept(full: AnyTensor, n: usize, m: usize, mode: ConvolveMode) -> Result<AnyTensor> {
    let (start, len) = match mode {
        ConvolveMode::Full => return Ok(full),
        ConvolveMode::Same => ((m - 1) / 2, n),
        ConvolveMode::Valid => (n.min(m) - 1, n.max(m) - n.min(m) + 1),
    };
    let last = full.rank() - 1;
    full.slice_axis(last, SliceAxis { start, len, step: 1 })
}
