//! Memory: training holds it flat, and a loss that is dropped frees its tape.
//!
//! One test in this program, so that nothing else allocates while it measures.

use kiln_backends::{Cpu, Flex};
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module, Relu};
use kiln_optim::{AdamConfig, Optimizer};
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Distribution, Int, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

static LIVE: AtomicIsize = AtomicIsize::new(0);

/// Counts the bytes that live.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator as it came; counting neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

#[derive(Debug, Module)]
struct Net<B: Backend> {
    first: Linear<B>,
    activation: Relu,
    second: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        Net {
            first: LinearConfig::new(16, 32).init(device),
            activation: Relu::new(),
            second: LinearConfig::new(32, 4).init(device),
        }
    }

    fn loss(&self, x: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        let logits = self.second.forward(self.activation.forward(self.first.forward(x)));
        kiln_tensor::loss::cross_entropy(logits, targets, &Default::default())
    }
}

fn batch<B: Backend>(device: &B::Device) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let x = Tensor::random([24, 16], Distribution::Normal(0.0, 1.0), device);
    let targets: Vec<i32> = (0..24).map(|i| i % 4).collect();
    (x, Tensor::from_data(targets, device))
}

/// One test after the other, so that nothing else allocates.
#[test]
fn training_memory_is_constant_and_dropped_losses_free_their_tape() {
    flat::<Autodiff<Flex>>("flex");
    flat::<Autodiff<Cpu>>("cpu");
}

fn flat<B: AutodiffBackend>(name: &str) {
    let device = B::Device::default();
    let mut model = Net::<B>::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let step = |mut model: Net<B>, optimizer: &mut kiln_optim::Adam| {
        let (x, targets) = batch(&device);
        let loss = model.loss(x, targets);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        drop(loss);
        model = optimizer.step(0.001, model, gradients);
        model
    };
    for _ in 0..50 {
        model = step(model, &mut optimizer);
    }
    let start = live();
    for number in 1..=1000 {
        model = step(model, &mut optimizer);
        if number % 250 == 0 {
            let now = live();
            let drift = (now - start).abs() as f64 / start as f64;
            println!("{name}: after {number} steps {now} bytes, {:.3} % from {start}", 100.0 * drift);
            assert!(drift <= 0.01, "{name}: memory moved by {:.2} % in {number} steps", 100.0 * drift);
        }
    }

    // Runs recorded ops and frees the pool's cached blocks, which are no leak. The remaining bytes must not change.
    let settled = || {
        B::sync(&device).expect("the device works");
        B::memory_cleanup(&device);
        live()
    };

    // A loss without a backward pass. The first one may leave a plan behind.
    let (x, targets) = batch(&device);
    settled();
    drop(model.loss(x.clone(), targets.clone()));
    let before = settled();
    for _ in 0..100 {
        let loss = model.loss(x.clone(), targets.clone());
        assert!(live() > before, "{name}: the tape takes memory while the loss lives");
        drop(loss);
        assert_eq!(settled(), before, "{name}: the tape of a dropped loss stays");
    }

    // A long chain is freed without deep recursion.
    let long = || drop((0..100_000).fold(x.clone().require_grad(), |y, _| y + 1.0));
    long();
    let before = settled();
    long();
    assert_eq!(settled(), before, "{name}: a long chain stays");
}
