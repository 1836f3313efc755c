//! The values of a metric.

use serde::{Deserialize, Serialize};

use crate::record::number;

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricValue {
    /// A number.
    #[serde(with = "number")]
    Scalar(f64),
    /// A number for each class.
    #[serde(with = "number::list")]
    PerClass(Vec<f64>),
    /// A matrix in row-major order, such as a confusion matrix.
    Matrix {
        /// The number of rows.
        rows: usize,
        /// The number of columns.
        columns: usize,
        /// The elements: `rows × columns` numbers.
        #[serde(with = "number::list")]
        elements: Vec<f64>,
    },
    /// A histogram.
    Histogram {
        /// The edges of the bins, in ascending order: one more than there are bins.
        #[serde(with = "number::list")]
        edges: Vec<f64>,
        /// The number of samples in each bin.
        #[serde(with = "number::list")]
        counts: Vec<f64>,
    },
    /// An image in row-major order, with interleaved channels.
    Image {
        /// The height in pixels.
        height: usize,
        /// The width in pixels.
        width: usize,
        /// The number of channels: 1 (grey), 3 (RGB) or 4 (RGBA).
        channels: usize,
        /// The pixels: `height × width × channels` bytes.
        pixels: Vec<u8>,
    },
    /// A text.
    Text(String),
}

impl MetricValue {
    /// Returns the number of a scalar, `None` for other values.
    pub fn as_scalar(&self) -> Option<f64> {
        match self {
            MetricValue::Scalar(value) => Some(*value),
            MetricValue::PerClass(_)
            | MetricValue::Matrix { .. }
            | MetricValue::Histogram { .. }
            | MetricValue::Image { .. }
            | MetricValue::Text(_) => None,
        }
    }
}

/// The named values of a metric, the main value first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricValues(Vec<(String, MetricValue)>);

impl MetricValues {
    /// Returns no values.
    pub fn new() -> MetricValues {
        MetricValues::default()
    }

    /// Returns one number.
    pub fn scalar(name: impl Into<String>, value: f64) -> MetricValues {
        MetricValues::new().with(name, MetricValue::Scalar(value))
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: MetricValue) -> MetricValues {
        self.0.push((name.into(), value));
        self
    }

    /// Returns the main value if it is a number.
    pub fn main(&self) -> Option<f64> {
        self.0.first().and_then(|(_, value)| value.as_scalar())
    }

    /// Returns a value by name.
    pub fn get(&self, name: &str) -> Option<&MetricValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetricValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Adds the values of another metric.
    pub fn extend(&mut self, other: MetricValues) {
        self.0.extend(other.0);
    }
}
