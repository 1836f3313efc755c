//! Metrics of images, detections and generated images against torchmetrics, pycocotools and SciPy. See
//! `goldens/vision.py`.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_backends::Flex;
use kiln_store::save_tensors;
use kiln_tensor::{AnyTensor, Backend, TensorData};
use kiln_train::metric::{
    Afine, AfineNet, Aggregation, BOXES, ClassAverage, ClassWeight, ClipVisionConfig, Dice, Dists, Features,
    FrechetInceptionDistance, GeneralizedDice, InceptionScore, KernelInceptionDistance, LABELS, Lpips,
    MeanAveragePrecision, MeanIou, MetricValue, MetricValues, MsSsim, NUM_BOXES, NUM_TARGET_BOXES, Network,
    Psnr, SCORES, Ssim, TARGET_AREAS, TARGET_BOXES, TARGET_CROWDS, TARGET_LABELS, box_iou,
};
use kiln_train::{Metric, MetricError, Observation, PREDICTIONS, TARGETS};
use serde_json::Value;

const BATCHES: u64 = 3;

fn goldens(group: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("goldens/vision.json")).unwrap();
    all[group].clone()
}

/// Numbers from 0 to 1 that are multiples of 2^-24: a hash of index and seed.
fn uniform(count: usize, seed: u64) -> Vec<f32> {
    let mask = 0xFFFF_FFFF;
    let number = |index: u64| {
        let mut h = index.wrapping_mul(2654435761).wrapping_add(seed.wrapping_mul(40503)) & mask;
        h ^= h >> 15;
        h = h.wrapping_mul(2246822519) & mask;
        h ^= h >> 13;
        h = h.wrapping_mul(3266489917) & mask;
        h ^= h >> 16;
        (h >> 8) as f32 / 16_777_216.0
    };
    (0..count as u64).map(number).collect()
}

fn tensor<E: kiln_tensor::Element>(elements: Vec<E>, shape: &[usize]) -> AnyTensor {
    let shape: kiln_tensor::Shape = shape.iter().copied().collect();
    AnyTensor::from_data(TensorData::new(elements, shape).unwrap(), &Flex::stack(&Default::default()))
}

fn pair(predictions: AnyTensor, targets: AnyTensor) -> Observation {
    Observation::new(targets.shape()[0]).with(PREDICTIONS, predictions).with(TARGETS, targets)
}

/// The values over all batches. A state after the first batch continues bit for bit, and merged workers agree.
fn values(metric: &dyn Metric, observations: &[Observation]) -> MetricValues {
    let mut straight = metric.fresh();
    observations.iter().for_each(|observation| straight.update(observation).unwrap());
    let values = straight.values().unwrap();
    let (first, rest) = observations.split_first().unwrap();
    let mut worker = metric.fresh();
    worker.update(first).unwrap();
    let state = worker.state().unwrap();
    let (mut loaded, mut merged) = (metric.fresh(), metric.fresh());
    loaded.load_state(&state).unwrap();
    merged.merge(&state).unwrap();
    for observation in rest {
        loaded.update(observation).unwrap();
        merged.update(observation).unwrap();
    }
    assert_eq!(format!("{:?}", loaded.values().unwrap()), format!("{values:?}"));
    assert_eq!(format!("{:?}", merged.values().unwrap()), format!("{values:?}"));
    assert_eq!(loaded.state().unwrap(), straight.state().unwrap());
    let mut other = metric.fresh();
    rest.iter().for_each(|observation| other.update(observation).unwrap());
    worker.merge(&other.state().unwrap()).unwrap();
    close(worker.values().unwrap().main().unwrap(), values.main().unwrap(), 1e-9);
    straight.reset();
    assert!(straight.values().unwrap().main().unwrap().is_nan(), "{} without batches", metric.name());
    values
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    let same = (found.is_nan() && expected.is_nan()) || (found - expected).abs() <= tolerance;
    assert!(same, "{found} differs from {expected} by {}", (found - expected).abs());
}

#[track_caller]
fn all_close(found: &[f64], expected: &Value, tolerance: f64) {
    let expected = expected.as_array().unwrap();
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    found.iter().zip(expected).for_each(|(&x, y)| close(x, y.as_f64().unwrap_or(f64::NAN), tolerance));
}

fn per_class<'v>(values: &'v MetricValues, name: &str) -> &'v [f64] {
    match values.get(name) {
        Some(MetricValue::PerClass(numbers)) => numbers,
        other => panic!("`{name}` is {other:?}"),
    }
}

