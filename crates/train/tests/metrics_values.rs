//! Metrics against torchmetrics and scikit-learn (`goldens/metrics.py`), their state, and refused inputs.

use std::collections::BTreeMap;

use kiln_backends::Flex;
use kiln_tensor::{AnyTensor, Int, Tensor};
use kiln_train::metric::*;
use kiln_train::{LOGITS, Metric, MetricError, MetricValue, Observation, PREDICTIONS, TARGETS};
use serde_json::Value;

type Rows = Vec<(String, Box<dyn Metric>)>;

const MULTICLASS_3: Task = Task::Multiclass { classes: 3 };

/// A metric for each case of `goldens/metrics.json`.
fn rows() -> Rows {
    let mut rows = Rows::new();
    count_rows(&mut rows);
    binary_rows(&mut rows);
    multiclass_rows(&mut rows);
    multilabel_rows(&mut rows);
    regression_rows(&mut rows);
    ranking_rows(&mut rows);
    text_rows(&mut rows);
    rows
}

fn row(rows: &mut Rows, name: impl Into<String>, metric: impl Metric + 'static) {
    rows.push((name.into(), Box::new(metric)));
}

fn averages(task: Task) -> Vec<(&'static str, Average)> {
    match task {
        Task::Binary => vec![("", Average::Macro)],
        Task::Multiclass { .. } | Task::Multilabel { .. } => vec![
            ("_macro", Average::Macro),
            ("_micro", Average::Micro),
            ("_weighted", Average::Weighted),
            ("_none", Average::None),
        ],
    }
}

fn count_rows(rows: &mut Rows) {
    let sources = [
        ("binary", Task::Binary, None),
        ("binary_ignored", Task::Binary, Some(-1)),
        ("multiclass", Task::Multiclass { classes: 4 }, None),
        ("multiclass_ignored", MULTICLASS_3, Some(-100)),
        ("multiclass_labels", Task::Multiclass { classes: 5 }, Some(1)),
        ("multiclass_pixels", MULTICLASS_3, None),
        ("multilabel", Task::Multilabel { labels: 3 }, Some(-1)),
    ];
    for (source, task, ignored) in sources {
        macro_rules! scores {
            ($($name:literal $metric:expr;)*) => {$(
                for (suffix, average) in averages(task) {
                    let metric = $metric.average(average);
                    let metric = if let Some(index) = ignored { metric.ignore_index(index) } else { metric };
                    row(rows, format!("{source}_{}{suffix}", $name), metric);
                }
            )*};
        }
        scores! {
            "precision" Precision::new(task);
            "recall" Recall::new(task);
            "f1" F1Score::new(task);
            "f2" FBetaScore::new(task, 2.0);
            "specificity" Specificity::new(task);
            "npv" NegativePredictiveValue::new(task);
            "hamming_distance" HammingDistance::new(task);
            "jaccard" JaccardIndex::new(task);
        }
        let mcc = match task {
            Task::Binary => MatthewsCorrelationCoefficient::binary(),
            Task::Multiclass { classes } => MatthewsCorrelationCoefficient::multiclass(classes),
            Task::Multilabel { labels } => MatthewsCorrelationCoefficient::multilabel(labels),
        };
        row(rows, format!("{source}_mcc"), mcc.ignore_index(ignored.unwrap_or(-7)));
    }
}

const NORMS: [(&str, CalibrationNorm); 3] =
    [("l1", CalibrationNorm::L1), ("l2", CalibrationNorm::L2), ("max", CalibrationNorm::Max)];

fn binary_rows(rows: &mut Rows) {
    row(rows, "binary_threshold", Precision::binary().threshold(0.25));
    row(rows, "binary_kappa", CohenKappa::binary());
    row(rows, "binary_matrix", ConfusionMatrix::binary());
    row(rows, "binary_auroc", Auroc::binary());
    row(rows, "binary_auroc_partial", Auroc::binary().max_false_positive_rate(0.3));
    row(rows, "binary_ap", AucPr::binary());
    for (norm, value) in NORMS {
        row(rows, format!("binary_calibration_{norm}"), CalibrationError::binary().bins(5).norm(value));
    }
    row(rows, "binary_brier", BrierScore::binary());
    row(rows, "binary_ignored_auroc", Auroc::binary().ignore_index(-1));
    row(rows, "binary_ignored_ap", AveragePrecision::binary().ignore_index(-1));
}

