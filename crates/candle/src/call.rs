//! An op with its operands as candle's tensors.

use crate::data::{stored, upload};
use candle_core::{DType as CandleDType, Device, Result, Tensor};
use kiln_ir::{DType, Elements, Operand, Operands, Scalar, TensorData, TensorType, Value};

/// The result of an op by candle's kernels; `None` where they would not give Kiln's result, so that the host runs the op.
pub(crate) type Native<T = Tensor> = Result<Option<T>>;

/// The operands of an op and the types of its results. None of them is empty or poisoned.
pub(crate) struct Call<'a> {
    pub(crate) inputs: &'a Operands,
    pub(crate) types: &'a [TensorType],
    pub(crate) device: &'a Device,
}

impl Call<'_> {
    /// The type of the first result.
    pub(crate) fn ty(&self) -> TensorType {
        self.types[0]
    }

    /// The lengths of the first result.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.types[0].shape
    }

    /// The dtype of the operands: that of the first tensor from a place on.
    pub(crate) fn dtype_from(&self, place: usize) -> DType {
        let tensor = self.inputs[place..].iter().find_map(Operand::value);
        tensor.map_or(self.types[0].dtype, Value::dtype)
    }

    /// The dtype of the first tensor operand.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype_from(0)
    }

    /// The tensor at a place.
    pub(crate) fn tensor(&self, place: usize) -> Result<Tensor> {
        let value = self.inputs.get(place).and_then(Operand::value);
        let tensor = value.and_then(Value::payload::<Tensor>).cloned();
        tensor.ok_or_else(|| {
            candle_core::Error::Msg(format!(
                "operand {place} is no tensor of candle: read it and write it here"
            ))
        })
    }

    /// The tensor at a place, if the op has that operand.
    pub(crate) fn optional(&self, place: usize) -> Native {
        if place < self.inputs.len() { self.tensor(place).map(Some) } else { Ok(None) }
    }

    /// The operand at a place: the tensor, or the scalar repeated in the lengths of the result.
    pub(crate) fn filled(&self, place: usize, dtype: DType) -> Result<Tensor> {
        match self.inputs[place] {
            Operand::Value(_) => self.tensor(place),
            Operand::Scalar(scalar) => self.repeated(scalar, dtype, self.dims()),
        }
    }

    /// A scalar in these lengths, as a view of one element.
    pub(crate) fn repeated(&self, scalar: Scalar, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.upload(Elements::of_scalar(scalar, dtype))?.reshape(())?.broadcast_as(dims)
    }

    /// A line of elements on the device.
    pub(crate) fn upload(&self, elements: Elements) -> Result<Tensor> {
        let length = elements.len();
        let data = TensorData::from_elements(elements, [length].into());
        upload(data.map_err(|error| candle_core::Error::Msg(error.to_string()))?, self.device)
    }

    /// Places along an axis, as a tensor of indices.
    pub(crate) fn places(&self, places: Vec<usize>) -> Native {
        let narrow: Option<Vec<u32>> = places.into_iter().map(|place| u32::try_from(place).ok()).collect();
        // Candle takes the greatest number for "skip".
        let narrow = narrow.filter(|places| !places.contains(&u32::MAX));
        narrow.map(|places| self.upload(Elements::U32(places))).transpose()
    }
}

/// A number in the lengths of a tensor and of its dtype.
pub(crate) fn constant(like: &Tensor, number: f64) -> Result<Tensor> {
    Tensor::new(number, like.device())?.to_dtype(like.dtype())?.broadcast_as(like.shape())
}

/// Floats for computation: those of 16 bits become `f32`, which is exact.
pub(crate) fn widened(x: &Tensor) -> Result<Tensor> {
    let is_narrow = matches!(x.dtype(), CandleDType::F16 | CandleDType::BF16);
    if is_narrow { x.to_dtype(CandleDType::F32) } else { Ok(x.clone()) }
}

/// Rounds a [widened] result to its dtype.
pub(crate) fn rounded(x: &Tensor, dtype: DType) -> Result<Tensor> {
    x.to_dtype(stored(dtype))
}

/// A mask, as `bool` is stored, of the elements that are NaN.
pub(crate) fn nan_mask(x: &Tensor) -> Result<Tensor> {
    x.ne(x)
}