fn segmentations() -> Vec<(Vec<i32>, Vec<i32>)> {
    let classes = |seed| uniform(60, seed).into_iter().map(|u| (u * 4.0) as i32).collect::<Vec<i32>>();
    let batch = |i: u64| {
        let targets = classes(20 + i);
        let mixed = classes(10 + i).into_iter().zip(&targets).zip(uniform(60, 30 + i));
        (mixed.map(|((p, &t), u)| if u < 0.5 { p } else { t }).collect(), targets)
    };
    (0..BATCHES).map(batch).collect()
}

fn segmentation_batches() -> Vec<Observation> {
    let batch = |(p, t): (Vec<i32>, Vec<i32>)| pair(tensor(p, &[2, 6, 5]), tensor(t, &[2, 6, 5]));
    segmentations().into_iter().map(batch).collect()
}

#[test]
fn dice_agrees_with_torchmetrics() {
    let (goldens, batches) = (goldens("segmentation"), segmentation_batches());
    let averages = [
        (ClassAverage::Macro, "macro"),
        (ClassAverage::Micro, "micro"),
        (ClassAverage::Weighted, "weighted"),
    ];
    let levels = [(Aggregation::PerImage, "samplewise"), (Aggregation::Global, "global")];
    for (average, average_name) in averages {
        for (aggregation, level) in levels {
            for (background, flag) in [(true, "True"), (false, "False")] {
                let metric = Dice::new(5).average(average).aggregation(aggregation).background(background);
                let values = values(&metric, &batches);
                let expected = &goldens[format!("dice {average_name} {level} {flag}")][0];
                close(values.main().unwrap(), expected.as_f64().unwrap(), 1e-6);
                let expected = &goldens[format!("dice none {level} {flag}")];
                all_close(per_class(&values, "dice_per_class"), expected, 1e-6);
            }
        }
    }
}

#[test]
fn dice_accepts_scores_and_ignores_unknown_targets() {
    let expected = values(&Dice::new(4), &segmentation_batches());
    let scores = |(p, t): (Vec<i32>, Vec<i32>)| {
        // Images of 31 pixels, of which the last has no class.
        let with_unknown =
            |x: &[i32]| x.chunks(30).flat_map(|image| [image, &[255]].concat()).collect::<Vec<_>>();
        let score = |image: usize, class: i32| {
            let p = p.clone();
            (0..31).map(move |pixel| match pixel {
                30 => 0.5,
                pixel => {
                    if p[image * 30 + pixel] == class {
                        0.9f32
                    } else {
                        0.1
                    }
                }
            })
        };
        let scores =
            (0..2).flat_map(|image| (0..4).flat_map(move |class| score(image, class).collect::<Vec<_>>()));
        pair(tensor(scores.collect::<Vec<f32>>(), &[2, 4, 31]), tensor(with_unknown(&t), &[2, 31]))
    };
    let batches: Vec<Observation> = segmentations().into_iter().map(scores).collect();
    assert_eq!(values(&Dice::new(4), &batches), expected);
    let wrong = pair(tensor(vec![0i32; 8], &[2, 4]), tensor(vec![0i32; 6], &[2, 3]));
    let error = Dice::new(4).update(&wrong).unwrap_err();
    assert!(matches!(error, MetricError::Input { name: PREDICTIONS, .. }), "{error}");
}

#[test]
fn generalized_dice_and_iou_agree_with_torchmetrics() {
    let (goldens, batches) = (goldens("segmentation"), segmentation_batches());
    let weights =
        [(ClassWeight::Square, "square"), (ClassWeight::Simple, "simple"), (ClassWeight::Linear, "linear")];
    for (weight, name) in weights {
        let values = values(&GeneralizedDice::new(4).weight(weight), &batches);
        let expected = goldens[format!("generalized {name}")].as_f64().unwrap();
        close(values.main().unwrap(), expected, 1e-6);
        let expected = &goldens["generalized per class"];
        all_close(per_class(&values, "generalized_dice_per_class"), expected, 1e-6);
    }
    let values = values(&MeanIou::new(4), &batches);
    close(values.main().unwrap(), goldens["iou"].as_f64().unwrap(), 1e-6);
    all_close(per_class(&values, "iou_per_class"), &goldens["iou per class"], 1e-6);
}