fn multiclass_rows(rows: &mut Rows) {
    for k in [2, 3] {
        for (suffix, average) in [("macro", Average::Macro), ("micro", Average::Micro)] {
            let metric = Precision::multiclass(4).top_k(k).average(average);
            row(rows, format!("multiclass_precision_top{k}_{suffix}"), metric);
            let metric = Recall::multiclass(4).top_k(k).average(average);
            row(rows, format!("multiclass_recall_top{k}_{suffix}"), metric);
        }
    }
    row(rows, "multiclass_stat_scores", StatScores::new(Task::Multiclass { classes: 4 }));
    let weights = [
        ("none", KappaWeights::None),
        ("linear", KappaWeights::Linear),
        ("quadratic", KappaWeights::Quadratic),
    ];
    for (name, weights) in weights {
        row(rows, format!("multiclass_kappa_{name}"), CohenKappa::multiclass(4).weights(weights));
    }
    let normalizations = [
        ("none", Normalization::None),
        ("true", Normalization::Targets),
        ("pred", Normalization::Predictions),
        ("all", Normalization::All),
    ];
    for (name, normalization) in normalizations {
        let metric = ConfusionMatrix::multiclass(4).normalized(normalization);
        row(rows, format!("multiclass_matrix_{name}"), metric);
    }
    for (norm, value) in NORMS {
        let metric = CalibrationError::multiclass(4).bins(6).norm(value);
        row(rows, format!("multiclass_calibration_{norm}"), metric);
    }
    row(rows, "multiclass_brier", BrierScore::multiclass(4));
    for (suffix, average) in averages(MULTICLASS_3) {
        let metric = Auroc::multiclass(3).average(average).ignore_index(-100);
        row(rows, format!("multiclass_ignored_auroc{suffix}"), metric);
        if average != Average::Micro {
            let metric = AveragePrecision::multiclass(3).average(average).ignore_index(-100);
            row(rows, format!("multiclass_ignored_ap{suffix}"), metric);
        }
    }
}

fn multilabel_rows(rows: &mut Rows) {
    for (suffix, average) in averages(MULTICLASS_3) {
        let auroc = Auroc::multilabel(3).average(average).ignore_index(-1);
        row(rows, format!("multilabel_auroc{suffix}"), auroc);
        let precision = AveragePrecision::multilabel(3).average(average).ignore_index(-1);
        row(rows, format!("multilabel_ap{suffix}"), precision);
    }
    row(rows, "multilabel_exact_match", ExactMatch::multilabel(3));
}

fn regression_rows(rows: &mut Rows) {
    row(rows, "mse", MeanSquaredError::new());
    row(rows, "rmse", RootMeanSquaredError::new());
    row(rows, "mae", MeanAbsoluteError::new());
    row(rows, "mape", MeanAbsolutePercentageError::new());
    row(rows, "smape", SymmetricMeanAbsolutePercentageError::new());
    row(rows, "wmape", WeightedMeanAbsolutePercentageError::new());
    row(rows, "msle", MeanSquaredLogError::new());
    row(rows, "log_cosh", LogCoshError::new());
    for source in ["regression", "regression_far"] {
        row(rows, format!("{source}_r2"), R2Score::new());
        row(rows, format!("{source}_r2_adjusted"), R2Score::new().adjusted(3));
        row(rows, format!("{source}_explained"), ExplainedVariance::new());
        row(rows, format!("{source}_pearson"), PearsonCorrelation::new());
        row(rows, format!("{source}_concordance"), ConcordanceCorrelation::new());
        row(rows, format!("{source}_spearman"), SpearmanCorrelation::new());
    }
    let averages = [
        ("uniform_average", OutputAverage::Uniform),
        ("raw_values", OutputAverage::None),
        ("variance_weighted", OutputAverage::VarianceWeighted),
    ];
    for (name, average) in averages {
        row(rows, format!("outputs_r2_{name}"), R2Score::new().average(average));
        row(rows, format!("outputs_explained_{name}"), ExplainedVariance::new().average(average));
    }
    row(rows, "outputs_pearson", PearsonCorrelation::new().average(OutputAverage::None));
    row(rows, "outputs_cosine", CosineSimilarity::new());
    row(rows, "ties_spearman", SpearmanCorrelation::new());
}

