//! An op with its operands as the library's tensors.

use crate::library::{Library, Outcome, View};
use kiln_ir::{DType, Elements, Operand, Operands, Scalar, TensorData, TensorType, Value};

/// The operands of an op and the types of its results. None of them is empty or poisoned.
pub struct Call<'a, L> {
    /// The library, opened for the device.
    pub library: &'a L,
    /// The operands.
    pub inputs: &'a Operands,
    /// The types of the results.
    pub types: &'a [TensorType],
}

impl<L: Library> Call<'_, L> {
    /// Returns the type of the first result.
    pub fn ty(&self) -> TensorType {
        self.types[0]
    }

    /// Returns the lengths of the first result.
    pub fn dims(&self) -> &[usize] {
        &self.types[0].shape
    }

    /// Returns the dtype of the operands: that of the first tensor.
    pub fn dtype(&self) -> DType {
        let tensor = self.inputs.iter().find_map(Operand::value);
        tensor.map_or(self.types[0].dtype, Value::dtype)
    }

    /// Returns the tensor at a place.
    ///
    /// # Errors
    /// When the operand is a scalar, or a value of another engine.
    pub fn tensor(&self, place: usize) -> Outcome<L> {
        let value = self.inputs.get(place).and_then(Operand::value);
        let tensor = value.and_then(Value::payload::<L::Tensor>).cloned();
        tensor.ok_or_else(|| {
            L::error(format!("operand {place} is no tensor of {}: read it and write it here", L::NAME))
        })
    }
}

impl<L: View> Call<'_, L> {
    /// Returns the operand at a place: the tensor, or the scalar repeated in the lengths of the result.
    ///
    /// # Errors
    /// Those of the device.
    pub fn filled(&self, place: usize, dtype: DType) -> Outcome<L> {
        match self.inputs[place].scalar() {
            Some(scalar) => self.repeated(scalar, dtype, self.dims()),
            None => self.tensor(place),
        }
    }

    /// Returns a scalar in these lengths, as a view of one element.
    ///
    /// # Errors
    /// Those of the device.
    pub fn repeated(&self, scalar: Scalar, dtype: DType, dims: &[usize]) -> Outcome<L> {
        let data = TensorData::from_elements(Elements::of_scalar(scalar, dtype), [1].into());
        let one = self.library.write(data.map_err(|error| L::error(error.to_string()))?)?;
        L::broadcast(&L::reshape(&one, &[])?, dims)
    }
}
