//! Kernel distance.

use super::matrix::Matrix;
use super::{Features, sides};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::Observation;

/// Kernel inception distance (Bińkowski et al., "Demystifying MMD GANs", 2018): the unbiased estimate of the squared
/// maximum mean discrepancy between the features of real and generated images with the kernel
/// `(x · y / features + 1)³`, averaged over random subsets.
///
/// Inputs: [`TARGETS`](crate::TARGETS), the real images, and [`PREDICTIONS`](crate::PREDICTIONS), the generated images;
/// a batch may have one of them. [`Features`] computes the features from them, which are all kept on the host. Values:
/// `kid`, where less is better, and `kid_std`, the standard deviation over subsets; NaN with fewer than two images of
/// each. Subsets are drawn by a generator with a fixed seed. Equivalent to
/// `torchmetrics.image.kid.KernelInceptionDistance`, with other subsets.
pub type KernelInceptionDistance = Accumulated<KernelRule>;

/// The rule of [`KernelInceptionDistance`].
#[derive(Clone, Debug)]
pub struct KernelRule {
    features: Features,
    subsets: usize,
    subset_size: usize,
    degree: i32,
    gamma: Option<f64>,
    coefficient: f64,
    seed: u64,
}

/// [`KernelInceptionDistance`] under a name like those of Burn's metrics.
pub type KernelInceptionDistanceMetric = KernelInceptionDistance;

/// The names of a side: the number of images, and the rows of features.
const NAMES: [[&str; 2]; 2] = [["real_images", "real"], ["generated_images", "generated"]];

impl KernelInceptionDistance {
    /// Returns the metric `kid` of features.
    pub fn new(features: Features) -> KernelInceptionDistance {
        KernelInceptionDistance::of(KernelRule {
            features,
            subsets: 100,
            subset_size: 1000,
            degree: 3,
            gamma: None,
            coefficient: 1.0,
            seed: 0,
        })
    }

    kiln_ir::setters! {
        /// Sets the number and the size of subsets. Default: 100 subsets of 1000 images. A subset is not greater than the
        /// number of real or of generated images.
        subsets(number: usize, size: usize) => rule.subsets = number.max(1), rule.subset_size = size;

        /// Sets the kernel `(gamma · x · y + coefficient)^degree`. Default: one over the number of features (`None`), 1
        /// and 3.
        kernel(degree: i32, gamma: Option<f64>, coefficient: f64) =>
            rule.degree = degree, rule.gamma = gamma, rule.coefficient = coefficient;

        /// Sets the seed of the subsets. Default: 0.
        seed(seed: u64) => rule.seed = seed;
    }
}

/// The features of a side as rows.
fn rows(sums: &mut Accumulator, [images, rows]: [&'static str; 2]) -> Result<Matrix, MetricError> {
    let count = sums.total(images)?;
    let numbers = sums.numbers(rows)?;
    let count = if count.is_nan() { 0 } else { count as usize };
    let columns = numbers.len().checked_div(count).unwrap_or(0);
    Ok(Matrix::new(count, columns, numbers[..count * columns].to_vec()))
}

impl KernelRule {
    fn distances(&self, real: &Matrix, generated: &Matrix) -> Vec<f64> {
        let size = self.subset_size.min(real.rows()).min(generated.rows());
        if size < 2 || real.row(0).len() != generated.row(0).len() {
            return vec![f64::NAN];
        }
        let mut generator = SplitMix(self.seed);
        let subset = |_| {
            let real = real.select(&generator.subset(size, real.rows()));
            let generated = generated.select(&generator.subset(size, generated.rows()));
            self.discrepancy(&real, &generated)
        };
        (0..self.subsets).map(subset).collect()
    }

    /// The unbiased estimate of the squared maximum mean discrepancy.
    fn discrepancy(&self, real: &Matrix, generated: &Matrix) -> f64 {
        let count = real.rows() as f64;
        let gamma = self.gamma.unwrap_or(1.0 / real.row(0).len() as f64);
        let kernel = |product: f64| (gamma * product + self.coefficient).powi(self.degree);
        let within = |side: &Matrix| {
            let products = side.products(side);
            let diagonal: f64 = (0..side.rows()).map(|place| kernel(products.at(place, place))).sum();
            products.iter().map(kernel).sum::<f64>() - diagonal
        };
        let between: f64 = real.products(generated).iter().map(kernel).sum();
        (within(real) + within(generated)) / (count * (count - 1.0)) - 2.0 * between / (count * count)
    }
}

impl MetricRule for KernelRule {
    crate::metric::facts!("kid", higher is better: false);

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        for (side, [images, rows]) in sides(observation)?.into_iter().zip(NAMES) {
            let Some(side) = side else { continue };
            let features = self.features.of(side)?;
            sums.count(images, features.shape()[0] as f64);
            sums.append(rows, features)?;
        }
        Ok(())
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let [real, generated] = [rows(sums, NAMES[0])?, rows(sums, NAMES[1])?];
        let (mean, deviation) = mean_and_deviation(&self.distances(&real, &generated));
        Ok(MetricValues::scalar(name, mean).with(format!("{name}_std"), MetricValue::Scalar(deviation)))
    }

    fn format(&self, value: f64) -> String {
        format!("{value:.6}")
    }
}

/// Mean and standard deviation of a population.
pub(super) fn mean_and_deviation(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// The generator SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Different numbers below `count`: the start of a Fisher-Yates shuffle.
    fn subset(&mut self, size: usize, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for place in 0..size {
            let rest = (count - place) as u64;
            numbers.swap(place, place + (self.next() % rest) as usize);
        }
        numbers.truncate(size);
        numbers
    }
}
