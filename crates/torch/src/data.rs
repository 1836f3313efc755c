//! Elements between the host and LibTorch's tensors.

use crate::ffi::{Failure, Place};
use crate::tensor::{Result as TorchResult, Tensor, TorchType, ints};
use kiln_ir::{DType, Error, Result, TensorData, TensorType};

/// The dtype of the tensor that holds elements of a dtype: the same one, or one of the same size for their bits.
pub(crate) const fn stored(dtype: DType) -> TorchType {
    match dtype {
        DType::F64 => TorchType::Double,
        DType::F32 => TorchType::Float,
        DType::F16 => TorchType::Half,
        DType::BF16 => TorchType::BFloat16,
        DType::I64 | DType::U64 => TorchType::Long,
        DType::I32 | DType::U32 => TorchType::Int,
        DType::I16 | DType::U16 => TorchType::Short,
        DType::I8 => TorchType::Char,
        DType::U8 => TorchType::Byte,
        DType::Bool => TorchType::Bool,
    }
}

/// Copies elements to the device.
pub(crate) fn upload(data: &TensorData, place: Place) -> TorchResult {
    Tensor::write(data.bytes(), &ints(data.shape()), stored(data.dtype()) as i32, place)
}

/// Copies a tensor, which has elements of this type, to the host.
pub(crate) fn download(tensor: &Tensor, ty: TensorType) -> Result<TensorData> {
    let failed = |failure: Failure| Error::device("libtorch", format!("reading {ty} failed: {failure}"));
    let bytes = ty.num_elements() * ty.dtype.size();
    let mut elements = Vec::new();
    elements.try_reserve_exact(bytes).map_err(|error| failed(Failure(error.to_string())))?;
    elements.resize(bytes, 0);
    tensor.read(&mut elements).map_err(failed)?;
    TensorData::from_bytes(&elements, ty)
}
