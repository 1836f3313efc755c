//! The backend over candle-core.

use crate::cpu::with_kernels;
use crate::device::{Device, DeviceInfo, Driver};
use crate::{FloatElement, IntElement};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
#[cfg(any(feature = "candle-cuda", feature = "candle-metal"))]
use alloc::vec::Vec;
use core::marker::PhantomData;
pub use kiln_candle::CandleDevice;
use kiln_ir::or_unavailable;
use kiln_tensor::{Backend, DeviceKey, Error, Result, Stack};

/// Tensors of candle-core: ops run one by one by candle's kernels, and those that candle lacks on the host or in simpler ops. The
/// [crate of the engine](kiln_candle) lists them.
///
/// `F` and `I` are the dtypes of new tensors of floats and of integers; `i64` is candle's own choice. Tensors of all other dtypes may
/// be made too.
///
/// The device is the processor by default. `CandleDevice::Cuda` needs the crate feature `candle-cuda`, `CandleDevice::Metal`
/// the feature `candle-metal`. Where the device is missing, tensors carry the error until one is read;
/// [`Device::open`](crate::Device::open) returns it at once.
///
/// ```
/// use kiln_backends::{Candle, CandleDevice};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Candle>;
/// let x = Tensor::<B, 1>::from_floats([1.0, 2.0], &CandleDevice::Cpu).require_grad();
/// let gradients = (&x * &x).sum().backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [2.0, 4.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candle<F = f32, I = i64>(PhantomData<(F, I)>);

impl<F: FloatElement, I: IntElement> Backend for Candle<F, I> {
    type Device = CandleDevice;
    type FloatElem = F;
    type IntElem = I;
    type BoolElem = bool;

    fn stack(device: &CandleDevice) -> Stack {
        let open = || {
            let name = device.to_string();
            let engine = with_kernels(or_unavailable(kiln_candle::Candle::shared(*device), &name));
            Stack::of_device(engine, *device, &name, F::DTYPE, I::DTYPE)
        };
        Stack::opened::<Candle<F, I>>(DeviceKey::Index(device.key()), open)
    }
}

/// The kind `candle`.
pub(crate) const CPU: Driver = Driver {
    open: |index| match index {
        0 => open(CandleDevice::Cpu),
        _ => Err(Error::unsupported(
            "candle",
            format!("there is no device {index}: the processor is number 0"),
        )
        .hint("open `candle-cuda` or `candle-metal` for a GPU")),
    },
    list: || Ok(vec![DeviceInfo::new("candle", 0, "the processor, by candle-core")]),
};

/// The kind `candle-cuda`.
#[cfg(feature = "candle-cuda")]
pub(crate) const CUDA: Driver = Driver {
    open: |index| open(CandleDevice::Cuda(index)),
    list: || found("candle-cuda", "NVIDIA GPU, by candle-core", CandleDevice::Cuda),
};

/// The kind `candle-metal`.
#[cfg(feature = "candle-metal")]
pub(crate) const METAL: Driver = Driver {
    open: |index| open(CandleDevice::Metal(index)),
    list: || found("candle-metal", "Apple GPU, by candle-core", CandleDevice::Metal),
};

fn open(device: CandleDevice) -> Result<Device> {
    kiln_candle::Candle::shared(device)?;
    Ok(Candle::<f32, i64>::stack(&device).into())
}

/// candle does not count devices: they are opened one after the other, up to the first that fails.
#[cfg(any(feature = "candle-cuda", feature = "candle-metal"))]
fn found(kind: &str, description: &str, device: fn(usize) -> CandleDevice) -> Result<Vec<DeviceInfo>> {
    kiln_candle::Candle::shared(device(0))?;
    let is_open = |index: &usize| kiln_candle::Candle::shared(device(*index)).is_ok();
    Ok((0..).take_while(is_open).map(|index| DeviceInfo::new(kind, index, description)).collect())
}
