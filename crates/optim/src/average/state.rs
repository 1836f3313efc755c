//! The state of an average.

use crate::error::{OptimError, Result};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_tensor::{Element, TensorData};

/// The state of a [`ModelAverage`](crate::ModelAverage) in host memory by dotted parameter names, for checkpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AverageState {
    updates: u64,
    tensors: BTreeMap<String, TensorData>,
}

/// The name of the number of updates, and the prefix of the parameters, in the state of PyTorch's `AveragedModel`.
const UPDATES: &str = "n_averaged";
const MODULE: &str = "module.";

impl AverageState {
    pub(super) fn new(updates: u64, tensors: BTreeMap<String, TensorData>) -> AverageState {
        AverageState { updates, tensors }
    }

    pub(super) fn into_parts(self) -> (u64, BTreeMap<String, TensorData>) {
        (self.updates, self.tensors)
    }

    /// Returns the number of updates.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Returns the dotted names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Returns the state as named tensors, as in the state of PyTorch's `AveragedModel`: `module.conv1.weight` and so
    /// on, and the number of updates as the `i64` scalar `n_averaged`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Linear, LinearConfig};
    /// use kiln_optim::{AverageState, SwaConfig};
    ///
    /// let model: Linear<Flex> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut average = SwaConfig::new().init();
    /// average.update(&model)?;
    /// let tensors = average.state(&model)?.into_tensors();
    /// let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    /// assert_eq!(names, ["module.bias", "module.weight", "n_averaged"]);
    ///
    /// let mut resumed = SwaConfig::new().init();
    /// resumed.load_state(AverageState::from_tensors(tensors)?, &model)?;
    /// assert_eq!(resumed.updates(), 1);
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    pub fn into_tensors(self) -> Vec<(String, TensorData)> {
        let named = self.tensors.into_iter().map(|(name, data)| (format!("{MODULE}{name}"), data));
        let updates = (UPDATES.to_string(), TensorData::scalar(self.updates as i64));
        named.chain([updates]).collect()
    }

    /// Builds the state from named tensors: the inverse of [`into_tensors`](AverageState::into_tensors).
    ///
    /// # Errors
    /// When a name is of neither kind, or the number of updates is missing or invalid.
    pub fn from_tensors(tensors: impl IntoIterator<Item = (String, TensorData)>) -> Result<AverageState> {
        let mut state = AverageState::default();
        let mut updates = None;
        for (name, data) in tensors {
            match name.strip_prefix(MODULE) {
                Some(path) => {
                    state.tensors.insert(path.to_string(), data);
                }
                None if name == UPDATES => updates = Some(count(&data)?),
                None => {
                    return Err(invalid(&name, "the name begins with `module.` or is `n_averaged`".into()));
                }
            }
        }
        state.updates = updates.ok_or_else(|| invalid(UPDATES, "the number of updates is missing".into()))?;
        Ok(state)
    }
}

fn count(data: &TensorData) -> Result<u64> {
    let count = match i64::slice(data.elements()) {
        Some(&[count]) => u64::try_from(count).ok(),
        Some(_) | None => None,
    };
    let problem = || format!("the number of updates is {}, expected one i64 of at least 0", data.ty());
    count.ok_or_else(|| invalid(UPDATES, problem()))
}

fn invalid(parameter: &str, problem: String) -> OptimError {
    OptimError::InvalidState { optimizer: super::NAME, parameter: parameter.into(), problem }
}
