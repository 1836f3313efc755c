//! The position in training.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_nn::Module;
use kiln_tensor::Stack;
use kiln_tensor::random::KeyState;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::part::TRAINING;
use crate::error::{Result, StoreError};
use crate::json;
use crate::module::for_each;

/// The position in training: epoch, step, random state and custom values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// Number of complete epochs.
    pub epoch: u64,
    /// Number of optimizer steps over all epochs.
    pub step: u64,
    /// The random states of the modules' devices.
    pub(super) random: Vec<Keys>,
    /// The random states of other streams, by name.
    #[serde(default)]
    pub(super) streams: BTreeMap<String, Keys>,
    /// Custom values as JSON, by key.
    pub(super) values: BTreeMap<String, serde_json::Value>,
}

/// The position in a stream of random keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    seed: u64,
    drawn: u64,
}

impl From<KeyState> for Keys {
    fn from(KeyState { seed, drawn }: KeyState) -> Keys {
        Keys { seed, drawn }
    }
}

impl From<Keys> for KeyState {
    fn from(Keys { seed, drawn }: Keys) -> KeyState {
        KeyState { seed, drawn }
    }
}

impl TrainingState {
    /// Returns the state at the start of training, with the current random state of the module's devices.
    pub fn of(module: &dyn Module) -> TrainingState {
        TrainingState::of_modules(&[module])
    }

    /// Returns the state at the start of training, with the current random state of the devices of all modules.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Linear, LinearConfig};
    /// use kiln_store::TrainingState;
    ///
    /// let device = Default::default();
    /// let generator: Linear<Flex> = LinearConfig::new(2, 2).init(&device);
    /// let critic: Linear<Flex> = LinearConfig::new(2, 1).init(&device);
    /// let state = TrainingState::of_modules(&[&generator, &critic]).at(1, 938);
    /// state.restore_random_of(&[&generator, &critic])?;
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    pub fn of_modules(modules: &[&dyn Module]) -> TrainingState {
        let random = stacks(modules).iter().map(|stack| Keys::from(stack.keys().state())).collect();
        TrainingState { random, ..TrainingState::default() }
    }

    /// Sets the epoch and the step.
    #[must_use]
    pub fn at(mut self, epoch: u64, step: u64) -> TrainingState {
        self.epoch = epoch;
        self.step = step;
        self
    }

    /// Adds a custom value, such as a configuration. NaN and infinity are kept: see [`json`].
    ///
    /// # Errors
    /// When the value cannot be serialized as JSON.
    pub fn with_value<V: Serialize>(self, key: impl Into<String>, value: &V) -> Result<TrainingState> {
        let key = key.into();
        match json::to_value(value) {
            Ok(json) => Ok(self.with_json(key, json)),
            Err(error) => Err(StoreError::json(
                Path::new(TRAINING),
                format_args!("cannot keep the value `{key}`: {error}"),
            )),
        }
    }

    /// Returns the custom value of a key, if any.
    ///
    /// # Errors
    /// When the value cannot be deserialized as `V`.
    pub fn value<V: DeserializeOwned>(&self, key: &str) -> Result<Option<V>> {
        let value = self.json(key).map(json::from_value).transpose();
        value.map_err(|error| StoreError::json(Path::new(TRAINING), format_args!("`{key}`: {error}")))
    }

    /// Adds a custom value that [`json::to_value`] returned.
    #[must_use]
    pub fn with_json(mut self, key: impl Into<String>, value: serde_json::Value) -> TrainingState {
        self.values.insert(key.into(), value);
        self
    }

    /// Returns the custom value of a key for [`json::from_value`], if any.
    pub fn json(&self, key: &str) -> Option<&serde_json::Value> {
        self.values.get(key)
    }

    /// Adds the state of a random stream that belongs to no device, such as that of a data loader.
    ///
    /// ```
    /// use kiln_store::TrainingState;
    /// use kiln_tensor::random::KeyState;
    ///
    /// let shuffle = KeyState { seed: 42, drawn: 3 };
    /// let state = TrainingState::default().with_stream("shuffle", shuffle);
    /// assert_eq!(state.stream("shuffle"), Some(shuffle));
    /// assert_eq!(state.stream("augment"), None);
    /// ```
    #[must_use]
    pub fn with_stream(mut self, name: impl Into<String>, state: KeyState) -> TrainingState {
        self.streams.insert(name.into(), state.into());
        self
    }

    /// Returns the state of a random stream that [`with_stream`](TrainingState::with_stream) added, if any.
    pub fn stream(&self, name: &str) -> Option<KeyState> {
        self.streams.get(name).map(|&keys| keys.into())
    }

    /// Restores the random state of the module's devices.
    ///
    /// # Errors
    /// When the number of engine stacks differs: the module is on another number of devices, or has other layers.
    pub fn restore_random(&self, module: &dyn Module) -> Result<()> {
        self.restore_random_of(&[module])
    }

    /// Restores the random state of the devices of all modules. The modules are those of
    /// [`of_modules`](TrainingState::of_modules), in the same order.
    ///
    /// # Errors
    /// See [`restore_random`](TrainingState::restore_random).
    pub fn restore_random_of(&self, modules: &[&dyn Module]) -> Result<()> {
        let stacks = stacks(modules);
        if stacks.len() != self.random.len() {
            let problem = format!(
                "the random state is of {} engine stacks, but the module is on {}",
                self.random.len(),
                stacks.len()
            );
            return Err(StoreError::json(Path::new(TRAINING), problem));
        }
        for (stack, &keys) in stacks.iter().zip(&self.random) {
            stack.keys().restore(keys.into());
        }
        Ok(())
    }
}

/// The stacks of the modules' parameters and the stacks below them, in traversal order, without duplicates.
fn stacks(modules: &[&dyn Module]) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for &module in modules {
        for_each(module, |_, parameter| {
            let mut next = Some(parameter.value.stack());
            while let Some(stack) = next {
                if !stacks.contains(stack) {
                    stacks.push(stack.clone());
                }
                next = stack.inner();
            }
        });
    }
    stacks
}
