//! Update rules without a twin in PyTorch, against their papers' formulas in `f64`.

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{
    AdanConfig, LambConfig, LarsConfig, LionConfig, Optimizer, ScheduleFreeAdamWConfig,
    ScheduleFreeSgdConfig, ShampooConfig, SoapConfig, SophiaGConfig,
};
use kiln_tensor::{Autodiff, Backend, Tensor, TensorData};

type B = Autodiff<Flex>;

const STEPS: usize = 50;

#[derive(Clone, Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

fn layer() -> Layer<B> {
    let device = Default::default();
    Layer {
        weight: Param::from_tensor(Tensor::from_floats([[1.0, -2.0, 0.5], [4.0, 0.25, -0.75]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.5, -1.5, 3.0], &device)),
    }
}

/// The gradients of weight and bias at a step: near a matrix whose singular vectors are near the axes.
fn gradients_at(step: usize) -> [Vec<f64>; 2] {
    let noise = |place: usize| 0.3 * ((7 * step + 3 * place) as f64 * 1.3).sin();
    let base = [2.0, 0.1, 0.05, 0.1, 1.0, 0.1];
    let weight = base.iter().enumerate().map(|(place, base)| base + noise(place)).collect();
    [weight, (0..3).map(|place| 3.0 * noise(place + 11)).collect()]
}

fn tensors(layer: &Layer<B>, [weight, bias]: [Vec<f64>; 2]) -> GradientsParams {
    let device = Default::default();
    let weight = TensorData::new(weight, [2, 3]).unwrap();
    let bias = TensorData::new(bias, [3]).unwrap();
    GradientsParams::from_iter([
        (layer.weight.id(), Tensor::<Flex, 2>::from_floats(weight, &device).into_any()),
        (layer.bias.id(), Tensor::<Flex, 1>::from_floats(bias, &device).into_any()),
    ])
}

fn numbers<const D: usize>(tensor: &Tensor<B, D>) -> Vec<f64> {
    tensor.to_data().to_vec()
}

/// A step of a reference: step count from 1, parameter, gradient.
type Reference = Box<dyn FnMut(f64, &mut [f64], &[f64])>;

#[track_caller]
fn follows(mut optimizer: impl Optimizer, rate: f64, references: [Reference; 2], tolerance: f64) {
    let mut layer = layer();
    let mut expected = [numbers(&layer.weight), numbers(&layer.bias)];
    let [mut weight, mut bias] = references;
    for step in 0..STEPS {
        let gradients = gradients_at(step);
        weight((step + 1) as f64, &mut expected[0], &gradients[0]);
        bias((step + 1) as f64, &mut expected[1], &gradients[1]);
        let gradients = tensors(&layer, gradients);
        optimizer.update(rate, &mut layer, gradients).unwrap();
        for (found, expected) in [numbers(&layer.weight), numbers(&layer.bias)].iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                let allowed = tolerance * (1.0 + expected.abs());
                assert!((found - expected).abs() <= allowed, "step {step}: {found} instead of {expected}");
            }
        }
    }
}

