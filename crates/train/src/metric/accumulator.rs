//! Sums and rows that metrics accumulate over batches.

use std::collections::BTreeMap;

use kiln_tensor::AnyTensor;

use super::MetricState;
use crate::error::MetricError;

/// With more tensors than this, they are read from the device.
const MAX_PENDING: usize = 64;

/// With more elements than this, such as those of confusion matrices of 1,000 classes, they are read from the device.
const MAX_PENDING_ELEMENTS: usize = 1 << 22;

/// Returns whether tensors on the device should be read.
fn is_full(pending: &[AnyTensor]) -> bool {
    let elements: usize = pending.iter().map(|tensor| tensor.shape().num_elements()).sum();
    pending.len() > MAX_PENDING || elements > MAX_PENDING_ELEMENTS
}

/// Named sums and named rows over batches. Batches are added without waiting for the device, in 64-bit floating point
/// on the host.
#[derive(Clone, Debug, Default)]
pub struct Accumulator {
    sums: BTreeMap<&'static str, Sum>,
    rows: BTreeMap<&'static str, Rows>,
    /// The state that was loaded or merged for names that were not used since.
    loaded: BTreeMap<String, Vec<f64>>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    totals: Vec<f64>,
    pending: Vec<AnyTensor>,
}

#[derive(Clone, Debug, Default)]
struct Rows {
    numbers: Vec<f64>,
    pending: Vec<AnyTensor>,
}

/// The prefixes of arrays in a [`MetricState`].
const SUM: &str = "sum.";
const ROWS: &str = "rows.";

impl Accumulator {
    /// Returns an accumulator without batches.
    pub fn new() -> Accumulator {
        Accumulator::default()
    }

    /// Removes all batches.
    pub fn reset(&mut self) {
        *self = Accumulator::default();
    }

    /// Adds a tensor to a sum, element by element. All tensors of a name have the same number of elements.
    ///
    /// # Errors
    /// When the device failed, or the number of elements differs.
    pub fn sum(&mut self, name: &'static str, tensor: AnyTensor) -> Result<(), MetricError> {
        let sum = self.sum_mut(name);
        sum.pending.push(tensor);
        if is_full(&sum.pending) { sum.read() } else { Ok(()) }
    }

    /// Adds numbers on the host to a sum, element by element.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn sum_all(&mut self, name: &'static str, numbers: &[f64]) -> Result<(), MetricError> {
        self.sum_mut(name).add(numbers)
    }

    /// Adds a number on the host to a sum of one element.
    pub fn count(&mut self, name: &'static str, number: f64) {
        let sum = self.sum_mut(name);
        match sum.totals.first_mut() {
            Some(total) => *total += number,
            None => sum.totals.push(number),
        }
    }

    /// Appends the elements of a tensor, in row-major order.
    ///
    /// # Errors
    /// When the device failed.
    pub fn append(&mut self, name: &'static str, tensor: AnyTensor) -> Result<(), MetricError> {
        let rows = self.rows_mut(name);
        rows.pending.push(tensor);
        if is_full(&rows.pending) { rows.read() } else { Ok(()) }
    }

    /// Appends numbers on the host.
    ///
    /// # Errors
    /// When the device failed.
    pub fn append_all(&mut self, name: &'static str, numbers: &[f64]) -> Result<(), MetricError> {
        let rows = self.rows_mut(name);
        rows.read()?;
        rows.numbers.extend_from_slice(numbers);
        Ok(())
    }

    /// Returns the first element of a sum; NaN without batches. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    pub fn total(&mut self, name: &'static str) -> Result<f64, MetricError> {
        Ok(self.totals(name)?.first().copied().unwrap_or(f64::NAN))
    }

    /// Returns the quotient of the first elements of two sums, such as of the sum of errors and the number of items;
    /// NaN without batches. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    pub fn ratio(&mut self, sum: &'static str, divisor: &'static str) -> Result<f64, MetricError> {
        Ok(self.total(sum)? / self.total(divisor)?)
    }

    /// Returns the elements of a sum; none without batches. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    pub fn totals(&mut self, name: &'static str) -> Result<&[f64], MetricError> {
        let sum = self.sum_mut(name);
        sum.read()?;
        Ok(&sum.totals)
    }

    /// Returns the appended numbers, in order. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    pub fn numbers(&mut self, name: &'static str) -> Result<&[f64], MetricError> {
        let rows = self.rows_mut(name);
        rows.read()?;
        Ok(&rows.numbers)
    }

    /// Returns the state. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    pub fn state(&mut self) -> Result<MetricState, MetricError> {
        let mut state = MetricState::new();
        for (name, array) in &self.loaded {
            state = state.with(name.clone(), array.clone());
        }
        for (name, sum) in &mut self.sums {
            sum.read()?;
            state = state.with(format!("{SUM}{name}"), sum.totals.clone());
        }
        for (name, rows) in &mut self.rows {
            rows.read()?;
            state = state.with(format!("{ROWS}{name}"), rows.numbers.clone());
        }
        Ok(state)
    }

    /// Adds the sums and appends the rows of a state.
    ///
    /// # Errors
    /// When the state has other arrays than an accumulator, or a sum has another number of elements. The accumulator is
    /// then unchanged.
    pub fn merge(&mut self, state: &MetricState) -> Result<(), MetricError> {
        let mine = self.state()?;
        for (name, array) in state.iter() {
            let is_sum = name.starts_with(SUM);
            if !is_sum && !name.starts_with(ROWS) {
                return Err(MetricError::State { problem: format!("`{name}` is neither a sum nor rows") });
            }
            let own = mine.get(name).map_or(0, <[f64]>::len);
            if is_sum && own != 0 && own != array.len() {
                return Err(different_lengths(name, own, array.len()));
            }
        }
        let mut merged: BTreeMap<String, Vec<f64>> =
            mine.iter().map(|(name, array)| (name.to_owned(), array.to_vec())).collect();
        for (name, array) in state.iter() {
            let own = merged.entry(name.to_owned()).or_default();
            if own.is_empty() || name.starts_with(ROWS) {
                own.extend_from_slice(array);
            } else {
                own.iter_mut().zip(array).for_each(|(own, number)| *own += number);
            }
        }
        *self = Accumulator { loaded: merged, ..Accumulator::default() };
        Ok(())
    }

    fn sum_mut(&mut self, name: &'static str) -> &mut Sum {
        let loaded = &mut self.loaded;
        self.sums.entry(name).or_insert_with(|| {
            let totals = loaded.remove(&format!("{SUM}{name}")).unwrap_or_default();
            Sum { totals, pending: Vec::new() }
        })
    }

    fn rows_mut(&mut self, name: &'static str) -> &mut Rows {
        let loaded = &mut self.loaded;
        self.rows.entry(name).or_insert_with(|| {
            let numbers = loaded.remove(&format!("{ROWS}{name}")).unwrap_or_default();
            Rows { numbers, pending: Vec::new() }
        })
    }
}