/// Pairs of images, from 0 to 1.
fn image_pairs(shape: [usize; 4], noise: f64) -> Vec<Observation> {
    let count = shape.iter().product();
    let batch = |i: u64| {
        let targets = uniform(count, 40 + i);
        let noised = targets.iter().zip(uniform(count, 50 + i));
        let predictions = noised.map(|(&t, u)| (f64::from(t) * (1.0 - noise) + f64::from(u) * noise) as f32);
        pair(tensor(predictions.collect::<Vec<f32>>(), &shape), tensor(targets, &shape))
    };
    (0..BATCHES).map(batch).collect()
}

#[test]
fn psnr_and_ssim_agree_with_torchmetrics() {
    let (goldens, small) = (goldens("similarity"), image_pairs([2, 3, 24, 20], 0.25));
    let large = image_pairs([1, 1, 176, 190], 0.25);
    let check = |metric: &dyn Metric, batches: &[Observation], name: &str, tolerance: f64| {
        let expected = goldens[name].as_f64().unwrap();
        close(values(metric, batches).main().unwrap(), expected, tolerance);
    };
    check(&Psnr::new(1.0), &small, "psnr", 2e-5);
    check(&Psnr::new(1.0).per_image(), &small, "psnr per image", 2e-5);
    check(&Ssim::new(1.0), &small, "ssim", 2e-6);
    check(&Ssim::new(2.0).window(9, 1.0).constants(0.02, 0.05), &small, "ssim 9", 2e-6);
    check(&MsSsim::new(1.0), &large, "ms-ssim", 5e-6);
    let three = MsSsim::new(1.0).scale_weights(&[0.3, 0.3, 0.4]);
    check(&three, &image_pairs([2, 1, 48, 50], 0.25), "ms-ssim 3", 5e-6);
}

#[test]
fn equal_images_have_the_greatest_similarity() {
    let images = tensor(uniform(2 * 3 * 16 * 16, 1), &[2, 3, 16, 16]);
    let same = [pair(images.clone(), images.clone())];
    assert_eq!(update(Psnr::new(1.0), &same), f64::INFINITY);
    close(update(Ssim::new(1.0), &same), 1.0, 1e-6);
    let error = MsSsim::new(1.0).update(&same[0]).unwrap_err();
    assert!(error.to_string().contains("less than the window"), "{error}");
    let other = tensor(uniform(2 * 3 * 16 * 8, 1), &[2, 3, 16, 8]);
    assert!(matches!(Psnr::new(1.0).update(&pair(images, other)), Err(MetricError::Input { .. })));
}

fn update(mut metric: impl Metric, observations: &[Observation]) -> f64 {
    observations.iter().for_each(|observation| metric.update(observation).unwrap());
    metric.values().unwrap().main().unwrap()
}

/// Batches of images with padding: `size` images each.
fn detections(images: &[Value], size: usize, with_areas: bool) -> Vec<Observation> {
    let batch = |images: &[Value]| {
        let count =
            |name: &str| images.iter().map(|image| image[name].as_array().unwrap().len()).collect::<Vec<_>>();
        let (boxes, targets) = (count("boxes"), count("target_boxes"));
        let padded = |name: &str, counts: &[usize], width: usize| {
            let longest = counts.iter().max().unwrap() + 1;
            let mut elements = Vec::new();
            for image in images {
                let numbers: Vec<f32> = numbers(&image[name]);
                let padding = longest * width - numbers.len();
                elements.extend(numbers);
                elements.extend(vec![7.0; padding]);
            }
            let shape = [images.len(), longest, width];
            tensor(elements, if width == 1 { &shape[..2] } else { &shape })
        };
        let counts =
            |counts: &[usize]| tensor(counts.iter().map(|&n| n as i32).collect::<Vec<_>>(), &[counts.len()]);
        let observation = Observation::new(images.len())
            .with(BOXES, padded("boxes", &boxes, 4))
            .with(SCORES, padded("scores", &boxes, 1))
            .with(LABELS, padded("labels", &boxes, 1))
            .with(NUM_BOXES, counts(&boxes))
            .with(TARGET_BOXES, padded("target_boxes", &targets, 4))
            .with(TARGET_LABELS, padded("target_labels", &targets, 1))
            .with(NUM_TARGET_BOXES, counts(&targets));
        match with_areas {
            true => observation
                .with(TARGET_CROWDS, padded("target_crowds", &targets, 1))
                .with(TARGET_AREAS, padded("target_areas", &targets, 1)),
            false => observation,
        }
    };
    images.chunks(size).map(batch).collect()
}

