//! Training in f16 with loss scaling: steps are skipped, and a run resumes from a checkpoint bit for bit.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use kiln_backends::{Autocast, Flex};
use kiln_data::{DataError, DataLoader, DataLoaderBuilder, InMemoryDataset};
use kiln_nn::{Linear, LinearConfig, Module};
use kiln_optim::{Adam, AdamConfig, LossScaler, LossScalerConfig};
use kiln_store::Checkpoint;
use kiln_tensor::{
    Autodiff, Backend, Tensor, f16,
    loss::{self, Reduction},
};
use kiln_train::{StepOutput, StepReport, TrainError, TrainStep, Trainer};

type B = Autodiff<Autocast<Flex, f16>>;

#[derive(Debug, Module)]
struct Net<B: Backend> {
    linear: Linear<B>,
}

impl TrainStep<Tensor<B, 2>> for Net<B> {
    type Backend = B;
    fn step(&self, points: Tensor<B, 2>) -> StepOutput<B> {
        let target = points.clone() * 2.0 - 1.0;
        let num_items = points.dims()[0];
        StepOutput::new(loss::mse(self.linear.forward(points), target, Reduction::Mean), num_items)
    }
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

/// Serializes seeding and weight initialization, since tests share the seed of the device.
static SEED: Mutex<()> = Mutex::new(());

fn trainer(epochs: u64) -> Trainer<Net<B>, Adam> {
    let drawing = SEED.lock().unwrap_or_else(PoisonError::into_inner);
    B::seed(&Default::default(), 5);
    let model = Net { linear: LinearConfig::new(1, 1).init(&Default::default()) };
    drop(drawing);
    Trainer::new(model, AdamConfig::new().init(), 0.1).epochs(epochs).progress(false)
}

fn weights(trainer: &Trainer<Net<B>, Adam>) -> Vec<f32> {
    trainer.model().linear.weight.to_data().to_vec()
}

#[test]
fn steps_with_non_finite_gradients_are_skipped() {
    let reports = Rc::new(RefCell::new(Vec::<StepReport>::new()));
    let seen = reports.clone();
    let mut trainer =
        trainer(20).loss_scaler(scaler()).on_step(move |report| seen.borrow_mut().push(report.clone()));
    let history = trainer.fit_without_validation(&loader()).unwrap();
    let skipped: Vec<bool> = reports.borrow().iter().map(|report| report.skipped).collect();
    assert!(skipped[0], "a scale of 2^24 is too large for f16");
    assert!(skipped.iter().any(|skipped| !skipped));
    assert_eq!(history.losses[0], reports.borrow()[0].loss.unwrap(), "losses are not scaled");
    assert!(history.losses[99] < 0.01 * history.losses[0], "{:?}", history.losses);
    assert!(trainer.scaler().unwrap().scale() < 2f64.powi(24));
}

#[test]
fn a_resumed_run_restores_the_loss_scale() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let mut straight = trainer(6).loss_scaler(scaler());
    let whole = straight.fit_without_validation(&loader()).unwrap();

    let mut first = trainer(3).loss_scaler(scaler()).keep_last(&path);
    let before = first.fit_without_validation(&loader()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let mut second = trainer(6).loss_scaler(scaler()).resume(&checkpoint).unwrap();
    assert_eq!(second.scaler(), first.scaler());
    let after = second.fit_without_validation(&loader()).unwrap();
    assert_eq!([before.losses, after.losses].concat(), whole.losses);
    assert_eq!(weights(&second), weights(&straight));
    assert_eq!(second.scaler(), straight.scaler());

    let error = trainer(6).resume(&checkpoint).unwrap_err();
    assert!(matches!(error, TrainError::InvalidOption { option: "the loss scaler", .. }), "{error}");
}
