//! The collectives of one replica.

use std::collections::BTreeSet;
use std::fmt;

use kiln_ir::{CollectiveKind, GroupMember, Op, Reduction};
use kiln_nn::{GradientsParams, Module, ParamId, Parameter, Path, Visitor};
use kiln_tensor::{AnyTensor, Result, Stack, TensorData};

use crate::observation::below;

/// A replica among those that take part in a step.
#[derive(Debug)]
pub(crate) struct Replica(GroupMember);

impl Replica {
    pub(crate) fn new(member: GroupMember) -> Replica {
        Replica(member)
    }

    pub(crate) fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Leaves the group with an error, which the calls of the other replicas return.
    pub(crate) fn fail(self, error: impl fmt::Display) {
        self.0.fail(error);
    }

    /// The weight of this replica's loss in the mean: its part of the items, or equal parts if a replica has none. Waits for
    /// the other replicas.
    pub(crate) fn share(&self, items: usize, model: &dyn Module) -> Result<f64> {
        let equal = 1.0 / self.0.size() as f64;
        let parameters = trainable(model);
        let Some((_, parameter)) = parameters.first() else { return Ok(equal) };
        let all = self.gather(&[i32::try_from(items).unwrap_or(i32::MAX)], parameter.stack())?;
        let total: i64 = all.iter().map(|&items| i64::from(items)).sum();
        Ok(if all.contains(&0) { equal } else { items as f64 / total as f64 })
    }

    /// Sums the gradients of a model over the replicas, in the order of its parameters. A replica without the gradient of a
    /// parameter that another one has adds zero. Waits for the other replicas.
    pub(crate) fn sum(&self, mut gradients: GradientsParams, model: &dyn Module) -> Result<GradientsParams> {
        let parameters = trainable(model);
        let Some((_, first)) = parameters.first() else { return Ok(gradients) };
        let present: Vec<i32> =
            parameters.iter().map(|(id, _)| i32::from(gradients.get(*id).is_some())).collect();
        let all = self.gather(&present, first.stack())?;
        let is_used = |index: usize| all.chunks(present.len()).any(|present| present[index] != 0);
        let mut total = GradientsParams::new();
        for (index, (id, parameter)) in parameters.into_iter().enumerate() {
            if !is_used(index) {
                continue;
            }
            let gradient = match gradients.remove(id) {
                Some(gradient) => gradient,
                None => AnyTensor::zeros(*parameter.ty(), parameter.stack())?,
            };
            total.insert(id, self.total(gradient)?);
        }
        Ok(total)
    }

    /// Returns the gradients of replica 0, if its callbacks changed them. Waits for the other replicas.
    pub(crate) fn share_changes(
        &self,
        gradients: GradientsParams,
        is_changed: bool,
        model: &dyn Module,
    ) -> Result<GradientsParams> {
        let parameters = trainable(model);
        let Some((_, parameter)) = parameters.first() else { return Ok(gradients) };
        if self.gather(&[i32::from(is_changed)], parameter.stack())?[0] == 0 {
            return Ok(gradients);
        }
        // The sum with nothing of the others.
        let own = if self.rank() == 0 { gradients } else { GradientsParams::new() };
        self.sum(own, model)
    }

    /// Sums a tensor over the replicas. Waits for them.
    pub(crate) fn total(&self, tensor: AnyTensor) -> Result<AnyTensor> {
        let kind = CollectiveKind::AllReduce(Reduction::Sum);
        let total = tensor.apply(&Op::Collective(self.0.collective(kind)))?;
        match total.outcome() {
            Some(Err(error)) => Err(error),
            Some(Ok(())) | None => Ok(total),
        }
    }

    /// Numbers of all replicas, by rank.
    fn gather(&self, numbers: &[i32], stack: &Stack) -> Result<Vec<i32>> {
        let data = TensorData::new(numbers.to_vec(), [numbers.len()])?;
        let kind = CollectiveKind::AllGather { axis: 0 };
        let all = AnyTensor::from_data(data, stack).apply(&Op::Collective(self.0.collective(kind)))?;
        all.into_vec_as::<i32>()
    }
}

/// The trainable parameters of a model without automatic differentiation, in the order of a visit, each once.
fn trainable(model: &dyn Module) -> Vec<(ParamId, AnyTensor)> {
    struct Trainable {
        seen: BTreeSet<ParamId>,
        parameters: Vec<(ParamId, AnyTensor)>,
    }
    impl Visitor for Trainable {
        fn parameter(&mut self, _path: &Path, parameter: Parameter) {
            if parameter.is_trainable() && self.seen.insert(parameter.id) {
                self.parameters.push((parameter.id, below(parameter.value)));
            }
        }
    }
    let mut visitor = Trainable { seen: BTreeSet::new(), parameters: Vec::new() };
    model.visit(&mut Path::new(), &mut visitor);
    visitor.parameters
}