fn numbers(value: &Value) -> Vec<f32> {
    match value.as_array() {
        Some(array) => array.iter().flat_map(numbers).collect(),
        None => vec![value.as_f64().unwrap() as f32],
    }
}

#[test]
fn mean_average_precision_agrees_with_pycocotools() {
    let goldens = goldens("detection");
    let names = [
        "map",
        "map_50",
        "map_75",
        "map_small",
        "map_medium",
        "map_large",
        "mar_1",
        "mar_10",
        "mar_100",
        "mar_small",
        "mar_medium",
        "mar_large",
    ];
    for (case, with_areas) in [("boxes", false), ("areas and crowds", true)] {
        let batches = detections(goldens["images"].as_array().unwrap(), 5, with_areas);
        let values = values(&MeanAveragePrecision::new(), &batches);
        let found = names.map(|name| values.get(name).and_then(MetricValue::as_scalar).unwrap());
        all_close(&found, &goldens[case]["stats"], 1e-12);
        all_close(per_class(&values, "map_per_class"), &goldens[case]["map per class"], 1e-12);
        all_close(per_class(&values, "mar_100_per_class"), &goldens[case]["mar per class"], 1e-12);
    }
}

#[test]
fn inputs_of_detection_are_checked() {
    let boxes = |count: usize| tensor(vec![0f32; 4 * count], &[1, count, 4]);
    let scores = |count: usize| tensor(vec![0f32; count], &[1, count]);
    let observation = Observation::new(1).with(BOXES, boxes(2)).with(TARGET_BOXES, boxes(1));
    let observation =
        observation.with(SCORES, scores(2)).with(LABELS, scores(3)).with(TARGET_LABELS, scores(1));
    let error = MeanAveragePrecision::new().update(&observation).unwrap_err();
    assert!(matches!(error, MetricError::Input { name: LABELS, .. }), "{error}");
    let error = MeanAveragePrecision::new().update(&Observation::new(1)).unwrap_err();
    assert!(matches!(error, MetricError::Missing { name: BOXES }), "{error}");
    let iou = box_iou(boxes(1).add_scalar(1.0).unwrap(), boxes(3)).unwrap();
    assert_eq!(iou.shape()[..], [1, 3]);
}

/// Correlated features: each column also contains part of the one before it.
fn features(rows: usize, columns: usize, seed: u64, scale: f32, offset: f32) -> AnyTensor {
    let x: Vec<f32> = uniform(rows * columns, seed).into_iter().map(|u| u - 0.5).collect();
    let element = |place: usize| {
        let (row, column) = (place / columns, place % columns);
        (x[place] + 0.5 * x[row * columns + (column + columns - 1) % columns]) * scale + offset
    };
    tensor((0..rows * columns).map(element).collect::<Vec<f32>>(), &[rows, columns])
}

/// Batches of rows of two sides, of different lengths.
fn sides(real: &AnyTensor, generated: &AnyTensor) -> Vec<Observation> {
    let parts = |x: &AnyTensor| x.clone().split(7, 0).unwrap();
    let (real, generated) = (parts(real), parts(generated));
    let batch = |place: usize| {
        let observation = Observation::new(7);
        let observation = match real.get(place) {
            Some(part) => observation.with(TARGETS, part.clone()),
            None => observation,
        };
        match generated.get(place) {
            Some(part) => observation.with(PREDICTIONS, part.clone()),
            None => observation,
        }
    };
    (0..real.len().max(generated.len())).map(batch).collect()
}

#[test]
fn frechet_distance_agrees_with_scipy() {
    let goldens = goldens("generated");
    let metric = FrechetInceptionDistance::new(Features::identity());
    let batches = sides(&features(30, 6, 60, 1.0, 0.0), &features(24, 6, 61, 1.5, 0.25));
    let value = values(&metric, &batches).main().unwrap();
    close(value, goldens["fid"].as_f64().unwrap(), 1e-6);
    // Fewer images than features: the covariances are singular, and the roots of their rounding errors are about 1e-7.
    let batches = sides(&features(9, 20, 62, 1.0, 0.0), &features(9, 20, 63, 1.0, 0.0));
    let value = values(&metric, &batches).main().unwrap();
    close(value, goldens["fid few"].as_f64().unwrap(), 1e-5);
    let same = features(30, 6, 60, 1.0, 0.0);
    close(values(&metric, &sides(&same, &same)).main().unwrap(), 0.0, 1e-9);
}

