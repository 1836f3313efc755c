//! Masks: selection by booleans, and the elements where a mask is true.

use super::super::ok;
use crate::tensor::forward::forward;
use crate::{AnyTensor, Backend, Bool, Int, Kind, Number, Result, Tensor};
use alloc::vec::Vec;

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Selects elements of `values` where the mask is true, and of this tensor elsewhere; all three broadcast.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.where.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let m = Tensor::<Flex, 2, Bool>::from_bools([[true, false]], &device);
    /// let y = Tensor::<Flex, 2>::from_floats([[9.0]], &device);
    /// assert_eq!(x.mask_where(m, y).into_data().to_vec::<f32>(), [9.0, 2.0, 9.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When the operands do not broadcast.
    #[doc(alias = "where")]
    pub fn mask_where(self, mask: Tensor<B, D, Bool> as any, values: Self as any) -> Self;

    /// Fills the elements where the mask is true with a scalar; broadcasts.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill_.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let m = Tensor::<Flex, 2, Bool>::from_bools([[true, false]], &device);
    /// assert_eq!(x.mask_fill(m, 9).into_data().to_vec::<f32>(), [9.0, 2.0, 9.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When tensor and mask do not broadcast.
    #[doc(alias = "masked_fill")]
    pub fn mask_fill(self, mask: Tensor<B, D, Bool> as any, x: impl Number) -> Self;

    /// Returns the elements where the mask is true, in row-major order, `[count]`; tensor and mask broadcast. Waits for
    /// the device, because the shape depends on the data.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.masked_select.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.clone().mask_select(x.greater_elem(1.5)).into_data().to_vec::<f32>(), [2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When tensor and mask do not broadcast, or the computation of the mask failed.
    #[doc(alias = "masked_select")]
    pub fn mask_select(self, mask: Tensor<B, D, Bool> as any) -> Tensor<B, 1, K>;
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Like [`mask_select`](Tensor::mask_select), without blocking the thread.
    ///
    /// # Errors
    /// When shapes do not broadcast, or the computation of the mask failed.
    pub async fn mask_select_async(self, mask: Tensor<B, D, Bool>) -> Result<Tensor<B, 1, K>> {
        Ok(Tensor::from_any(self.into_any().mask_select_async(mask.into_any()).await?))
    }

    /// Returns the coordinates of the elements that are true or nonzero, in row-major order, `[count, D]`. Waits for
    /// the device, because the shape depends on the data.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.argwhere.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [3.0, 0.0]], &device);
    /// assert_eq!(x.argwhere().into_data().to_vec::<i32>(), [0, 1, 1, 0]);
    /// ```
    ///
    /// # Panics
    /// When the computation of the elements failed.
    #[track_caller]
    pub fn argwhere(self) -> Tensor<B, 2, Int> {
        self.convert(AnyTensor::argwhere)
    }

    /// Like [`argwhere`](Tensor::argwhere), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn argwhere_async(self) -> Result<Tensor<B, 2, Int>> {
        Ok(Tensor::from_any(self.into_any().argwhere_async().await?))
    }

    /// Returns the coordinates of the elements that are true or nonzero, in row-major order: one tensor `[count]` for
    /// each axis. Waits for the device, because the shape depends on the data.
    ///
    /// <https://numpy.org/doc/stable/reference/generated/numpy.nonzero.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [3.0, 0.0]], &device);
    /// let places = x.nonzero();
    /// assert_eq!(places[1].clone().into_data().to_vec::<i32>(), [1, 0]);
    /// ```
    ///
    /// # Panics
    /// When the computation of the elements failed.
    #[track_caller]
    pub fn nonzero(self) -> Vec<Tensor<B, 1, Int>> {
        let mut axes = Vec::new();
        for places in ok(self.into_any().nonzero()) {
            axes.push(Tensor::from_any(places));
        }
        axes
    }

    /// Like [`nonzero`](Tensor::nonzero), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn nonzero_async(self) -> Result<Vec<Tensor<B, 1, Int>>> {
        Ok(self.into_any().nonzero_async().await?.into_iter().map(Tensor::from_any).collect())
    }
}
