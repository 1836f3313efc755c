//! Losses.

use super::{Method, away, distinct, floats, ints, ints_among, normal, one, positive, uniform};
use crate::case::Fill;
use kiln_tensor::AnyTensor;
use kiln_tensor::loss::{ClassOptions, CtcOptions, Reduction, RnntOptions, TripletOptions};

const SIGNS: Fill = Fill::Among(&[-1.0, 1.0]);
const PIECEWISE: &str = "the second derivative jumps";

pub(super) fn rows() -> Vec<Method> {
    let mut rows = differences();
    rows.extend(classes());
    rows.extend(decisions());
    rows.extend(margins());
    rows.extend(sequences());
    rows
}

fn differences() -> Vec<Method> {
    let pairs =
        |method: Method| method.on(&[normal(&[2, 3]), normal(&[2, 3])]).on(&[normal(&[]), normal(&[])]);
    vec![
        pairs(Method::new("mse_loss", |x| one(x[0].clone().mse_loss(x[1].clone(), Reduction::Mean)))),
        pairs(Method::new("mse_loss", |x| one(x[0].clone().mse_loss(x[1].clone(), Reduction::None))))
            .variant("none")
            .on(&[normal(&[0, 3]), normal(&[0, 3])]),
        pairs(Method::new("l1_loss", |x| one(x[0].clone().l1_loss(x[1].clone(), Reduction::Sum)))),
        Method::new("lp_loss", |x| one(x[0].clone().lp_loss(x[1].clone(), 3.0, Reduction::Mean)))
            .on(&[normal(&[2, 3]), normal(&[2, 3])]),
        Method::new("gram_matrix", |x| one(x[0].clone().gram_matrix())).on(&[normal(&[2, 3, 2, 2])]),
        Method::new("gram_matrix_loss", |x| {
            one(x[0].clone().gram_matrix_loss(x[1].clone(), Reduction::None))
        })
        .on(&[normal(&[2, 3, 2, 2]), normal(&[2, 3, 2, 2])]),
        Method::new("smooth_l1_loss", |x| {
            one(x[0].clone().smooth_l1_loss(x[1].clone(), 0.5, Reduction::BatchMean))
        })
        .on(&[distinct(&[3, 4]), uniform(0.0, 0.01, &[3, 4])])
        .once(PIECEWISE),
        Method::new("huber_loss", |x| one(x[0].clone().huber_loss(x[1].clone(), 0.5, Reduction::Mean)))
            .on(&[distinct(&[3, 4]), uniform(0.0, 0.01, &[3, 4])])
            .once(PIECEWISE),
        Method::new("kl_div_loss", |x| {
            one(x[0].clone().kl_div_loss(x[1].clone(), false, Reduction::BatchMean))
        })
        .on(&[normal(&[2, 3]), positive(&[2, 3])]),
        Method::new("kl_div_loss", |x| one(x[0].clone().kl_div_loss(x[1].clone(), true, Reduction::Sum)))
            .variant("log_target")
            .on(&[normal(&[2, 3]), normal(&[2, 3])]),
        Method::new("poisson_nll_loss", |x| {
            one(x[0].clone().poisson_nll_loss(x[1].clone(), true, false, 1e-8, Reduction::Mean))
        })
        .on(&[normal(&[2, 3]), positive(&[2, 3])]),
        Method::new("poisson_nll_loss", |x| {
            one(x[0].clone().poisson_nll_loss(x[1].clone(), false, true, 1e-8, Reduction::None))
        })
        .variant("full")
        .on(&[positive(&[2, 3]), positive(&[2, 3]).constant()]),
        Method::new("gaussian_nll_loss", |x| {
            one(x[0].clone().gaussian_nll_loss(x[1].clone(), x[2].clone(), true, 1e-6, Reduction::Mean))
        })
        .on(&[normal(&[2, 3]), normal(&[2, 3]), positive(&[2, 3])])
        .on(&[normal(&[2, 3]), normal(&[2, 3]), positive(&[2, 1])]),
    ]
}

