//! The RNN transducer loss ([Graves 2012](https://arxiv.org/abs/1211.3711)): the probability of a sequence of labels,
//! summed over all its alignments with time by dynamic programming in logarithms.
//!
//! The lattice has a cell for each time `t` and number `u` of labels emitted so far. Both steps out of a cell lead from
//! the anti-diagonal `t + u` to the next one, so one vector `[batch, labels + 1]` at a time is computed.

use super::Reduction;
use super::ctc::{IMPOSSIBLE, log_sum, shifted};
use crate::{AnyTensor, Result};
use alloc::format;
use alloc::vec;
use kiln_ir::{Binary, DType, PadAxis, SliceAxis, TensorType, Var};

/// The options of [`rnnt`](crate::loss::rnnt): the blank class, and the kind of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnntOptions {
    /// The blank class, which advances time without a label; negative numbers count from the end. Default: -1, the last
    /// class, as in torchaudio.
    pub blank: i64,
    /// Whether the scores are logits, to which a log-softmax is applied; otherwise they are log-probabilities. Default:
    /// yes.
    pub logits: bool,
    /// The reduction of the losses. Default: the mean over the batch.
    pub reduction: Reduction,
}

impl Default for RnntOptions {
    fn default() -> RnntOptions {
        RnntOptions { blank: -1, logits: true, reduction: Reduction::Mean }
    }
}

const OP: &str = "rnnt";

impl AnyTensor {
    /// Computes the RNN transducer loss of targets `[batch, labels]`, given logits
    /// `[batch, time, labels + 1, classes]`; both kinds of lengths are `[batch]`. See
    /// [`loss::rnnt`](crate::loss::rnnt).
    ///
    /// # Errors
    /// When a tensor is not of these shapes, the logits are not floats or have no time step, targets or lengths are not
    /// integers, or the blank is not a class.
    pub fn rnnt_loss(
        self,
        targets: AnyTensor,
        logit_lengths: AnyTensor,
        target_lengths: AnyTensor,
        options: RnntOptions,
    ) -> Result<AnyTensor> {
        self.check_transducer(&targets, [&logit_lengths, &target_lengths])?;
        let blank = self.blank_class(options.blank)?;
        // 16 bits cannot represent a sum over time.
        let (dtype, wide) = (self.dtype(), self.dtype().accumulator());
        // Positions in the lattice are computed in the dtype of the lengths.
        let index = self.stack().int_dtype();
        let rest = [targets.cast(index)?, logit_lengths.cast(index)?, target_lengths.cast(index)?];
        let scores = self.cast(wide)?;
        let log = if options.logits { scores.log_softmax(3)? } else { scores };
        let losses = log.expression_with(rest, |log, [targets, times, lengths]| {
            let total = alignments(&log, &targets, &times, &lengths, blank);
            let impossible = total.less(&total.scalar(IMPOSSIBLE / 2.0));
            impossible.select(&total.scalar(f64::INFINITY), &-&total)
        });
        options.reduction.of(losses)?.cast(dtype)
    }

    fn check_transducer(&self, targets: &AnyTensor, lengths: [&AnyTensor; 2]) -> Result<()> {
        const AXES: &str = "the axes are [batch, time, labels + 1, classes]";
        self.check_float(OP)?;
        if self.rank() != 4 {
            return Err(self.wrong(OP, "needs 4 axes").hint(AXES));
        }
        let (batch, time, positions) = (self.shape()[0], self.shape()[1], self.shape()[2]);
        if time == 0 || positions == 0 {
            return Err(self.wrong(OP, "needs a time step and a position").hint(AXES));
        }
        for other in [targets, lengths[0], lengths[1]] {
            self.in_same_domain(OP, other)?;
            other.check_int(OP)?;
        }
        if **targets.shape() != [batch, positions - 1] {
            return Err(self
                .unlike(OP, format!("targets must be [{batch}, {}]", positions - 1), targets)
                .hint("the logits have one position more than labels: before the first, and after each"));
        }
        match lengths.into_iter().find(|lengths| **lengths.shape() != [batch]) {
            Some(lengths) => Err(self
                .unlike(OP, format!("lengths must be [{batch}]"), lengths)
                .hint("each example has one number of time steps and one of labels")),
            None => Ok(()),
        }
    }

    /// Resolves a negative blank class.
    fn blank_class(&self, blank: i64) -> Result<usize> {
        let classes = self.shape()[3];
        let class = if blank < 0 { blank + classes as i64 } else { blank };
        usize::try_from(class).ok().filter(|&class| class < classes).ok_or_else(|| {
            self.wrong(OP, format!("the blank {blank} is out of range for {classes} classes"))
                .hint("use a class, or -1 for the last one")
        })
    }
}

