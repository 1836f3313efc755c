//! Random tensors follow their distributions and are determined by their keys.

mod draws;
mod ranges;

use kiln_backends::{Device, Dyn, Flex, FlexDevice};
use kiln_tensor::random::Key;
use kiln_tensor::{AnyTensor, Backend, DType, Distribution, Int, Tensor, TensorType};

const COUNT: usize = 20_000;
const DEVICE: FlexDevice = FlexDevice;

fn draw(distribution: Distribution, key: u64) -> Vec<f64> {
    let x = Tensor::<Flex, 1>::random_with_key([COUNT], distribution, Key::new(key), &DEVICE);
    x.into_data().to_vec()
}

/// The Kolmogorov-Smirnov statistic times the square root of the sample size: above 1.95 with a probability of 1 in
/// 1,000.
fn distance(mut numbers: Vec<f64>, below: impl Fn(f64) -> f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let n = numbers.len() as f64;
    let gap = |(i, &x): (usize, &f64)| {
        let p = below(x);
        (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
    };
    numbers.iter().enumerate().map(gap).fold(0.0, f64::max) * n.sqrt()
}

fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// The cumulative distribution function of the gamma distribution, by its series.
fn gamma_below(shape: f64, x: f64) -> f64 {
    let mut term = 1.0 / shape;
    let mut sum = term;
    for k in 1..500 {
        term *= x / (shape + f64::from(k));
        sum += term;
    }
    (sum * (shape * x.ln() - x - libm::lgamma(shape)).exp()).min(1.0)
}

#[test]
fn continuous_distributions() {
    use Distribution::*;
    type Below = Box<dyn Fn(f64) -> f64>;
    let truncated = TruncatedNormal { mean: 1.0, deviation: 2.0, low: 0.0, high: 2.5 };
    let (from, to) = (normal_below(-0.5), normal_below(0.75));
    let cases: Vec<(Distribution, Below)> = vec![
        (Uniform(-1.0, 3.0), Box::new(|x| (x + 1.0) / 4.0)),
        (Normal(1.0, 2.0), Box::new(|x| normal_below((x - 1.0) / 2.0))),
        (truncated, Box::new(move |x| (normal_below((x - 1.0) / 2.0) - from) / (to - from))),
        (LogNormal(0.5, 0.75), Box::new(|x| normal_below((x.ln() - 0.5) / 0.75))),
        (Exponential(2.0), Box::new(|x| 1.0 - (-2.0 * x).exp())),
        (Gamma(0.3, 2.0), Box::new(|x| gamma_below(0.3, x / 2.0))),
        (Gamma(1.0, 1.0), Box::new(|x| gamma_below(1.0, x))),
        (Gamma(4.5, 0.5), Box::new(|x| gamma_below(4.5, x * 2.0))),
        (Gamma(60.0, 1.0), Box::new(|x| gamma_below(60.0, x))),
        (Beta(2.0, 3.0), Box::new(|x| x * x * (6.0 - 8.0 * x + 3.0 * x * x))),
        (Beta(0.5, 0.5), Box::new(|x| x.sqrt().asin() * std::f64::consts::FRAC_2_PI)),
        (Gumbel(1.0, 2.0), Box::new(|x| (-(-(x - 1.0) / 2.0).exp()).exp())),
        (
            Laplace(1.0, 2.0),
            Box::new(|x| {
                let tail = 0.5 * (-(x - 1.0).abs() / 2.0).exp();
                if x < 1.0 { tail } else { 1.0 - tail }
            }),
        ),
    ];
    for (seed, (distribution, below)) in cases.into_iter().enumerate() {
        let found = distance(draw(distribution, seed as u64), below);
        assert!(found < 1.95, "{distribution:?}: {found}");
    }
}

/// The test above detects a wrong parameter.
#[test]
fn the_distribution_test_detects_a_wrong_mean() {
    let found = distance(draw(Distribution::Normal(0.05, 1.0), 1), normal_below);
    assert!(found > 1.95, "{found}");
}

#[test]
fn truncated_normals_are_within_bounds() {
    let distribution = Distribution::TruncatedNormal { mean: 0.0, deviation: 1.0, low: -0.1, high: 4.0 };
    assert!(draw(distribution, 5).iter().all(|x| (-0.100_000_1..=4.0).contains(x)));
}

/// The `χ²` statistic: squared deviations of counts over the expected counts.
fn chi_square(counts: &[usize], expected: &[f64]) -> f64 {
    counts.iter().zip(expected).map(|(&count, expected)| (count as f64 - expected).powi(2) / expected).sum()
}

#[test]
fn poisson_distribution() {
    for (rate, key) in [(0.7, 1), (9.5, 2), (12.0, 3), (30.0, 4), (400.0, 5)] {
        let numbers = draw(Distribution::Poisson(rate), key);
        assert!(numbers.iter().all(|x| *x >= 0.0 && x.fract() == 0.0));
        let probability = |k: usize| (k as f64 * f64::ln(rate) - rate - libm::lgamma(k as f64 + 1.0)).exp();
        let cells: Vec<usize> = (0..1000).filter(|&k| probability(k) * COUNT as f64 > 20.0).collect();
        let counts: Vec<usize> =
            cells.iter().map(|&k| numbers.iter().filter(|x| **x == k as f64).count()).collect();
        let expected: Vec<f64> = cells.iter().map(|&k| probability(k) * COUNT as f64).collect();
        let freedom = cells.len() as f64;
        let found = chi_square(&counts, &expected);
        // Four standard deviations.
        assert!(found < freedom + 4.0 * (2.0 * freedom).sqrt(), "rate {rate}: {found} of {freedom}");
    }
    let large = draw(Distribution::Poisson(1e5), 6);
    let mean = large.iter().sum::<f64>() / COUNT as f64;
    let variance = large.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / COUNT as f64;
    assert!((mean - 1e5).abs() < 10.0 && (variance / 1e5 - 1.0).abs() < 0.05, "{mean}, {variance}");
}

#[test]
fn integers_of_a_range_are_uniform() {
    let dice =
        Tensor::<Flex, 1, Int>::randint([COUNT], -2..4, Key::new(1), &DEVICE).into_data().to_vec::<i32>();
    let counts: Vec<usize> = (-2..4).map(|k| dice.iter().filter(|x| **x == k).count()).collect();
    assert_eq!(counts.iter().sum::<usize>(), COUNT);
    assert!(chi_square(&counts, &[COUNT as f64 / 6.0; 6]) < 20.0, "{counts:?}");
}

#[test]
fn permutations_are_equally_likely() {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..3000 {
        let order = Tensor::<Flex, 1, Int>::randperm(3, Key::new(seed), &DEVICE).into_data().to_vec::<i32>();
        *counts.entry(order).or_insert(0usize) += 1;
    }
    assert_eq!(counts.len(), 6);
    let counts: Vec<usize> = counts.into_values().collect();
    assert!(chi_square(&counts, &[500.0; 6]) < 20.0, "{counts:?}");
}

#[test]
fn multinomial_follows_its_weights() {
    let weights = Tensor::<Flex, 2>::from_floats([[1.0, 0.0, 3.0], [2.0, 2.0, 4.0]], &DEVICE);
    let drawn = weights.clone().multinomial_with_key(COUNT, true, Key::new(2));
    assert_eq!(drawn.dims(), [2, COUNT]);
    let drawn = drawn.into_data().to_vec::<i32>();
    let share = |row: usize, class: i32| {
        let row = &drawn[row * COUNT..(row + 1) * COUNT];
        row.iter().filter(|x| **x == class).count() as f64 / COUNT as f64
    };
    assert_eq!(share(0, 1), 0.0);
    for (row, class, expected) in [(0, 0, 0.25), (0, 2, 0.75), (1, 0, 0.25), (1, 1, 0.25), (1, 2, 0.5)] {
        assert!((share(row, class) - expected).abs() < 0.015, "{row} {class}");
    }
    // Without replacement, the first draw follows the weights, and no class occurs twice.
    let mut first = 0;
    for seed in 0..2000 {
        let two = weights.clone().multinomial_with_key(2, false, Key::new(seed)).into_data().to_vec::<i32>();
        assert!(two[0] != two[1] && two[2] != two[3] && two[0] != 1 && two[1] != 1);
        first += usize::from(two[2] == 2);
    }
    assert!((first as f64 / 2000.0 - 0.5).abs() < 0.05, "{first}");
}

#[test]
fn dirichlet_means() {
    let concentration = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 5.0], &DEVICE);
    let rows = concentration.reshape([1, 3]).expand([4000, 3]).dirichlet(Key::new(3));
    let means = rows.mean_dim(0).into_data().to_vec::<f64>();
    for (mean, expected) in means.iter().zip([0.125, 0.25, 0.625]) {
        assert!((mean - expected).abs() < 0.01, "{means:?}");
    }
    let tiny = Tensor::<Flex, 1>::from_floats([1e-3, 1e-3], &DEVICE).dirichlet(Key::new(1));
    assert!(tiny.is_nan().int().sum().into_data().to_vec::<i32>() == [0]);
}

