//! Learning-rate schedulers in a loop by hand, and optimizers whose options are checked.

use kiln as burn;

use burn::backend::{Autodiff, Flex};
use burn::module::Param;
use burn::optim::lr_scheduler::{Cosine, Linear, Scheduler, Sequential};
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, Metric};

#[test]
fn a_learning_rate_warms_up_and_anneals() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    let schedule = Sequential::new()
        .then(Linear::new(0.0, 0.2, 10).unwrap(), 10)
        .finally(Cosine::new(0.2, 0.0, 90).unwrap());
    let mut scheduler = Scheduler::new(schedule);
    let mut model = Param::from_tensor(Tensor::<B, 1>::from_floats([5.0, -3.0], &device));
    let mut optim = SgdConfig::new().init();
    let mut rates = Vec::new();
    for _ in 0..100 {
        let lr = scheduler.step();
        rates.push(lr);
        let loss = (model.val() - 1.0).powf_scalar(2.0).sum();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(lr, model, grads);
    }
    assert_eq!((rates[0], rates[10]), (0.0, 0.2));
    assert!(rates[99] < 1e-3 && burn::lr_scheduler::Linear::new(1.0, 0.0, 4).is_ok());
    let found = model.val().into_data().to_vec::<f32>();
    assert!(found.iter().all(|x| (x - 1.0).abs() < 1e-3), "{found:?}");
}

#[test]
fn burns_scheduler_configurations() {
    use burn::lr_scheduler::LrScheduler;
    use burn::lr_scheduler::composed::ComposedLrSchedulerConfig;
    use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
    use burn::lr_scheduler::linear::LinearLrSchedulerConfig;

    fn rates(mut scheduler: impl LrScheduler) -> Vec<f64> {
        (0..3).map(|_| scheduler.step()).collect()
    }
    let cosine = CosineAnnealingLrSchedulerConfig::new(1.0, 2000);
    assert_eq!(rates(cosine.init().unwrap())[0], 1.0);
    let composed = ComposedLrSchedulerConfig::new()
        .cosine(cosine)
        .linear(LinearLrSchedulerConfig::new(1e-8, 1.0, 2000))
        .linear(LinearLrSchedulerConfig::new(1e-2, 1e-6, 10000));
    assert!((rates(composed.init().unwrap())[0] - 1e-10).abs() < 1e-20);
    assert_eq!(rates(burn::lr_scheduler::constant::ConstantLr::new(0.1)), [0.1; 3]);
    let noam = burn::lr_scheduler::noam::NoamLrSchedulerConfig::new(1.0).with_model_size(256).init().unwrap();
    assert!(rates(noam).is_sorted());
}

#[test]
fn an_invalid_option_panics_or_is_an_error() {
    let config = AdamConfig::new().with_beta_1(1.5);
    assert!(config.try_init().unwrap_err().to_string().contains("beta_1"));
    let panic = std::panic::catch_unwind(|| config.init()).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("beta_1"));
    assert_eq!(AccuracyMetric::new().name(), "accuracy");
}
