//! The RNN transducer loss against the sum over all alignments, one by one.

use crate::golden::B;
use crate::losses::{F64, close, ints, spread, wide};
use kiln_backends::Flex;
use kiln_nn::loss::{Reduction, RnntLoss, RnntLossConfig};
use kiln_tensor::transform::{GradcheckOptions, gradcheck};
use kiln_tensor::{Tensor, activation};

fn log_softmax(scores: &[f64]) -> F64 {
    let sum: f64 = scores.iter().map(|x| x.exp()).sum();
    scores.iter().map(|x| x - sum.ln()).collect()
}

/// One example: the log-probabilities `[time][position][class]` of its lattice, its labels and the blank.
struct Lattice<'a> {
    log: Vec<Vec<F64>>,
    labels: &'a [i32],
    blank: usize,
}

impl Lattice<'_> {
    /// Sums the probabilities of all alignments from a cell on, one by one.
    fn paths(&self, time: usize, position: usize, so_far: f64) -> f64 {
        let here = &self.log[time][position];
        let waited = so_far + here[self.blank];
        let (last_time, last) = (time + 1 == self.log.len(), position == self.labels.len());
        let wait = match (last_time, last) {
            (true, true) => waited.exp(),
            (true, false) => 0.0,
            (false, _) => self.paths(time + 1, position, waited),
        };
        let emit = if last {
            0.0
        } else {
            self.paths(time, position + 1, so_far + here[self.labels[position] as usize])
        };
        wait + emit
    }
}

const TIME: usize = 4;
const LABELS: usize = 3;
const CLASSES: usize = 4;
/// `(time steps, labels)` of each example.
const LENGTHS: [(usize, usize); 6] = [(4, 3), (4, 0), (1, 3), (2, 2), (3, 1), (1, 0)];

fn expected_rnnt(scores: &[f64], targets: &[[i32; LABELS]], blank: usize) -> F64 {
    let cell = |example: usize, time: usize, position: usize| {
        let start = ((example * TIME + time) * (LABELS + 1) + position) * CLASSES;
        log_softmax(&scores[start..start + CLASSES])
    };
    let loss = |(example, &(time, labels)): (usize, &(usize, usize))| {
        let row = |t| (0..=labels).map(|u| cell(example, t, u)).collect();
        let lattice =
            Lattice { log: (0..time).map(row).collect(), labels: &targets[example][..labels], blank };
        -lattice.paths(0, 0, 0.0).ln()
    };
    LENGTHS.iter().enumerate().map(loss).collect()
}

fn lengths(of: impl Fn(&(usize, usize)) -> usize) -> Vec<i32> {
    LENGTHS.iter().map(|pair| of(pair) as i32).collect()
}

#[test]
fn rnnt_is_the_sum_over_all_alignments() {
    let shape = [LENGTHS.len(), TIME, LABELS + 1, CLASSES];
    let scores = spread(shape.iter().product());
    for (blank, targets) in [(0, [1, 2, 3]), (3, [0, 2, 0]), (1, [3, 3, 3])] {
        let mut rows = [targets; LENGTHS.len()];
        for (example, row) in rows.iter_mut().enumerate() {
            row.rotate_left(example % LABELS);
        }
        let expected = expected_rnnt(&scores, &rows, blank);
        // Padding may be any number.
        for (row, &(_, labels)) in rows.iter_mut().zip(&LENGTHS) {
            row[labels..].fill(-7);
        }
        let (times, labels) = (ints(lengths(|pair| pair.0)), ints(lengths(|pair| pair.1)));
        let logits = wide(scores.clone(), shape);
        let loss = |logits: bool| RnntLossConfig::new().with_blank(blank as i64).with_logits(logits).init();
        let found = loss(true).forward(logits.clone(), ints(rows), times.clone(), labels.clone());
        close(&found.into_data().to_vec::<f64>(), &expected);
        let log = activation::log_softmax(logits.clone(), 3);
        let found = loss(false).forward(log, ints(rows), times.clone(), labels.clone());
        close(&found.into_data().to_vec::<f64>(), &expected);
        let from_end = RnntLoss { blank: blank as i64 - CLASSES as i64, logits: true };
        let found = from_end.forward_with_reduction(logits, ints(rows), times, labels, Reduction::Mean);
        let mean = expected.iter().sum::<f64>() / expected.len() as f64;
        close(&found.into_data().to_vec::<f64>(), &[mean]);
    }
}

#[test]
fn rnnt_gradients_match_differences() {
    let shape = [LENGTHS.len(), TIME, LABELS + 1, CLASSES];
    let logits = wide(spread(shape.iter().product()), shape);
    let rows = [[0, 2, 1]; LENGTHS.len()];
    let loss = |x: Tensor<B, 4>| {
        let (times, labels) = (ints(lengths(|pair| pair.0)), ints(lengths(|pair| pair.1)));
        RnntLoss::default().forward(x, ints(rows), times, labels)
    };
    gradcheck(loss, logits, GradcheckOptions::default()).unwrap();
}

#[test]
fn rnnt_of_impossible_targets_is_infinite() {
    // The label has probability 0 everywhere.
    let log = Tensor::<B, 4>::from([[[[f32::NEG_INFINITY, 0.0], [f32::NEG_INFINITY, 0.0]]]]).require_grad();
    let one = || ints::<B, 1>([1]);
    let loss = RnntLossConfig::new().with_logits(false).init();
    let y = loss.forward(log.clone(), ints([[0]]), one(), one());
    assert_eq!(y.to_data().to_vec::<f32>(), [f32::INFINITY]);
    let gradient = log.grad(&y.backward()).unwrap().into_data().to_vec::<f32>();
    assert!(gradient.iter().all(|x| x.is_finite()), "{gradient:?}");
}

#[test]
fn rnnt_of_invalid_data_is_an_error() {
    let loss = |class: i32, time: i32, labels: i32| {
        let logits = Tensor::<Flex, 4>::zeros([1, 2, 2, 3], &Default::default());
        let y = RnntLoss::default().forward(logits, ints([[class]]), ints([time]), ints([labels]));
        y.try_into_data().map(|data| data.to_vec::<f32>()[0])
    };
    assert!(loss(0, 2, 1).is_ok());
    for (class, time, labels) in [(3, 2, 1), (-1, 2, 1), (0, 0, 1), (0, 3, 1), (0, 2, 2), (0, 2, -1)] {
        let y = loss(class, time, labels);
        assert!(y.is_err(), "class {class}, {time} time steps, {labels} labels: {y:?}");
    }
}
