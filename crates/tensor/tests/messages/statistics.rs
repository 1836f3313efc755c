//! Random numbers, order statistics, and counts.

use super::*;
use kiln_tensor::{Distribution, Interpolation};

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("random: a negative deviation", || {
            Tensor::<Flex, 1>::random([2], Distribution::Normal(0.0, -1.0), &DEVICE)
        }),
        panics("random: a probability above 1", || {
            Tensor::<Flex, 1>::random([2], Distribution::Bernoulli(1.5), &DEVICE)
        }),
        panics("random: a range the wrong way round", || {
            Tensor::<Flex, 1>::random([2], Distribution::Uniform(1.0, 0.0), &DEVICE)
        }),
        panics("randint: an empty range", || Tensor::<Flex, 1, Int>::randint([2], 3..3, None, &DEVICE)),
        panics("multinomial: more than there are", || x().multinomial(4, false)),
        panics("quantile: not between 0 and 1", || x().quantile(&[25.0], 1, Interpolation::Linear)),
        panics("median: an axis out of range", || x().median(2)),
        panics("kthvalue: more than there are", || x().kthvalue(4, 1)),
        panics("mode: an axis out of range", || x().mode(2)),
        panics("bincount: negative numbers", || indices([1, -1]).bincount(0)),
        panics("histc: no bins", || x().histc(0, None)),
        panics("cdist: rows of two lengths", || x().cdist(Tensor::ones([2, 4], &DEVICE), 2.0)),
        panics("cov: an axis out of range", || x().cov(2, 1.0)),
        panics("searchsorted: rows that differ", || x().searchsorted(Tensor::ones([3, 3], &DEVICE), false)),
        panics("logsumexp: an axis out of range", || x().logsumexp(2)),
        panics("diff: an axis out of range", || x().diff(1, 2)),
        panics("split_with_sizes: sizes that do not add up", || x().split_with_sizes(&[1, 1], 1)),
        panics("roll: not as many shifts as axes", || x().roll(&[1], [0, 1])),
        panics("unflatten: lengths that do not multiply", || x().unflatten::<3>(1, &[2, 2])),
        panics("select_dim: an index that is not there", || x().select_dim::<1>(0, 2)),
        panics("masked_scatter: too few values", || {
            x().masked_scatter(b(), Tensor::ones([1, 2], &DEVICE)).into_data()
        }),
        panics("diagonal: another number of axes", || x().diagonal::<3>(0, 0, 1)),
    ]
}
