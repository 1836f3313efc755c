//! The pipeline of gradients, groups with rules, reports, and state in 8 bits.

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module, ParamId};
use kiln_optim::*;
use kiln_tensor::{Autodiff, DType, Tensor, TensorData};

type B = Autodiff<Flex>;
type Model = Linear<B>;

fn model() -> Model {
    let mut model: Model = LinearConfig::new(2, 2).init(&Default::default());
    model.bias.as_mut().unwrap().set(Tensor::from_floats([0.25, -0.5], &Default::default()));
    model.weight.set(Tensor::from_floats([[1.0, -2.0], [0.5, 4.0]], &Default::default()));
    model
}

fn gradients(model: &Model, rows: &[[f32; 2]], scale: f64) -> GradientsParams {
    let count = rows.len();
    let data = TensorData::new(rows.concat(), [count, 2]).unwrap();
    let x = Tensor::<B, 2>::from_data(data, &Default::default());
    let loss = model.forward(x).square().mean() * scale;
    GradientsParams::from_grads(loss.backward(), model)
}

fn filled(model: &Model, weight: f64, bias: f64) -> GradientsParams {
    let device = Default::default();
    GradientsParams::from_iter([
        (model.weight.id(), Tensor::<Flex, 2>::full([2, 2], weight, &device).into_any()),
        (bias_id(model), Tensor::<Flex, 1>::full([2], bias, &device).into_any()),
    ])
}

fn bias_id(model: &Model) -> ParamId {
    model.bias.as_ref().unwrap().id()
}

fn numbers(model: &Model) -> Vec<f32> {
    let parameters = model.named_parameters();
    parameters.into_iter().flat_map(|(_, parameter)| parameter.value.to_vec::<f32>().unwrap()).collect()
}

const ROWS: [[f32; 2]; 4] = [[1.0, 2.0], [-0.5, 1.5], [3.0, 0.25], [2.0, -1.0]];

