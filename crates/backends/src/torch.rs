//! The backend over LibTorch.

use crate::cpu::with_kernels;
use crate::device::{Device, DeviceInfo, Driver};
use crate::{FloatElement, IntElement};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use kiln_ir::or_unavailable;
use kiln_tensor::{Backend, DeviceKey, Error, Result, Stack};
pub use kiln_torch::LibTorchDevice;

/// Tensors of LibTorch, PyTorch's C++ library: ops run one by one by PyTorch's kernels, and those that differ from Kiln's on the host or in
/// simpler ops. The [crate of the engine](kiln_torch) lists them, and says where LibTorch is looked for.
///
/// `F` and `I` are the dtypes of new tensors of floats and of integers; `i64` is PyTorch's own choice. Tensors of all other dtypes may
/// be made too.
///
/// The device is the processor by default. `LibTorchDevice::Cuda` is an NVIDIA or AMD GPU, `LibTorchDevice::Mps` an Apple GPU. Where
/// LibTorch or the device is missing, tensors carry the error until one is read; [`Device::open`](crate::Device::open) returns it at
/// once.
///
/// ```
/// use kiln_backends::{LibTorch, LibTorchDevice};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<LibTorch>;
/// let x = Tensor::<B, 1>::from_floats([1.0, 2.0], &LibTorchDevice::Cpu).require_grad();
/// match (&x * &x).sum().try_backward() {
///     Ok(gradients) => assert_eq!(x.grad(&gradients).unwrap().to_vec::<f32>(), [2.0, 4.0]),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LibTorch<F = f32, I = i64>(PhantomData<(F, I)>);

impl<F: FloatElement, I: IntElement> Backend for LibTorch<F, I> {
    type Device = LibTorchDevice;
    type FloatElem = F;
    type IntElem = I;
    type BoolElem = bool;

    fn stack(device: &LibTorchDevice) -> Stack {
        let open = || {
            let name = device.to_string();
            let engine = with_kernels(or_unavailable(kiln_torch::LibTorch::shared(*device), &name));
            Stack::of_device(engine, *device, &name, F::DTYPE, I::DTYPE)
        };
        Stack::opened::<LibTorch<F, I>>(DeviceKey::Index(device.key()), open)
    }
}

/// The kind `libtorch`.
pub(crate) const CPU: Driver = Driver {
    open: |index| open("libtorch", LibTorchDevice::Cpu, index),
    list: || list("libtorch", LibTorchDevice::Cpu, "the processor"),
};

/// The kind `libtorch-cuda`.
pub(crate) const CUDA: Driver = Driver {
    open: |index| open_shared(LibTorchDevice::Cuda(index)),
    list: || {
        let version = kiln_torch::version()?;
        let count = LibTorchDevice::gpus()?;
        if count == 0 {
            // The error names the missing part of LibTorch.
            return open_shared(LibTorchDevice::Cuda(0)).map(|_| Vec::new());
        }
        let description = format!("NVIDIA or AMD GPU, by LibTorch {version}");
        Ok((0..count).map(|index| DeviceInfo::new("libtorch-cuda", index, description.as_str())).collect())
    },
};

/// The kind `libtorch-mps`.
pub(crate) const MPS: Driver = Driver {
    open: |index| open("libtorch-mps", LibTorchDevice::Mps, index),
    list: || list("libtorch-mps", LibTorchDevice::Mps, "the Apple GPU"),
};

/// The one device of a kind.
fn open(kind: &str, device: LibTorchDevice, index: usize) -> Result<Device> {
    match index {
        0 => open_shared(device),
        _ => {
            Err(Error::unsupported(kind, format!("there is no device {index}: the kind has number 0 alone"))
                .hint("open `libtorch-cuda` for a GPU by its number"))
        }
    }
}

fn list(kind: &str, device: LibTorchDevice, description: &str) -> Result<Vec<DeviceInfo>> {
    kiln_torch::LibTorch::shared(device)?;
    let version = kiln_torch::version()?;
    Ok(vec![DeviceInfo::new(kind, 0, format!("{description}, by LibTorch {version}"))])
}

fn open_shared(device: LibTorchDevice) -> Result<Device> {
    kiln_torch::LibTorch::shared(device)?;
    Ok(LibTorch::<f32, i64>::stack(&device).into())
}
