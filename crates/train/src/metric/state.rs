//! The state of a metric.

use std::collections::BTreeMap;

use kiln_tensor::TensorData;

use crate::error::MetricError;

/// The state of a metric: named arrays of numbers. A checkpoint keeps every bit of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricState {
    arrays: BTreeMap<String, Vec<f64>>,
}

impl MetricState {
    /// Returns the empty state.
    pub fn new() -> MetricState {
        MetricState::default()
    }

    /// Adds an array.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, array: Vec<f64>) -> MetricState {
        self.arrays.insert(name.into(), array);
        self
    }

    /// Returns an array by name.
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.arrays.get(name).map(Vec::as_slice)
    }

    /// Returns an array by name.
    ///
    /// # Errors
    /// [`MetricError::State`] when there is none.
    pub fn require(&self, name: &str) -> Result<&[f64], MetricError> {
        self.get(name).ok_or_else(|| MetricError::State { problem: format!("it has no array `{name}`") })
    }

    /// Returns the names and arrays, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f64])> {
        self.arrays.iter().map(|(name, array)| (name.as_str(), array.as_slice()))
    }

    /// Returns the arrays as tensors `f64[n]`, for a checkpoint.
    pub fn to_tensors(&self) -> BTreeMap<String, TensorData> {
        let tensor = |array: &Vec<f64>| TensorData::from(array.clone());
        self.arrays.iter().map(|(name, array)| (name.clone(), tensor(array))).collect()
    }

    /// Returns the state of such tensors.
    pub fn from_tensors(tensors: &BTreeMap<String, TensorData>) -> MetricState {
        let arrays = tensors.iter().map(|(name, data)| (name.clone(), data.to_vec::<f64>()));
        MetricState { arrays: arrays.collect() }
    }
}
