//! The backend in programs: without a GPU, and training of a small model on one.

use crate::alone;
use kiln::activation::relu;
use kiln::nn::{GradientsParams, Linear, LinearConfig, Module, Param};
use kiln::optim::{AdamConfig, Optimizer};
use kiln::{
    Autodiff, AutodiffBackend, Backend, Cpu, CpuDevice, Cuda, CudaDevice, Device, Distribution, Dyn,
    MemoryUse, Tensor, TensorData, loss,
};

/// A device number that no machine has, with or without CUDA.
const NOWHERE: usize = 4096;

/// Whether a message names the missing library and the searched places.
fn tells_what_is_missing(message: &str) -> bool {
    let without_driver =
        message.contains("looked for libcuda.so.1") || message.contains("looked for nvcuda.dll");
    let without_device = message.contains("no such device") || message.contains("starting CUDA");
    message.contains("[cuda") && (without_driver || without_device)
}

#[test]
fn reading_a_tensor_of_a_missing_device_is_an_error() {
    let device = CudaDevice::new(NOWHERE);
    let x = Tensor::<Autodiff<Cuda>, 2>::random([4, 4], Distribution::Default, &device).require_grad();
    let loss = relu(x.clone().matmul(x.clone())).sum();
    let gradients = loss.clone().backward();
    let gradient = x.grad(&gradients).expect("a gradient is there, with its error");
    for error in [loss.try_into_scalar::<f32>().unwrap_err(), gradient.try_into_data().unwrap_err()] {
        assert!(tells_what_is_missing(&error.to_string()), "{error}");
    }
    let error = <Autodiff<Cuda>>::sync(&device).unwrap_err();
    assert!(tells_what_is_missing(&error.to_string()), "{error}");
    // Other devices still work.
    let y = Tensor::<Cpu, 1>::from_floats([1.0, 2.0], &CpuDevice);
    assert_eq!((y + 1).into_data().to_vec::<f32>(), [2.0, 3.0]);
}

#[test]
fn opening_a_missing_device_is_an_error() {
    let error = CudaDevice::open(NOWHERE).unwrap_err().to_string();
    assert!(tells_what_is_missing(&error), "{error}");
    let error = Device::open("cuda", NOWHERE).unwrap_err().to_string();
    assert!(tells_what_is_missing(&error), "{error}");
    assert!(Device::kinds().contains(&"cuda".to_owned()));
    assert!(CudaDevice::count() < NOWHERE);
}

#[test]
fn tensors_moved_through_a_missing_device_return_its_error() {
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &Device::cpu());
    let there = x.clone().to_device(&Device::cuda(NOWHERE));
    let back = (there * 2).try_to_device(&Device::cpu());
    let error = back.and_then(|back| back.try_into_data()).unwrap_err().to_string();
    assert!(tells_what_is_missing(&error), "{error}");
    assert_eq!(x.into_data().to_vec::<f32>(), [1.0, 2.0]);
}

#[test]
fn backends_return_their_device_and_dtypes() {
    let device = CudaDevice::new(NOWHERE);
    let x = Tensor::<Autodiff<Cuda<half::bf16, i64>>, 1>::zeros([3], &device);
    assert_eq!(x.device(), device);
    assert_eq!(x.dtype(), kiln::DType::BF16);
    assert_eq!(x.argmax(0).dtype(), kiln::DType::I64);
}

#[derive(Module, Clone, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Self {
        Mlp { hidden: LinearConfig::new(1, 64).init(device), output: LinearConfig::new(64, 1).init(device) }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(self.hidden.forward(x).tanh())
    }
}

