//! An op call: the op, its operands and its result types.

use crate::numbers::Numbers;
use alloc::borrow::Cow;
use alloc::format;
use kiln_ir::{Error, Op, Operand, Operands, Result, Scalar, TensorData, TensorType, Value};

/// One op with its operands and result types, all well-formed.
pub(crate) struct Call<'a> {
    pub(crate) op: &'a Op,
    pub(crate) inputs: &'a Operands,
    pub(crate) types: &'a [TensorType],
}

impl<'a> Call<'a> {
    /// The name of the op, for messages.
    pub(crate) fn name(&self) -> &'a str {
        self.op.name()
    }

    /// The type of the only result.
    pub(crate) fn ty(&self) -> TensorType {
        self.types[0]
    }

    /// The tensor operand at an index.
    pub(crate) fn data(&self, place: usize) -> Result<&'a TensorData> {
        match &self.inputs[place] {
            Operand::Value(value) => data_of(value),
            Operand::Scalar(_) => Err(Error::value(self.name(), format!("operand {place} must be a tensor"))),
        }
    }

    /// The tensor operand at an index, if it exists.
    pub(crate) fn optional(&self, place: usize) -> Result<Option<&'a TensorData>> {
        if place < self.inputs.len() { self.data(place).map(Some) } else { Ok(None) }
    }

    /// The operand at an index: the tensor, or a tensor of this type filled with the scalar.
    pub(crate) fn filled(&self, place: usize, ty: TensorType) -> Result<Cow<'a, TensorData>> {
        match &self.inputs[place] {
            Operand::Value(value) => data_of(value).map(Cow::Borrowed),
            Operand::Scalar(scalar) => full(*scalar, ty).map(Cow::Owned),
        }
    }

    /// All operands, which are tensors.
    pub(crate) fn all(&self) -> Result<alloc::vec::Vec<&'a TensorData>> {
        (0..self.inputs.len()).map(|place| self.data(place)).collect()
    }

    /// The type that all tensor operands have in common; scalar operands are skipped.
    pub(crate) fn common(&self, places: core::ops::Range<usize>) -> TensorType {
        let tensor = self.inputs[places].iter().find_map(Operand::value);
        tensor.map_or(self.types[0], |value| *value.ty())
    }
}

/// A tensor with every element equal to the scalar.
pub(crate) fn full(scalar: Scalar, ty: TensorType) -> Result<TensorData> {
    Numbers::repeated(scalar, ty.dtype, ty.num_elements()).into_data(ty)
}

/// The data of a value.
pub(crate) fn data_of(value: &Value) -> Result<&TensorData> {
    if let Some(error) = value.error() {
        return Err(error.clone());
    }
    value.payload::<TensorData>().ok_or_else(|| {
        let problem = format!("the value {} belongs to another engine, or has no data", value.ty());
        Error::unsupported("reference", problem).hint("read it on that engine and write it on this one")
    })
}
