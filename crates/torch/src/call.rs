//! An op with its operands as LibTorch's tensors.

use crate::data::{stored, upload};
use crate::ffi::{Argument, Failure, Place};
use crate::tensor::{Result, Tensor, TorchType};
use kiln_ir::{DType, Elements, Operand, Operands, Scalar, TensorData, TensorType, Value};

/// The result of an op by LibTorch's kernels; `None` where they would not give Kiln's result, so that the host runs the op.
pub(crate) type Native<T = Tensor> = Result<Option<T>>;

/// The operands of an op and the types of its results. None of them is empty or poisoned.
pub(crate) struct Call<'a> {
    pub(crate) inputs: &'a Operands,
    pub(crate) types: &'a [TensorType],
    pub(crate) place: Place,
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

    /// The dtype of the operands: that of the first tensor.
    pub(crate) fn dtype(&self) -> DType {
        let tensor = self.inputs.iter().find_map(Operand::value);
        tensor.map_or(self.types[0].dtype, Value::dtype)
    }

    /// The tensor at a place.
    pub(crate) fn tensor(&self, place: usize) -> Result {
        let value = self.inputs.get(place).and_then(Operand::value);
        let tensor = value.and_then(Value::payload::<Tensor>).cloned();
        tensor.ok_or_else(|| {
            Failure(format!("operand {place} is no tensor of LibTorch: read it and write it here"))
        })
    }

    /// The tensor at a place, if the op has that operand.
    pub(crate) fn optional(&self, place: usize) -> Native {
        if place < self.inputs.len() { self.tensor(place).map(Some) } else { Ok(None) }
    }

    /// The operand at a place: the tensor, or the scalar repeated in the lengths of the result.
    pub(crate) fn filled(&self, place: usize, dtype: DType) -> Result {
        match self.inputs[place] {
            Operand::Value(_) => self.tensor(place),
            Operand::Scalar(scalar) => self.repeated(scalar, dtype, self.dims()),
        }
    }

    /// A scalar in these lengths, as a view of one element.
    pub(crate) fn repeated(&self, scalar: Scalar, dtype: DType, dims: &[usize]) -> Result {
        let data = TensorData::from_elements(Elements::of_scalar(scalar, dtype), [1].into());
        let data = data.map_err(|error| Failure(error.to_string()))?;
        upload(&data, self.place)?.reshape(&[])?.expand(dims)
    }
}

/// Floats for computation: those of 16 bits become `f32`, which is exact.
pub(crate) fn widened(x: &Tensor) -> Result {
    if x.is(TorchType::Half) || x.is(TorchType::BFloat16) { x.to(TorchType::Float) } else { Ok(x.clone()) }
}

/// Rounds a [widened] result to its dtype. Integers wrap.
pub(crate) fn rounded(x: &Tensor, dtype: DType) -> Result {
    x.to(stored(dtype))
}

/// Numbers of a dtype that LibTorch holds as they are: unsigned ones of 16 and 32 bits in `i64`. `None` for `u64`.
pub(crate) fn numbers(x: &Tensor, dtype: DType) -> Native {
    let mask = match dtype {
        DType::U16 => 0xffff,
        DType::U32 => 0xffff_ffff,
        DType::U64 => return Ok(None),
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U8
        | DType::Bool => return Ok(Some(x.clone())),
    };
    x.to(TorchType::Long)?.with(c"bitwise_and.Scalar", Argument::Int(mask)).map(Some)
}

/// Numbers in the order of those of a dtype, of a dtype that LibTorch compares.
pub(crate) fn ordered(x: &Tensor, dtype: DType) -> Result {
    if dtype.is_bool() {
        return x.to(TorchType::Byte);
    }
    match numbers(&widened(x)?, dtype)? {
        Some(x) => Ok(x),
        None => x.with(c"bitwise_xor.Scalar", Argument::Int(i64::MIN)),
    }
}

/// The elements of a dtype that [`ordered`] makes of them.
pub(crate) fn unordered(x: &Tensor, dtype: DType) -> Result {
    match dtype {
        DType::U64 => x.with(c"bitwise_xor.Scalar", Argument::Int(i64::MIN)),
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => rounded(x, dtype),
    }
}