fn ranking_rows(rows: &mut Rows) {
    for source in ["ranking", "ranking_queries"] {
        row(rows, format!("{source}_mrr"), MeanReciprocalRank::new());
        row(rows, format!("{source}_mrr2"), MeanReciprocalRank::at(2));
        row(rows, format!("{source}_hit2"), HitRate::at(2));
        row(rows, format!("{source}_recall2"), RecallAtK::at(2));
        row(rows, format!("{source}_precision2"), PrecisionAtK::at(2));
        row(rows, format!("{source}_map"), RetrievalAveragePrecision::new());
        row(rows, format!("{source}_map3"), RetrievalAveragePrecision::at(3));
        row(rows, format!("{source}_r_precision"), RPrecision::new());
    }
    row(rows, "ndcg", Ndcg::new());
    row(rows, "ndcg3", Ndcg::at(3));
    row(rows, "ndcg_exponential", Ndcg::new().exponential_gain());
}

fn text_rows(rows: &mut Rows) {
    row(rows, "cer", CharErrorRate::new());
    row(rows, "wer", WordErrorRate::new());
    row(rows, "mer", MatchErrorRate::new());
    row(rows, "wip", WordInformationPreserved::new());
    row(rows, "wil", WordInformationLost::new());
    row(rows, "edit", EditDistance::new());
    row(rows, "bleu", Bleu::new());
    row(rows, "bleu2", Bleu::new().longest_ngram(2));
    row(rows, "bleu_smooth", Bleu::new().smooth());
    row(rows, "bleu_references", Bleu::new().references(&[TARGETS, "more"]));
    row(rows, "chrf", ChrF::new());
    row(rows, "chrf++", ChrF::new().words(2));
    row(rows, "rouge1", RougeN::new(1));
    row(rows, "rouge2", RougeN::new(2));
    row(rows, "rougeL", RougeL::new());
    row(rows, "rougeL_references", RougeL::new().references(&[TARGETS, "more"]));
    row(rows, "rougeLsum", RougeLSum::new());
    row(rows, "perplexity", Perplexity::new().ignore_index(-100));
}

/// The file with batches and expected values.
struct Goldens(Value);

impl Goldens {
    fn read() -> Goldens {
        Goldens(serde_json::from_str(include_str!("goldens/metrics.json")).unwrap())
    }

    fn expected(&self, case: &str) -> Vec<f64> {
        let numbers =
            self.0["cases"][case]["expected"].as_array().unwrap_or_else(|| panic!("no case {case}"));
        numbers.iter().map(|number| number.as_f64().unwrap()).collect()
    }

    fn batches(&self, case: &str) -> Vec<Observation> {
        let source = self.0["cases"][case]["inputs"].as_str().unwrap();
        self.0["inputs"][source].as_array().unwrap().iter().map(observation).collect()
    }
}

fn observation(batch: &Value) -> Observation {
    let mut observation = Observation::new(1);
    for (name, value) in batch.as_object().unwrap() {
        let name = match name.as_str() {
            "logits" => LOGITS,
            "predictions" => PREDICTIONS,
            "targets" => TARGETS,
            "queries" => QUERIES,
            "more" => "more",
            other => panic!("unknown input {other}"),
        };
        if let Some(texts) = value.as_array() {
            let texts = texts.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
            observation = observation.with_texts(name, texts);
            continue;
        }
        let numbers = |key: &str| value[key].as_array().cloned().unwrap_or_default();
        let shape: Vec<usize> = numbers("shape").iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let tensor = if value["floats"].is_array() {
            floats(&numbers("floats").iter().map(|n| n.as_f64().unwrap() as f32).collect::<Vec<_>>())
        } else {
            ints(&numbers("ints").iter().map(|n| n.as_i64().unwrap() as i32).collect::<Vec<_>>())
        };
        observation = observation.with(name, tensor.reshape(shape.as_slice()).unwrap());
    }
    observation
}

