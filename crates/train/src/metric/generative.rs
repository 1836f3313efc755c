//! Metrics of generated images: distances between the features of real and generated images.

mod features;
mod frechet;
mod kernel;
mod matrix;
mod score;

pub use features::Features;
pub use frechet::{FrechetInceptionDistance, FrechetInceptionDistanceMetric};
pub use kernel::{KernelInceptionDistance, KernelInceptionDistanceMetric};
pub use score::{InceptionScore, InceptionScoreMetric};

use kiln_tensor::AnyTensor;

use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// The sides of a distance: real images are targets, generated ones predictions. A batch may have one of them.
fn sides(observation: &Observation) -> Result<[Option<AnyTensor>; 2], MetricError> {
    let sides = [TARGETS, PREDICTIONS].map(|name| observation.tensors.get(name).cloned());
    if sides.iter().all(Option::is_none) {
        return Err(MetricError::Missing { name: PREDICTIONS });
    }
    Ok(sides)
}
