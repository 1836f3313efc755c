use super::*;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

#[test]
fn linear_and_cosine_schedules_reach_their_bounds() {
    let line = Linear::new(1.0, 0.0, 4).unwrap();
    assert_eq!([0, 1, 2, 3, 4, 99].map(|step| line.at(step)), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
    let wave = Cosine::new(1.0, 0.1, 10).unwrap();
    assert_eq!(wave.at(0), 1.0);
    assert!((wave.at(5) - 0.55).abs() < 1e-12);
    assert_eq!((wave.at(10), wave.at(15)), (0.1, 0.1));
}

#[test]
fn step_exponential_and_constant_schedules() {
    let steps = Step::new(1.0, 0.5, 3).unwrap();
    assert_eq!([0, 2, 3, 5, 6].map(|step| steps.at(step)), [1.0, 1.0, 0.5, 0.5, 0.25]);
    assert_eq!(Exponential::new(2.0, 0.5).unwrap().at(3), 0.25);
    assert_eq!(Constant::new(0.3).unwrap().at(7), 0.3);
    assert_eq!(0.3.at(7), 0.3);
}

#[test]
fn sequential_schedules_restart_their_step_count() {
    let schedule = Sequential::new()
        .then(Linear::new(0.0, 1.0, 2).unwrap(), 2)
        .then(Constant::new(1.0).unwrap(), 3)
        .finally(Exponential::new(1.0, 0.5).unwrap());
    let rates: Vec<f64> = (0..8).map(|step| schedule.at(step)).collect();
    assert_eq!(rates, [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.25]);
    let last_goes_on = Sequential::new().then(Linear::new(1.0, 0.0, 2).unwrap(), 1);
    assert_eq!(last_goes_on.at(2), 0.0);
    assert_eq!(Sequential::new().at(3), 0.0);
}

#[test]
fn composed_schedules_combine_their_rates() {
    let composed = |reduction| Composed::new(reduction).with(0.5).with(Linear::new(0.0, 1.0, 4).unwrap());
    assert_eq!(composed(SchedulerReduction::Prod).at(2), 0.25);
    assert_eq!(composed(SchedulerReduction::Sum).at(2), 1.0);
    assert_eq!(composed(SchedulerReduction::Avg).at(2), 0.5);
    assert_eq!(Composed::new(SchedulerReduction::Prod).at(0), 1.0);
    assert_eq!(Composed::new(SchedulerReduction::Avg).at(0), 0.0);
}

#[test]
fn schedules_of_large_models_follow_their_formulas() {
    let noam = Noam::new(2.0, 256, 100).unwrap();
    for step in [0u64, 1, 98, 99, 100, 5000] {
        let n = step as f64 + 1.0;
        let expected = 2.0 * 256f64.powf(-0.5) * n.powf(-0.5).min(n * 100f64.powf(-1.5));
        assert!((noam.at(step) - expected).abs() < 1e-12 * expected);
    }
    let t5 = InverseSqrt::new(0.01, 10_000).unwrap().without_warmup();
    assert_eq!((t5.at(0), t5.at(40_000)), (0.01, 0.005));

    let warm = WarmupCosine::new(1.0, 2, 6).unwrap().with_start(0.5).unwrap().with_end(0.1).unwrap();
    let rates: Vec<f64> = (0..8).map(|step| warm.at(step)).collect();
    assert_eq!([rates[0], rates[1], rates[2], rates[6], rates[7]], [0.5, 0.75, 1.0, 0.1, 0.1]);
    assert!((rates[4] - 0.55).abs() < 1e-12);

    let shaped = |shape| WarmupStableDecayConfig::new(1.0, 0, 2, 4).with_shape(shape).with_end(0.2).init();
    for (shape, share) in [
        (DecayShape::Linear, 0.75),
        (DecayShape::Cosine, 0.853_553_390_593_273_8),
        (DecayShape::OneMinusSqrt, 0.5),
    ] {
        let schedule = shaped(shape);
        assert_eq!([0, 2, 6, 9].map(|step| schedule.at(step)), [1.0, 1.0, 0.2, 0.2]);
        assert!((schedule.at(3) - (0.2 + 0.8 * share)).abs() < 1e-12, "{shape}");
    }
}

#[test]
fn a_multiplicative_schedule_calls_its_function_once_a_step() {
    use core::sync::atomic::{AtomicU64, Ordering};
    let calls = AtomicU64::new(0);
    let schedule = Multiplicative::new(1.0, |step| {
        calls.fetch_add(1, Ordering::Relaxed);
        1.0 / step as f64
    });
    let schedule = schedule.unwrap();
    let rates: Vec<f64> = (0..20).map(|step| schedule.at(step)).collect();
    assert_eq!((rates[4], calls.load(Ordering::Relaxed)), (1.0 / 2.0 / 3.0 / 4.0, 19));
    assert_eq!((schedule.at(7), schedule.at(19), schedule.clone().at(19)), (rates[7], rates[19], rates[19]));
}

#[test]
fn a_sequence_passes_metrics_to_the_active_part() {
    let plateau = || ReduceOnPlateauConfig::new(1.0).with_patience(0).with_factor(0.5).init();
    let mut schedule = Sequential::new().then(plateau(), 2).finally(plateau());
    for metric in [1.0, 1.0] {
        schedule.observe(1, metric);
    }
    assert_eq!((schedule.at(1), schedule.at(2)), (0.5, 1.0));
    for metric in [1.0, 1.0, 1.0] {
        schedule.observe(2, metric);
    }
    assert_eq!((schedule.at(1), schedule.at(2)), (0.5, 0.25));
    let shared = Arc::new(plateau());
    let mut other: Arc<dyn LearningRate> = shared.clone();
    (0..3).for_each(|_| other.observe(0, 1.0));
    assert_eq!((shared.at(0), other.at(0)), (1.0, 1.0));
}

#[test]
fn configurations_with_burns_names() {
    let mut sequence = SequentialLrSchedulerConfig::new(
        vec![
            LinearLrSchedulerConfig::new(0.1, 0.3, 2).into(),
            ExponentialLrSchedulerConfig::new(0.5, 0.5).into(),
            CosineAnnealingLrSchedulerConfig::new(0.8, 2).into(),
        ],
        vec![2, 5],
    );
    let mut scheduler = sequence.init().unwrap();
    let expected = [0.1, 0.2, 0.5, 0.25, 0.125, 0.8, 0.4, 0.0, 0.8];
    for rate in expected {
        assert!((scheduler.step() - rate).abs() < 1e-12);
    }
    for milestones in [vec![2], vec![0, 2], vec![2, 2], vec![3, 2]] {
        sequence.milestones = milestones;
        assert!(sequence.init().is_err());
    }
    assert!(SequentialLrSchedulerConfig::new(Vec::new(), Vec::new()).init().is_err());
    let config = ComposedLrSchedulerConfig::new()
        .noam(NoamLrSchedulerConfig::new(1.0))
        .with(StepLrSchedulerConfig::new(1.0, 2))
        .with_reduction(SchedulerReduction::Sum);
    let json = kiln_nn::Config::to_json(&config);
    assert_eq!(<ComposedLrSchedulerConfig as kiln_nn::Config>::from_json(&json).unwrap(), config);
    assert!((config.init().unwrap().step() - (1.0 + Noam::new(1.0, 512, 4000).unwrap().at(0))).abs() < 1e-12);
    assert_eq!(ConstantLr::from(0.2).at(5), 0.2);
}

#[test]
fn states_of_other_schedules_are_errors_and_change_nothing() {
    let plateau = || ReduceOnPlateauConfig::new(1.0).with_patience(0).init();
    let mut reduced = plateau();
    (0..3).for_each(|_| reduced.observe(0, 1.0));
    let state = reduced.state();
    assert!(0.5.load_state(&state).is_err());
    assert!(plateau().load_state(&ScheduleState::new()).is_err());
    assert!(plateau().load_state(&state.clone().with_value("num_bad_epochs", 0.5)).is_err());
    assert!(plateau().load_state(&state.clone().with_value("learning_rate", -1.0)).is_err());

    let mut two = Composed::new(SchedulerReduction::Prod).with(plateau()).with(0.5);
    let before = two.state();
    let foreign = Composed::new(SchedulerReduction::Prod).with(reduced.clone()).with(plateau()).state();
    let error = two.load_state(&foreign).unwrap_err();
    assert!(format!("{error}").starts_with("[schedule] the schedule has no state"), "{error}");
    assert_eq!(two.state(), before);
    let three = Composed::new(SchedulerReduction::Prod).with(plateau()).with(0.5).with(0.5).state();
    let error = two.load_state(&three).unwrap_err();
    assert!(format!("{error}").starts_with("[composed] the state is of 3 parts, but there are 2"), "{error}");

    let mut scheduler = Scheduler::new(plateau());
    assert!(scheduler.load_state(SchedulerState { step: 3, schedule: before }).is_err());
    assert_eq!(scheduler.state().step, 0);
    // A checkpoint of the step alone.
    scheduler.load_state(3).unwrap();
    assert_eq!((scheduler.state().step, scheduler.step()), (3, 1.0));
}

#[test]
fn errors_name_options_out_of_range() {
    let error = Linear::new(0.1, f64::NAN, 3).unwrap_err();
    assert_eq!(format!("{error}"), "[linear] end is NaN\n  hint: it must be a finite number of at least 0");
    assert!(Linear::new(0.1, 0.0, 0).is_err());
    assert!(Cosine::new(-1.0, 0.0, 3).is_err());
    assert!(Step::new(1.0, 0.0, 3).is_err());
    assert!(Exponential::new(f64::INFINITY, 0.5).is_err());
    assert!(Constant::new(-0.1).is_err());
    assert!(Constant::new(0.1).unwrap().with_factor(-1.0, 3).is_err());
    assert!(Polynomial::new(0.1, 0.0, 3, 0.0).is_err());
    assert!(MultiStep::new(0.1, 0.1, [3, 2]).is_err());
    assert!(CosineWarmRestarts::new(0.1, 0.0, 0).is_err());
    assert!(CosineWarmRestarts::new(0.1, 0.0, 1).unwrap().with_factor(0).is_err());
    assert!(OneCycleConfig::new(0.1, 0).try_init().is_err());
    assert!(OneCycleConfig::new(0.1, 10).with_pct_start(1.5).try_init().is_err());
    assert!(OneCycleConfig::new(0.1, 10).with_div_factor(0.0).try_init().is_err());
    assert!(CyclicConfig::new(0.1, f64::NAN).try_init().is_err());
    assert!(CyclicConfig::new(0.1, 1.0).with_step_size_down(0).try_init().is_err());
    assert!(ReduceOnPlateauConfig::new(0.1).with_factor(1.0).try_init().is_err());
    assert!(Lambda::new(-0.1, |_| 1.0).is_err());
    assert!(Multiplicative::new(-0.1, |_| 1.0).is_err());
    assert!(Noam::new(1.0, 0, 1).is_err());
    assert!(InverseSqrt::new(1.0, 0).is_err());
    assert!(Warmup::new(0.1, -0.1, 3).is_err());
    assert!(WarmupCosine::new(0.1, 3, 3).is_err());
    assert!(WarmupStableDecayConfig::new(0.1, 1, 1, 0).try_init().is_err());
    assert!(SwaLr::new(0.1, -0.1, 1, AnnealStrategy::Linear).is_err());
    assert!(Repeat::new(0.1, 0).is_err());
}
