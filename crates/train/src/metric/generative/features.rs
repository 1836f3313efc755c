//! The function from images to features.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kiln_nn::ForwardModule;
use kiln_tensor::{AnyTensor, Backend, Error, Tensor};

use crate::error::MetricError;
use crate::observation::PREDICTIONS;

type Function = dyn Fn(AnyTensor) -> Result<AnyTensor, Error> + Send + Sync;

/// The function from images to features `[batch, features]` of a metric of generated images.
///
/// Published values use the weights of an Inception v3: its 2048 pooled features for distances, its 1008 logits for the
/// Inception score.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Flatten, LinearConfig};
/// use kiln_train::metric::{Features, FrechetInceptionDistance};
///
/// let network = (Flatten::new(1, 3), LinearConfig::new(3 * 8 * 8, 16).init::<Flex>(&Default::default()));
/// let metric = FrechetInceptionDistance::new(Features::module::<Flex, _, 4>(network));
/// // Inputs that are features already:
/// let metric = FrechetInceptionDistance::new(Features::identity());
/// // Any other function:
/// let metric = FrechetInceptionDistance::new(Features::function(|images| images.mean_dims([2, 3])?.flatten(1, -1)));
/// ```
#[derive(Clone)]
pub struct Features(Option<Arc<Function>>);

impl Features {
    /// Returns the identity, for inputs that are features.
    pub fn identity() -> Features {
        Features(None)
    }

    /// Returns the features that a function computes.
    pub fn function(
        function: impl Fn(AnyTensor) -> Result<AnyTensor, Error> + Send + Sync + 'static,
    ) -> Features {
        Features(Some(Arc::new(function)))
    }

    /// Returns the output of a module for images of rank `D`, on the backend of the module. In training, that is the
    /// backend without automatic differentiation.
    pub fn module<B, M, const D: usize>(module: M) -> Features
    where
        B: Backend,
        M: ForwardModule<Tensor<B, D>, Output = Tensor<B, 2>> + 'static,
    {
        let module = Mutex::new(module);
        Features::function(move |images| {
            let images = images.try_into_tensor::<B, D, _>()?;
            let module = module.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(module.forward(images).into_any())
        })
    }

    /// The features `[batch, features]` of images.
    pub(super) fn of(&self, images: AnyTensor) -> Result<AnyTensor, MetricError> {
        let features = match &self.0 {
            Some(function) => function(images)?,
            None => images,
        };
        if features.rank() != 2 {
            let problem =
                format!("has features of shape {:?}, expected [batch, features]", &features.shape()[..]);
            return Err(MetricError::Input { name: PREDICTIONS, problem });
        }
        Ok(features)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Features(function)" } else { "Features(identity)" })
    }
}
