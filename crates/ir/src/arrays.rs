//! Conversions between `ndarray` arrays and tensor data.

use alloc::vec::Vec;

use ndarray::{Array, ArrayD, ArrayView, ArrayViewMut, Dimension, IxDyn};

use crate::{Element, Result, Shape, TensorData};

/// Moves the elements if they are in row-major order, else copies them into it.
///
/// ```
/// use kiln_ir::{TensorData, ndarray::array};
///
/// let data = TensorData::from(array![[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(data, TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]));
/// ```
///
/// # Panics
/// With more than [`MAX_RANK`](crate::MAX_RANK) axes.
impl<E: Element, D: Dimension> From<Array<E, D>> for TensorData {
    #[track_caller]
    fn from(array: Array<E, D>) -> TensorData {
        let shape = Shape::new(array.shape());
        let len = array.len();
        if !array.is_standard_layout() {
            return of(shape, array.iter().copied().collect());
        }
        let (mut elements, offset) = array.into_raw_vec_and_offset();
        // An array that was sliced in place owns the whole vector.
        elements.truncate(offset.unwrap_or(0) + len);
        elements.drain(..offset.unwrap_or(0));
        of(shape, elements)
    }
}

/// Copies the elements.
///
/// # Panics
/// With more than [`MAX_RANK`](crate::MAX_RANK) axes.
impl<E: Element, D: Dimension> From<ArrayView<'_, E, D>> for TensorData {
    #[track_caller]
    fn from(array: ArrayView<'_, E, D>) -> TensorData {
        of(Shape::new(array.shape()), array.iter().copied().collect())
    }
}

/// Copies the elements.
///
/// # Panics
/// With more than [`MAX_RANK`](crate::MAX_RANK) axes.
impl<E: Element, D: Dimension> From<ArrayViewMut<'_, E, D>> for TensorData {
    #[track_caller]
    fn from(array: ArrayViewMut<'_, E, D>) -> TensorData {
        TensorData::from(array.view())
    }
}

/// Copies the elements.
///
/// # Panics
/// With more than [`MAX_RANK`](crate::MAX_RANK) axes.
impl<E: Element, D: Dimension> From<&Array<E, D>> for TensorData {
    #[track_caller]
    fn from(array: &Array<E, D>) -> TensorData {
        TensorData::from(array.view())
    }
}

impl TensorData {
    /// Copies the data to an array of the [`ndarray`](crate::ndarray) crate.
    ///
    /// ```
    /// use kiln_ir::{TensorData, ndarray::Ix2};
    ///
    /// let data = TensorData::from([[1i32, 2], [3, 4]]);
    /// let array = data.to_ndarray::<i32>()?.into_dimensionality::<Ix2>().unwrap();
    /// assert_eq!(array[[1, 0]], 3);
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the dtype is not that of `E`; [`convert`](TensorData::convert) changes it.
    pub fn to_ndarray<E: Element>(&self) -> Result<ArrayD<E>> {
        Ok(array(self.shape(), self.as_slice()?.to_vec()))
    }

    /// Converts the data to an array of the [`ndarray`](crate::ndarray) crate without copying.
    ///
    /// ```
    /// use kiln_ir::TensorData;
    ///
    /// let array = TensorData::from([[1i32, 2], [3, 4]]).into_ndarray::<i32>()?;
    /// assert_eq!(array.sum(), 10);
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the dtype is not that of `E`; [`convert`](TensorData::convert) changes it.
    pub fn into_ndarray<E: Element>(self) -> Result<ArrayD<E>> {
        let shape = *self.shape();
        Ok(array(&shape, self.into_vec()?))
    }
}

fn of<E: Element>(shape: Shape, elements: Vec<E>) -> TensorData {
    TensorData::new(elements, shape).expect("an array has as many elements as its shape")
}

fn array<E: Element>(shape: &Shape, elements: Vec<E>) -> ArrayD<E> {
    ArrayD::from_shape_vec(IxDyn(shape), elements).expect("data has as many elements as its shape")
}