fn classes() -> Vec<Method> {
    vec![
        Method::new("cross_entropy_loss", |x| {
            one(x[0].clone().cross_entropy_loss(x[1].clone(), &ClassOptions::default()))
        })
        .on(&[normal(&[4, 3]), ints(0, 2, &[4])])
        .on(&[normal(&[2, 3, 2]), ints(0, 2, &[2, 2])]),
        Method::new("cross_entropy_loss", |x| {
            let options = ClassOptions {
                weight: Some(x[2].clone()),
                ignore_index: Some(1),
                label_smoothing: 0.2,
                reduction: Reduction::Mean,
            };
            one(x[0].clone().cross_entropy_loss(x[1].clone(), &options))
        })
        .variant("weights, ignored and smoothed")
        .on(&[normal(&[6, 4]), ints_among(&[0.0, 1.0, 2.0, 3.0], &[6]), positive(&[4])])
        .on(&[normal(&[6, 4, 2]), ints_among(&[0.0, 1.0, 2.0, 3.0], &[6, 2]), positive(&[4])]),
        Method::new("cross_entropy_loss", |x| {
            let options = ClassOptions { reduction: Reduction::None, ..ClassOptions::default() };
            one(x[0].clone().cross_entropy_loss(x[1].clone(), &options))
        })
        .variant("probabilities")
        .on(&[normal(&[4, 3]), positive(&[4, 3])]),
        Method::new("nll_loss", |x| {
            let options = ClassOptions { weight: Some(x[2].clone()), ..ClassOptions::default() };
            one(x[0].clone().nll_loss(x[1].clone(), &options))
        })
        .on(&[normal(&[4, 3]), ints(0, 2, &[4]), positive(&[3])]),
        Method::new("multi_margin_loss", |x| {
            let weight = Some(x[2].clone());
            one(x[0].clone().multi_margin_loss(x[1].clone(), 2, 0.03, weight, Reduction::Mean))
        })
        .on(&[distinct(&[4, 3]), ints(0, 2, &[4]), positive(&[3])])
        .once(PIECEWISE),
        Method::new("multi_margin_loss", |x| {
            one(x[0].clone().multi_margin_loss(x[1].clone(), 1, 1.0, None, Reduction::None))
        })
        .variant("p = 1")
        .on(&[normal(&[4, 3]), ints(0, 2, &[4])]),
        Method::new("multilabel_margin_loss", |x| {
            one(x[0].clone().multilabel_margin_loss(x[1].clone(), Reduction::Sum))
        })
        .on(&[normal(&[4, 3]), ints(-1, 2, &[4, 3])])
        .on(&[normal(&[3]), ints(-1, 2, &[3])]),
    ]
}

fn decisions() -> Vec<Method> {
    const SHARES: Fill = Fill::Uniform(0.1, 0.9);
    vec![
        Method::new("binary_cross_entropy_loss", |x| {
            let weight = Some(x[2].clone());
            one(x[0].clone().binary_cross_entropy_loss(x[1].clone(), weight, Reduction::Mean))
        })
        .on(&[floats(&[2, 3], SHARES), floats(&[2, 3], SHARES), positive(&[3])]),
        Method::new("binary_cross_entropy_with_logits_loss", |x| {
            let (target, weight, pos) = (x[1].clone(), Some(x[2].clone()), Some(x[3].clone()));
            one(x[0].clone().binary_cross_entropy_with_logits_loss(target, weight, pos, Reduction::Sum))
        })
        .on(&[away(&[2, 3]), floats(&[2, 3], SHARES), positive(&[3]), positive(&[2, 1])]),
        Method::new("sigmoid_focal_loss", |x| {
            one(x[0].clone().sigmoid_focal_loss(x[1].clone(), Some(0.25), 2.0, Reduction::Mean))
        })
        .on(&[away(&[2, 3]), floats(&[2, 3], SHARES)]),
        Method::new("dice_loss", |x| one(x[0].clone().dice_loss(x[1].clone(), 1.0, Reduction::None)))
            .on(&[floats(&[2, 3], SHARES), floats(&[2, 3], SHARES)])
            .on(&[floats(&[2, 2, 3], SHARES), floats(&[2, 2, 3], SHARES)]),
        Method::new("soft_margin_loss", |x| {
            one(x[0].clone().soft_margin_loss(x[1].clone(), Reduction::Mean))
        })
        .on(&[away(&[2, 3]), floats(&[2, 3], SIGNS)]),
        Method::new("multilabel_soft_margin_loss", |x| {
            let weight = Some(x[2].clone());
            one(x[0].clone().multilabel_soft_margin_loss(x[1].clone(), weight, Reduction::None))
        })
        .on(&[away(&[2, 3]), floats(&[2, 3], SHARES), positive(&[3])]),
    ]
}

