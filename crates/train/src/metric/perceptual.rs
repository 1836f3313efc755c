//! Metrics of perceived similarity: distances between the features of pretrained networks.

mod afine;
mod backbone;
mod clip;
mod dists;
mod lpips;

pub use afine::{
    Afine, AfineAdapter, AfineFidelity, AfineHeads, AfineMetric, AfineNaturalness, AfineNet, AfineScale,
};
pub use backbone::{Backbone, BackboneBlock, Fire, Network};
pub use clip::{ClipBlock, ClipMlp, ClipTransformer, ClipVision, ClipVisionConfig};
pub use dists::{Dists, DistsMetric, DistsNet, DistsWeights};
pub use lpips::{Lpips, LpipsHead, LpipsMetric, LpipsNet};

use kiln_tensor::{AnyTensor, Backend, Tensor};

use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS};

/// The predicted and the true images `[batch, 3, height, width]`, of at least `least` pixels in height and width.
fn typed_images<B: Backend>(
    observation: &Observation,
    least: usize,
) -> Result<(Tensor<B, 4>, Tensor<B, 4>), MetricError> {
    let (predictions, targets) = super::vision::images(observation)?;
    let shape = predictions.shape();
    if shape[1] != 3 || shape[2] < least || shape[3] < least {
        let problem = format!(
            "has shape {:?}, expected [batch, 3, height, width] with height and width of at least {least}",
            &shape[..]
        );
        return Err(MetricError::Input { name: PREDICTIONS, problem });
    }
    let typed = |x: AnyTensor| x.try_into_tensor::<B, 4, _>();
    Ok((typed(predictions)?, typed(targets)?))
}

/// A number for each channel: `[1, channels, 1, 1]`.
fn by_channel<B: Backend>(numbers: [f64; 3], device: &B::Device) -> Tensor<B, 4> {
    Tensor::<B, 1>::from_floats(numbers.map(|x| x as f32), device).reshape([1, 3, 1, 1])
}
