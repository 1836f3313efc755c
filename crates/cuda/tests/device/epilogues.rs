//! Matmuls with bias and activation, as recorded by layers: the library calls, and on a GPU, agreement with the CPU.

use crate::alone;
use kiln::activation::{gelu, gelu_approximate, relu};
use kiln::{
    Autocast, Autodiff, Backend, Cpu, CpuDevice, Cuda, CudaDevice, DType, DeviceKey, Stack, Tensor,
    TensorData, module, with_fusion,
};
use kiln_gpu::{DeviceInfo, Driver, DryDriver, Gpu, Traced};
use std::sync::{Arc, LazyLock};

/// A dry GPU with libraries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dry;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DryDevice;

static DRY: LazyLock<Arc<Gpu<DryDriver>>> = LazyLock::new(|| {
    let driver = DryDriver::new(DeviceInfo::absent("epilogues"), |_| Ok(Vec::new())).with_libraries();
    Arc::new(Gpu::new(driver, kiln_ir::MemoryConfig::new()))
});

impl Backend for Dry {
    type Device = DryDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(_: &DryDevice) -> Stack {
        let open =
            || with_fusion(&Stack::of_device(DRY.clone(), DryDevice, "cuda:dry", DType::F32, DType::I32));
        Stack::opened::<Dry>(DeviceKey::Index(0), open)
    }
}

/// The description of each library call, and `kernel` for each kernel.
fn names(steps: Vec<Traced>) -> Vec<String> {
    let name = |step: Traced| match step.name.strip_prefix("matmul").and_then(|rest| rest.split_once("-> ")) {
        Some((_, becomes)) => becomes.to_owned(),
        None => "kernel".to_owned(),
    };
    steps.into_iter().map(name).collect()
}

/// Numbers between -2 and 2; adjacent ones differ.
fn numbers(shape: &[usize], seed: usize) -> TensorData {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 4001) as f32 / 1000.0 - 2.0;
    TensorData::new((0..shape.iter().product()).map(number).collect(), shape)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn tensor<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: usize,
    dtype: DType,
    device: &B::Device,
) -> Tensor<B, D> {
    made(numbers(&shape, seed), dtype, device)
}

/// A computed tensor of a dtype.
fn made<B: Backend, const D: usize>(data: TensorData, dtype: DType, device: &B::Device) -> Tensor<B, D> {
    let tensor = Tensor::<B, D>::from_data(data, device).cast(dtype);
    let _ = tensor.clone().into_data();
    tensor
}

/// A layer and the ops after it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layer {
    Linear,
    LinearRelu,
    LinearGelu,
    Relu,
    Gelu,
    /// With a transposed `x`.
    Turned,
    /// Batched matmuls with a bias.
    Batch,
}

const LAYERS: [Layer; 7] = [
    Layer::Linear,
    Layer::LinearRelu,
    Layer::LinearGelu,
    Layer::Relu,
    Layer::Gelu,
    Layer::Turned,
    Layer::Batch,
];

impl Layer {
    /// Runs the layer on `[rows, inner]`, `[columns, inner]` and `[columns]`.
    fn run<B: Backend>(self, x: Tensor<B, 2>, w: Tensor<B, 2>, bias: Tensor<B, 1>) -> Tensor<B, 2> {
        match self {
            Layer::Linear => module::linear(x, w, Some(bias)),
            Layer::LinearRelu => relu(module::linear(x, w, Some(bias))),
            Layer::LinearGelu => gelu_approximate(module::linear(x, w, Some(bias))),
            Layer::Relu => relu(module::linear(x, w, None)),
            Layer::Gelu => gelu_approximate(module::linear(x, w, None)),
            Layer::Turned => relu(module::linear((x.transpose() * 1).transpose(), w, Some(bias))),
            Layer::Batch => {
                let [rows, inner] = x.dims();
                let columns = w.dims()[0];
                let both = Tensor::stack::<3>([x.clone(), x * 2].to_vec(), 0);
                let w = w.transpose().reshape([1, inner, columns]);
                relu(both.matmul(w) + bias.reshape([1, 1, columns])).reshape([2 * rows, columns])
            }
        }
    }