fn margins() -> Vec<Method> {
    let signs = |shape| floats(shape, SIGNS).constant();
    fn manhattan(a: AnyTensor, b: AnyTensor) -> kiln_tensor::Result<AnyTensor> {
        a.sub(b)?.unary(kiln_ir::Unary::Abs)?.reduce(kiln_ir::Reduction::Sum, &[1])
    }
    vec![
        Method::new("margin_ranking_loss", |x| {
            one(x[0].clone().margin_ranking_loss(x[1].clone(), x[2].clone(), 0.1, Reduction::Mean))
        })
        .on(&[normal(&[5]), normal(&[5]), signs(&[5])]),
        Method::new("margin_ranking_loss", |x| {
            one(x[0].clone().margin_ranking_loss(x[1].clone(), x[2].clone(), 0.5, Reduction::None))
        })
        .variant("margin 0.5")
        .on(&[normal(&[5]), normal(&[5]), signs(&[5])]),
        Method::new("hinge_embedding_loss", |x| {
            one(x[0].clone().hinge_embedding_loss(x[1].clone(), 1.0, Reduction::Mean))
        })
        .on(&[normal(&[5]), signs(&[5])]),
        Method::new("cosine_embedding_loss", |x| {
            one(x[0].clone().cosine_embedding_loss(x[1].clone(), x[2].clone(), 0.1, Reduction::Mean))
        })
        .on(&[normal(&[4, 3]), normal(&[4, 3]), signs(&[4])]),
        Method::new("triplet_margin_loss", |x| {
            one(x[0].clone().triplet_margin_loss(x[1].clone(), x[2].clone(), TripletOptions::default()))
        })
        .on(&[normal(&[4, 3]), normal(&[4, 3]), normal(&[4, 3])]),
        Method::new("triplet_margin_loss", |x| {
            let options = TripletOptions {
                margin: 5.0,
                p: 3.0,
                swap: true,
                reduction: Reduction::None,
                ..Default::default()
            };
            one(x[0].clone().triplet_margin_loss(x[1].clone(), x[2].clone(), options))
        })
        .variant("swapped, p = 3")
        .on(&[normal(&[4, 3]), normal(&[4, 3]), normal(&[4, 3])]),
        Method::new("triplet_margin_loss_with", |x| {
            let (positive, negative) = (x[1].clone(), x[2].clone());
            one(x[0].clone().triplet_margin_loss_with(
                positive,
                negative,
                manhattan,
                1.0,
                false,
                Reduction::Sum,
            ))
        })
        .on(&[normal(&[4, 3]), normal(&[4, 3]), normal(&[4, 3])]),
        Method::new("info_nce_loss", |x| one(x[0].clone().info_nce_loss(x[1].clone(), 0.5, Reduction::Mean)))
            .on(&[normal(&[4, 3]), normal(&[4, 3])]),
    ]
}

fn sequences() -> Vec<Method> {
    let ctc = |method: Method| {
        method
            .on(&[normal(&[4, 2, 3]), ints(1, 2, &[2, 2]), ints(3, 4, &[2]), ints(1, 2, &[2])])
            .on(&[normal(&[5, 3, 4]), ints(0, 2, &[3, 2]), ints(5, 5, &[3]), ints(0, 2, &[3])])
            .within(64.0)
    };
    vec![
        ctc(Method::new("ctc_loss", |x| {
            // Class 0 occurs among the targets of the second case, so the last class is blank.
            let options = CtcOptions { blank: x[0].shape()[2] - 1, ..CtcOptions::default() };
            let targets = x[1].clone().binary_scalar(kiln_ir::Binary::Rem, x[0].shape()[2] as i32 - 1)?;
            one(x[0].clone().ctc_loss(targets, x[2].clone(), x[3].clone(), options))
        })),
        Method::new("ctc_loss", |x| {
            let options =
                CtcOptions { zero_infinity: true, reduction: Reduction::None, ..CtcOptions::default() };
            one(x[0].clone().ctc_loss(x[1].clone(), x[2].clone(), x[3].clone(), options))
        })
        .variant("one after the other")
        .on(&[normal(&[4, 2, 3]), ints(1, 2, &[4]), ints(1, 4, &[2]), ints(2, 2, &[2])])
        .within(64.0),
        Method::new("rnnt_loss", |x| {
            one(x[0].clone().rnnt_loss(x[1].clone(), x[2].clone(), x[3].clone(), RnntOptions::default()))
        })
        .on(&[normal(&[2, 3, 3, 4]), ints(0, 2, &[2, 2]), ints(2, 3, &[2]), ints(0, 2, &[2])])
        .within(64.0),
    ]
}
