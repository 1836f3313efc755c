//! Padding of convolutions.

use crate::{Config, plain_data};

macro_rules! paddings {
    ($($(#[$doc:meta])* $name:ident $axes:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            /// No padding.
            #[default]
            Valid,
            /// Zero padding such that the output length is `ceil(length / stride)`. If the number of zeros is odd, the
            /// extra zero is at the end.
            Same,
            /// The number of zeros at both ends of each dimension.
            Explicit([usize; $axes]),
            /// The numbers of zeros before and after each dimension.
            Sides([(usize, usize); $axes]),
        }

        plain_data!($name);

        impl $name {
            /// Returns the zeros before and after each dimension, for an input of these lengths.
            pub(crate) fn sides(
                &self,
                lengths: [usize; $axes],
                kernel: [usize; $axes],
                stride: [usize; $axes],
                dilation: [usize; $axes],
            ) -> [(usize, usize); $axes] {
                match *self {
                    $name::Valid => [(0, 0); $axes],
                    $name::Same => core::array::from_fn(|axis| {
                        same(lengths[axis], dilation[axis] * kernel[axis].saturating_sub(1) + 1, stride[axis])
                    }),
                    $name::Explicit(zeros) => zeros.map(|zeros| (zeros, zeros)),
                    $name::Sides(sides) => sides,
                }
            }
        }
    )*};
}

paddings! {
    /// Zero padding of a 1-dimensional convolution. Default: `Valid`.
    PaddingConfig1d 1;
    /// Zero padding of a 2-dimensional convolution. Default: `Valid`.
    PaddingConfig2d 2;
    /// Zero padding of a 3-dimensional convolution. Default: `Valid`.
    PaddingConfig3d 3;
}

/// Zeros before and after a dimension whose output length is `ceil(length / stride)`. `reach` is the extent of the
/// dilated kernel.
fn same(length: usize, reach: usize, stride: usize) -> (usize, usize) {
    let outputs = length.div_ceil(stride.max(1));
    let needed = outputs.saturating_sub(1) * stride + reach;
    let zeros = needed.saturating_sub(length);
    (zeros / 2, zeros - zeros / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_keeps_the_length() {
        assert_eq!(same(7, 3, 1), (1, 1));
        assert_eq!(same(7, 4, 1), (1, 2));
        assert_eq!(same(7, 5, 1), (2, 2));
        assert_eq!(same(8, 3, 2), (0, 1));
        assert_eq!(same(5, 1, 3), (0, 0));
    }
}
