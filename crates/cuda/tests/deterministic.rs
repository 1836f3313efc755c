//! A character model on a deterministic GPU (`KILN_DETERMINISTIC=on`): equal bits in every run. Without a GPU, each test
//! prints `skipped` and passes.
//!
//! The price of the switch: `cargo test -p kiln-cuda --test deterministic -- --ignored --exact price --nocapture`. Both
//! sides run in processes of their own, in turns, since a device keeps the setting that it was opened with.

use kiln::loss::cross_entropy;
use kiln::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use kiln::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, GradientsParams, Gru, GruConfig, LayerNorm,
    LayerNormConfig, Linear, LinearConfig, Module,
};
use kiln::optim::{AdamWConfig, Optimizer};
use kiln::{
    AnyTensor, Autocast, Autodiff, AutodiffBackend, Backend, Cuda, CudaDevice, Int, Tensor, TensorData,
};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CHARACTERS: usize = 65;
const BATCH: usize = 16;
const LENGTH: usize = 32;
const FEATURES: usize = 128;
const STEPS: usize = 100;

/// Steps of each side of [`price`], after a few that compile kernels.
const MEASURED: usize = 100;
const WARM: usize = 20;
const TURNS: usize = 5;

#[derive(Module, Clone, Debug)]
struct CharacterModel<B: Backend> {
    embedding: Embedding<B>,
    attention: MultiHeadAttention<B>,
    recurrent: Gru<B>,
    norm: LayerNorm<B>,
    dropout: Dropout,
    head: Linear<B>,
}

impl<B: Backend> CharacterModel<B> {
    fn new(device: &B::Device) -> Self {
        CharacterModel {
            embedding: EmbeddingConfig::new(CHARACTERS, FEATURES).init(device),
            attention: MultiHeadAttentionConfig::new(FEATURES, 4).init(device),
            recurrent: GruConfig::new(FEATURES, FEATURES, true).init(device),
            norm: LayerNormConfig::new(FEATURES).init(device),
            dropout: DropoutConfig::new(0.1).init(),
            head: LinearConfig::new(FEATURES, CHARACTERS).init(device),
        }
    }

    fn forward(&self, characters: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let x = self.embedding.forward(characters);
        let attended =
            self.attention.forward(MhaInput::self_attn(self.norm.forward(x.clone())).causal()).context;
        let x = x + self.dropout.forward(attended);
        let (y, _) = self.recurrent.forward(x.clone(), None);
        self.head.forward(self.norm.forward(x + self.dropout.forward(y)).reshape([BATCH * LENGTH, FEATURES]))
    }
}

/// The characters of a step, some of them frequent, and those that follow them.
fn characters<B: Backend>(step: usize, device: &B::Device) -> (Tensor<B, 2, Int>, Tensor<B, 1, Int>) {
    let character = |i: usize| {
        let noise = (i.wrapping_mul(2_654_435_761) >> 7) % (CHARACTERS * 4);
        (if noise < CHARACTERS { noise } else { i * i % 7 }) as i32
    };
    let from = |shift: usize| (0..BATCH * LENGTH).map(move |i| character(step * 977 + i + shift)).collect();
    let tensor = |numbers: Vec<i32>| Tensor::<B, 1, Int>::from_data(TensorData::from(numbers), device);
    (tensor(from(0)).reshape([BATCH, LENGTH]), tensor(from(1)))
}

/// A model in training.
struct Training<B: AutodiffBackend> {
    model: CharacterModel<B>,
    optimizer: Box<dyn FnMut(CharacterModel<B>, GradientsParams) -> CharacterModel<B>>,
    device: B::Device,
}

impl<B: AutodiffBackend> Training<B> {
    fn new(device: &B::Device) -> Self {
        B::seed(device, 7);
        let mut optimizer = AdamWConfig::new().init();
        Training {
            model: CharacterModel::new(device),
            optimizer: Box::new(move |model, gradients| optimizer.step(1e-3, model, gradients)),
            device: device.clone(),
        }
    }

    fn step(&mut self, step: usize) -> Tensor<B, 1> {
        let (given, targets) = characters::<B>(step, &self.device);
        let loss = cross_entropy(self.model.forward(given), targets, &Default::default());
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = (self.optimizer)(self.model.clone(), gradients);
        loss
    }

    fn weights(&self) -> impl Iterator<Item = AnyTensor> + use<B> {
        self.model.named_parameters().into_iter().map(|(_, parameter)| parameter.value)
    }
}

/// Bytes of all losses, then of all weights.
fn trained<B: AutodiffBackend>(
    device: &B::Device,
    mut observe: impl FnMut(usize, &Training<B>, &Tensor<B, 1>),
) -> Vec<Vec<u8>> {
    let mut training = Training::<B>::new(device);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let loss = training.step(step);
        observe(step, &training, &loss);
        losses.push(loss);
    }
    let losses = losses.into_iter().map(|loss| loss.into_data());
    let weights =
        training.weights().map(|weight| weight.into_data().unwrap_or_else(|error| panic!("{error}")));
    losses.chain(weights).map(|data| data.bytes().to_vec()).collect()
}

/// The device, deterministic, and one test at a time; `None` without a GPU.
fn opened() -> Option<(CudaDevice, MutexGuard<'static, ()>)> {
    static RUNNING: Mutex<()> = Mutex::new(());
    let alone = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if kiln_cuda::count() == 0 {
        println!("skipped: no GPU");
        return None;
    }
    kiln_ir::set_deterministic(true);
    Some((CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}")), alone))
}

/// The first place where two runs differ, in words.
#[track_caller]
fn assert_equal(what: &str, found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    if let Some(place) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        let differing = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
        let name = if place < STEPS {
            format!("the loss of step {place}")
        } else {
            format!("weight {}", place - STEPS)
        };
        panic!("{what}: {name} differs first, of {differing} differing values");
    }
}