#[test]
fn accumulated_steps_equal_steps_of_a_large_batch() {
    let (mut parts, mut whole) = (model(), model());
    let clipping = GradientClipping::GlobalNorm(0.5);
    let new = || AdamWConfig::new().with_grad_clipping(clipping).init();
    let (mut accumulating, mut plain) = (new().with_accumulation(2).unwrap(), new());
    for _ in 0..3 {
        for rows in ROWS.chunks(2) {
            let gradients = gradients(&parts, rows, 1.0);
            accumulating.update(0.1, &mut parts, gradients).unwrap();
        }
        let gradients = gradients(&whole, &ROWS, 1.0);
        plain.update(0.1, &mut whole, gradients).unwrap();
    }
    for (a, b) in numbers(&parts).iter().zip(numbers(&whole)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    let norm = |optimizer: &AdamW| optimizer.last_report().unwrap().gradient_norm().unwrap().unwrap();
    assert!((norm(&accumulating) - norm(&plain)).abs() < 1e-5);
    assert!(SgdConfig::new().init().with_accumulation(0).is_err());
}

#[test]
fn accumulated_gradients_and_loss_scale_are_part_of_the_state() {
    let scaler = || LossScalerConfig::new().with_initial_scale(8.0).with_growth_interval(2).init();
    let new = || {
        let sgd = SgdConfig::new().with_momentum(0.9).init();
        sgd.with_loss_scaler(scaler()).with_accumulation(2).unwrap()
    };
    let (mut optimizer, mut model) = (new(), model());
    let step = |optimizer: &mut Sgd, model: &mut Model, place: usize| {
        let gradients = gradients(model, &ROWS[place % 4..][..1], optimizer.loss_scale());
        optimizer.update(0.01, model, gradients).unwrap()
    };
    for place in 0..5 {
        step(&mut optimizer, &mut model, place);
    }
    assert_eq!(optimizer.loss_scale(), 16.0);
    let tensors = optimizer.state(&model).unwrap().into_tensors().unwrap();
    let mut other: Model = LinearConfig::new(2, 2).init(&Default::default());
    other.weight.set(model.weight.val().detach());
    other.bias.as_mut().unwrap().set(model.bias.as_ref().unwrap().val().detach());
    let mut resumed = new();
    resumed.load_state(OptimizerState::from_tensors("sgd", tensors).unwrap(), &other).unwrap();
    assert_eq!(resumed.loss_scale(), 16.0);
    for place in 5..10 {
        let one = step(&mut optimizer, &mut model, place);
        let two = step(&mut resumed, &mut other, place);
        assert_eq!(one.outcome, two.outcome);
    }
    assert_eq!(numbers(&model), numbers(&other));
}

#[test]
fn non_finite_gradients_under_scaling_skip_the_step() {
    let mut model = model();
    let scaler = LossScalerConfig::new().with_initial_scale(4.0).init();
    let mut optimizer = AdamConfig::new().init().with_loss_scaler(scaler);
    let before = numbers(&model);
    let bad = filled(&model, f64::INFINITY, 1.0);
    let report = optimizer.update(0.1, &mut model, bad).unwrap();
    assert_eq!((report.outcome, report.updated), (StepOutcome::SkippedNonFinite, 0));
    assert_eq!(optimizer.last_report().unwrap().outcome, StepOutcome::SkippedNonFinite);
    assert_eq!(numbers(&model), before);
    assert_eq!(optimizer.loss_scale(), 2.0);

    // Gradients of the scaled loss give the step of the loss.
    let scaled = gradients(&model, &ROWS, optimizer.loss_scale());
    assert!(optimizer.update(0.1, &mut model, scaled).unwrap().is_applied());
    let mut copy = self::model();
    let gradients = gradients(&copy, &ROWS, 1.0);
    AdamConfig::new().init().update(0.1, &mut copy, gradients).unwrap();
    for (a, b) in numbers(&model).iter().zip(numbers(&copy)) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
}

#[test]
fn reports_count_parameters_and_read_the_norm() {
    let mut model = model();
    let mut optimizer = SgdConfig::new().init();
    assert!(optimizer.last_report().is_none());
    let mut gradients = filled(&model, 3.0, 4.0);
    gradients.remove(bias_id(&model));
    let report = optimizer.update(0.1, &mut model, gradients).unwrap();
    assert_eq!((report.updated, &*report.without_gradient), (1, &["bias".to_owned()][..]));
    assert_eq!(report.gradient_norm().unwrap(), None);

    let mut optimizer = optimizer.with_gradient_norm(true);
    let gradients = filled(&model, 3.0, 4.0);
    model = optimizer.step(0.1, model, gradients);
    let report = optimizer.last_report().unwrap();
    let norm = (4.0 * 9.0 + 2.0 * 16.0f64).sqrt();
    assert!((report.gradient_norm().unwrap().unwrap() - norm).abs() < 1e-5);

    let clipping = SgdConfig::new().with_grad_clipping(GradientClipping::GlobalNorm(1.0));
    let gradients = filled(&model, 3.0, 4.0);
    let report = clipping.init().update(0.1, &mut model, gradients).unwrap();
    assert!((report.gradient_norm().unwrap().unwrap() - norm).abs() < 1e-5);
}

#[test]
fn the_first_step_without_updates_warns() {
    let mut model = model();
    let mut optimizer = SgdConfig::new().init();
    let other: Model = LinearConfig::new(2, 2).init(&Default::default());
    let strange = filled(&other, 1.0, 1.0);
    let warning = optimizer.update(0.1, &mut model, strange.clone()).unwrap().warning.unwrap();
    assert!(
        warning.starts_with("warning: [sgd] the step updated no parameter: the gradients are those of other")
    );
    assert_eq!(optimizer.update(0.1, &mut model, strange).unwrap().warning, None);

    let mut optimizer = SgdConfig::new().init();
    let warning = optimizer.update(0.1, &mut model, GradientsParams::new()).unwrap().warning.unwrap();
    assert!(warning.contains("there are no gradients"), "{warning}");
    let mut frozen = model.freeze();
    let gradients = filled(&frozen, 1.0, 1.0);
    let report = SgdConfig::new().init().update(0.1, &mut frozen, gradients).unwrap();
    assert!(report.warning.unwrap().contains("`unfreeze`"));
}

#[test]
fn groups_without_parameters_are_reported_and_warn_once() {
    let mut model = model();
    let mut optimizer = SgdConfig::new()
        .init()
        .with_group(ParameterGroup::matching("**.bais").weight_decay(0.0))
        .and_then(|optimizer| optimizer.with_group(ParameterGroup::matching("weight")))
        .and_then(|optimizer| optimizer.with_group(ParameterGroup::matching("**.weight")))
        .and_then(|optimizer| optimizer.with_group(ParameterGroup::new(|path| path.starts_with("head."))))
        .unwrap();
    let gradients = filled(&model, 1.0, 1.0);
    let report = optimizer.update(0.1, &mut model, gradients.clone()).unwrap();
    assert_eq!(report.unmatched_groups, ["**.bais", "**.weight", "group 3"]);
    assert_eq!(
        report.warning.unwrap(),
        "warning: [sgd] the parameter group `**.bais` matches no parameter; near names: `bias`, `weight`\n\
         warning: [sgd] the parameter group `**.weight` has no parameters: an earlier group contains each of them, and \
         the first one applies\n\
         warning: [sgd] the parameter group `group 3` matches no parameter; the first names: `weight`, `bias`"
    );
    let report = optimizer.update(0.1, &mut model, gradients).unwrap();
    assert_eq!((report.unmatched_groups.len(), report.warning), (3, None));

    // A group of frozen parameters is no mistake.
    let mut frozen = model.freeze();
    let mut optimizer = SgdConfig::new().init().with_group(ParameterGroup::matching("bias")).unwrap();
    let report = optimizer.update(0.1, &mut frozen, GradientsParams::new()).unwrap();
    assert!(report.unmatched_groups.is_empty(), "{:?}", report.unmatched_groups);
}

#[test]
fn the_first_group_that_contains_a_parameter_applies() {
    let start = model();
    let group = |pattern, factor| ParameterGroup::matching(pattern).learning_rate_factor(factor);
    let rate = |groups: [ParameterGroup; 2]| {
        let mut optimizer = SgdConfig::new().init();
        for group in groups {
            optimizer = optimizer.with_group(group).unwrap();
        }
        let mut model = start.clone();
        optimizer.update(1.0, &mut model, filled(&start, 1.0, 1.0)).unwrap();
        let moved: Vec<f32> = numbers(&start).iter().zip(numbers(&model)).map(|(a, b)| a - b).collect();
        (moved[0], moved[4])
    };
    assert_eq!(rate([group("bias", 4.0), group("**", 0.5)]), (0.5, 4.0));
    assert_eq!(rate([group("**", 0.5), group("bias", 4.0)]), (0.5, 0.5));
}

#[test]
fn a_regular_expression_as_pattern_is_refused() {
    let group = ParameterGroup::matching(r"\.bias$");
    let error = SgdConfig::new().init().with_group(group).unwrap_err().to_string();
    assert!(error.contains("no regular expression") && error.contains("`**.bias` for `\\.bias$`"), "{error}");
}

#[test]
fn groups_have_their_own_rule_rate_and_clipping() {
    let start = model();
    let rule = SgdConfig::new().with_weight_decay(0.5).rule().unwrap();
    let group = ParameterGroup::matching("bias")
        .rule(rule)
        .learning_rate(lr_scheduler::Exponential::new(1.0, 0.5).unwrap())
        .grad_clipping(GradientClipping::Value(2.0));
    let mut optimizer = AdamWConfig::new()
        .with_grad_clipping(GradientClipping::GlobalNorm(1.0))
        .init()
        .with_group(group)
        .unwrap();
    let mut model = start.clone();
    model.bias.as_mut().unwrap().set(Tensor::from_floats([4.0, -4.0], &Default::default()));
    for _ in 0..2 {
        let gradients = filled(&model, 3.0, 5.0);
        optimizer.update(0.25, &mut model, gradients).unwrap();
    }
    // Rates 1 and 0.5: 4 - (2 + 2) = 0, 0 - 0.5 · 2; and -4 - (2 - 2) = -4, -4 - 0.5 (2 - 2).
    assert_eq!(numbers(&model)[4..], [-1.0, -4.0]);
    let state = optimizer.state(&model).unwrap();
    assert_eq!(
        (state.optimizer(), state.rule("bias"), state.rule("weight")),
        ("adamw", Some("sgd"), Some("adamw"))
    );
    let names: Vec<String> =
        state.clone().into_tensors().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["bias.step", "bias.rule", "weight.exp_avg", "weight.exp_avg_sq", "weight.step"]);
    let loaded = OptimizerState::from_tensors("adamw", state.clone().into_tensors().unwrap()).unwrap();
    assert_eq!(loaded, state);

    let error = AdamWConfig::new().init().load_state(loaded, &model).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[adamw] state of parameter `bias`: it was saved by rule `sgd`, not `adamw`"
    );
    // The weight is clipped by its own norm of 6: Adam's first moment is that of 0.5.
    let moment = state.into_tensors().unwrap().remove(2).1.to_vec::<f64>()[0];
    assert!((moment - 0.5 * (1.0 - 0.9 * 0.9)).abs() < 1e-5);
}

