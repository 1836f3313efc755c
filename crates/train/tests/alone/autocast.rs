//! Training in f16 with loss scaling: steps are skipped, and a run resumes from a checkpoint bit for bit.

use std::sync::{Arc, Mutex};

use kiln_backends::{Autocast, Flex};
use kiln_data::{DataError, DataLoader, DataLoaderBuilder, InMemoryDataset};
use kiln_nn::{Linear, LinearConfig, Module};
use kiln_optim::{AdamConfig, LossScaler, LossScalerConfig};
use kiln_store::Checkpoint;
use kiln_tensor::{
    Autodiff, Backend, Tensor, f16,
    loss::{self, Reduction},
};
use kiln_train::{Learner, StepOutput, StepRecord, Supervised};

use crate::alone;

type B = Autodiff<Autocast<Flex, f16>>;

#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    linear: Linear<B>,
}

fn step(net: &Net<B>, points: Tensor<B, 2>) -> StepOutput<B> {
    let target = points.clone() * 2.0 - 1.0;
    let num_items = points.dims()[0];
    StepOutput::new(loss::mse(net.linear.forward(points), target, Reduction::Mean), num_items)
}

fn batch(items: Vec<f32>) -> Result<Tensor<B, 2>, DataError> {
    let len = items.len();
    Ok(Tensor::<B, 1>::from_floats(items, &Default::default()).reshape([len, 1]))
}

fn loader() -> DataLoader<Tensor<B, 2>> {
    let items: Vec<f32> = (0..40).map(|i| i as f32 / 20.0 - 1.0).collect();
    DataLoaderBuilder::new(batch).batch_size(8).shuffle(3).build(InMemoryDataset::new(items)).unwrap()
}

fn scaler() -> LossScaler {
    LossScalerConfig::new().with_initial_scale(2f64.powi(24)).with_growth_interval(7).init()
}

type NetTask = Supervised<Net<B>, Tensor<B, 2>, fn(&Net<B>, Tensor<B, 2>) -> StepOutput<B>>;

fn learner(epochs: u64, scaler: Option<LossScaler>) -> Learner<NetTask> {
    B::seed(&Default::default(), 5);
    let model = Net { linear: LinearConfig::new(1, 1).init(&Default::default()) };
    let optimizer = AdamConfig::new().init().with_loss_scaler(scaler);
    Learner::new(Supervised::new(model, optimizer, 0.1, step as fn(&_, _) -> _)).epochs(epochs).silent()
}

fn weights(learner: &Learner<NetTask>) -> Vec<f32> {
    learner.task().trainable().linear.weight.to_data().to_vec()
}

fn scale(learner: &Learner<NetTask>) -> f64 {
    learner.task().trainable().optimizer().loss_scale()
}

#[test]
fn steps_with_non_finite_gradients_are_skipped() {
    let _alone = alone();
    let records = Arc::new(Mutex::new(Vec::<StepRecord>::new()));
    let seen = records.clone();
    let mut learner =
        learner(20, Some(scaler())).on_step(move |record| seen.lock().unwrap().push(record.clone()));
    let history = learner.fit_without_validation(&loader()).unwrap();
    let records = records.lock().unwrap();
    let skipped: Vec<bool> = records.iter().map(|record| record.skipped).collect();
    assert!(skipped[0], "a scale of 2^24 is too large for f16");
    assert!(skipped.iter().any(|skipped| !skipped));
    assert_eq!(history.losses[0], records[0].values[0].1, "losses are not scaled");
    assert!(history.losses[99] < 0.01 * history.losses[0], "{:?}", history.losses);
    assert!(scale(&learner) < 2f64.powi(24));
}

#[test]
fn a_resumed_run_restores_the_loss_scale() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let mut straight = learner(6, Some(scaler()));
    let whole = straight.fit_without_validation(&loader()).unwrap();

    let mut first = learner(3, Some(scaler())).keep_last(&path);
    let before = first.fit_without_validation(&loader()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let mut second = learner(6, Some(scaler())).resume(&checkpoint).unwrap();
    assert_eq!(scale(&second), scale(&first));
    let after = second.fit_without_validation(&loader()).unwrap();
    assert_eq!([before.losses, after.losses].concat(), whole.losses);
    assert_eq!(weights(&second), weights(&straight));
    assert_eq!(scale(&second), scale(&straight));
}
