//! FFTs. Complex goldens have a last axis of length 2: real and imaginary parts.

use super::call::{Call, Outputs, one};
use kiln_tensor::fft::FftNorm;
use kiln_tensor::{AnyComplex, AnyTensor, Result};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    one(transformed(call).unwrap_or_else(|error| panic!("{error}")))
}

/// Transforms one axis by the 1D functions, several by the n-dimensional ones.
fn transformed(call: &Call<'_>) -> Result<AnyTensor> {
    let axes = call.counts("axes");
    let sizes = call.optional_counts("sizes");
    let norm = match call.text("norm") {
        "backward" => FftNorm::Backward,
        "ortho" => FftNorm::Ortho,
        "forward" => FftNorm::Forward,
        norm => panic!("unknown norm {norm}"),
    };
    let x = call.input("x").clone();
    let complex = |x| AnyComplex::from_interleaved(x);
    let (axis, size) = (axes[0], sizes.as_ref().map(|sizes| sizes[0]));
    let (line, sizes) = (axes.len() == 1, sizes.as_deref());
    match &*call.op {
        "fft" if line => complex(x)?.fft(size, axis, norm)?.into_interleaved(),
        "fft" => complex(x)?.fftn(sizes, &axes, norm)?.into_interleaved(),
        "ifft" if line => complex(x)?.ifft(size, axis, norm)?.into_interleaved(),
        "ifft" => complex(x)?.ifftn(sizes, &axes, norm)?.into_interleaved(),
        "rfft" if line => x.rfft(size, axis, norm)?.into_interleaved(),
        "rfft" => x.rfftn(sizes, &axes, norm)?.into_interleaved(),
        "irfft" if line => complex(x)?.irfft(size, axis, norm),
        "irfft" => complex(x)?.irfftn(sizes, &axes, norm),
        op => panic!("unknown op {op}"),
    }
}