#[test]
fn a_state_in_8_bits_resumes_bit_for_bit() {
    let device = Default::default();
    let new_model = || -> Model {
        let mut model: Model = LinearConfig::new(64, 64).init(&device);
        let numbers: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.7).sin()).collect();
        model.weight.set(Tensor::from_floats(TensorData::new(numbers, [64, 64]).unwrap(), &device));
        model.bias.as_mut().unwrap().set(Tensor::zeros([64], &device));
        model
    };
    let step = |optimizer: &mut AdamW, model: &mut Model, step: usize| {
        let x = Tensor::<B, 2>::from_data(
            TensorData::new((0..512).map(|i| ((i + step) as f32 * 1.1).cos()).collect::<Vec<_>>(), [8, 64])
                .unwrap(),
            &device,
        );
        let loss = (model.forward(x) - 1).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &*model);
        optimizer.update(0.01, model, gradients).unwrap();
        loss.into_scalar::<f32>()
    };
    let (mut model, mut full_model) = (new_model(), new_model());
    let mut optimizer = AdamWConfig::new().init().with_8bit_state();
    let mut full = AdamWConfig::new().init();
    let mut losses = [0.0, 0.0];
    for place in 0..20 {
        losses = [step(&mut optimizer, &mut model, place), step(&mut full, &mut full_model, place)];
    }
    assert!((losses[0] / losses[1] - 1.0).abs() < 0.1, "{losses:?}");

    let state = optimizer.state(&model).unwrap();
    let tensors = state.clone().into_tensors().unwrap();
    let types: Vec<_> = tensors.iter().map(|(name, data)| (name.as_str(), data.dtype())).collect();
    assert_eq!(
        types[..3],
        [("bias.exp_avg", DType::F32), ("bias.exp_avg_sq", DType::F32), ("bias.step", DType::U64)]
    );
    assert_eq!(types[3..5], [("weight.exp_avg#codes", DType::U8), ("weight.exp_avg#scales", DType::F32)]);
    assert_eq!(tensors[3].1.shape()[..], [16, 256]);

    let mut other = new_model();
    other.weight.set(model.weight.val().detach());
    other.bias.as_mut().unwrap().set(model.bias.as_ref().unwrap().val().detach());
    let mut resumed = AdamWConfig::new().init().with_8bit_state();
    resumed.load_state(OptimizerState::from_tensors("adamw", tensors.clone()).unwrap(), &other).unwrap();
    assert_eq!(resumed.state(&other).unwrap(), state);
    for place in 20..25 {
        step(&mut optimizer, &mut model, place);
        step(&mut resumed, &mut other, place);
    }
    assert_eq!(numbers(&model), numbers(&other));

    // Both kinds of states load into both kinds of optimizers.
    let mut plain = AdamWConfig::new().init();
    plain.load_state(OptimizerState::from_tensors("adamw", tensors).unwrap(), &other).unwrap();
    step(&mut plain, &mut other, 25);
    let state = plain.state(&other).unwrap();
    resumed.load_state(state, &other).unwrap();
    step(&mut resumed, &mut other, 26);
}
