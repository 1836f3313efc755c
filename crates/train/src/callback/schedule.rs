//! Changes of the task at a point of training.

use std::fmt;

use super::{Callback, Context, Event};
use crate::error::Result;

/// Calls a closure with the task at the start of an epoch, such as to unfreeze a part of the model. After a resume it is
/// called again if the epoch has begun, since a checkpoint does not contain which parameters are frozen.
///
/// ```
/// use kiln_train::callback::AtEpoch;
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, Module};
/// # use kiln_tensor::Autodiff;
/// # use kiln_train::{StepOutput, Supervised};
/// # type B = Autodiff<Flex>;
/// # type MyTask = Supervised<Linear<B>, (), fn(&Linear<B>, ()) -> StepOutput<B>>;
/// let unfreeze = AtEpoch::new(2, |task: &mut MyTask| {
///     let model = task.trainable_mut().model_mut();
///     *model = model.clone().unfreeze();
/// });
/// ```
pub struct AtEpoch<F> {
    epoch: u64,
    change: F,
    is_done: bool,
}

impl<F> AtEpoch<F> {
    /// Returns the callback of an epoch, counted from 0, and a closure.
    pub fn new<T>(epoch: u64, change: F) -> AtEpoch<F>
    where
        F: FnMut(&mut T),
    {
        AtEpoch { epoch, change, is_done: false }
    }
}

impl<T, F: FnMut(&mut T) + Send> Callback<T> for AtEpoch<F> {
    fn name(&self) -> &str {
        "at_epoch"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        if let Event::EpochStarted = event
            && !self.is_done
            && context.control.position().epoch >= self.epoch
        {
            self.is_done = true;
            (self.change)(context.task);
        }
        Ok(())
    }
}

impl<F> fmt::Debug for AtEpoch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtEpoch")
            .field("epoch", &self.epoch)
            .field("is_done", &self.is_done)
            .finish_non_exhaustive()
    }
}
