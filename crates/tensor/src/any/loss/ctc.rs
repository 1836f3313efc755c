//! Connectionist temporal classification ([Graves et al. 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)): the
//! probability of a sequence of labels, summed over all its alignments with time by dynamic programming in logarithms.

use super::Reduction;
use crate::any::formula::constant;
use crate::{AnyTensor, Result, TensorData};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, DType, PadAxis, SliceAxis, TensorType, Var};

/// The options of [`ctc`](crate::loss::ctc): the blank class and the handling of impossible targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtcOptions {
    /// The blank class, which stands for no label. Default: 0.
    pub blank: usize,
    /// Whether the loss of a target without alignment, because it is too long, is 0 rather than infinite; the gradient
    /// is 0 either way. Default: no.
    pub zero_infinity: bool,
    /// The reduction of the losses. The mean divides each loss by the length of its target (at least 1) first, as in
    /// PyTorch. Default: the mean.
    pub reduction: Reduction,
}

/// The log-probability of impossible events: finite, so that differences of two of them are numbers; far below any sum.
pub(super) const IMPOSSIBLE: f64 = -1e30;

impl AnyTensor {
    /// Computes the CTC loss of targets, given log-probabilities `[time, batch, classes]`. Targets are
    /// `[batch, length]`, where elements beyond an example's length are ignored, or concatenated, `[sum of lengths]`;
    /// both kinds of lengths are `[batch]`. See [`loss::ctc`](crate::loss::ctc).
    ///
    /// Concatenated targets wait for the device, to read their lengths.
    ///
    /// # Errors
    /// When a tensor is not of these shapes, the log-probabilities are not floats, targets or lengths are not integers,
    /// or the blank is not a class. When the lengths of concatenated targets do not add up to the number of labels, or
    /// their computation failed.
    pub fn ctc_loss(
        self,
        targets: AnyTensor,
        input_lengths: AnyTensor,
        target_lengths: AnyTensor,
        options: CtcOptions,
    ) -> Result<AnyTensor> {
        const OP: &str = "ctc";
        self.check_float(OP)?;
        if self.rank() != 3 {
            return Err(self.wrong(OP, "needs 3 axes").hint("the axes are [time, batch, classes]"));
        }
        let (batch, classes) = (self.shape()[1], self.shape()[2]);
        for other in [&targets, &input_lengths, &target_lengths] {
            self.in_same_domain(OP, other)?;
            other.check_int(OP)?;
        }
        for lengths in [&input_lengths, &target_lengths] {
            if **lengths.shape() != [batch] {
                return Err(self.unlike(OP, format!("lengths must be [{batch}]"), lengths));
            }
        }
        if options.blank >= classes {
            let problem = format!("the blank {} is out of range for {classes} classes", options.blank);
            return Err(self.wrong(OP, problem));
        }
        let targets = match targets.rank() {
            1 => targets.padded(&target_lengths)?,
            2 if targets.shape()[0] == batch => targets,
            _ => {
                return Err(self
                    .unlike(OP, "log-probabilities and targets do not suit", &targets)
                    .hint("targets are [batch, length], or one after the other"));
            }
        };
        // 16 bits cannot represent a sum over time.
        let (dtype, wide) = (self.dtype(), self.dtype().accumulator());
        let index = targets.dtype();
        let lengths = [input_lengths.cast(index)?, target_lengths.clone().cast(index)?];
        let [input_lengths, label_lengths] = lengths;
        let log = self.cast(wide)?;
        let losses =
            log.expression_with([targets, input_lengths, label_lengths], |log, [targets, times, labels]| {
                let total = alignments(&log, &targets, &times, &labels, options.blank);
                let impossible = total.less(&total.scalar(IMPOSSIBLE / 2.0));
                let value = if options.zero_infinity { 0.0 } else { f64::INFINITY };
                impossible.select(&total.scalar(value), &-&total)
            });
        let losses = match options.reduction {
            Reduction::Mean | Reduction::Auto => {
                let lengths = target_lengths.cast(wide)?.binary_scalar(Binary::Max, 1.0)?;
                losses.binary(Binary::Div, lengths)?
            }
            Reduction::Sum | Reduction::None | Reduction::BatchMean => losses,
        };
        options.reduction.of(losses)?.cast(dtype)
    }

    /// Splits concatenated targets into rows of equal length. Waits for the device.
    fn padded(self, lengths: &AnyTensor) -> Result<AnyTensor> {
        let lengths: Vec<usize> =
            lengths.to_data()?.to_vec::<i64>().iter().map(|&len| len.max(0) as usize).collect();
        let total: usize = lengths.iter().sum();
        if total != self.shape()[0] {
            let problem = format!("the target lengths add up to {total}");
            return Err(self.wrong("ctc", problem).hint("targets one after the other have no gaps"));
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return AnyTensor::zeros(TensorType::new([lengths.len(), 0], self.dtype()), self.stack());
        }
        let mut index = Vec::with_capacity(lengths.len() * longest);
        let mut start = 0;
        for len in &lengths {
            index.extend(
                (0..longest).map(|place| (start + place.min(len.saturating_sub(1))).min(total - 1) as i64),
            );
            start += len;
        }
        let index = TensorData::new(index, [lengths.len(), longest])?.convert(self.stack().int_dtype());
        let index = AnyTensor::from_data(index, self.stack());
        self.take(0, index)
    }
}

