//! LibTorch as a library: its devices, dtypes and transfers.

use crate::LibTorchDevice;
use crate::ffi::{self, Argument, Failure, Place};
use crate::tensor::{Result, Tensor, TorchType, ints};
use kiln_foreign::{Library, entry};
use kiln_ir::{DType, OpKind, OpSet, TensorData, TensorType};

/// The operands of an op and the types of its results.
pub(crate) type Call<'a> = kiln_foreign::Call<'a, Torch>;

/// The result of an op by LibTorch's kernels; `None` where they would not give Kiln's result, so that the host runs the op.
pub(crate) type Native<T = Tensor> = Result<Option<T>>;

/// LibTorch, opened for a device.
pub struct Torch(pub(crate) Place);

impl Library for Torch {
    type Device = LibTorchDevice;
    type Tensor = Tensor;
    type Error = Failure;

    const NAME: &'static str = ffi::ENGINE;
    const NATIVE: OpSet =
        kiln_foreign::NATIVE.union(OpSet::of(&[OpKind::Bitcast, OpKind::Scan, OpKind::NonZero]));
    /// LibTorch draws other random numbers, and the expansions of a cubic resize and of a Fourier transform round more often than
    /// the suite allows.
    const ON_HOST: OpSet = OpSet::of(&[OpKind::Random, OpKind::Recover, OpKind::Resize, OpKind::Fft]);

    fn open(device: LibTorchDevice) -> kiln_ir::Result<Torch> {
        device.open().map(Torch)
    }

    fn threads(&self) -> usize {
        if self.0.is_processor() { ffi::threads() } else { 1 }
    }

    fn synchronize(&self) -> Result<()> {
        ffi::synchronize(self.0)
    }

    fn write(&self, data: TensorData) -> Result {
        Tensor::write(data.bytes(), &ints(data.shape()), stored(data.dtype()) as i32, self.0)
    }

    fn read(x: &Tensor, ty: TensorType) -> Result<TensorData> {
        let bytes = ty.num_elements() * ty.dtype.size();
        let mut elements = Vec::new();
        elements.try_reserve_exact(bytes).map_err(|error| Failure(error.to_string()))?;
        elements.resize(bytes, 0);
        x.read(&mut elements)?;
        TensorData::from_bytes(&elements, ty).map_err(|error| Failure(error.to_string()))
    }

    fn error(problem: String) -> Failure {
        Failure(problem)
    }

    fn dims(x: &Tensor) -> Vec<usize> {
        x.dims()
    }

    fn widened(x: &Tensor) -> Result {
        let is_narrow = x.is(TorchType::Half) || x.is(TorchType::BFloat16);
        if is_narrow { x.to(TorchType::Float) } else { Ok(x.clone()) }
    }

    fn rounded(x: &Tensor, dtype: DType) -> Result {
        x.to(stored(dtype))
    }
}

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

/// The bits of unsigned numbers that LibTorch holds in `i64`.
const MASKS: &[(DType, i64)] = &[(DType::U16, 0xffff), (DType::U32, 0xffff_ffff)];

/// Numbers of a dtype that LibTorch holds as they are: unsigned ones of 16 and 32 bits in `i64`. `None` for `u64`.
pub(crate) fn numbers(x: &Tensor, dtype: DType) -> Native {
    match entry(MASKS, dtype) {
        Some(mask) => x.to(TorchType::Long)?.with(c"bitwise_and.Scalar", Argument::Int(mask)).map(Some),
        None => Ok((dtype != DType::U64).then(|| x.clone())),
    }
}

/// Numbers in the order of those of a dtype, of a dtype that LibTorch compares.
pub(crate) fn ordered(x: &Tensor, dtype: DType) -> Result {
    if dtype.is_bool() {
        return x.to(TorchType::Byte);
    }
    match numbers(&Torch::widened(x)?, dtype)? {
        Some(x) => Ok(x),
        None => flipped(x),
    }
}

/// The elements of a dtype that [`ordered`] makes of them.
pub(crate) fn unordered(x: &Tensor, dtype: DType) -> Result {
    if dtype == DType::U64 { flipped(x) } else { Torch::rounded(x, dtype) }
}

/// The bits of `u64` with the first one flipped, which have the order of `i64`.
fn flipped(x: &Tensor) -> Result {
    x.with(c"bitwise_xor.Scalar", Argument::Int(i64::MIN))
}
