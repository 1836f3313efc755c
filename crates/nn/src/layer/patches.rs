//! Windows of images as columns, and back.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::module::{self, ConvOptions};
use kiln_tensor::{Backend, Tensor};

plain_module! {
    /// Extracts the windows of an image as columns (im2col), as `torch.nn.Unfold`.
    #[doc(alias = "im2col")]
    Unfold4d Unfold4dConfig {
        /// Window size.
        kernel_size: [usize; 2],
        /// Stride. Default: 1.
        stride: [usize; 2] = [1; 2],
        /// Dilation: distance between window elements. Default: 1.
        dilation: [usize; 2] = [1; 2],
        /// Zero padding at both ends of each dimension. Default: 0.
        padding: [usize; 2] = [0; 2],
    }
}

/// PyTorch's name of [`Unfold4d`].
pub type Unfold = Unfold4d;

impl Unfold4d {
    /// Extracts the windows of `[batch, channels, height, width]`. The output is
    /// `[batch, channels product(kernel_size), windows]`.
    ///
    /// # Panics
    /// When no window fits, or a stride, a dilation or a length of the window is 0.
    #[track_caller]
    pub fn forward<B: Backend>(&self, x: Tensor<B, 4>) -> Tensor<B, 3> {
        let options = ConvOptions::new(self.stride, self.padding, self.dilation, 1);
        module::unfold4d(x, self.kernel_size, &options)
    }
}

plain_module! {
    /// Sums columns at the positions of their windows (col2im), as `torch.nn.Fold`: the transpose of [`Unfold4d`].
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Fold4dConfig, Unfold4dConfig};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 4>::ones([1, 1, 3, 3], &Default::default());
    /// let columns = Unfold4dConfig::new([2, 2]).init().forward(x);
    /// assert_eq!(columns.dims(), [1, 4, 4]);
    /// // Each element is multiplied by the number of windows that contain it.
    /// let y = Fold4dConfig::new([3, 3], [2, 2]).init().forward(columns);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0]);
    /// ```
    #[doc(alias = "col2im")]
    Fold4d Fold4dConfig {
        /// Height and width of the output.
        output_size: [usize; 2],
        /// Window size.
        kernel_size: [usize; 2],
        /// Stride. Default: 1.
        stride: [usize; 2] = [1; 2],
        /// Dilation: distance between window elements. Default: 1.
        dilation: [usize; 2] = [1; 2],
        /// Zero padding of the output, which is removed, at both ends of each dimension. Default: 0.
        padding: [usize; 2] = [0; 2],
    }
}

/// PyTorch's name of [`Fold4d`].
pub type Fold = Fold4d;

impl Fold4d {
    /// Sums columns `[batch, channels product(kernel_size), windows]`. The output is
    /// `[batch, channels, height, width]`.
    ///
    /// # Panics
    /// When the columns do not suit the output size, the window, the stride and the padding.
    #[track_caller]
    pub fn forward<B: Backend>(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let options = ConvOptions::new(self.stride, self.padding, self.dilation, 1);
        module::fold4d(x, self.output_size, self.kernel_size, &options)
    }
}

forward_modules! {
    Unfold4d: 4 => 3;
    Fold4d: 3 => 4;
}