/// Computes the logarithm of the sum over all alignments, `[batch]`.
fn alignments<'e>(
    log: &Var<'e>,
    targets: &Var<'e>,
    times: &Var<'e>,
    lengths: &Var<'e>,
    blank: usize,
) -> Var<'e> {
    let (batch, time, positions) = (log.shape()[0], log.shape()[1], log.shape()[2]);
    let (times, lengths) = (times.reshape([batch, 1]), lengths.reshape([batch, 1]));
    let blanks = blank_scores(log, blank);
    let labels = label_scores(log, targets, &lengths, blank);
    let (blank_steps, label_steps) = (skewed(&blanks), skewed(&labels));
    let step = |steps: &Var<'e>, diagonal: usize| {
        steps.slice_axis(0, SliceAxis { start: diagonal, len: 1, step: 1 }).reshape([batch, positions])
    };
    let first =
        Var::iota(log.engine(), TensorType::new([batch, positions], DType::I32), 1).equal(&log.scalar(0));
    let impossible = Var::full(log.engine(), TensorType::new([batch, positions], log.dtype()), IMPOSSIBLE);
    let mut alpha = first.select(&log.scalar(0.0), &impossible);
    // The diagonal of the last cell of each example, where its vector stays.
    let last = &lengths + &times.binary(Binary::Sub, &times.scalar(1));
    for diagonal in 1..time + positions - 1 {
        let waited = &alpha + step(&blank_steps, diagonal - 1);
        let emitted = shifted(&(&alpha + step(&label_steps, diagonal - 1)), 1, alpha.scalar(IMPOSSIBLE));
        let entered = log_sum(&[waited, emitted]);
        let running = last.scalar(diagonal - 1).less(&last);
        alpha = running.select(&entered, &alpha);
    }
    let place =
        times.binary(Binary::Sub, &times.scalar(1)).binary(Binary::Mul, &times.scalar(positions)) + &lengths;
    let ending = blanks.reshape([batch, time * positions]).gather(1, &place);
    (alpha.gather(1, &lengths) + ending).reshape([batch])
}

/// Returns the log-probability of the blank in each cell, `[batch, time, positions]`.
fn blank_scores<'e>(log: &Var<'e>, blank: usize) -> Var<'e> {
    let shape = log.shape().without(3);
    let blanks = log.slice_axis(3, SliceAxis { start: blank, len: 1, step: 1 }).reshape(shape);
    blanks.max(&blanks.scalar(IMPOSSIBLE))
}

/// Returns the log-probability of the next label in each cell, `[batch, time, positions]`; impossible after all labels.
fn label_scores<'e>(log: &Var<'e>, targets: &Var<'e>, lengths: &Var<'e>, blank: usize) -> Var<'e> {
    let (batch, time, positions) = (log.shape()[0], log.shape()[1], log.shape()[2]);
    let labels = positions - 1;
    if labels == 0 {
        let ty = TensorType::new([batch, time, positions], log.dtype());
        return Var::full(log.engine(), ty, IMPOSSIBLE);
    }
    let place = Var::iota(log.engine(), TensorType::new([1, labels], targets.dtype()), 1);
    // Padding may be any number.
    let within = place.less(lengths);
    let index = within.select(targets, &targets.scalar(blank)).reshape([batch, 1, labels, 1]);
    let scores = log.slice_axis(2, SliceAxis { start: 0, len: labels, step: 1 });
    let scores = scores.gather(3, &index.broadcast([batch, time, labels, 1])).reshape([batch, time, labels]);
    let scores = scores.max(&scores.scalar(IMPOSSIBLE));
    scores.pad(vec![PadAxis::default(), PadAxis::default(), PadAxis::new(0, 1)], IMPOSSIBLE)
}

/// Turns cells `[batch, time, positions]` into anti-diagonals `[time + positions - 1, batch, positions]`, with
/// impossible cells outside the lattice.
///
/// Rows of one position each are padded to `time + positions` cells, and read as rows that are one cell shorter: row
/// `u` then begins `u` cells later.
fn skewed<'e>(cells: &Var<'e>) -> Var<'e> {
    let (batch, time, positions) = (cells.shape()[0], cells.shape()[1], cells.shape()[2]);
    let diagonals = time + positions - 1;
    let rows = cells.permute(&[0, 2, 1]);
    let rows = rows.pad(vec![PadAxis::default(), PadAxis::default(), PadAxis::new(0, positions)], IMPOSSIBLE);
    let flat = rows.reshape([batch, positions * (time + positions)]);
    let flat = flat.slice_axis(1, SliceAxis { start: 0, len: positions * diagonals, step: 1 });
    flat.reshape([batch, positions, diagonals]).permute(&[2, 0, 1])
}
