//! Metrics under Burn's names and paths.

use kiln as burn;

use burn::backend::Flex;
use burn::prelude::*;
use burn::train::StepOutput;
use burn::train::metric::{
    AccuracyMetric, CpuMemory, CpuTemperature, CpuUse, CudaMetric, IterationSpeedMetric, LearningRateMetric,
    LossMetric, Metric, PerplexityMetric,
};

#[test]
fn every_metric_is_at_burns_path() {
    let metrics: Vec<Box<dyn Metric>> = vec![
        Box::new(AccuracyMetric::new()),
        Box::new(CpuMemory::new()),
        Box::new(CpuTemperature::new()),
        Box::new(CpuUse::new()),
        Box::new(CudaMetric::new()),
        Box::new(IterationSpeedMetric::new()),
        Box::new(LearningRateMetric::new()),
        Box::new(LossMetric::new()),
        Box::new(PerplexityMetric::new()),
    ];
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name()).collect();
    assert_eq!(names[5..], ["items_per_second", "learning_rate", "loss", "perplexity"]);
}

#[test]
fn padding_is_left_out() {
    let device = Default::default();
    // Both tokens are predicted with probability 1/2, and the padding wrongly.
    let logits =
        Tensor::<Flex, 2>::from_floats([[1.0, 1.0, -90.0], [0.0, 0.0, -90.0], [9.0, 0.0, 0.0]], &device);
    let targets = Tensor::from_ints([0, 1, 2], &device);
    let output = StepOutput::classification(Tensor::from_floats([0.0], &device), logits, targets);
    let value = |metric: &mut dyn Metric| {
        metric.update(output.observation()).unwrap();
        metric.values().unwrap().main().unwrap()
    };
    assert!((value(&mut PerplexityMetric::new().with_pad_token(2)) - 2.0).abs() < 1e-6);
    assert_eq!(value(&mut AccuracyMetric::new().with_pad_token(2)), 0.5);
    assert_eq!(value(&mut AccuracyMetric::new()), 1.0 / 3.0);
}