#[test]
fn keys_give_independent_streams() {
    let key = Key::new(9);
    let keys = [key, key.fold_in(0), key.fold_in(1), key.split(2)[0], key.split(2)[1]];
    let draws = keys.map(|key| {
        Tensor::<Flex, 1>::random_with_key([COUNT], Distribution::Normal(0.0, 1.0), key, &DEVICE)
            .into_data()
            .to_vec::<f64>()
    });
    for i in 0..keys.len() {
        for j in 0..i {
            let product: f64 = draws[i].iter().zip(&draws[j]).map(|(a, b)| a * b).sum();
            assert!((product / COUNT as f64).abs() < 0.03, "{i} and {j} are correlated");
        }
    }
    assert_eq!(key.split(3)[..2], key.split(2)[..]);
}

#[test]
fn samples_are_independent_of_thread_count() {
    let devices = [Device::cpu(), Device::cpu_with_threads(3)];
    let ty = TensorType::new([1000], DType::F32);
    for distribution in
        [Distribution::Gamma(0.4, 1.0), Distribution::Poisson(20.0), Distribution::Gumbel(0.0, 1.0)]
    {
        let [a, b] = devices.clone().map(|device| {
            let x = AnyTensor::random_with_key(ty, distribution, Key::new(4), &device).unwrap();
            x.into_data().unwrap().to_vec::<f32>()
        });
        assert_eq!(a, b, "{distribution:?}");
    }
}

