//! Learning-rate schedules against PyTorch (the `schedule` family of the suite's goldens), and their states.

use std::fs;
use std::path::Path;

use kiln_optim::lr_scheduler::*;
use safetensors::SafeTensors;
use serde_json::Value;

const STEPS: u64 = 50;

#[test]
fn rates_match_pytorch() {
    let cases = Case::all();
    assert_eq!(cases.len(), 34);
    for case in cases {
        let expected = case.tensor("rates");
        let mut scheduler = Scheduler::new(case.schedule());
        let found: Vec<f64> = match case.op() {
            "plateau" => {
                let after = |metric| {
                    scheduler.observe(metric);
                    scheduler.step()
                };
                case.tensor("metrics").into_iter().map(after).collect()
            }
            _ => (0..STEPS).map(|_| scheduler.step()).collect(),
        };
        assert_eq!(found.len(), expected.len(), "{}", case.name());
        for (step, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let allowed = case.tolerance("absolute") + case.tolerance("relative") * expected.abs();
            let difference = (found - expected).abs();
            assert!(difference <= allowed, "{}: {found} instead of {expected} at step {step}", case.name());
        }
    }
}

/// Creates a schedule.
type NewSchedule = dyn Fn() -> Box<dyn LearningRate>;

/// A schedule that is saved and loaded in the middle, as JSON text, continues bit for bit.
#[test]
fn every_schedule_resumes_from_its_state() {
    let mut makes: Vec<(String, Box<NewSchedule>)> = Vec::new();
    for case in Case::all() {
        makes.push((case.name().to_owned(), Box::new(move || case.schedule())));
    }
    for (name, make) in own_schedules() {
        makes.push((name.to_owned(), Box::new(make)));
    }
    for (name, make) in makes {
        for middle in [0, 1, 17, 33] {
            let run = |scheduler: &mut Scheduler<_>, steps: std::ops::Range<u64>| -> Vec<u64> {
                let step = |step| {
                    let rate = scheduler.step();
                    scheduler.observe(1.0 / (1.0 + (step / 9) as f64 / 3.0));
                    rate.to_bits()
                };
                steps.map(step).collect()
            };
            let mut straight = Scheduler::new(make());
            let mut first = Scheduler::new(make());
            assert_eq!(run(&mut straight, 0..middle), run(&mut first, 0..middle), "{name}");
            let saved = serde_json::to_string(&first.state()).unwrap();
            let mut resumed = Scheduler::new(make());
            resumed.load_state(serde_json::from_str::<SchedulerState>(&saved).unwrap()).unwrap();
            assert_eq!(run(&mut resumed, middle..60), run(&mut straight, middle..60), "{name} at {middle}");
        }
    }
}

type Make = fn() -> Box<dyn LearningRate>;

/// Schedules without a case in the goldens.
fn own_schedules() -> Vec<(&'static str, Make)> {
    fn plateau() -> ReduceOnPlateau {
        ReduceOnPlateauConfig::new(0.3).with_patience(1).with_cooldown(1).with_factor(0.7).init()
    }
    vec![
        ("number", || Box::new(0.1)),
        ("noam", || Box::new(Noam::new(1.0, 64, 10).unwrap())),
        ("inverse_sqrt", || Box::new(InverseSqrt::new(1.0, 10).unwrap())),
        ("warmup_cosine", || Box::new(WarmupCosine::new(1.0, 10, 50).unwrap())),
        ("warmup_stable_decay", || Box::new(WarmupStableDecayConfig::new(1.0, 10, 20, 20).init())),
        ("repeat", || Box::new(Repeat::new(Linear::new(1.0, 0.0, 4).unwrap(), 5).unwrap())),
        ("warmup of a plateau", || Box::new(Warmup::new(plateau(), 0.1, 20).unwrap())),
        ("sequence with plateaus", || {
            Box::new(Sequential::new().then(plateau(), 10).then(0.2, 10).finally(plateau()))
        }),
        ("nested combination", || {
            let sequence = Sequential::new().then(Linear::new(0.0, 1.0, 5).unwrap(), 5).finally(plateau());
            let inner = Composed::new(SchedulerReduction::Avg).with(0.5).with(sequence);
            Box::new(Composed::new(SchedulerReduction::Prod).with(inner).with(plateau()))
        }),
    ]
}

