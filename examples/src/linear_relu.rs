//! The op of the examples `custom-wgpu-kernel` and `custom-cuda-kernel`: `relu(x w + bias)` as one kernel.

use kiln::tensor::{Custom, OperandType, ResultTypes, TensorData, TensorType};
use kiln::{Autodiff, CustomOp, Device, Dyn, Tensor, Var, module};
use std::error::Error;

/// `relu(x w + bias)` of `x: [rows, inner]`, `w: [inner, columns]` and `bias: [1, columns]`, all `f32`.
#[derive(Debug)]
pub struct LinearRelu;

/// The name under which kernels are registered.
pub const NAME: &str = "linear_relu";

impl CustomOp for LinearRelu {
    fn name(&self) -> &str {
        NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> kiln::Result<ResultTypes> {
        if let [OperandType::Tensor(x), OperandType::Tensor(w), OperandType::Tensor(bias)] = inputs
            && let ([rows, inner], [same, columns], [1, wide]) = (&x.shape[..], &w.shape[..], &bias.shape[..])
            && (inner, columns) == (same, wide)
            && [x, w, bias].iter().all(|ty| ty.dtype == kiln::DType::F32)
        {
            return Ok([TensorType::new([*rows, *columns], x.dtype)].into_iter().collect());
        }
        Err(kiln::Error::type_error(self.name(), "takes f32 tensors x, w and bias[1, columns]", inputs))
    }

    /// The same in Kiln's own ops: the form for every engine without a kernel, and for vmap.
    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        let product = inputs[0].matmul(&inputs[1]);
        let sum = &product + &inputs[2].broadcast(product.shape());
        Some(vec![sum.max(&sum.scalar(0.0))])
    }

    /// The gradients of all three operands. The ReLU passes the gradient where its result is positive.
    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<kiln::Result<Vec<Option<Var<'e>>>>> {
        let gradient = gradients[0].as_ref()?;
        let through = outputs[0].scalar(0.0).less(&outputs[0]).cast(kiln::DType::F32);
        let gradient = gradient * &through;
        let x = gradient.matmul(&inputs[1].permute(&[1, 0]));
        let w = inputs[0].permute(&[1, 0]).matmul(&gradient);
        let bias = gradient.sum(&[0]);
        Some(Ok(vec![Some(x), Some(w), Some(bias)]))
    }
}

/// A kernel for the processor, as [`Device::register_kernel`] takes it.
///
/// # Errors
/// When an operand is not `f32`.
pub fn on_host(_: &Custom, inputs: &[TensorData]) -> kiln::Result<Vec<TensorData>> {
    let [rows, inner] = [inputs[0].shape()[0], inputs[0].shape()[1]];
    let columns = inputs[1].shape()[1];
    let (x, w, bias) = (inputs[0].to_vec::<f32>(), inputs[1].to_vec::<f32>(), inputs[2].to_vec::<f32>());
    let element = |place: usize| {
        let (row, column) = (place / columns, place % columns);
        let sum: f32 = (0..inner).map(|k| x[row * inner + k] * w[k * columns + column]).sum();
        (sum + bias[column]).max(0.0)
    };
    let y: Vec<f32> = (0..rows * columns).map(element).collect();
    Ok(vec![TensorData::new(y, [rows, columns])?])
}

/// Runs the op and its gradients on a device and in ops on the processor, and prints the largest difference.
///
/// # Errors
/// When the device fails, or results differ by more than rounding.
pub fn compare(device: &Device) -> Result<(), Box<dyn Error>> {
    let (op, expected) = (run(device, true)?, run(&Device::flex(), false)?);
    for (name, (found, expected)) in ["y", "gradient of x", "gradient of w", "gradient of bias"]
        .into_iter()
        .zip(op.into_iter().zip(expected))
    {
        let mut differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / b.abs().max(1.0));
        let largest = differences.clone().fold(0.0, f32::max);
        println!("{name:16} {:6} elements, largest difference {largest:.1e}", found.len());
        // A NaN is not close, and no maximum.
        let is_close = differences.all(|difference| difference <= 1e-4);
        if found.len() != expected.len() || !is_close {
            return Err(format!("{name}: the kernel and the ops differ").into());
        }
    }
    Ok(())
}

/// The results and the gradients of three operands, by the op or in separate ops.
fn run(device: &Device, fused: bool) -> kiln::Result<Vec<Vec<f32>>> {
    type B = Autodiff<Dyn>;
    const SIZES: [usize; 3] = [70, 33, 50];
    let [rows, inner, columns] = SIZES;
    let device = device.clone();
    let wave = |shape: [usize; 2], step: f32| {
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| (i as f32 * step).sin()).collect();
        let data = TensorData::new(values, shape)?;
        Ok::<_, kiln::Error>(Tensor::<B, 2>::from_data(data, &device).require_grad())
    };
    let (x, w, bias) = (wave([rows, inner], 0.37)?, wave([inner, columns], 0.61)?, wave([1, columns], 0.2)?);
    let y: Tensor<B, 2> = match fused {
        true => module::custom(LinearRelu, vec![x.clone(), w.clone(), bias.clone()]),
        false => kiln::activation::relu(x.clone().matmul(w.clone()) + bias.clone()),
    };
    let gradients = (y.clone() * y.clone()).sum().backward();
    let gradient = |of: &Tensor<B, 2>| match of.grad(&gradients) {
        Some(gradient) => gradient.try_into_data().map(|data| data.to_vec::<f32>()),
        None => Ok(Vec::new()),
    };
    Ok(vec![y.try_into_data()?.to_vec::<f32>(), gradient(&x)?, gradient(&w)?, gradient(&bias)?])
}
