//! Metrics of images: overlap of segmentations, and similarity to a reference image.

mod overlap;
mod psnr;
mod ssim;

pub use overlap::{
    Aggregation, ClassAverage, ClassWeight, Dice, DiceMetric, GeneralizedDice, MeanIou, MeanIouMetric,
};
pub use psnr::{Psnr, PsnrMetric};
pub use ssim::{MsSsim, MsSsimMetric, Ssim, SsimMetric};

use kiln_tensor::{AnyTensor, DType};

use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// The predictions and targets as `f32`, of one shape.
fn pairs(observation: &Observation) -> Result<(AnyTensor, AnyTensor), MetricError> {
    let (predictions, targets) = (observation.tensor(PREDICTIONS)?, observation.tensor(TARGETS)?);
    if predictions.shape() != targets.shape() {
        let problem = format!(
            "has shape {:?}, but the targets have shape {:?}",
            &predictions.shape()[..],
            &targets.shape()[..]
        );
        return Err(MetricError::Input { name: PREDICTIONS, problem });
    }
    Ok((predictions.cast(DType::F32)?, targets.cast(DType::F32)?))
}

/// The predicted and the true images `f32[batch, channels, height, width]`.
pub(super) fn images(observation: &Observation) -> Result<(AnyTensor, AnyTensor), MetricError> {
    let (predictions, targets) = pairs(observation)?;
    if predictions.rank() != 4 {
        let problem =
            format!("has shape {:?}, expected [batch, channels, height, width]", &predictions.shape()[..]);
        return Err(MetricError::Input { name: PREDICTIONS, problem });
    }
    Ok((predictions, targets))
}