#[test]
fn kernel_distance_agrees_with_torchmetrics() {
    let goldens = goldens("generated");
    let batches = sides(&features(24, 6, 60, 1.0, 0.0), &features(24, 6, 61, 1.5, 0.25));
    let metric = KernelInceptionDistance::new(Features::identity()).subsets(2, 24);
    let found = values(&metric, &batches);
    close(found.main().unwrap(), goldens["kid"].as_f64().unwrap(), 1e-6);
    close(found.get("kid_std").and_then(MetricValue::as_scalar).unwrap(), 0.0, 1e-12);
    let other = metric.kernel(2, Some(0.5), 0.25);
    close(values(&other, &batches).main().unwrap(), goldens["kid 2"].as_f64().unwrap(), 1e-6);
    let subsets = KernelInceptionDistance::new(Features::identity()).subsets(50, 10).seed(3);
    let found = values(&subsets, &batches);
    close(found.main().unwrap(), goldens["kid"].as_f64().unwrap(), 0.2);
    assert!(found.get("kid_std").and_then(MetricValue::as_scalar).unwrap() > 0.0);
}

#[test]
fn inception_score_agrees_with_numpy() {
    let goldens = goldens("generated");
    let logits = features(24, 6, 64, 4.0, 0.0);
    let batches: Vec<Observation> = sides(&logits, &logits);
    for (splits, name) in [(1, "inception"), (5, "inception 5")] {
        let found = values(&InceptionScore::new(Features::identity()).splits(splits), &batches);
        close(found.main().unwrap(), goldens[name][0].as_f64().unwrap(), 1e-6);
        let deviation = found.get("inception_score_std").and_then(MetricValue::as_scalar).unwrap();
        close(deviation, goldens[name][1].as_f64().unwrap(), 1e-6);
    }
}

#[test]
fn features_are_those_of_a_function_or_a_module() {
    let images = tensor(uniform(6 * 3 * 4 * 4, 5), &[6, 3, 4, 4]);
    let means = |x: AnyTensor| x.mean_dims([2, 3])?.reshape([6, 3]);
    let batch = [pair(images.clone(), images.clone().mul_scalar(0.5).unwrap())];
    let by_features = pair(means(images.clone()).unwrap(), means(images.mul_scalar(0.5).unwrap()).unwrap());
    let expected = update(FrechetInceptionDistance::new(Features::identity()), &[by_features]);
    let function = FrechetInceptionDistance::new(Features::function(means));
    close(update(function, &batch), expected, 1e-9);
    let module = (kiln_nn::AdaptiveAvgPool2dConfig::new([1, 1]).init(), kiln_nn::Flatten::new(1, 3));
    let module = FrechetInceptionDistance::new(Features::module::<Flex, _, 4>(module));
    close(update(module, &batch), expected, 1e-6);
    let error = InceptionScore::new(Features::identity()).update(&batch[0]).unwrap_err();
    assert!(error.to_string().contains("expected [batch, features]"), "{error}");
}

/// The parameters of a classifier, by name, with the shapes of torchvision.
fn classifier(network: Network) -> Vec<(String, Vec<usize>)> {
    let backbone = kiln_train::metric::Backbone::<Flex>::zeros(network, &Default::default());
    let parameters = kiln_nn::Module::named_parameters(&backbone);
    parameters.into_iter().map(|(name, parameter)| (name, parameter.value.shape().to_vec())).collect()
}

/// The weights of a parameter by name.
fn weights(name: &str, shape: &[usize]) -> Vec<f32> {
    let seed = name.bytes().zip(1..).map(|(byte, place)| place * u64::from(byte)).sum();
    let u = uniform(shape.iter().product(), seed);
    if name.starts_with("lin") || name.ends_with("alpha") || name.ends_with("beta") {
        return u;
    }
    if name.contains(".ln_") && name.ends_with(".weight") {
        return u.into_iter().map(|u| (f64::from(u) * 0.5 + 0.75) as f32).collect();
    }
    if name.contains("_scale.") || name == "adapter.k" {
        return u.into_iter().map(|u| (f64::from(u) * 0.5 + 0.5) as f32).collect();
    }
    let fans: usize = shape[1..].iter().product();
    let limit = if shape.len() == 1 { 0.05 } else { (6.0 / fans as f64).sqrt() };
    let scaled = |u: f32| match shape.len() {
        1 => ((f64::from(u) - 0.5) * 0.1) as f32,
        _ => ((f64::from(u) * 2.0 - 1.0) * limit) as f32,
    };
    u.into_iter().map(scaled).collect()
}

