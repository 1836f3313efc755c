//! Elements between the host and candle's tensors.

use candle_core::{DType as CandleDType, Device, Tensor, WithDType};
use kiln_ir::{DType, Elements, Error, Result, TensorData, TensorType};

/// The dtype of the tensor that holds elements of a dtype: the same one, or one of the same size for their bits.
pub(crate) const fn stored(dtype: DType) -> CandleDType {
    match dtype {
        DType::F64 => CandleDType::F64,
        DType::F32 => CandleDType::F32,
        DType::F16 => CandleDType::F16,
        DType::BF16 => CandleDType::BF16,
        DType::I64 | DType::U64 => CandleDType::I64,
        DType::I32 => CandleDType::I32,
        DType::I16 | DType::U16 => CandleDType::I16,
        DType::U32 => CandleDType::U32,
        DType::U8 | DType::I8 | DType::Bool => CandleDType::U8,
    }
}

/// Whether candle's tensors hold the numbers themselves, in order. False where they hold bits of another dtype.
pub(crate) const fn has_numbers(dtype: DType) -> bool {
    match dtype {
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::U32
        | DType::U8
        | DType::Bool => true,
        DType::I8 | DType::U16 | DType::U64 => false,
    }
}

/// Copies elements to the device. A tensor of no elements is `[0]`, whatever its shape: candle multiplies all lengths.
pub(crate) fn upload(data: TensorData, device: &Device) -> candle_core::Result<Tensor> {
    let shape = *data.shape();
    let dims: &[usize] = if data.num_elements() == 0 { &[0] } else { &shape };
    match data.into_elements() {
        Elements::F64(elements) => Tensor::from_vec(elements, dims, device),
        Elements::F32(elements) => Tensor::from_vec(elements, dims, device),
        Elements::F16(elements) => Tensor::from_vec(elements, dims, device),
        Elements::BF16(elements) => Tensor::from_vec(elements, dims, device),
        Elements::I64(elements) => Tensor::from_vec(elements, dims, device),
        Elements::I32(elements) => Tensor::from_vec(elements, dims, device),
        Elements::I16(elements) => Tensor::from_vec(elements, dims, device),
        Elements::U32(elements) => Tensor::from_vec(elements, dims, device),
        Elements::U8(elements) => Tensor::from_vec(elements, dims, device),
        Elements::I8(elements) => Tensor::from_vec(mapped(elements, |x| x as u8), dims, device),
        Elements::U16(elements) => Tensor::from_vec(mapped(elements, |x| x as i16), dims, device),
        Elements::U64(elements) => Tensor::from_vec(mapped(elements, |x| x as i64), dims, device),
        Elements::Bool(elements) => Tensor::from_vec(mapped(elements, u8::from), dims, device),
    }
}

/// Copies a tensor, which has elements of this type, to the host.
pub(crate) fn download(tensor: &Tensor, ty: TensorType) -> Result<TensorData> {
    if ty.num_elements() == 0 {
        return Ok(TensorData::zeros(ty));
    }
    let elements = elements_of(tensor, ty.dtype)
        .map_err(|error| Error::device("candle", format!("reading {ty} failed: {}", message(&error))))?;
    TensorData::from_elements(elements, ty.shape)
}

fn elements_of(tensor: &Tensor, dtype: DType) -> candle_core::Result<Elements> {
    Ok(match dtype {
        DType::F64 => Elements::F64(list(tensor)?),
        DType::F32 => Elements::F32(list(tensor)?),
        DType::F16 => Elements::F16(list(tensor)?),
        DType::BF16 => Elements::BF16(list(tensor)?),
        DType::I64 => Elements::I64(list(tensor)?),
        DType::I32 => Elements::I32(list(tensor)?),
        DType::I16 => Elements::I16(list(tensor)?),
        DType::U32 => Elements::U32(list(tensor)?),
        DType::U8 => Elements::U8(list(tensor)?),
        DType::I8 => Elements::I8(mapped(list::<u8>(tensor)?, |x| x as i8)),
        DType::U16 => Elements::U16(mapped(list::<i16>(tensor)?, |x| x as u16)),
        DType::U64 => Elements::U64(mapped(list::<i64>(tensor)?, |x| x as u64)),
        DType::Bool => Elements::Bool(mapped(list::<u8>(tensor)?, |x| x != 0)),
    })
}

fn list<T: WithDType>(tensor: &Tensor) -> candle_core::Result<Vec<T>> {
    tensor.flatten_all()?.to_vec1()
}

fn mapped<A, B>(elements: Vec<A>, convert: impl Fn(A) -> B) -> Vec<B> {
    elements.into_iter().map(convert).collect()
}

/// The message of a candle error, without the backtrace that it contains if `RUST_BACKTRACE` is set.
pub(crate) fn message(error: &candle_core::Error) -> String {
    if let candle_core::Error::WithBacktrace { inner, .. } = error {
        message(inner)
    } else {
        error.to_string()
    }
}
