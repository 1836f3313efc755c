//! candle-core as a library: its devices, dtypes and transfers.

use crate::CandleDevice;
use candle_core::{DType as CandleDType, Device, Error, Result, Tensor, WithDType};
use kiln_foreign::Library;
use kiln_ir::{DType, Elements, OpKind, OpSet, TensorData, TensorType};

/// The operands of an op and the types of its results.
pub(crate) type Call<'a> = kiln_foreign::Call<'a, CandleCore>;

/// The result of an op by candle's kernels; `None` where they would not give Kiln's result, so that the host runs the op.
pub(crate) type Native<T = Tensor> = Result<Option<T>>;

/// Bytes of results from which on memory is tried before an op runs.
const LARGE: usize = 64 << 20;

/// candle-core, opened for a device.
pub struct CandleCore(pub(crate) Device);

impl Library for CandleCore {
    type Device = CandleDevice;
    type Tensor = Tensor;
    type Error = Error;

    const NAME: &'static str = "candle";
    const NATIVE: OpSet = kiln_foreign::NATIVE;
    /// An expansion of these needs many ops that candle lacks. That of a cubic resize rounds more often than the suite allows.
    const ON_HOST: OpSet =
        OpSet::of(&[OpKind::Bitcast, OpKind::Random, OpKind::NonZero, OpKind::Recover, OpKind::Resize]);

    fn open(device: CandleDevice) -> kiln_ir::Result<CandleCore> {
        device.open().map(CandleCore)
    }

    fn threads(&self) -> usize {
        if self.0.is_cpu() { candle_core::utils::get_num_threads() } else { 1 }
    }

    /// Candle ends the process when an allocation on the host fails: memory for large results is tried first.
    fn has_memory(&self, bytes: usize) -> bool {
        bytes < LARGE || !self.0.is_cpu() || Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    fn write(&self, data: TensorData) -> Result<Tensor> {
        upload(data, &self.0)
    }

    fn read(x: &Tensor, ty: TensorType) -> Result<TensorData> {
        let elements = elements_of(x, ty.dtype)?;
        TensorData::from_elements(elements, ty.shape).map_err(|error| Error::Msg(error.to_string()))
    }

    fn error(problem: String) -> Error {
        Error::Msg(problem)
    }

    /// Leaves out the backtrace that an error contains if `RUST_BACKTRACE` is set.
    fn message(error: &Error) -> String {
        if let Error::WithBacktrace { inner, .. } = error {
            CandleCore::message(inner)
        } else {
            error.to_string()
        }
    }

    fn dims(x: &Tensor) -> Vec<usize> {
        x.dims().to_vec()
    }

    fn widened(x: &Tensor) -> Result<Tensor> {
        let is_narrow = matches!(x.dtype(), CandleDType::F16 | CandleDType::BF16);
        if is_narrow { x.to_dtype(CandleDType::F32) } else { Ok(x.clone()) }
    }

    fn rounded(x: &Tensor, dtype: DType) -> Result<Tensor> {
        x.to_dtype(stored(dtype))
    }
}

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
    !matches!(dtype, DType::I8 | DType::U16 | DType::U64)
}

/// A tensor of no elements is `[0]`, whatever its shape: candle multiplies all lengths.
fn upload(data: TensorData, device: &Device) -> Result<Tensor> {
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

fn elements_of(tensor: &Tensor, dtype: DType) -> Result<Elements> {
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

fn list<T: WithDType>(tensor: &Tensor) -> Result<Vec<T>> {
    tensor.flatten_all()?.to_vec1()
}

fn mapped<A, B>(elements: Vec<A>, convert: impl Fn(A) -> B) -> Vec<B> {
    elements.into_iter().map(convert).collect()
}

/// Places along an axis, as a tensor of indices.
pub(crate) fn indices_of(call: &Call<'_>, places: Vec<usize>) -> Native {
    let narrow: Option<Vec<u32>> = places.into_iter().map(|place| u32::try_from(place).ok()).collect();
    // Candle takes the greatest number for "skip".
    let narrow = narrow.filter(|places| !places.contains(&u32::MAX));
    narrow.map(|places| Tensor::from_iter(places, &call.library.0)).transpose()
}

/// A number in the lengths of a tensor and of its dtype.
pub(crate) fn constant(like: &Tensor, number: f64) -> Result<Tensor> {
    Tensor::new(number, like.device())?.to_dtype(like.dtype())?.broadcast_as(like.shape())
}

/// A mask, as `bool` is stored, of the elements that are NaN.
pub(crate) fn nan_mask(x: &Tensor) -> Result<Tensor> {
    x.ne(x)
}
