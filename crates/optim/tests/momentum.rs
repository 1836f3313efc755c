//! Schedules that cycle the momentum, against PyTorch: the family `momentum` of the suite's goldens.

use std::fs;
use std::path::Path;

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::lr_scheduler::*;
use kiln_optim::{
    AdamConfig, AdamWConfig, AdamaxConfig, LbfgsConfig, LionConfig, NAdamConfig, Optimizer, ParameterGroup,
    RAdamConfig, RmsPropConfig, SgdConfig,
};
use kiln_tensor::{Autodiff, Backend, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

#[derive(Debug, Module)]
struct Point<B: Backend> {
    x: Param<Tensor<B, 1>>,
}

struct Case {
    json: Value,
    file: Vec<u8>,
}

impl Case {
    fn all() -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/goldens");
        let file = fs::read(folder.join("momentum.safetensors")).unwrap();
        let json: Vec<Value> =
            serde_json::from_slice(&fs::read(folder.join("momentum.json")).unwrap()).unwrap();
        json.into_iter().map(|json| Case { json, file: file.clone() }).collect()
    }

    fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    fn op(&self) -> &str {
        self.json["op"].as_str().unwrap()
    }

    fn number(&self, attribute: &str) -> f64 {
        self.json["attributes"][attribute].as_f64().unwrap()
    }

    fn count(&self, attribute: &str) -> u64 {
        self.json["attributes"][attribute].as_u64().unwrap()
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors.tensor(&format!("{}/{name}", self.name())).unwrap();
        if view.dtype() == Dtype::F64 {
            return view.data().chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect();
        }
        view.data().chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect()
    }

    fn one_cycle(&self) -> OneCycle {
        let anneal = match self.json["attributes"]["anneal_strategy"].as_str().unwrap() {
            "cos" => AnnealStrategy::Cosine,
            _ => AnnealStrategy::Linear,
        };
        OneCycleConfig::new(self.number("max_lr"), self.count("total_steps"))
            .with_pct_start(self.number("pct_start"))
            .with_anneal_strategy(anneal)
            .with_div_factor(self.number("div_factor"))
            .with_final_div_factor(self.number("final_div_factor"))
            .with_three_phase(self.json["attributes"]["three_phase"].as_bool().unwrap())
            .with_cycle_momentum(true)
            .with_base_momentum(self.number("base_momentum"))
            .with_max_momentum(self.number("max_momentum"))
            .init()
    }

    fn cyclic(&self) -> Cyclic {
        let mode = match self.json["attributes"]["mode"].as_str().unwrap() {
            "triangular" => CyclicMode::Triangular,
            "triangular2" => CyclicMode::Triangular2,
            _ => CyclicMode::ExpRange,
        };
        CyclicConfig::new(self.number("base_lr"), self.number("max_lr"))
            .with_step_size_up(self.count("step_size_up"))
            .with_step_size_down(Some(self.count("step_size_down")))
            .with_mode(mode)
            .with_gamma(self.number("gamma"))
            .with_cycle_momentum(true)
            .with_base_momentum(self.number("base_momentum"))
            .with_max_momentum(self.number("max_momentum"))
            .init()
    }

    fn compare(&self, name: &str, found: &[f64]) {
        let expected = self.values(name);
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.name());
        let [absolute, relative] =
            ["absolute", "relative"].map(|part| self.json["tolerance"][part].as_f64().unwrap());
        for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
            let allowed = absolute + relative * expected.abs();
            let is_near = (found - expected).abs() <= allowed;
            assert!(is_near, "{}: {name}[{place}] is {found}, expected {expected}", self.name());
        }
    }

    fn optimizer(&self) -> Box<dyn Optimizer> {
        match self.op() {
            "sgd" => Box::new(SgdConfig::new().with_momentum(0.9).init()),
            "sgd_nesterov" => Box::new(SgdConfig::new().with_momentum(0.9).with_nesterov(true).init()),
            "adam" => Box::new(AdamConfig::new().init()),
            "adamw" => Box::new(AdamWConfig::new().init()),
            "adamax" => Box::new(AdamaxConfig::new().init()),
            "nadam" => Box::new(NAdamConfig::new().init()),
            "radam" => Box::new(RAdamConfig::new().init()),
            "rmsprop" => Box::new(RmsPropConfig::new().with_momentum(0.9).init()),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn rates_and_momenta_match_pytorch() {
    let mut seen = 0;
    for case in Case::all().iter().filter(|case| ["one_cycle", "cyclic"].contains(&case.op())) {
        let schedule: Box<dyn LearningRate> =
            if case.op() == "cyclic" { Box::new(case.cyclic()) } else { Box::new(case.one_cycle()) };
        let mut scheduler = Scheduler::new(schedule);
        let (rates, momenta): (Vec<f64>, Vec<f64>) =
            (0..50).map(|_| (scheduler.step(), scheduler.momentum().unwrap())).unzip();
        case.compare("rates", &rates);
        case.compare("momenta", &momenta);
        seen += 1;
    }
    assert_eq!(seen, 6);
}

/// The point after each step.
fn follow(
    case: &Case,
    optimizer: &mut dyn Optimizer,
    rate: &dyn Fn(&mut dyn Optimizer, u64) -> f64,
) -> Vec<f64> {
    let device = Default::default();
    let of = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let x = Tensor::from_floats(of(&case.values("x")), &device);
    let mut point = Point::<Autodiff<Flex>> { x: Param::from_tensor(x) };
    let mut steps = Vec::new();
    for (step, gradient) in case.values("gradients").chunks(3).enumerate() {
        let gradient = Tensor::<Flex, 1>::from_floats(of(gradient), &device);
        let gradients = GradientsParams::from_iter([(point.x.id(), gradient.into_any())]);
        let rate = rate(optimizer, step as u64);
        optimizer.update(rate, &mut point, gradients).unwrap();
        steps.extend(point.x.val().into_data().to_vec::<f64>());
    }
    steps
}

#[test]
fn trajectories_match_pytorch() {
    let mut seen = 0;
    for case in Case::all().iter().filter(|case| !["one_cycle", "cyclic"].contains(&case.op())) {
        let schedule = case.one_cycle();
        let found = follow(case, &mut case.optimizer(), &|optimizer, step| {
            optimizer.set_momentum(schedule.momentum_at(step)).unwrap();
            schedule.at(step)
        });
        case.compare("x_steps", &found);
        seen += 1;
    }
    assert_eq!(seen, 8);
}

/// A group's schedule sets rate and momentum of its parameters.
#[test]
fn schedules_of_groups_cycle_the_momentum() {
    let case = Case::all().into_iter().find(|case| case.op() == "adamw").unwrap();
    let group = ParameterGroup::matching("x").learning_rate(case.one_cycle());
    let mut optimizer = AdamWConfig::new().init().with_group(group).unwrap();
    case.compare("x_steps", &follow(&case, &mut optimizer, &|_, _| 0.1));
}

#[test]
fn combined_schedules_pass_the_momentum_on() {
    let cycle = || OneCycleConfig::new(0.1, 10).with_cycle_momentum(true).init();
    let expected = |step| cycle().momentum_at(step);
    let warmup = Warmup::new(cycle(), 0.1, 3).unwrap();
    let composed = Composed::new(SchedulerReduction::Prod).with(0.5).with(cycle());
    let sequence = Sequential::new().then(0.1, 2).finally(cycle());
    let repeat = Repeat::new(cycle(), 10).unwrap();
    for step in 0..10 {
        assert_eq!(warmup.momentum_at(step), expected(step));
        assert_eq!(composed.momentum_at(step), expected(step));
        assert_eq!(sequence.momentum_at(step + 2), expected(step));
        assert_eq!(repeat.momentum_at(step + 20), expected(step));
        assert_eq!(std::sync::Arc::new(cycle()).momentum_at(step), expected(step));
    }
    assert_eq!(sequence.momentum_at(0), None);
    assert_eq!(OneCycleConfig::new(0.1, 10).init().momentum_at(0), None);
    assert_eq!(CyclicConfig::new(0.1, 0.2).init().momentum_at(0), None);
}

#[test]
fn optimizers_without_momentum_refuse_one() {
    let text = |result: kiln_optim::Result<()>| result.unwrap_err().to_string();
    let hint = "\n  hint: it must be none: the update rule has no momentum to replace (in `sgd` and `rmsprop` it must \
                be above 0)";
    let mut lion = LionConfig::new().init();
    assert_eq!(
        text(lion.set_momentum(Some(0.5))),
        format!("[lion] the momentum of the schedule is 0.5{hint}")
    );
    lion.set_momentum(None).unwrap();
    assert_eq!(
        text(SgdConfig::new().init().set_momentum(Some(0.5))),
        format!("[sgd] the momentum of the schedule is 0.5{hint}")
    );
    assert_eq!(
        text(LbfgsConfig::new().init().set_momentum(Some(0.5))),
        format!("[lbfgs] the momentum of the schedule is 0.5{hint}")
    );
    let group = ParameterGroup::matching("x").rule(LionConfig::new().rule().unwrap());
    let mut mixed = AdamConfig::new().init().with_group(group).unwrap();
    assert!(text(mixed.set_momentum(Some(0.5))).starts_with("[lion]"));
    let cycle = OneCycleConfig::new(0.1, 10).with_cycle_momentum(true).init();
    let group = ParameterGroup::matching("x").learning_rate(cycle);
    assert!(LionConfig::new().init().with_group(group).is_err());
    assert_eq!(
        text(AdamConfig::new().init().set_momentum(Some(1.0))),
        "[adam] the momentum of the schedule is 1\n  hint: it must be at least 0 and below 1"
    );
}

#[test]
fn momenta_out_of_range_are_refused() {
    let cycle = OneCycleConfig::new(0.1, 10).with_base_momentum(1.0).try_init();
    assert_eq!(
        cycle.unwrap_err().to_string(),
        "[one_cycle] base_momentum is 1\n  hint: it must be at least 0 and below 1"
    );
    assert!(CyclicConfig::new(0.1, 0.2).with_max_momentum(-0.1).try_init().is_err());
}

#[test]
fn lbfgs_refuses_parameter_groups() {
    let error = LbfgsConfig::new().init().with_group(ParameterGroup::matching("**")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[lbfgs] a parameter group is given\n  hint: it must be absent: a step moves all parameters as one vector; \
         freeze those that must not change (`no_grad`)"
    );
}