fn floats(numbers: &[f32]) -> AnyTensor {
    Tensor::<Flex, 1>::from_floats(numbers, &Default::default()).into_any()
}

fn ints(numbers: &[i32]) -> AnyTensor {
    Tensor::<Flex, 1, Int>::from_ints(numbers, &Default::default()).into_any()
}

fn shaped(tensor: AnyTensor, shape: &[usize]) -> AnyTensor {
    tensor.reshape(shape).unwrap()
}

/// The numbers of the main value.
fn numbers(metric: &mut dyn Metric) -> Vec<f64> {
    let values = metric.values().unwrap();
    match values.iter().next().unwrap().1 {
        MetricValue::Scalar(number) => vec![*number],
        MetricValue::PerClass(numbers) | MetricValue::Matrix { elements: numbers, .. } => numbers.clone(),
        other @ (MetricValue::Histogram { .. } | MetricValue::Image { .. } | MetricValue::Text(_)) => {
            panic!("{other:?}")
        }
    }
}

fn after(metric: &dyn Metric, batches: &[Observation]) -> Box<dyn Metric> {
    let mut metric = metric.fresh();
    batches.iter().for_each(|batch| metric.update(batch).unwrap());
    metric
}

/// All values, with every bit.
fn bits(metric: &mut dyn Metric) -> String {
    format!("{:?}", metric.values().unwrap())
}