/// Reads tensors on a thread of its own, each after a pause.
fn reader(received: Receiver<(Duration, AnyTensor)>) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let read = received.into_iter().map(|(pause, tensor)| {
            std::thread::sleep(pause);
            tensor.into_data().unwrap_or_else(|error| panic!("{error}"))
        });
        read.count()
    })
}

fn repeats<B: AutodiffBackend>(device: &B::Device) {
    let expected = trained::<B>(device, |_, _, _| {});
    assert_equal("a second run", &trained::<B>(device, |_, _, _| {}), &expected);
    let read_all = |_: usize, _: &Training<B>, loss: &Tensor<B, 1>| drop(loss.clone().into_data());
    assert_equal("a run that reads each loss", &trained::<B>(device, read_all), &expected);
    for seed in 1..4usize {
        let (sender, receiver) = channel();
        let thread = reader(receiver);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let found = trained::<B>(device, |_, training, loss| {
            if random().is_multiple_of(3) {
                let pause = Duration::from_micros(random() as u64 % 3000);
                let number = random() % training.weights().count();
                let weight = training.weights().nth(number);
                let read = [Some(loss.clone().into_any()), weight];
                read.into_iter()
                    .flatten()
                    .for_each(|tensor| sender.send((pause, tensor)).expect("it receives"));
            }
        });
        drop(sender);
        let count = thread.join().expect("it reads");
        assert!(count > 10, "{count} reads");
        assert_equal(&format!("a run with {count} reads at random moments"), &found, &expected);
    }
}

#[test]
fn runs_in_f32_have_equal_bits() {
    if let Some((device, _alone)) = opened() {
        repeats::<Autodiff<Cuda>>(&device);
    }
}

#[test]
fn runs_in_bf16_have_equal_bits() {
    if let Some((device, _alone)) = opened() {
        repeats::<Autodiff<Autocast<Cuda>>>(&device);
    }
}

/// Sums of rows with many equal targets, of which atomic operations would add some in each order.
#[test]
fn sums_by_index_have_equal_bits() {
    let Some((device, _alone)) = opened() else { return };
    for (rows, targets, columns) in [(1 << 16, 3, 8), (1 << 14, 5000, 64), (1 << 18, 1000, 1)] {
        let numbers: Vec<f32> =
            (0..rows * columns).map(|i| (i as f32 * 0.37).sin() * 10f32.powi(i as i32 % 9)).collect();
        let index: Vec<i32> = (0..rows).map(|i| (i * 31 % targets) as i32).collect();
        let run = || {
            let base = Tensor::<Cuda, 2>::zeros([targets, columns], &device);
            let source = Tensor::<Cuda, 1>::from_data(TensorData::from(numbers.clone()), &device);
            let index = Tensor::<Cuda, 1, Int>::from_data(TensorData::from(index.clone()), &device);
            base.select_assign(0, index, source.reshape([rows, columns])).into_data()
        };
        let first = run();
        (0..10).for_each(|_| assert!(run() == first, "{rows} rows of {columns} to {targets}"));
    }
}

/// A process that trains and prints its speed: one side of [`price`].
#[test]
#[ignore = "a process of `price`"]
fn speed() {
    if kiln_cuda::count() == 0 {
        println!("skipped: no GPU");
        return;
    }
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    println!("steps/s f32 {}", steps_per_second::<Autodiff<Cuda>>(&device));
    println!("steps/s bf16 {}", steps_per_second::<Autodiff<Autocast<Cuda>>>(&device));
}

fn steps_per_second<B: AutodiffBackend>(device: &B::Device) -> f64 {
    let mut training = Training::<B>::new(device);
    (0..WARM).for_each(|step| drop(training.step(step)));
    let sync = || B::sync(device).unwrap_or_else(|error| panic!("{error}"));
    sync();
    let started = Instant::now();
    (0..MEASURED).for_each(|step| drop(training.step(step)));
    sync();
    MEASURED as f64 / started.elapsed().as_secs_f64()
}

/// Prints the median of the ratios of steps per second with the switch to those without it.
#[test]
#[ignore = "measures"]
fn price() {
    if kiln_cuda::count() == 0 {
        println!("skipped: no GPU");
        return;
    }
    let measure = |switch: &str| {
        let program = std::env::current_exe().expect("it runs");
        let arguments = ["--ignored", "--exact", "speed", "--nocapture"];
        let ran = Command::new(program)
            .args(arguments)
            .env("KILN_DETERMINISTIC", switch)
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
        let of = |dtype: &str| {
            let line = text.split(&format!("steps/s {dtype} ")).nth(1).and_then(|rest| rest.lines().next());
            line.and_then(|number| number.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}"))
        };
        [of("f32"), of("bf16")]
    };
    let turns: Vec<[[f64; 2]; 2]> = (0..TURNS).map(|_| [measure("off"), measure("on")]).collect();
    for (place, dtype) in ["f32", "bf16"].into_iter().enumerate() {
        let mut ratios: Vec<f64> = turns.iter().map(|[off, on]| on[place] / off[place]).collect();
        ratios.sort_by(f64::total_cmp);
        let all: Vec<String> =
            turns.iter().map(|[off, on]| format!("{:.1}/{:.1}", on[place], off[place])).collect();
        println!(
            "{dtype}: {:.3} of the speed without the switch (steps/s {})",
            ratios[TURNS / 2],
            all.join(", ")
        );
    }
}