impl Sum {
    fn read(&mut self) -> Result<(), MetricError> {
        for tensor in std::mem::take(&mut self.pending) {
            self.add(&tensor.into_data()?.to_vec::<f64>())?;
        }
        Ok(())
    }

    fn add(&mut self, numbers: &[f64]) -> Result<(), MetricError> {
        if self.totals.is_empty() {
            self.totals = numbers.to_vec();
            return Ok(());
        }
        if self.totals.len() != numbers.len() {
            return Err(different_lengths("a sum", self.totals.len(), numbers.len()));
        }
        self.totals.iter_mut().zip(numbers).for_each(|(total, number)| *total += number);
        Ok(())
    }
}

impl Rows {
    fn read(&mut self) -> Result<(), MetricError> {
        for tensor in std::mem::take(&mut self.pending) {
            self.numbers.extend(tensor.into_data()?.to_vec::<f64>());
        }
        Ok(())
    }
}

fn different_lengths(name: &str, own: usize, other: usize) -> MetricError {
    MetricError::State { problem: format!("`{name}` has {own} elements, but {other} are added") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_continues_and_merges() {
        let mut first = Accumulator::new();
        first.sum_all("hits", &[1.0, 2.0]).unwrap();
        first.append_all("scores", &[0.5]).unwrap();
        let mut second = Accumulator::new();
        second.merge(&first.state().unwrap()).unwrap();
        second.sum_all("hits", &[10.0, 20.0]).unwrap();
        second.append_all("scores", &[0.25]).unwrap();
        assert_eq!(second.totals("hits").unwrap(), [11.0, 22.0]);
        first.merge(&second.state().unwrap()).unwrap();
        assert_eq!(first.totals("hits").unwrap(), [12.0, 24.0]);
        assert_eq!(first.numbers("scores").unwrap(), [0.5, 0.5, 0.25]);
    }

    #[test]
    fn a_state_of_another_metric_is_refused() {
        let mut sums = Accumulator::new();
        sums.sum_all("hits", &[1.0, 2.0]).unwrap();
        assert!(sums.merge(&MetricState::new().with("sum.hits", vec![1.0])).is_err());
        assert!(sums.merge(&MetricState::new().with("other", vec![1.0])).is_err());
        assert_eq!(sums.totals("hits").unwrap(), [1.0, 2.0]);
    }
}