#[test]
fn values_are_those_of_torchmetrics_and_scikit_learn() {
    let (goldens, mut wrong) = (Goldens::read(), Vec::new());
    for (case, metric) in rows() {
        let expected = goldens.expected(&case);
        let found = numbers(&mut *after(&*metric, &goldens.batches(&case)));
        let is_near =
            |(found, expected): (&f64, &f64)| (found - expected).abs() <= 2e-6 * (1.0 + expected.abs());
        if found.len() != expected.len() || !found.iter().zip(&expected).all(is_near) {
            wrong.push(format!("{case}: {found:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_golden_has_a_row() {
    let rows: BTreeMap<String, Box<dyn Metric>> = rows().into_iter().collect();
    let goldens = Goldens::read();
    let cases: Vec<&String> = goldens.0["cases"].as_object().unwrap().keys().collect();
    assert_eq!(rows.keys().collect::<std::collections::BTreeSet<_>>(), cases.into_iter().collect());
}

/// The rows of the goldens, and metrics without one.
fn all_rows() -> Vec<(Box<dyn Metric>, Vec<Observation>)> {
    let goldens = Goldens::read();
    let mut more = Rows::new();
    row(&mut more, "binary", RocCurve::binary());
    row(&mut more, "multiclass_ignored_mcc", PrecisionRecallCurve::multiclass(3).ignore_index(-100));
    row(&mut more, "multilabel_exact_match", HammingScore::multilabel(3));
    row(&mut more, "multilabel_exact_match", BrierScore::multilabel(3));
    row(&mut more, "multilabel_exact_match", ConfusionMatrix::multilabel(3));
    row(&mut more, "mse", MeanMetric::new(PREDICTIONS));
    let rows = rows().into_iter().chain(more).map(|(case, metric)| {
        let batches = goldens.batches(if case == "binary" { "binary_auroc" } else { &case });
        (metric, batches)
    });
    let losses = [0.5, 0.25, 4.0].map(|loss| Observation::new(3).with_loss(floats(&[loss])));
    rows.chain([(Box::new(LossMetric::new()) as Box<dyn Metric>, losses.to_vec())]).collect()
}

#[test]
fn a_loaded_state_continues_bit_for_bit() {
    for (metric, batches) in all_rows() {
        let expected = bits(&mut *after(&*metric, &batches));
        let mut first = after(&*metric, &batches[..1]);
        let mut second = metric.fresh();
        second.load_state(&first.state().unwrap()).unwrap();
        batches[1..].iter().for_each(|batch| second.update(batch).unwrap());
        assert_eq!(bits(&mut *second), expected);
        // Reading values and states in between changes nothing.
        first.values().unwrap();
        batches[1..].iter().for_each(|batch| first.update(batch).unwrap());
        assert_eq!(bits(&mut *first), expected);
    }
}

#[test]
fn merged_states_have_the_values_of_all_batches() {
    for (metric, batches) in all_rows() {
        let (last, before) = batches.split_last().unwrap();
        let mut merged = after(&*metric, before);
        merged.merge(&after(&*metric, std::slice::from_ref(last)).state().unwrap()).unwrap();
        assert_eq!(bits(&mut *merged), bits(&mut *after(&*metric, &batches)));
        let foreign = MetricState::new().with("other", vec![1.0]);
        assert!(merged.merge(&foreign).is_err() && merged.load_state(&foreign).is_err());
    }
}

#[test]
fn fresh_and_reset_metrics_are_nan() {
    for (metric, batches) in all_rows() {
        let mut used = after(&*metric, &batches);
        let (fresh, before) = (bits(&mut *used.fresh()), bits(&mut *used));
        assert_ne!(fresh, before);
        assert_eq!(bits(&mut *used), before);
        let main = used.fresh().values().unwrap().main();
        assert!(main.is_none_or(f64::is_nan), "{} is {main:?}", used.name());
        used.reset();
        assert_eq!(bits(&mut *used), fresh);
    }
}

/// The message of the error of adding a batch, or of the values.
fn refusal(mut metric: impl Metric, batch: &Observation) -> String {
    let added: Result<(), MetricError> = metric.update(batch);
    added.and_then(|()| metric.values()).unwrap_err().to_string()
}

#[test]
fn wrong_inputs_are_errors_that_name_the_input() {
    let empty = Observation::new(2);
    assert!(refusal(Recall::binary(), &empty).contains("`logits`"));
    assert!(refusal(MeanSquaredError::new(), &empty).contains("`predictions`"));
    assert!(refusal(LossMetric::new(), &empty).contains("`loss`"));

    let logits = shaped(floats(&[0.5; 6]), &[2, 3]);
    let batch = empty.clone().with(LOGITS, logits.clone()).with(TARGETS, ints(&[0, 3]));
    let message = refusal(F1Score::multiclass(4), &batch);
    assert!(message.contains("`logits` has shape [2, 3], expected [2, 4] for 4 classes"), "{message}");
    let message = refusal(F1Score::multiclass(3).ignore_index(-1), &batch);
    assert!(
        message.contains("`targets` has 1 labels out of range, expected 0 to 2 or the ignored -1"),
        "{message}"
    );
    for message in [
        refusal(Auroc::multiclass(3), &batch),
        refusal(CalibrationError::multiclass(3), &batch),
        refusal(BrierScore::multiclass(3), &batch),
        refusal(ConfusionMatrix::multiclass(3), &batch),
        refusal(Perplexity::new(), &batch),
    ] {
        assert!(message.contains("out of range, expected 0 to 2"), "{message}");
    }
    let message = refusal(Precision::multilabel(3), &batch);
    assert!(message.contains("`targets` has shape [2], expected [batch, 3, ..]"), "{message}");

    let labels = empty.clone().with(PREDICTIONS, ints(&[0, 7])).with(TARGETS, ints(&[0, 1]));
    assert!(refusal(Recall::multiclass(3), &labels).contains("`predictions` has 1 labels out of range"));
    assert!(refusal(Auroc::multiclass(3), &labels).contains("expected probabilities"));
    let float_targets = empty.clone().with(LOGITS, logits).with(TARGETS, floats(&[0.0, 1.0]));
    assert!(refusal(Recall::multiclass(3), &float_targets).contains("expected class indices"));
    let soft = empty.clone().with(LOGITS, floats(&[0.0, 1.0])).with(TARGETS, floats(&[0.0, 0.9]));
    assert!(refusal(Recall::binary(), &soft).contains("`targets` has 1 labels out of range"));
    let nan = empty.clone().with(LOGITS, floats(&[f32::NAN, 1.0])).with(TARGETS, ints(&[0, 1]));
    assert!(refusal(Auroc::binary(), &nan).contains("contains NaN"));
}

#[test]
fn wrong_shapes_of_other_metrics_are_errors() {
    let batch = Observation::new(2).with(PREDICTIONS, floats(&[1.0, 2.0])).with(TARGETS, floats(&[1.0]));
    let message = refusal(MeanAbsoluteError::new(), &batch);
    assert!(message.contains("`predictions` has shape [2], expected that of `targets`, [1]"), "{message}");
    let batch = batch.with(TARGETS, floats(&[1.0, 0.0]));
    assert!(refusal(MeanReciprocalRank::new(), &batch).contains("[queries, documents], or `queries`"));
    assert!(refusal(CosineSimilarity::new(), &batch).contains("[batch, features]"));
    let texts = |count: usize| vec![String::from("a"); count];
    let batch = Observation::new(2).with_texts(PREDICTIONS, texts(2)).with_texts(TARGETS, texts(1));
    assert!(refusal(Bleu::new(), &batch).contains("`targets` has 1 texts, expected 2, as `predictions`"));
}

#[test]
fn two_logits_are_a_binary_task() {
    let targets = ints(&[1, 0, 1]);
    let two = shaped(floats(&[0.5, 1.0, 0.25, -1.0, 2.0, 1.5]), &[3, 2]);
    let columns = Observation::new(3).with(LOGITS, two).with(TARGETS, targets.clone());
    let one = Observation::new(3).with(LOGITS, floats(&[0.5, -1.25, -0.5])).with(TARGETS, targets);
    let metrics: [Box<dyn Metric>; 3] =
        [Box::new(F1Score::binary()), Box::new(Auroc::binary()), Box::new(BrierScore::binary())];
    for metric in metrics {
        let of = |batch: &Observation| numbers(&mut *after(&*metric, std::slice::from_ref(batch)));
        assert_eq!(of(&columns), of(&one));
    }
}

#[test]
fn classes_without_positive_items_are_left_out_of_averages() {
    let logits = shaped(floats(&[2.0, 1.0, 0.0, 0.0, 1.0, 2.0, 1.0, 2.0, 0.5]), &[3, 3]);
    let batch = [Observation::new(3).with(LOGITS, logits).with(TARGETS, ints(&[0, 1, 1]))];
    let areas = numbers(&mut *after(&Auroc::multiclass(3).average(Average::None), &batch));
    assert!(areas[2].is_nan());
    let mean = numbers(&mut *after(&Auroc::multiclass(3), &batch));
    assert_eq!(mean, [(areas[0] + areas[1]) / 2.0]);
}

#[test]
fn a_calibration_error_has_a_histogram_and_a_reliability_diagram() {
    let predictions = floats(&[0.25, 0.25, 0.75, 1.0]);
    let batch = [Observation::new(4).with(PREDICTIONS, predictions).with(TARGETS, ints(&[0, 1, 1, 1]))];
    let values = after(&CalibrationError::binary().bins(2), &batch).values().unwrap();
    assert_eq!(values.main(), Some(0.1875));
    let histogram = MetricValue::Histogram { edges: vec![0.0, 0.5, 1.0], counts: vec![2.0, 2.0] };
    assert_eq!(values.get("calibration error confidence"), Some(&histogram));
    let elements = vec![0.25, 0.5, 0.5, 0.875, 1.0, 0.5];
    let matrix = MetricValue::Matrix { rows: 2, columns: 3, elements };
    assert_eq!(values.get("calibration error reliability"), Some(&matrix));
}

#[test]
fn queries_without_relevant_documents_have_an_option() {
    let scores = shaped(floats(&[0.5, 0.25, 0.5, 0.25]), &[2, 2]);
    let targets = shaped(ints(&[0, 1, 0, 0]), &[2, 2]);
    let batch = [Observation::new(2).with(PREDICTIONS, scores).with(TARGETS, targets)];
    for (empty, expected) in
        [(EmptyQueries::Zero, 0.25), (EmptyQueries::One, 0.75), (EmptyQueries::Skip, 0.5)]
    {
        let metric = MeanReciprocalRank::new().empty_queries(empty);
        assert_eq!(numbers(&mut *after(&metric, &batch)), [expected]);
    }
}
