//! Metrics of object detection.

mod coco;
mod precision;

pub use precision::{
    BOXES, LABELS, MeanAveragePrecision, MeanAveragePrecisionMetric, NUM_BOXES, NUM_TARGET_BOXES, SCORES,
    TARGET_AREAS, TARGET_BOXES, TARGET_CROWDS, TARGET_LABELS,
};

use kiln_tensor::{AnyTensor, Error};

/// Computes the intersection over union of each pair of boxes, `[n, m]`, from boxes `[n, 4]` and `[m, 4]`.
///
/// A box is its corners `(x1, y1, x2, y2)` with `x1 ≤ x2` and `y1 ≤ y2`. Equivalent to `torchvision.ops.box_iou`: two
/// boxes without area give NaN.
///
/// ```
/// use kiln_backends::Device;
/// use kiln_tensor::{AnyTensor, TensorData};
/// use kiln_train::metric::box_iou;
///
/// let boxes = |corners| AnyTensor::from_data(TensorData::from(corners), &Device::cpu());
/// let iou = box_iou(boxes([[0.0f32, 0.0, 2.0, 2.0]]), boxes([[1.0f32, 0.0, 3.0, 2.0]]))?;
/// assert_eq!(iou.to_vec::<f32>()?, [1.0 / 3.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Errors
/// When the last axes do not have 4 elements.
pub fn box_iou(boxes: AnyTensor, others: AnyTensor) -> Result<AnyTensor, Error> {
    let (n, m) = (boxes.shape().num_elements() / 4, others.shape().num_elements() / 4);
    let (boxes, others) = (boxes.reshape([n, 1, 4])?, others.reshape([1, m, 4])?);
    let corner = |x: &AnyTensor, first: usize| x.clone().narrow(2, first, 2);
    let low = corner(&boxes, 0)?.maximum(corner(&others, 0)?)?;
    let high = corner(&boxes, 2)?.minimum(corner(&others, 2)?)?;
    let area = |low: AnyTensor, high: AnyTensor| high.sub(low)?.clamp_min(0.0)?.prod_dim(2);
    let both = area(low, high)?;
    let areas =
        area(corner(&boxes, 0)?, corner(&boxes, 2)?)?.add(area(corner(&others, 0)?, corner(&others, 2)?)?)?;
    both.clone().div(areas.sub(both)?)?.reshape([n, m])
}
