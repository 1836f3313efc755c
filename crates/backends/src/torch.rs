//! The backend over LibTorch.

use crate::{FloatElement, IntElement};
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use core::marker::PhantomData;
use kiln_ir::{Engine, Expand};
use kiln_tensor::{Backend, DeviceKey, Error, Result, Stack};
pub use kiln_torch::LibTorchDevice;
use kiln_torch::Missing;

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
/// let gradients = (&x * &x).sum().backward();
/// match x.grad(&gradients).unwrap().try_into_data() {
///     Ok(data) => assert_eq!(data.to_vec::<f32>(), [2.0, 4.0]),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LibTorch<F = f32, I = i64>(PhantomData<(F, I)>);

impl<F: FloatElement, I: IntElement> Backend for LibTorch<F, I> {
    type Device = LibTorchDevice;

    fn stack(device: &LibTorchDevice) -> Stack {
        let open = || Stack::of_device(engine(*device), *device, &device.to_string(), F::DTYPE, I::DTYPE);
        Stack::opened::<LibTorch<F, I>>(DeviceKey::Index(device.key()), open)
    }
}

/// The engine of a device, with the kernels of the custom ops of tensors.
fn engine(device: LibTorchDevice) -> Arc<dyn Engine> {
    let engine = match kiln_torch::shared(device) {
        Ok(engine) => Expand::around(engine),
        Err(error) => return Arc::new(Missing::new(device, error)),
    };
    for (name, kernel) in kiln_tensor::HOST_KERNELS {
        engine.register_kernel(name, kernel);
    }
    Arc::new(engine)
}

/// Device number `index` of the kind `libtorch`, `libtorch-cuda` or `libtorch-mps`, opened now.
pub(crate) fn open(kind: &str, index: usize) -> Result<Stack> {
    let device = match kind {
        "libtorch-cuda" => LibTorchDevice::Cuda(index),
        "libtorch-mps" if index == 0 => LibTorchDevice::Mps,
        "libtorch" if index == 0 => LibTorchDevice::Cpu,
        _ => {
            let problem = format!("there is no device {index}: the kind has number 0 alone");
            return Err(
                Error::unsupported(kind, problem).hint("open `libtorch-cuda` for a GPU by its number")
            );
        }
    };
    kiln_torch::shared(device)?;
    Ok(LibTorch::<f32, i64>::stack(&device))
}
