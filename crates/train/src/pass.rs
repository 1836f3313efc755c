//! A pass over a loader without updates.

use crate::error::{Result, TrainError, TrainPosition};
use crate::history::Scores;
use crate::learner::guarded;
use crate::loader::Loader;
use crate::meter::Meter;
use crate::metric::Metric;
use crate::step::{Outcome, Validation};

/// Batches between two reads: enough to avoid waiting for the device, and few enough to keep in memory.
const READ_INTERVAL: usize = 64;

/// A pass over epoch 0 of a loader.
pub(crate) struct Pass<'a, Batch> {
    pub(crate) loader: &'a dyn Loader<Batch>,
    pub(crate) metrics: &'a [Box<dyn Metric>],
    /// The epoch of training, for errors.
    pub(crate) epoch: u64,
    /// The maximum number of batches.
    pub(crate) limit: u64,
}

impl<Batch> Pass<'_, Batch> {
    /// Runs a function on each batch, and returns the scores. `each` receives the number of batches that are done.
    ///
    /// # Errors
    /// When a batch cannot be loaded, the function fails or panics, a metric lacks an input, or the device failed. A NaN
    /// loss is not an error.
    pub(crate) fn run(
        &self,
        mut step: impl FnMut(Batch, &mut Validation<'_>) -> Result<()>,
        mut each: impl FnMut(u64),
    ) -> Result<Scores> {
        let mut meter = Meter::new(self.metrics);
        let mut place = TrainPosition { epoch: self.epoch, step: 0, batch: 0, validation: true };
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        for batch in self.loader.batches(0, 0).take(limit) {
            let batch = batch.map_err(|source| TrainError::Data { place, source })?;
            let mut outcome = Outcome::default();
            let mut validation = Validation::new(place, &mut outcome);
            guarded(place, || step(batch, &mut validation))?.map_err(|error| error.at(place))?;
            meter.add(outcome, place)?;
            meter.read(READ_INTERVAL, false, |_| {})?;
            place.step += 1;
            place.batch += 1;
            each(place.step);
        }
        meter.read(0, false, |_| {})?;
        meter.scores(place)
    }
}