/// Fits `sin(3 x)`. Returns the losses of every tenth step, and the memory use at the middle and at the end.
fn train<B: AutodiffBackend>(device: &B::Device, steps: usize) -> (Vec<f32>, [MemoryUse; 2]) {
    B::seed(device, 7);
    let mut model = Mlp::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    let mut memory = [MemoryUse::default(); 2];
    for step in 0..steps {
        let x = Tensor::<B, 2>::random([256, 1], Distribution::Uniform(-1.0, 1.0), device);
        let y = (&x * 3).sin();
        let loss = loss::mse(model.forward(x), y, loss::Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        if step % 10 == 0 {
            losses.push(loss.into_scalar::<f32>());
        }
        memory[usize::from(step > steps / 2)] = B::memory(device).unwrap_or_default();
    }
    (losses, memory)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn training_matches_the_cpu_and_stops_allocating_after_the_first_steps() {
    let _alone = alone();
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let (losses, [middle, end]) = train::<Autodiff<Cuda>>(&device, 1000);
    let graphs = kiln_cuda::shared(0).unwrap_or_else(|error| panic!("{error}")).graphs();
    let (expected, _) = train::<Autodiff<Cpu>>(&CpuDevice, 200);
    println!("losses {losses:?}\nexpected {expected:?}\n{middle:?}\n{end:?}\n{graphs:?}");
    // Only early losses agree; later rounding errors grow.
    for (found, expected) in losses.iter().zip(&expected).take(3) {
        assert!((found - expected).abs() < 1e-3 * expected.abs().max(0.1), "{losses:?} {expected:?}");
    }
    assert!(losses.last() < Some(&(losses[0] / 5.0)), "{losses:?}");
    assert_eq!(
        middle.system_allocations, end.system_allocations,
        "steps of the second half allocated memory"
    );
    assert_eq!(middle.peak_live_bytes, end.peak_live_bytes, "steps of the second half held more memory");
    // Nearly all of 1,000 steps repeat an earlier one.
    let wanted = kiln_ir::switch("KILN_GRAPHS", true);
    assert!(!wanted || graphs.replayed > 900, "{graphs:?}");
}

#[derive(Module, Clone, Debug)]
struct Wide<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Wide<B> {
    /// Independent layers with weights of different shapes, initialized by a sine wave.
    fn new(device: &B::Device) -> Self {
        let layer = |i: usize| {
            let (inputs, outputs) = (8 + i % 3, 8 + (i + 1) % 3);
            let wave = |j: usize| (j as f32 * 0.7 + i as f32).sin() * 0.4;
            let numbers: Vec<f32> = (0..inputs * outputs).map(wave).collect();
            let mut layer = LinearConfig::new(inputs, outputs).init(device);
            let data = TensorData::new(numbers, [outputs, inputs]).expect("as many as the shape has");
            layer.weight = Param::from_tensor(Tensor::from_data(data, device));
            layer.bias = Some(Param::from_tensor(Tensor::zeros([outputs], device)));
            layer
        };
        Wide { layers: (0..40).map(layer).collect() }
    }
}

/// The sums of all weights after a few optimizer steps. A GPU fuses the updates of 80 parameters horizontally.
fn updated<B: AutodiffBackend>(device: &B::Device) -> Vec<f32> {
    let mut model = Wide::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    for _ in 0..6 {
        let loss = model.layers.iter().map(|layer| {
            let inputs = layer.weight.val().dims()[1];
            (layer.forward(Tensor::<B, 2>::ones([4, inputs], device)).tanh() - 0.5).square().mean()
        });
        let loss = loss.reduce(|a, b| a + b).expect("there are layers");
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    model.layers.iter().map(|layer| layer.weight.val().sum().into_scalar::<f32>()).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn updates_of_many_parameters_match_the_cpu() {
    let _alone = alone();
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let (found, expected) = (updated::<Autodiff<Cuda>>(&device), updated::<Autodiff<Cpu>>(&CpuDevice));
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() < 2e-3, "layer {place}: {found} instead of {expected}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tensors_move_between_cpu_and_gpu() {
    let _alone = alone();
    let (cpu, gpu) = (Device::cpu(), Device::open("cuda", 0).unwrap_or_else(|error| panic!("{error}")));
    let x = Tensor::<Dyn, 2>::from_floats([[1.0, -2.0], [3.0, 4.5]], &cpu);
    let there = x.clone().to_device(&gpu);
    assert_eq!(there.device(), gpu);
    let back = (there * 2).to_device(&cpu);
    assert_eq!(back.into_data(), (x * 2).into_data());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_of_any_length_are_complete() {
    let _alone = alone();
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    // Lengths near the chunk sizes of copies, with 4-byte elements.
    for len in [1, 100, 16_383, 16_384, 16_385, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (9 << 20) + 3] {
        let numbers =
            |step: u32| -> Vec<f32> { (0..len as u32).map(|i| (i * step % 65_521) as f32).collect() };
        // The second copy must not overwrite the data that the first one has yet to copy.
        let [a, b] =
            [3, 7].map(|step| Tensor::<Cuda, 1>::from_data(TensorData::from(numbers(step)), &device));
        let sum = (a.clone() + b.clone()).into_data().to_vec::<f32>();
        let expected: Vec<f32> = numbers(3).iter().zip(numbers(7)).map(|(a, b)| a + b).collect();
        assert!(sum == expected, "{len} elements");
        assert!(a.into_data().to_vec::<f32>() == numbers(3) && b.into_data().to_vec::<f32>() == numbers(7));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn out_of_memory_poisons_one_value_only() {
    let _alone = alone();
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let kept = Tensor::<Cuda, 1>::from_floats([1.0, 2.0], &device);
    // 4 TiB.
    let large = Tensor::<Cuda, 2>::ones([1 << 20, 1 << 20], &device);
    let error = (large + 1).slice([0..1, 0..1]).try_into_data().unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains("cuda:0"), "{error}");
    assert_eq!((kept + 1).into_data().to_vec::<f32>(), [2.0, 3.0]);
}