#[test]
fn a_saved_step_index_is_a_state() {
    let mut scheduler = Scheduler::new(Exponential::new(1.0, 0.5).unwrap());
    scheduler.load_state(serde_json::from_str::<SchedulerState>("3").unwrap()).unwrap();
    assert_eq!(scheduler.step(), 0.125);
    assert_eq!(serde_json::to_string(&scheduler.state()).unwrap(), r#"{"step":4}"#);
    assert!(serde_json::from_str::<SchedulerState>(r#"{"step":-1}"#).is_err());
}

#[test]
fn a_state_is_readable_text() {
    let mut schedule = ReduceOnPlateauConfig::new(0.1).init();
    let text = serde_json::to_string(&schedule.state()).unwrap();
    assert_eq!(
        text,
        r#"{"values":{"best":"inf","cooldown_counter":"0.0","learning_rate":"0.1","num_bad_epochs":"0.0"}}"#
    );
    schedule.observe(0, 0.1 + 0.2);
    let text = serde_json::to_string(&schedule.state()).unwrap();
    let state: ScheduleState = serde_json::from_str(&text).unwrap();
    assert_eq!(state.value("best"), Some(0.1 + 0.2));
    assert!(serde_json::from_str::<ScheduleState>(r#"{"values":{"best":"low"}}"#).is_err());
}

struct Case {
    json: Value,
    file: std::sync::Arc<Vec<u8>>,
}

impl Case {
    fn all() -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/goldens");
        let file = std::sync::Arc::new(fs::read(folder.join("schedule.safetensors")).unwrap());
        let json: Value = serde_json::from_slice(&fs::read(folder.join("schedule.json")).unwrap()).unwrap();
        json.as_array().unwrap().iter().map(|json| Case { json: json.clone(), file: file.clone() }).collect()
    }

    fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    fn op(&self) -> &str {
        self.json["op"].as_str().unwrap()
    }

    fn tolerance(&self, part: &str) -> f64 {
        self.json["tolerance"][part].as_f64().unwrap()
    }

    fn number(&self, attribute: &str) -> f64 {
        self.json["attributes"][attribute].as_f64().unwrap_or_else(|| panic!("{} {attribute}", self.name()))
    }

    fn count(&self, attribute: &str) -> u64 {
        self.json["attributes"][attribute].as_u64().unwrap_or_else(|| panic!("{} {attribute}", self.name()))
    }

    fn text(&self, attribute: &str) -> &str {
        self.json["attributes"][attribute].as_str().unwrap()
    }

    fn tensor(&self, name: &str) -> Vec<f64> {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors.tensor(&format!("{}/{name}", self.name())).unwrap();
        view.data().chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    fn anneal(&self, attribute: &str) -> AnnealStrategy {
        match self.text(attribute) {
            "cos" => AnnealStrategy::Cosine,
            "linear" => AnnealStrategy::Linear,
            other => panic!("unknown strategy {other}"),
        }
    }

    fn schedule(&self) -> Box<dyn LearningRate> {
        let rate = || self.number("rate");
        match self.op() {
            "constant" => {
                let constant = Constant::new(rate()).unwrap();
                Box::new(constant.with_factor(self.number("factor"), self.count("total_iters")).unwrap())
            }
            "linear" => {
                let [start, end] = ["start_factor", "end_factor"].map(|factor| rate() * self.number(factor));
                Box::new(Linear::new(start, end, self.count("total_iters")).unwrap())
            }
            "polynomial" => {
                let steps = self.count("total_iters");
                Box::new(Polynomial::new(rate(), 0.0, steps, self.number("power")).unwrap())
            }
            "exponential" => Box::new(Exponential::new(rate(), self.number("gamma")).unwrap()),
            "step" => Box::new(Step::new(rate(), self.number("gamma"), self.count("step_size")).unwrap()),
            "multi_step" => {
                let milestones = self.json["attributes"]["milestones"].as_array().unwrap();
                let milestones = milestones.iter().map(|step| step.as_u64().unwrap()).collect::<Vec<_>>();
                Box::new(MultiStep::new(rate(), self.number("gamma"), milestones).unwrap())
            }
            "cosine" => {
                let cosine = Cosine::new(rate(), self.number("eta_min"), self.count("T_max")).unwrap();
                Box::new(cosine.periodic())
            }
            "cosine_warm_restarts" => {
                let cosine = CosineWarmRestarts::new(rate(), self.number("eta_min"), self.count("T_0"));
                Box::new(cosine.unwrap().with_factor(self.count("T_mult")).unwrap())
            }
            "one_cycle" => {
                let config = OneCycleConfig::new(self.number("max_lr"), self.count("total_steps"))
                    .with_pct_start(self.number("pct_start"))
                    .with_anneal_strategy(self.anneal("anneal_strategy"))
                    .with_div_factor(self.number("div_factor"))
                    .with_final_div_factor(self.number("final_div_factor"))
                    .with_three_phase(self.json["attributes"]["three_phase"].as_bool().unwrap());
                Box::new(config.init())
            }
            "cyclic" => Box::new(self.cyclic()),
            "lambda" => Box::new(Lambda::new(rate(), |step| 1.0 / (1.0 + 0.5 * step as f64)).unwrap()),
            "multiplicative" => {
                Box::new(Multiplicative::new(rate(), |step| 1.0 - 0.5 / step as f64).unwrap())
            }
            "sequential" => {
                let warmup = Linear::new(rate() * 0.25, rate(), self.count("warmup")).unwrap();
                let decay = Exponential::new(rate(), self.number("gamma")).unwrap();
                Box::new(Sequential::new().then(warmup, self.count("milestone")).finally(decay))
            }
            "chained" => {
                let factor =
                    Constant::new(1.0).unwrap().with_factor(self.number("factor"), self.count("steps"));
                let decay = Exponential::new(rate(), self.number("gamma")).unwrap();
                Box::new(Composed::new(SchedulerReduction::Prod).with(factor.unwrap()).with(decay))
            }
            "swa" => {
                let (swa_lr, steps) = (self.number("swa_lr"), self.count("anneal_epochs"));
                Box::new(SwaLr::new(rate(), swa_lr, steps, self.anneal("anneal_strategy")).unwrap())
            }
            "plateau" => Box::new(self.plateau()),
            other => panic!("unknown schedule {other}"),
        }
    }

    fn cyclic(&self) -> Cyclic {
        let mode = match self.text("mode") {
            "triangular" => CyclicMode::Triangular,
            "triangular2" => CyclicMode::Triangular2,
            "exp_range" => CyclicMode::ExpRange,
            other => panic!("unknown mode {other}"),
        };
        CyclicConfig::new(self.number("base_lr"), self.number("max_lr"))
            .with_step_size_up(self.count("step_size_up"))
            .with_step_size_down(Some(self.count("step_size_down")))
            .with_mode(mode)
            .with_gamma(self.number("gamma"))
            .init()
    }

    fn plateau(&self) -> ReduceOnPlateau {
        let mode = match self.text("mode") {
            "min" => PlateauMode::Min,
            "max" => PlateauMode::Max,
            other => panic!("unknown mode {other}"),
        };
        let threshold_mode = match self.text("threshold_mode") {
            "rel" => ThresholdMode::Relative,
            "abs" => ThresholdMode::Absolute,
            other => panic!("unknown threshold mode {other}"),
        };
        ReduceOnPlateauConfig::new(self.number("rate"))
            .with_mode(mode)
            .with_factor(self.number("factor"))
            .with_patience(self.count("patience"))
            .with_threshold(self.number("threshold"))
            .with_threshold_mode(threshold_mode)
            .with_cooldown(self.count("cooldown"))
            .with_min_lr(self.number("min_lr"))
            .with_epsilon(self.number("eps"))
            .init()
    }
}