    /// The name of the layer's traced library call.
    fn becomes(self, dtype: DType) -> String {
        match self {
            Layer::Linear => format!("{dtype} + bias"),
            Layer::LinearRelu | Layer::Turned | Layer::Batch => format!("{dtype} + bias, relu"),
            Layer::Relu => format!("{dtype}, relu"),
            Layer::LinearGelu | Layer::Gelu if dtype == DType::F32 => dtype.to_string(),
            Layer::LinearGelu => format!("{dtype} + bias, gelu"),
            Layer::Gelu => format!("{dtype}, gelu"),
        }
    }
}

/// Runs `body`; returns its result and the names of the traced steps.
fn traced<D: Driver, R>(engine: &Gpu<D>, body: impl FnOnce() -> R) -> (R, Vec<String>) {
    engine.trace(true);
    let result = body();
    let steps = names(engine.traced());
    engine.trace(false);
    (result, steps)
}

/// The names of the steps that a dry device gets.
fn asked<B: Backend, const D: usize>(body: impl FnOnce() -> Tensor<B, D>) -> Vec<String> {
    traced(&DRY, || body().into_data()).1
}

#[test]
fn linear_layers_use_library_epilogues() {
    let _alone = alone();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for layer in LAYERS {
            let [x, w] = [[24, 16], [32, 16]].map(|shape| tensor::<Dry, 2>(shape, 1, dtype, &DryDevice));
            let bias = tensor::<Dry, 1>([32], 2, dtype, &DryDevice);
            let steps = asked(|| layer.run(x, w, bias));
            let products: Vec<&String> = steps.iter().filter(|step| *step != "kernel").collect();
            assert_eq!(products, [&layer.becomes(dtype)], "{layer:?} {dtype}");
            let finishes = layer.becomes(dtype) != dtype.to_string();
            assert_eq!(
                steps.last().is_some_and(|last| last == "kernel"),
                !finishes,
                "{layer:?} {dtype}: {steps:?}"
            );
        }
    }
}

#[test]
fn other_layers_do_not_use_library_epilogues() {
    let _alone = alone();
    let [x, w] = [([24, 16], 1), ([32, 16], 2)]
        .map(|(shape, seed)| tensor::<Dry, 2>(shape, seed, DType::BF16, &DryDevice));
    let bias = tensor::<Dry, 1>([32], 3, DType::BF16, &DryDevice);
    let linear = || module::linear(x.clone(), w.clone(), Some(bias.clone()));
    assert_eq!(asked(|| gelu(linear())), ["bf16", "kernel"]);
    assert_eq!(asked(|| linear() + 1), ["bf16", "kernel"]);
    // A kernel computes ops that read the result in a wider dtype than the matmul's.
    let ([x, w], bias) = mixed::<Dry>(&DryDevice);
    let steps = asked(|| relu(module::linear(x, w, Some(bias))));
    assert!(steps.contains(&"bf16".to_owned()), "{steps:?}");
}

/// A square layer in mixed precision, with visible dtype `f32`.
fn mixed<B: Backend>(device: &B::Device) -> ([Tensor<Autocast<B>, 2>; 2], Tensor<Autocast<B>, 1>) {
    let square = |seed| tensor::<Autocast<B>, 2>([64, 64], seed, DType::F32, device);
    ([square(1), square(2) * 0.1], tensor([64], 3, DType::F32, device))
}

/// Two such layers, one after the other.
fn stacked<B: Backend>(layer: Layer, device: &B::Device) -> Tensor<Autocast<B>, 2> {
    let ([x, w], bias) = mixed::<B>(device);
    let y = layer.run(x, w.clone(), bias);
    module::linear(y, w, None)
}

