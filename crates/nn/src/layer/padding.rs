//! How convolutions pad.

use crate::{Config, plain_data};

macro_rules! paddings {
    ($($(#[$doc:meta])* $name:ident $axes:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            /// No padding: the kernel stays within the input.
            #[default]
            Valid,
            /// Zeros that make the output `length / stride` long, rounded up. If their number is odd, the extra one
            /// comes after.
            Same,
            /// This many zeros on both sides of each axis.
            Explicit([usize; $axes]),
            /// This many zeros before and after each axis.
            Sides([(usize, usize); $axes]),
        }

        plain_data!($name);

        impl $name {
            /// Zeros before and after each axis, for an input of these lengths.
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
    /// How a 1-dimensional convolution pads.
    PaddingConfig1d 1;
    /// How a 2-dimensional convolution pads.
    PaddingConfig2d 2;
    /// How a 3-dimensional convolution pads.
    PaddingConfig3d 3;
}

/// Zeros before and after an axis whose output is `length / stride` long, rounded up; `reach` is the extent of the kernel.
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
    fn same_keeps_the_length() {
        assert_eq!(same(7, 3, 1), (1, 1));
        assert_eq!(same(7, 4, 1), (1, 2));
        assert_eq!(same(7, 5, 1), (2, 2));
        assert_eq!(same(8, 3, 2), (0, 1));
        assert_eq!(same(5, 1, 3), (0, 0));
    }
}
