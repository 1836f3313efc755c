use kiln_nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln_optim::{AdamWConfig, Optimizer};
use kiln_tensor::{Autodiff, Cpu, Int, Tensor, loss, Backend};
use std::time::Instant;
type B = Autodiff<Cpu>;
#[derive(Debug, Module)]
struct Net { a: Linear<B>, b: Linear<B>, c: Linear<B>, }
#[test]
#[ignore]
fn time() {
    let device = Default::default();
    let width: usize = std::env::var("W").ok().and_then(|w| w.parse().ok()).unwrap_or(1024);
    for batch in [8usize, 64, 256] {
        let mut best = [f64::INFINITY; 2];
        for round in 0..6 {
            let on = round % 2;
            // SAFETY: test only.
            unsafe { if on == 0 { std::env::set_var("KILN_NOGUARD", "1") } else { std::env::remove_var("KILN_NOGUARD") } }
            B::seed(&device, 1);
            let mut net = Net { a: LinearConfig::new(784, width).init(&device), b: LinearConfig::new(width, width).init(&device), c: LinearConfig::new(width, 10).init(&device) };
            let mut optimizer = AdamWConfig::new().init().unwrap();
            let x = Tensor::<B, 2>::ones([batch, 784], &device);
            let y = Tensor::<B, 1, Int>::from_ints(vec![3; batch], &device);
            let mut step = |net: Net| {
                let logits = net.c.forward(net.b.forward(net.a.forward(x.clone()).tanh()).tanh());
                let loss = loss::cross_entropy(logits, y.clone(), &Default::default());
                let g = GradientsParams::from_grads(loss.backward(), &net);
                drop(loss);
                optimizer.step(1e-3, net, g)
            };
            for _ in 0..5 { net = step(net); }
            let n = 20;
            let mut times = Vec::new();
            for _ in 0..n { let t = Instant::now(); net = step(net); times.push(t.elapsed().as_secs_f64()); }
            times.sort_by(f64::total_cmp);
            best[on] = best[on].min(times[n / 2]);
            if round >= 4 { println!("peak {:?}", net.a.weight.val().engine_stack().engine().memory().map(|m| m.usage())); }
        }
        println!("batch {batch}: off {:.3} ms, on {:.3} ms, off/on {:.3}", best[0] * 1e3, best[1] * 1e3, best[0] / best[1]);
    }
    if std::env::var("EXPLAIN").is_ok() {
    }
}