/// Computes the logarithm of the sum over all alignments, `[batch]`.
///
/// The states of an example are its labels with a blank before, between and after them: `2 length + 1` states. In each
/// step a state is reached from itself, from the state before, or from the one before that if this skips a blank
/// between different labels.
fn alignments<'e>(
    log: &Var<'e>,
    targets: &Var<'e>,
    times: &Var<'e>,
    lengths: &Var<'e>,
    blank: usize,
) -> Var<'e> {
    let (time, batch, longest) = (log.shape()[0], log.shape()[1], targets.shape()[1]);
    let states = 2 * longest + 1;
    let labels = state_labels(targets, lengths, blank);
    let skips = skips(&labels, blank, log.dtype());
    let index = labels.reshape([1, batch, states]).broadcast([time, batch, states]);
    let scores = log.gather(2, &index);
    let scores = scores.max(&scores.scalar(IMPOSSIBLE));
    let ty = TensorType::new([batch, states], log.dtype());
    let first =
        Var::iota(log.engine(), TensorType::new([batch, states], DType::I32), 1).equal(&log.scalar(0));
    let impossible = Var::full(log.engine(), ty, IMPOSSIBLE);
    // Before the first step: before the first blank.
    let mut alpha = first.select(&log.scalar(0.0), &impossible);
    let times = times.reshape([batch, 1]);
    for step in 0..time {
        let score = scores.slice_axis(0, SliceAxis { start: step, len: 1, step: 1 }).reshape([batch, states]);
        let entered = enter(&alpha, &skips) + score;
        let running = times.scalar(step).less(&times);
        alpha = running.select(&entered, &alpha);
    }
    // An alignment ends in the last label or in the blank after it.
    let lengths = lengths.reshape([batch, 1]);
    let twice = &lengths + &lengths;
    let after = alpha.gather(1, &twice);
    let none = lengths.compare(kiln_ir::Comparison::Le, &lengths.scalar(0));
    let label = none.select(&twice.scalar(0), &twice.binary(Binary::Sub, &twice.scalar(1)));
    let last = none.select(&alpha.scalar(IMPOSSIBLE), &alpha.gather(1, &label));
    log_sum(&[after, last]).reshape([batch])
}

/// Computes the class of each state, `[batch, states]`; beyond an example's length blanks.
fn state_labels<'e>(targets: &Var<'e>, lengths: &Var<'e>, blank: usize) -> Var<'e> {
    let (batch, longest) = (targets.shape()[0], targets.shape()[1]);
    let place = Var::iota(targets.engine(), TensorType::new([1, longest], targets.dtype()), 1);
    let within = place.less(&lengths.reshape([batch, 1]));
    let labels = within.select(targets, &targets.scalar(blank)).reshape([batch, longest]);
    // One interior element between neighbours, and one at each end.
    let pads = alloc::vec![PadAxis::default(), PadAxis { low: 1, high: 1, interior: 1 }];
    if longest == 0 {
        return Var::full(targets.engine(), TensorType::new([batch, 1], targets.dtype()), blank);
    }
    labels.pad(pads, blank)
}

/// Computes the log-probability of skipping a blank: 0 between different labels, impossible elsewhere.
fn skips<'e>(labels: &Var<'e>, blank: usize, dtype: DType) -> Var<'e> {
    let blank = labels.scalar(blank);
    let before = shifted(labels, 2, blank.clone());
    let allowed = labels.equal(&blank).or(&labels.equal(&before)).unary(kiln_ir::Unary::Not);
    let zeros = Var::zeros(labels.engine(), labels.ty().with_dtype(dtype));
    allowed.select(&zeros, &zeros.scalar(IMPOSSIBLE))
}

/// Replaces each state by the one `by` before it in the list of states.
pub(super) fn shifted<'e>(x: &Var<'e>, by: usize, fill: Var<'e>) -> Var<'e> {
    let len = x.shape()[1];
    let pads = alloc::vec![PadAxis::default(), PadAxis::new(by, 0)];
    let padded = x.apply(kiln_ir::Op::Pad(pads), &[&fill]);
    padded.slice_axis(1, SliceAxis { start: 0, len, step: 1 })
}

fn enter<'e>(alpha: &Var<'e>, skips: &Var<'e>) -> Var<'e> {
    let impossible = alpha.scalar(IMPOSSIBLE);
    let before = shifted(alpha, 1, impossible.clone());
    let skipped = shifted(alpha, 2, impossible) + skips;
    log_sum(&[alpha.clone(), before, skipped])
}

/// Computes `ln Σ exp(x)`; the maximum is subtracted, which changes no derivative.
pub(super) fn log_sum<'e>(terms: &[Var<'e>]) -> Var<'e> {
    let greatest = terms[1..].iter().fold(constant(&terms[0]), |most, term| most.max(&constant(term)));
    let sum =
        terms[1..].iter().fold((&terms[0] - &greatest).exp(), |sum, term| sum + (term - &greatest).exp());
    sum.ln() + greatest
}
