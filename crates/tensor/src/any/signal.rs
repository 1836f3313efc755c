//! Signal processing: windows, short-time Fourier transforms, convolution.

mod convolve;
mod stft;
mod window;

pub use convolve::ConvolveMode;
pub use stft::StftOptions;
pub use window::Window;