fn save(path: &Path, parameters: impl IntoIterator<Item = (String, Vec<usize>)>) {
    let data = parameters.into_iter().map(|(name, shape)| {
        let elements = weights(&name, &shape);
        let shape: kiln_tensor::Shape = shape.into_iter().collect();
        (name, TensorData::new(elements, shape).unwrap())
    });
    save_tensors(path, data, &BTreeMap::new()).unwrap();
}

fn heads(channels: &[usize]) -> Vec<(String, Vec<usize>)> {
    let head = |(place, &channels)| (format!("lin{place}.model.1.weight"), vec![1, channels, 1, 1]);
    channels.iter().enumerate().map(head).collect()
}

#[test]
fn lpips_agrees_with_torchmetrics() {
    let goldens = goldens("perceptual");
    let folder = tempfile::tempdir().unwrap();
    let batches = &image_pairs([2, 3, 64, 64], 0.5)[..2];
    let networks: [(Network, &str, &[usize]); 3] = [
        (Network::Alex, "lpips alex", &[64, 192, 384, 256, 256]),
        (Network::Vgg16, "lpips vgg", &[64, 128, 256, 512, 512]),
        (Network::Squeeze, "lpips squeeze", &[64, 128, 256, 384, 384, 512, 512]),
    ];
    for (network, name, channels) in networks {
        let path = folder.path().join(format!("{name}.safetensors"));
        // One file, with a tensor of the classifier that is not used.
        let unused = [("classifier.6.bias".to_owned(), vec![10])];
        save(&path, classifier(network).into_iter().chain(heads(channels)).chain(unused));
        let metric = Lpips::<Flex>::load(network, &path, &path, &Default::default()).unwrap().unit_range();
        let expected = goldens[name].as_f64().unwrap();
        close(values(&metric, batches).main().unwrap(), expected, 2e-5);
    }
}

#[test]
fn dists_agrees_with_torchmetrics() {
    let folder = tempfile::tempdir().unwrap();
    let [vgg, weights] = ["vgg16", "dists"].map(|name| folder.path().join(format!("{name}.safetensors")));
    save(&vgg, classifier(Network::Vgg16));
    save(&weights, ["alpha", "beta"].map(|name| (name.to_owned(), vec![1, 1475, 1, 1])));
    let metric = Dists::<Flex>::load(&vgg, &weights, &Default::default()).unwrap();
    let batches = &image_pairs([2, 3, 64, 64], 0.5)[..2];
    let expected = goldens("perceptual")["dists"].as_f64().unwrap();
    close(values(&metric, batches).main().unwrap(), expected, 2e-5);
}

/// The encoder of A-FINE in the goldens.
fn small_encoder() -> ClipVisionConfig {
    ClipVisionConfig::new().with_width(128).with_layers(2).with_patch(8).with_positions(10)
}

/// The parameters of A-FINE, by name, with the shapes and names of the paper's checkpoint.
fn afine_parameters() -> Vec<(String, Vec<usize>)> {
    let net = AfineNet::<Flex>::zeros(&small_encoder(), &Default::default());
    let in_file = |name: &str| match name.strip_prefix("heads.") {
        Some(head) => head.to_owned(),
        None => format!("finetuned_clip.{name}"),
    };
    let parameters = kiln_nn::Module::named_parameters(&net);
    parameters.into_iter().map(|(name, x)| (in_file(&name), x.value.shape().to_vec())).collect()
}