/// An intermediate that only the second matmul reads is stored in 16 bits.
#[test]
fn linear_layers_in_mixed_precision_use_library_epilogues() {
    let _alone = alone();
    for layer in [Layer::Linear, Layer::LinearRelu, Layer::LinearGelu] {
        let steps = asked(|| stacked::<Dry>(layer, &DryDevice));
        assert!(steps.contains(&layer.becomes(DType::BF16)), "{layer:?}: {steps:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn results_in_mixed_precision_match_the_cpu() {
    let _alone = alone();
    let device = gpu();
    let engine = kiln_cuda::shared(0).unwrap_or_else(|error| panic!("{error}"));
    for layer in [Layer::Linear, Layer::LinearRelu, Layer::LinearGelu] {
        let (found, steps) = traced(&engine, || stacked::<Cuda>(layer, &device).into_data());
        let expected = stacked::<Cpu>(layer, &CpuDevice).into_data();
        assert_eq!(differ(found, expected, 1e-2), None, "{layer:?}");
        assert!(steps.contains(&layer.becomes(DType::BF16)), "{layer:?}: {steps:?}");
    }
}

/// The gradients of all operands of two layers and a loss.
fn gradients<B: Backend>(device: &B::Device, layer: Layer, dtype: DType) -> Vec<TensorData> {
    type Tape<B> = Autodiff<B>;
    let leaf = |shape: [usize; 2], seed: usize| {
        (tensor::<Tape<B>, 2>(shape, seed, dtype, device) * 0.1).detach().require_grad()
    };
    let (x, w, v) = (leaf([48, 40], 1), leaf([56, 40], 2), leaf([24, 56], 3));
    let bias = (tensor::<Tape<B>, 1>([56], 4, dtype, device)).require_grad();
    let y = module::linear(layer.run(x.clone(), w.clone(), bias.clone()), v.clone(), None);
    let gradients = (y.clone() * y).mean().backward();
    let of = |x: &Tensor<Tape<B>, 2>| x.grad(&gradients).map(Tensor::into_data);
    let list = [of(&x), of(&w), of(&v), bias.grad(&gradients).map(Tensor::into_data)];
    list.into_iter().flatten().collect()
}

/// The gradient of `max(x, 0)` needs only its result.
#[test]
fn tracked_linear_relu_uses_a_library_epilogue() {
    let _alone = alone();
    let (_, steps) = traced(&DRY, || gradients::<Dry>(&DryDevice, Layer::LinearRelu, DType::F32));
    assert!(steps.contains(&"f32 + bias, relu".to_owned()));
}

fn gpu() -> CudaDevice {
    CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"))
}

/// The first element outside the tolerance, which is relative to the maximum magnitude or 1.
fn differ(found: TensorData, expected: TensorData, tolerance: f32) -> Option<String> {
    let [found, expected] = [found, expected].map(|data| data.convert(DType::F32).to_vec::<f32>());
    let most = expected.iter().fold(1f32, |most, x| most.max(x.abs()));
    let far = |(a, b): &(&f32, &f32)| a.is_nan() || (*a - *b).abs() > tolerance * most;
    let place = found.iter().zip(&expected).position(|pair| far(&pair));
    place.map(|place| format!("element {place}: {} instead of {}", found[place], expected[place]))
}

/// Float dtypes, use of TF32, and tolerance of matmuls.
const FLOATS: [(DType, bool, f32); 4] = [
    (DType::F32, false, 1e-5),
    (DType::F32, true, 2e-3),
    (DType::BF16, false, 8e-3),
    (DType::F16, false, 1e-3),
];

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn results_match_the_cpu() {
    let _alone = alone();
    let device = gpu();
    let engine = kiln_cuda::shared(0).unwrap_or_else(|error| panic!("{error}"));
    let mut problems = Vec::new();
    for (dtype, tf32, tolerance) in FLOATS {
        CudaDevice::set_tf32(tf32);
        for [rows, inner, columns] in [[64, 32, 48], [33, 17, 29], [130, 72, 96], [5, 9, 1], [1024, 256, 520]]
        {
            for layer in LAYERS {
                let [x, w] = [([rows, inner], 1), ([columns, inner], 2)];
                let bias = tensor::<Cuda, 1>([columns], 3, dtype, &device);
                let [on_x, on_w] = [x, w].map(|(shape, seed)| tensor::<Cuda, 2>(shape, seed, dtype, &device));
                let (found, steps) = traced(&engine, || layer.run(on_x, on_w, bias).into_data());
                let wide = |data: TensorData| data.convert(dtype).convert(DType::F32);
                let [x, w] = [x, w].map(|(shape, seed)| {
                    Tensor::<Cpu, 2>::from_data(wide(numbers(&shape, seed)), &CpuDevice)
                });
                let bias = Tensor::<Cpu, 1>::from_data(wide(numbers(&[columns], 3)), &CpuDevice);
                let expected = layer.run(x, w, bias).into_data();
                let case = format!("{layer:?} {dtype} tf32 {tf32} [{rows}, {inner}, {columns}]");
                problems
                    .extend(differ(found, expected, tolerance).map(|problem| format!("{case}: {problem}")));
                if !steps.contains(&layer.becomes(dtype)) {
                    println!("{case} is not the library's: {steps:?}");
                }
            }
        }
    }
    CudaDevice::set_tf32(false);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Some algorithms of the library treat NaN as 0.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn nan_stays_nan() {
    let _alone = alone();
    let device = gpu();
    for (dtype, tf32, _) in FLOATS {
        CudaDevice::set_tf32(tf32);
        for [rows, inner, columns] in [[64, 32, 48], [33, 17, 29], [512, 256, 1024], [130, 72, 96]] {
            for layer in [Layer::LinearRelu, Layer::Relu, Layer::LinearGelu, Layer::Turned, Layer::Batch] {
                let mut list = numbers(&[rows, inner], 1).to_vec::<f32>();
                list[inner] = f32::NAN;
                let x = TensorData::new(list, [rows, inner]).unwrap_or_else(|error| panic!("{error}"));
                let x = made::<Cuda, 2>(x, dtype, &device);
                let w = tensor::<Cuda, 2>([columns, inner], 2, dtype, &device);
                let bias = tensor::<Cuda, 1>([columns], 3, dtype, &device);
                let y = layer.run(x, w, bias).into_data().convert(DType::F32).to_vec::<f32>();
                let is_right =
                    |(i, y): (usize, &f32)| y.is_nan() == (i / columns == 1 || i / columns == rows + 1);
                let case = format!("{layer:?} {dtype} tf32 {tf32} [{rows}, {inner}, {columns}]");
                assert!(y.iter().enumerate().all(is_right), "{case}");
            }
        }
    }
    CudaDevice::set_tf32(false);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn graphs_are_updated_with_other_biases() {
    let _alone = alone();
    let device = gpu();
    let engine = kiln_cuda::shared(0).unwrap_or_else(|error| panic!("{error}"));
    let size = 64;
    for dtype in [DType::F32, DType::BF16] {
        let w = tensor::<Cuda, 2>([size, size], 2, dtype, &device) * 0.02;
        // All are kept alive, so that each has another address.
        let biases: Vec<Tensor<Cuda, 1>> = (0..12).map(|i| tensor([size], i, dtype, &device)).collect();
        let x = tensor::<Cuda, 2>([96, size], 1, dtype, &device);
        let before = engine.graphs().replayed;
        let chain = |biases: [&Tensor<Cuda, 1>; 2]| {
            let mut y = x.clone();
            for bias in biases.into_iter().cycle().take(8) {
                y = relu(module::linear(y, w.clone(), Some(bias.clone())));
            }
            y.into_data().convert(DType::F32).to_vec::<f32>()
        };
        let alike = chain([&biases[0], &biases[1]]);
        for pair in biases.windows(2) {
            let found = chain([&pair[0], &pair[1]]);
            let [a, b] = [&pair[0], &pair[1]].map(|it| it.clone().into_data().convert(DType::F32));
            let [a, b] = [a, b].map(|data| Tensor::<Cpu, 1>::from_data(data, &CpuDevice));
            let on_cpu = |t: &Tensor<Cuda, 2>| {
                Tensor::<Cpu, 2>::from_data(t.clone().into_data().convert(DType::F32), &CpuDevice)
            };
            let (mut y, w) = (on_cpu(&x), on_cpu(&w));
            for bias in [&a, &b].into_iter().cycle().take(8) {
                y = relu(module::linear(y, w.clone(), Some(bias.clone())));
            }
            let found = TensorData::new(found, [96, size]).unwrap_or_else(|error| panic!("{error}"));
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 3e-2 };
            assert_eq!(differ(found, y.into_data(), tolerance), None, "{dtype}");
        }
        assert_eq!(chain([&biases[0], &biases[1]]), alike, "{dtype}: the same again");
        let wanted = kiln_ir::switch("KILN_GRAPHS", true);
        assert!(!wanted || engine.graphs().replayed > before, "{:?}", engine.graphs());
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gradients_match_the_cpu() {
    let _alone = alone();
    let device = gpu();
    for (dtype, tf32, tolerance) in FLOATS {
        CudaDevice::set_tf32(tf32);
        for layer in [Layer::Linear, Layer::LinearRelu, Layer::LinearGelu] {
            let found = gradients::<Cuda>(&device, layer, dtype);
            let expected = gradients::<Cpu>(&CpuDevice, layer, DType::F32);
            assert_eq!(found.len(), expected.len());
            for (place, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let problem = differ(found, expected, 4.0 * tolerance);
                assert_eq!(problem, None, "{layer:?} {dtype} tf32 {tf32}, gradient {place}");
            }
        }
    }
    CudaDevice::set_tf32(false);
}
