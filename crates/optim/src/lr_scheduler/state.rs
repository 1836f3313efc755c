//! The state of a schedule.

use super::LearningRate;
use crate::error::{OptimError, Result};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The state of a schedule besides the step index: named numbers, and the states of its parts. Empty for a schedule
/// that is a function of the step.
///
/// Serialized numbers are strings, so that a text format keeps every bit of them, and infinity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleState {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, Number>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<ScheduleState>,
}

impl ScheduleState {
    /// Returns the empty state.
    pub fn new() -> ScheduleState {
        ScheduleState::default()
    }

    /// Adds a named number.
    #[must_use]
    pub fn with_value(mut self, name: impl Into<String>, value: f64) -> ScheduleState {
        self.values.insert(name.into(), Number(value));
        self
    }

    /// Returns a number by name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).map(|number| number.0)
    }

    /// Returns a number by name, for the named schedule.
    ///
    /// # Errors
    /// When there is no such number.
    pub fn require(&self, schedule: &'static str, name: &str) -> Result<f64> {
        let missing = || OptimError::schedule_state(schedule, format!("the state has no value `{name}`"));
        self.value(name).ok_or_else(missing)
    }

    /// Returns the states of the parts.
    pub fn parts(&self) -> &[ScheduleState] {
        &self.parts
    }

    /// Returns whether there are neither numbers nor parts.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.parts.is_empty()
    }

    /// Returns the state of a schedule that consists of others. It is empty if all their states are.
    pub fn collect<'a>(parts: impl IntoIterator<Item = &'a dyn LearningRate>) -> ScheduleState {
        let mut parts: Vec<ScheduleState> = parts.into_iter().map(LearningRate::state).collect();
        if parts.iter().all(ScheduleState::is_empty) {
            parts.clear();
        }
        ScheduleState { values: BTreeMap::new(), parts }
    }

    /// Loads the states of the parts into the parts of the named schedule: the inverse of
    /// [`collect`](ScheduleState::collect).
    ///
    /// # Errors
    /// When the number of parts differs, or a part rejects its state. The parts are then unchanged.
    pub fn distribute<'a>(
        &self,
        schedule: &'static str,
        parts: impl IntoIterator<Item = &'a mut dyn LearningRate>,
    ) -> Result<()> {
        let mut parts: Vec<&mut dyn LearningRate> = parts.into_iter().collect();
        if !self.parts.is_empty() && self.parts.len() != parts.len() {
            let problem =
                format!("the state is of {} parts, but there are {}", self.parts.len(), parts.len());
            return Err(OptimError::schedule_state(schedule, problem));
        }
        let empty = ScheduleState::new();
        let mut loaded = Vec::new();
        for (place, part) in parts.iter_mut().enumerate() {
            let before = part.state();
            let result = part.load_state(self.parts.get(place).unwrap_or(&empty));
            if result.is_err() {
                restore(&mut parts, loaded);
                return result;
            }
            loaded.push(before);
        }
        Ok(())
    }
}

/// Loads the earlier states of the first parts. A schedule accepts its own state.
fn restore(parts: &mut [&mut dyn LearningRate], states: Vec<ScheduleState>) {
    for (part, state) in parts.iter_mut().zip(states) {
        let _ = part.load_state(&state);
    }
}

/// A number that is serialized as a string.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Number).map_err(|_| de::Error::custom(format_args!("`{text}` is not a number")))
    }
}