#[test]
fn a_seed_makes_samples_without_keys_reproducible() {
    let device = crate::own_device();
    let draw = || {
        Dyn::seed(&device, 5);
        let x = Tensor::<Dyn, 1>::random([3], Distribution::Gamma(2.0, 1.0), &device);
        let p = Tensor::<Dyn, 1>::random([3], Distribution::Default, &device).bernoulli(None);
        (x.into_data().to_vec::<f32>(), p.into_data().to_vec::<f32>())
    };
    assert_eq!(draw(), draw());
}

#[test]
fn invalid_parameters_are_errors() {
    use Distribution::*;
    let ty = TensorType::new([2], DType::F32);
    let truncated = |low, high| TruncatedNormal { mean: 0.0, deviation: 1.0, low, high };
    let cases = [
        (Bernoulli(1.5), "1.5 is not a probability between 0 and 1"),
        (Bernoulli(f64::NAN), "NaN is not a probability between 0 and 1"),
        (Uniform(1.0, 0.0), "the range from 1 to below 0 is empty"),
        (Uniform(1.0, 1.0), "the range from 1 to below 1 is empty"),
        (Uniform(0.0, f64::INFINITY), "the bounds 0 and inf are not finite"),
        (Uniform(f64::NAN, 1.0), "the bounds NaN and 1 are not finite"),
        (Normal(0.0, -1.0), "the standard deviation must not be negative, but is -1"),
        (Normal(f64::INFINITY, 1.0), "inf is not finite"),
        (truncated(1.0, -1.0), "the range from 1 to below -1 is empty"),
        (
            truncated(9.0, 10.0),
            "the interval from 9 to 10 deviations from the mean has almost no probability mass",
        ),
        (LogNormal(0.0, -0.5), "the standard deviation must not be negative, but is -0.5"),
        (Exponential(0.0), "the rate must be positive, not 0"),
        (Gamma(0.0, 1.0), "the shape must be positive, not 0"),
        (Gamma(1.0, -1.0), "the scale must be positive, not -1"),
        (Beta(1.0, 0.0), "the second shape must be positive, not 0"),
        (Poisson(-1.0), "the rate must not be negative, but is -1"),
        (Gumbel(0.0, 0.0), "the scale must be positive, not 0"),
        (Laplace(f64::NAN, 1.0), "NaN is not finite"),
    ];
    for (distribution, problem) in cases {
        let error = AnyTensor::random(ty, distribution, &Device::cpu()).unwrap_err().to_string();
        assert_eq!(error, format!("[random] {problem}\n  hint: check the parameters of {distribution:?}"));
    }
    let weights = AnyTensor::full(ty, 1.0, &Device::cpu()).unwrap();
    assert_eq!(
        weights.clone().multinomial(3, false, None).unwrap_err().to_string(),
        "[multinomial] cannot draw 3 of 2 without replacement: f32[2]\n  hint: draw fewer, or with replacement"
    );
    let int = ty.with_dtype(DType::I32);
    assert_eq!(
        AnyTensor::randint(int, 3..3, None, &Device::cpu()).unwrap_err().to_string(),
        "[randint] 3..3 contains no integers\n  hint: the end of the range must be above its start"
    );
    let rates = weights.cast(DType::I32).unwrap();
    assert_eq!(
        rates.poisson(None).unwrap_err().to_string(),
        "[poisson] needs a float dtype: i32[2]\n  hint: cast the tensor to a float dtype first"
    );
}
