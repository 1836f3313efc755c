//! Padding layers.

use crate::Module;
use crate::module::forward::forward_modules;
use kiln_tensor::{Backend, PadMode, Tensor};

/// Defines layers that pad with a mode or number, which may be that of a field after `=>`.
macro_rules! pads {
    ($(
        $(#[$doc:meta])*
        $name:ident $axes:literal $rank:literal $mode:expr $(=> $value:ident)? $(, $panic:literal)?;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        pub struct $name {
            /// The numbers of elements added before and after each spatial dimension, first dimension first.
            #[module(attribute)]
            pub padding: [(usize, usize); $axes],
            $(
                /// The value of the elements.
                pub $value: f64,
            )?
        }

        impl $name {
            /// Returns the layer with these numbers of elements before and after each spatial dimension.
            ///
            /// The first pair is that of the first spatial dimension. PyTorch's list has the last dimension first.
            pub fn new(padding: [(usize, usize); $axes] $(, $value: f64)?) -> $name {
                $name { padding, $($value)? }
            }

            /// Returns the layer with the same number of elements at all ends.
            pub fn uniform(padding: usize $(, $value: f64)?) -> $name {
                $name { padding: [(padding, padding); $axes], $($value)? }
            }

            /// Pads the spatial dimensions of `[batch, channels, space..]`.
            $(
                ///
                /// # Panics
                #[doc = $panic]
            )?
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let mut pads = [(0, 0); $rank];
                pads[2..].copy_from_slice(&self.padding);
                $(let $value = self.$value;)?
                x.pad(pads, $mode)
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

pads! {
    /// Pads one spatial dimension with zeros.
    ZeroPad1d 1 3 0;
    /// Pads two spatial dimensions with zeros.
    ZeroPad2d 2 4 0;
    /// Pads three spatial dimensions with zeros.
    ZeroPad3d 3 5 0;
    /// Pads one spatial dimension by reflection at the first and the last element, which are not repeated:
    /// `c b | a b c | b a`.
    ReflectionPad1d 1 3 PadMode::Reflect, "When a number is not less than the length of its dimension.";
    /// Pads two spatial dimensions by reflection at the first and the last element, which are not repeated:
    /// `c b | a b c | b a`.
    ReflectionPad2d 2 4 PadMode::Reflect, "When a number is not less than the length of its dimension.";
    /// Pads three spatial dimensions by reflection at the first and the last element, which are not repeated:
    /// `c b | a b c | b a`.
    ReflectionPad3d 3 5 PadMode::Reflect, "When a number is not less than the length of its dimension.";
    /// Pads one spatial dimension by repeating the first and the last element: `a a | a b c | c c`.
    ReplicationPad1d 1 3 PadMode::Edge, "When a padded dimension is empty.";
    /// Pads two spatial dimensions by repeating the first and the last element: `a a | a b c | c c`.
    ReplicationPad2d 2 4 PadMode::Edge, "When a padded dimension is empty.";
    /// Pads three spatial dimensions by repeating the first and the last element: `a a | a b c | c c`.
    ReplicationPad3d 3 5 PadMode::Edge, "When a padded dimension is empty.";
    /// Pads one spatial dimension with elements from the other end: `b c | a b c | a b`.
    CircularPad1d 1 3 PadMode::Circular, "When a number exceeds the length of its dimension.";
    /// Pads two spatial dimensions with elements from the other end: `b c | a b c | a b`.
    CircularPad2d 2 4 PadMode::Circular, "When a number exceeds the length of its dimension.";
    /// Pads three spatial dimensions with elements from the other end: `b c | a b c | a b`.
    CircularPad3d 3 5 PadMode::Circular, "When a number exceeds the length of its dimension.";
    /// Pads one spatial dimension with a constant.
    ConstantPad1d 1 3 value => value;
    /// Pads two spatial dimensions with a constant.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::ConstantPad2d;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 4>::zeros([1, 1, 1, 2], &Default::default());
    /// // No rows, and one column on the left.
    /// let y = ConstantPad2d::new([(0, 0), (1, 0)], 7.0).forward(x);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [7.0, 0.0, 0.0]);
    /// ```
    ConstantPad2d 2 4 value => value;
    /// Pads three spatial dimensions with a constant.
    ConstantPad3d 3 5 value => value;
}