/// A reference for elementwise formulas. Each parameter has its own.
fn both(new: impl Fn() -> Reference) -> [Reference; 2] {
    [new(), new()]
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn adan_follows_its_paper() {
    for no_prox in [false, true] {
        let (b1, b2, b3, epsilon, decay, rate) = (0.98, 0.92, 0.99, 1e-8, 0.1, 0.05);
        let reference = || -> Reference {
            let mut state = [[0.0f64; 4]; 6];
            Box::new(move |t, p, g| {
                for ((p, &g), [m, v, n, previous]) in p.iter_mut().zip(g).zip(&mut state) {
                    let change = if t == 1.0 { 0.0 } else { g - *previous };
                    *m = b1 * *m + (1.0 - b1) * g;
                    *v = b2 * *v + (1.0 - b2) * change;
                    *n = b3 * *n + (1.0 - b3) * (g + b2 * change).powi(2);
                    *previous = g;
                    let mean = *m / (1.0 - b1.powf(t)) + b2 * *v / (1.0 - b2.powf(t));
                    let u = rate * mean / ((*n / (1.0 - b3.powf(t))).sqrt() + epsilon);
                    *p = match no_prox {
                        true => *p * (1.0 - rate * decay) - u,
                        false => (*p - u) / (1.0 + rate * decay),
                    };
                }
            })
        };
        let config = AdanConfig::new().with_weight_decay(decay).with_no_prox(no_prox);
        follows(config.init(), rate, both(reference), 1e-5);
    }
}

#[test]
fn lion_follows_its_paper() {
    let reference = || -> Reference {
        let mut state = [0.0f64; 6];
        Box::new(move |_, p, g| {
            for ((p, &g), m) in p.iter_mut().zip(g).zip(&mut state) {
                let c = 0.9 * *m + 0.1 * g;
                *p -= 0.01 * (c.signum() + 0.1 * *p);
                *m = 0.99 * *m + 0.01 * g;
            }
        })
    };
    follows(LionConfig::new().with_weight_decay(0.1).init(), 0.01, both(reference), 1e-5);
}

#[test]
fn lamb_follows_its_paper() {
    let reference = || -> Reference {
        let mut state = [[0.0f64; 2]; 6];
        Box::new(move |t, p, g| {
            let mut u = Vec::new();
            for ((p, &g), [m, v]) in p.iter().zip(g).zip(&mut state) {
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.999 * *v + 0.001 * g * g;
                let mean = *m / (1.0 - 0.9f64.powf(t));
                u.push(mean / ((*v / (1.0 - 0.999f64.powf(t))).sqrt() + 1e-6) + 0.01 * p);
            }
            let ratio = norm(p) / norm(&u);
            p.iter_mut().zip(u).for_each(|(p, u)| *p -= 0.02 * ratio * u);
        })
    };
    follows(LambConfig::new().init(), 0.02, both(reference), 1e-4);
}

#[test]
fn lars_follows_its_paper() {
    let reference = || -> Reference {
        let mut state = [0.0f64; 6];
        Box::new(move |_, p, g| {
            let ratio = 0.001 * norm(p) / (norm(g) + 0.01 * norm(p) + 1e-8);
            for ((p, &g), b) in p.iter_mut().zip(g).zip(&mut state) {
                *b = 0.9 * *b + 2.0 * ratio * (g + 0.01 * *p);
                *p -= *b;
            }
        })
    };
    follows(LarsConfig::new().with_weight_decay(0.01).init(), 2.0, both(reference), 1e-5);
}

#[test]
fn sophia_follows_its_paper() {
    let mut layer = layer();
    let mut optimizer = SophiaGConfig::new().with_batch_size(4.0).init();
    let mut expected = [numbers(&layer.weight), numbers(&layer.bias)];
    let mut state = [[[0.0f64; 2]; 6]; 2];
    for step in 0..STEPS {
        if step % 10 == 0 {
            let sampled = gradients_at(step + 1000);
            for (state, g) in state.iter_mut().zip(&sampled) {
                state.iter_mut().zip(g).for_each(|([_, h], g)| *h = 0.99 * *h + 0.01 * g * g);
            }
            let sampled = tensors(&layer, sampled);
            optimizer.update_hessian(&mut layer, sampled).unwrap();
        }
        let gradients = gradients_at(step);
        for ((p, g), state) in expected.iter_mut().zip(&gradients).zip(&mut state) {
            for ((p, &g), [m, h]) in p.iter_mut().zip(g).zip(state) {
                *m = 0.965 * *m + 0.035 * g;
                let ratio = f64::min(m.abs() / (0.04 * 4.0 * *h + 1e-15), 1.0);
                *p -= 0.01 * (0.1 * *p + m.signum() * ratio);
            }
        }
        let gradients = tensors(&layer, gradients);
        optimizer.update(0.01, &mut layer, gradients).unwrap();
        let found = [numbers(&layer.weight), numbers(&layer.bias)].concat();
        for (found, expected) in found.iter().zip(expected.concat()) {
            assert!((found - expected).abs() <= 1e-4 * (1.0 + expected.abs()), "{step}: {found} {expected}");
        }
    }
}

/// The averaging of a schedule-free optimizer: `y`, and the numbers that it keeps.
#[derive(Default)]
struct Averages {
    z: Vec<f64>,
    weight_sum: f64,
    largest: f64,
}

impl Averages {
    fn update(&mut self, t: f64, rate: f64, beta: f64, r: f64, y: &mut [f64], u: &[f64]) {
        if self.z.is_empty() {
            self.z = y.to_vec();
        }
        self.largest = self.largest.max(rate);
        let weight = t.powf(r) * self.largest.powi(2);
        self.weight_sum += weight;
        let c = weight / self.weight_sum;
        for ((y, z), u) in y.iter_mut().zip(&mut self.z).zip(u) {
            *y = (1.0 - c) * *y + c * *z + rate * (beta * (1.0 - c) - 1.0) * u;
            *z -= rate * u;
        }
    }
}

#[test]
fn schedule_free_sgd_follows_its_paper() {
    let reference = || -> Reference {
        let mut averages = Averages::default();
        Box::new(move |t, p, g| {
            let u: Vec<f64> = p.iter().zip(g).map(|(p, g)| g + 0.01 * p).collect();
            averages.update(t, 0.1 * f64::min(t / 5.0, 1.0), 0.9, 0.5, p, &u);
        })
    };
    let config = ScheduleFreeSgdConfig::new().with_weight_decay(0.01).with_warmup_steps(5).with_r(0.5);
    follows(config.init(), 0.1, both(reference), 1e-4);
}

#[test]
fn schedule_free_adamw_follows_its_paper() {
    let reference = || -> Reference {
        let mut averages = Averages::default();
        let mut squares = [0.0f64; 6];
        Box::new(move |t, p, g| {
            let mut u = Vec::new();
            for ((p, &g), v) in p.iter().zip(g).zip(&mut squares) {
                *v = 0.999 * *v + 0.001 * g * g;
                u.push(g / ((*v / (1.0 - 0.999f64.powf(t))).sqrt() + 1e-8) + 0.01 * p);
            }
            averages.update(t, 0.05, 0.9, 0.0, p, &u);
        })
    };
    let config = ScheduleFreeAdamWConfig::new().with_weight_decay(0.01);
    follows(config.init(), 0.05, both(reference), 1e-4);
}

#[test]
fn schedule_free_averages_are_the_parameters_for_evaluation() {
    let mut layer = layer();
    let mut optimizer = ScheduleFreeSgdConfig::new().init();
    let start = numbers(&layer.weight);
    let (mut z, mut x) = (start.clone(), start);
    for step in 0..10 {
        let gradients = gradients_at(step);
        // All weights are equal, so `x` is the mean of the values of `z`.
        let share = 1.0 / (step + 1) as f64;
        for ((z, x), g) in z.iter_mut().zip(&mut x).zip(&gradients[0]) {
            *z -= 0.1 * g;
            *x += share * (*z - *x);
        }
        let gradients = tensors(&layer, gradients);
        optimizer.update(0.1, &mut layer, gradients).unwrap();
    }
    let averaged = optimizer.eval_model(layer.clone());
    for (found, expected) in numbers(&averaged.weight).iter().zip(&x) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
    let back = numbers(&optimizer.train_model(averaged).weight);
    for (found, expected) in back.iter().zip(numbers(&layer.weight)) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
}

/// A dense matrix of rows.
#[derive(Clone)]
struct Matrix(Vec<Vec<f64>>);

impl Matrix {
    fn new(rows: usize, columns: usize, at: impl Fn(usize, usize) -> f64) -> Matrix {
        Matrix((0..rows).map(|i| (0..columns).map(|j| at(i, j)).collect()).collect())
    }

    fn of(numbers: &[f64], columns: usize) -> Matrix {
        Matrix::new(numbers.len() / columns, columns, |i, j| numbers[i * columns + j])
    }

    fn diagonal(size: usize, at: impl Fn(usize) -> f64) -> Matrix {
        Matrix::new(size, size, |i, j| if i == j { at(i) } else { 0.0 })
    }

    fn transposed(&self) -> Matrix {
        Matrix::new(self.0[0].len(), self.0.len(), |i, j| self.0[j][i])
    }

    fn times(&self, other: &Matrix) -> Matrix {
        let product = |i: usize, j: usize| (0..other.0.len()).map(|k| self.0[i][k] * other.0[k][j]).sum();
        Matrix::new(self.0.len(), other.0[0].len(), product)
    }

    fn zip(&self, other: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
        Matrix::new(self.0.len(), self.0[0].len(), |i, j| f(self.0[i][j], other.0[i][j]))
    }

    /// The eigenvectors by cyclic Jacobi rotations of at most 45 degrees, from a start.
    fn eigenvectors(&self, start: &Matrix) -> Matrix {
        let (mut basis, size) = (start.clone(), self.0.len());
        for _ in 0..30 {
            for (i, j) in (0..size).flat_map(|i| (i + 1..size).map(move |j| (i, j))) {
                let a = basis.transposed().times(self).times(&basis).0;
                let gap = a[j][j] - a[i][i];
                let angle = match a[i][j].abs() < 1e-15 {
                    true => 0.0,
                    false => 0.5 * (2.0 * a[i][j] / gap).atan(),
                };
                let mut rotation =
                    Matrix::diagonal(size, |k| if k == i || k == j { angle.cos() } else { 1.0 });
                rotation.0[i][j] = angle.sin();
                rotation.0[j][i] = -angle.sin();
                basis = basis.times(&rotation);
            }
        }
        basis
    }

    fn power(&self, power: f64) -> Matrix {
        let size = self.0.len();
        let basis = self.eigenvectors(&Matrix::diagonal(size, |_| 1.0));
        let values = basis.transposed().times(self).times(&basis);
        let raised = Matrix::diagonal(size, |i| values.0[i][i].powf(power));
        basis.times(&raised).times(&basis.transposed())
    }
}

#[test]
fn shampoo_follows_its_paper() {
    const EPSILON: f64 = 0.1;
    let matrix: Reference = {
        let mut left = Matrix::diagonal(2, |_| EPSILON);
        let mut right = Matrix::diagonal(3, |_| EPSILON);
        let mut buffer = vec![0.0; 6];
        Box::new(move |_, p, g| {
            let g = Matrix::of(g, 3);
            left = left.zip(&g.times(&g.transposed()), |a, b| a + b);
            right = right.zip(&g.transposed().times(&g), |a, b| a + b);
            let u = left.power(-0.25).times(&g).times(&right.power(-0.25)).0.concat();
            for ((p, u), b) in p.iter_mut().zip(u).zip(&mut buffer) {
                *b = 0.5 * *b + u;
                *p -= 0.1 * *b;
            }
        })
    };
    let vector: Reference = {
        let mut left = Matrix::diagonal(3, |_| EPSILON);
        let mut buffer = vec![0.0; 3];
        Box::new(move |_, p, g| {
            let g = Matrix::of(g, 1);
            left = left.zip(&g.times(&g.transposed()), |a, b| a + b);
            let u = left.power(-0.5).times(&g).0.concat();
            for ((p, u), b) in p.iter_mut().zip(u).zip(&mut buffer) {
                *b = 0.5 * *b + u;
                *p -= 0.1 * *b;
            }
        })
    };
    let config = ShampooConfig::new().with_epsilon(EPSILON).with_momentum(0.5);
    follows(config.init(), 0.1, [matrix, vector], 2e-3);
}

#[test]
fn soap_follows_its_paper() {
    const RATE: f64 = 0.05;
    let matrix: Reference = {
        let zeros = Matrix::new(2, 3, |_, _| 0.0);
        let (mut m, mut v) = (zeros.clone(), zeros);
        let (mut left, mut right) = (Matrix::diagonal(2, |_| 0.0), Matrix::diagonal(3, |_| 0.0));
        let (mut q, mut r) = (Matrix::diagonal(2, |_| 1.0), Matrix::diagonal(3, |_| 1.0));
        Box::new(move |t, p, g| {
            let g = Matrix::of(g, 3);
            if t > 1.0 {
                let t = t - 1.0;
                m = m.zip(&g, |m, g| 0.95 * m + 0.05 * g);
                let projected = |x: &Matrix| q.transposed().times(x).times(&r);
                v = v.zip(&projected(&g), |v, g| 0.95 * v + 0.05 * g * g);
                let u = projected(&m).zip(&v, |m, v| m / (v.sqrt() + 1e-8));
                let u = q.times(&u).times(&r.transposed()).0.concat();
                let bias = (1.0 - 0.95f64.powf(t)).sqrt() / (1.0 - 0.95f64.powf(t));
                p.iter_mut().zip(u).for_each(|(p, u)| *p -= RATE * (0.01 * *p + bias * u));
            }
            left = left.zip(&g.times(&g.transposed()), |a, b| 0.95 * a + 0.05 * b);
            right = right.zip(&g.transposed().times(&g), |a, b| 0.95 * a + 0.05 * b);
            q = left.eigenvectors(&q);
            r = right.eigenvectors(&r);
        })
    };
    let vector: Reference = {
        let mut state = [[0.0f64; 2]; 3];
        Box::new(move |t, p, g| {
            for ((p, &g), [m, v]) in p.iter_mut().zip(g).zip(&mut state) {
                *m = 0.95 * *m + 0.05 * g;
                *v = 0.95 * *v + 0.05 * g * g;
                let bias = (1.0 - 0.95f64.powf(t)).sqrt() / (1.0 - 0.95f64.powf(t));
                *p -= RATE * (0.01 * *p + bias * *m / (v.sqrt() + 1e-8));
            }
        })
    };
    let config = SoapConfig::new().with_update_interval(1).with_iterations(10);
    follows(config.init(), RATE, [matrix, vector], 2e-3);
}
