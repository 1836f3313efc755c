//! The result of a step from those of its replicas.

use kiln_tensor::{AnyTensor, Stack};

use crate::error::{Result, TrainError, TrainPosition};
use crate::observation::Observation;
use crate::step::{Outcome, Value};

/// Combines the outcomes of replicas, by rank: the observations of all, the mean of their losses and logged values, and the
/// learning rates and reports of replica 0, which are those of all.
pub(super) fn merged(mut outcomes: Vec<Outcome>, place: TrainPosition) -> Result<Outcome> {
    let weights = weights(&outcomes);
    let items = outcomes.iter().map(Outcome::items).sum();
    let loss = mean_loss(&mut outcomes, &weights, place)?;
    let values = mean_values(&mut outcomes, &weights);
    let mut observations: Vec<Observation> = Vec::new();
    let mut skipped = false;
    let mut refusals = Vec::new();
    for outcome in &mut outcomes {
        skipped |= outcome.skipped;
        // All replicas refuse the same step.
        refusals = if refusals.is_empty() { std::mem::take(&mut outcome.refusals) } else { refusals };
        let stack = observations.iter().find_map(stack_of);
        for observation in std::mem::take(&mut outcome.observations) {
            observations.push(moved(observation, stack.as_ref())?);
        }
    }
    let Some(first) = outcomes.into_iter().next() else { return Ok(Outcome::default()) };
    Ok(Outcome { loss, values, observations, skipped, refusals, items_of_replicas: Some(items), ..first })
}

/// The weights of the replicas in means: the numbers of their items, or 1 for all if a replica has none.
fn weights(outcomes: &[Outcome]) -> Vec<f64> {
    let items: Vec<usize> = outcomes.iter().map(Outcome::items).collect();
    if items.contains(&0) {
        vec![1.0; items.len()]
    } else {
        items.iter().map(|&items| items as f64).collect()
    }
}

/// The mean of the losses: those that were observed, or those of the updates.
fn mean_loss(outcomes: &mut [Outcome], weights: &[f64], place: TrainPosition) -> Result<Option<Value>> {
    let mut losses = Vec::new();
    for (outcome, weight) in outcomes.iter_mut().zip(weights) {
        let observed = outcome.observations.iter().find_map(|observation| observation.loss.clone());
        if let Some(tensor) = &observed {
            let elements = tensor.shape().num_elements();
            if elements != 1 {
                return Err(TrainError::LossShape { place, elements });
            }
        }
        losses.extend(observed.map(Value::Device).or(outcome.loss.take()).map(|loss| (loss, *weight)));
    }
    Ok(if losses.is_empty() { None } else { Some(Value::Mean(losses)) })
}

/// Values with their weights in a mean.
type Weighted = Vec<(Value, f64)>;

/// The means of logged values, each over the replicas that logged it. Values of one name are matched in their order.
fn mean_values(outcomes: &mut [Outcome], weights: &[f64]) -> Vec<(String, Value)> {
    let mut means: Vec<(String, usize, Weighted)> = Vec::new();
    for (outcome, weight) in outcomes.iter_mut().zip(weights) {
        let mut logged: Vec<String> = Vec::new();
        for (name, value) in std::mem::take(&mut outcome.values) {
            let occurrence = logged.iter().filter(|known| **known == name).count();
            logged.push(name.clone());
            let place = means.iter_mut().find(|(known, nth, _)| *known == name && *nth == occurrence);
            match place {
                Some((_, _, numbers)) => numbers.push((value, *weight)),
                None => means.push((name, occurrence, vec![(value, *weight)])),
            }
        }
    }
    means.into_iter().map(|(name, _, numbers)| (name, Value::Mean(numbers))).collect()
}

/// The device of an observation.
fn stack_of(observation: &Observation) -> Option<Stack> {
    let tensor = observation.tensors.values().next().or(observation.loss.as_ref());
    tensor.map(|tensor| tensor.stack().clone())
}

/// Moves the tensors of an observation to a device, so that metrics can combine those of all replicas.
fn moved(mut observation: Observation, stack: Option<&Stack>) -> Result<Observation> {
    let Some(stack) = stack else { return Ok(observation) };
    let move_one = |tensor: &mut AnyTensor| -> Result<()> {
        *tensor = tensor.clone().to_stack(stack)?;
        Ok(())
    };
    observation.tensors.values_mut().try_for_each(move_one)?;
    observation.loss.iter_mut().try_for_each(move_one)?;
    Ok(observation)
}