#[test]
fn afine_agrees_with_pytorch() {
    let goldens = goldens("afine");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("afine.safetensors");
    let unused = ["finetuned_clip.visual.proj", "finetuned_clip.token_embedding.weight"];
    let unused = unused.map(|name| (name.to_owned(), vec![4, 2]));
    save(&path, afine_parameters().into_iter().chain(unused));
    let net = AfineNet::<Flex>::load_with(&small_encoder(), &path, &path, &Default::default()).unwrap();
    let metric = Afine::new(net);
    let plain = image_pairs([2, 3, 24, 24], 0.5)[..2].to_vec();
    let targets = |observation: &Observation| observation.tensor(TARGETS).unwrap();
    let equal: Vec<Observation> = plain.iter().map(|both| pair(targets(both), targets(both))).collect();
    let resized = image_pairs([2, 3, 37, 30], 0.5)[..2].to_vec();
    for (name, batches) in [("plain", plain), ("resized", resized), ("equal", equal)] {
        let found = values(&metric, &batches);
        let check = |found: f64, expected: &Value| {
            let expected = expected.as_f64().unwrap();
            close(found, expected, expected.abs() * 1e-4);
        };
        check(found.main().unwrap(), &goldens[name]["score"]);
        let unscaled = found.get("afine_unscaled").and_then(MetricValue::as_scalar).unwrap();
        check(unscaled, &goldens[name]["unscaled"]);
    }
}

#[test]
fn afine_refuses_other_shapes_and_missing_weights() {
    let device = Default::default();
    let mut metric = Afine::new(AfineNet::<Flex>::zeros(&small_encoder(), &device));
    let images = |shape: &[usize]| tensor(uniform(shape.iter().product(), 1), shape);
    let grey = metric.update(&pair(images(&[2, 1, 24, 24]), images(&[2, 1, 24, 24])));
    assert!(matches!(grey, Err(MetricError::Input { name: PREDICTIONS, .. })), "{grey:?}");
    let differ = metric.update(&pair(images(&[2, 3, 24, 24]), images(&[2, 3, 24, 32])));
    assert!(matches!(differ, Err(MetricError::Input { .. })), "{differ:?}");
    let folder = tempfile::tempdir().unwrap();
    let [encoder, heads] = ["clip", "heads"].map(|name| folder.path().join(format!("{name}.safetensors")));
    // Two files, the encoder with OpenAI's names.
    let (visual, own): (Vec<_>, Vec<_>) =
        afine_parameters().into_iter().partition(|(name, _)| name.starts_with("finetuned_clip."));
    let openai = visual.into_iter().map(|(name, shape)| (name["finetuned_clip.".len()..].to_owned(), shape));
    let openai: Vec<_> = openai.collect();
    let load = || AfineNet::<Flex>::load_with(&small_encoder(), &encoder, &heads, &device);
    save(&encoder, openai.clone());
    for missing in ["natural.proj_head.2.bias", "fidelity.alpha", "adapter.k", "fidelity_scale.yita4"] {
        save(&heads, own.iter().filter(|(name, _)| name != missing).cloned());
        let error = load().unwrap_err().to_string();
        assert!(error.contains(missing), "{error}");
    }
    save(&heads, own);
    load().unwrap();
    let missing = "visual.transformer.resblocks.1.attn.in_proj_bias";
    save(&encoder, openai.into_iter().filter(|(name, _)| name != missing));
    let error = load().unwrap_err().to_string();
    assert!(error.contains(missing), "{error}");
}

#[test]
fn names_of_parameters_are_those_of_torchvision() {
    let names = |network| classifier(network).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(Network::Alex)[..3], ["features.0.weight", "features.0.bias", "features.3.weight"]);
    assert_eq!(names(Network::Vgg16).len(), 26);
    assert!(names(Network::Vgg16).contains(&"features.28.bias".to_owned()));
    assert!(names(Network::Squeeze).contains(&"features.12.expand3x3.weight".to_owned()));
}

#[test]
fn missing_weights_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alex.safetensors");
    let mut parameters = classifier(Network::Alex);
    parameters.retain(|(name, _)| name != "features.6.bias");
    save(&path, parameters.clone().into_iter().chain(heads(&[64, 192, 384, 256])));
    let load =
        || Lpips::<Flex>::load(Network::Alex, &path, &path, &Default::default()).unwrap_err().to_string();
    assert!(load().contains("lin4.model.1.weight"), "{}", load());
    save(&path, parameters.into_iter().chain(heads(&[64, 192, 384, 256, 256])));
    assert!(load().contains("features.6.bias"), "{}", load());
}

#[test]
fn features_that_are_not_numbers_have_no_distance() {
    let numbers = features(8, 3, 1, 1.0, 0.0);
    let nan = numbers.clone().mul_scalar(f64::NAN).unwrap();
    assert!(update(FrechetInceptionDistance::new(Features::identity()), &[pair(nan, numbers)]).is_nan());
}
