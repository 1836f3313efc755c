//! Padding of convolutions and pooling.

use crate::{Config, plain_data};

macro_rules! paddings {
    ($($name:ident $axes:literal $space:literal: $(#[$doc:meta])* ($($end:ident: $ty:ty),*) => $explicit:expr;)*) => {$(
        #[doc = concat!("Padding of ", $space, ". Default: `Valid`.")]
        ///
        /// Configurations also take an array: of one number per dimension, for both of its ends, or of pairs.
        #[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            /// No padding.
            #[default]
            Valid,
            /// Padding such that the output length is `ceil(length / stride)`. If the number of elements is odd, the extra
            /// element is at the end.
            Same,
            $(#[$doc])*
            Explicit($($ty),*),
            /// The numbers of elements before and after each dimension.
            Sides([(usize, usize); $axes]),
        }

        plain_data!($name);

        impl $name {
            /// Returns the elements before and after each dimension, for an input of these lengths.
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
                    $name::Explicit($($end),*) => $explicit,
                    $name::Sides(sides) => sides,
                }
            }
        }

        /// Padding with these numbers of elements at both ends of each dimension.
        impl From<[usize; $axes]> for $name {
            fn from(both: [usize; $axes]) -> $name {
                $name::Sides(both.map(|elements| (elements, elements)))
            }
        }

        /// Padding with these numbers of elements before and after each dimension.
        impl From<[(usize, usize); $axes]> for $name {
            fn from(sides: [(usize, usize); $axes]) -> $name {
                $name::Sides(sides)
            }
        }
    )*};
}

paddings! {
    PaddingConfig1d 1 "one spatial dimension":
        /// The numbers of elements before and after the dimension.
        (before: usize, after: usize) => [(before, after)];
    PaddingConfig2d 2 "two spatial dimensions":
        /// The numbers of elements at the top, at the left, at the bottom and at the right.
        (top: usize, left: usize, bottom: usize, right: usize) => [(top, bottom), (left, right)];
    PaddingConfig3d 3 "three spatial dimensions":
        /// The numbers of elements at both ends of depth, height and width.
        (depth: usize, height: usize, width: usize) => [(depth, depth), (height, height), (width, width)];
}

/// Elements before and after a dimension whose output length is `ceil(length / stride)`. `reach` is the extent of the
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
