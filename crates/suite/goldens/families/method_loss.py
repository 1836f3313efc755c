"""Losses that the family `loss` does not have, with the arguments of the method tables."""

import torch
import torch.nn.functional as F

from .case import integers, literal, normal, probabilities, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

SIGNS = literal([1.0, -1.0, 1.0, -1.0, -1.0])
SHARES = uniform(0.1, 0.9, 2, 3)


def _one(y):
    """Losses are `[1]`, not `[]`."""
    return y.reshape(1)


def _focal(x, target):
    """torchvision's `sigmoid_focal_loss`, written out: the package is no dependency here."""
    p = torch.sigmoid(x)
    wrong = 1 - (p * target + (1 - p) * (1 - target))
    losses = F.binary_cross_entropy_with_logits(x, target, reduction="none") * wrong**2
    return _one((losses * (0.25 * target + 0.75 * (1 - target))).mean())


def _dice(x, target):
    overlap = 2 * (x * target).flatten(1).sum(1) + 1
    return 1 - overlap / (x.flatten(1).sum(1) + target.flatten(1).sum(1) + 1)


def _info_nce(queries, keys):
    scores = F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T / 0.5
    return _one(F.cross_entropy(scores, torch.arange(len(queries))))


def _weighted_cross_entropy(x, target, weight):
    y = F.cross_entropy(x, target, weight, ignore_index=1, label_smoothing=0.2)
    return _one(y)


def _manhattan(a, b):
    return (a - b).abs().sum(1)


rows.add("smooth_l1_loss",
         lambda x, t: _one(F.smooth_l1_loss(x, t, beta=0.5, reduction="sum") / len(x)),
         normal(3, 4), normal(3, 4))
rows.add("kl_div_loss", lambda x, t: _one(F.kl_div(x, t, reduction="batchmean")),
         normal(2, 3), probabilities(2, 3))
rows.add("kl_div_loss/log_target",
         lambda x, t: _one(F.kl_div(x, t, reduction="sum", log_target=True)),
         normal(2, 3), normal(2, 3))
rows.add("poisson_nll_loss/full",
         lambda x, t: F.poisson_nll_loss(x, t, log_input=False, full=True, eps=1e-8,
                                         reduction="none"),
         uniform(0.5, 2.5, 2, 3), literal([[0.5, 1.0, 2.0], [3.5, 0.0, 7.0]]), constant=("b",))
rows.add("gaussian_nll_loss",
         lambda x, t, v: _one(F.gaussian_nll_loss(x, t, v, full=True, eps=1e-6)),
         normal(2, 3), normal(2, 3), uniform(0.5, 2.5, 2, 3))
rows.add("cross_entropy_loss/weights, ignored and smoothed", _weighted_cross_entropy,
         normal(6, 4, 2), integers(0, 4, 6, 2), uniform(0.5, 2.5, 4), constant=("c",))
rows.add("multi_margin_loss",
         lambda x, t, w: _one(F.multi_margin_loss(x, t, p=2, margin=0.03, weight=w)),
         normal(4, 3, scale=0.05), integers(0, 3, 4), uniform(0.5, 2.5, 3), constant=("c",))
rows.add("multilabel_margin_loss",
         lambda x, t: _one(F.multilabel_margin_loss(x, t, reduction="sum")),
         normal(3, 4), literal([[3, 0, -1, 1], [-1, 2, 1, 0], [0, 1, 2, 3]]))
rows.add("binary_cross_entropy_loss", lambda x, t, w: _one(F.binary_cross_entropy(x, t, w)),
         SHARES, SHARES, uniform(0.5, 2.5, 3), constant=("b", "c"))
rows.add("sigmoid_focal_loss", _focal, normal(2, 3), SHARES)
rows.add("dice_loss", _dice, SHARES, SHARES)
rows.add("soft_margin_loss", lambda x, t: _one(F.soft_margin_loss(x, t)), normal(5), SIGNS,
         constant=("b",))
rows.add("multilabel_soft_margin_loss",
         lambda x, t, w: F.multilabel_soft_margin_loss(x, t, w, reduction="none"),
         normal(2, 3), SHARES, uniform(0.5, 2.5, 3), constant=("b", "c"))
rows.add("margin_ranking_loss",
         lambda a, b, t: _one(F.margin_ranking_loss(a, b, t, margin=0.1)),
         normal(5), normal(5), SIGNS, constant=("c",))
rows.add("hinge_embedding_loss", lambda x, t: _one(F.hinge_embedding_loss(x, t, margin=1.0)),
         normal(5), SIGNS, constant=("b",))
# At the hinge, which f32 holds exactly.
rows.add("margin_ranking_loss/margin 0.5",
         lambda a, b, t: F.margin_ranking_loss(a, b, t, margin=0.5, reduction="none"),
         literal([1.0, 0.5, 0.5, 0.0, 2.0]), literal([1.0, 0.0, 1.0, 0.0, 0.0]),
         literal([1.0, 1.0, -1.0, 1.0, 1.0]), constant=("c",))
rows.add("hinge_embedding_loss", lambda x, t: _one(F.hinge_embedding_loss(x, t, margin=1.0)),
         literal([0.5, 1.0, 1.5, 1.0, -2.0]), literal([-1.0, -1.0, -1.0, 1.0, 1.0]),
         name="hinge_embedding_loss_at_the_hinge", constant=("b",))
rows.add("multi_margin_loss/p = 1",
         lambda x, t: F.multi_margin_loss(x, t, p=1, margin=1.0, reduction="none"),
         literal([[1.0, 0.0, 0.5], [0.0, 2.0, 1.0]]), literal([0, 1]))
rows.add("multilabel_margin_loss",
         lambda x, t: _one(F.multilabel_margin_loss(x, t, reduction="sum")),
         literal([[1.0, 0.0, 0.5, 2.0]]), literal([[0, 3, -1, 1]]),
         name="multilabel_margin_loss_at_the_hinge")
rows.add("smooth_l1_loss",
         lambda x, t: _one(F.smooth_l1_loss(x, t, beta=0.5, reduction="sum") / len(x)),
         literal([[0.5, 0.0, -0.5, 1.0]]), literal([[0.0, 0.0, 0.0, 0.0]]),
         name="smooth_l1_loss_at_the_bend")
rows.add("cosine_embedding_loss",
         lambda a, b, t: _one(F.cosine_embedding_loss(a, b, t, margin=0.1)),
         normal(5, 3), normal(5, 3), SIGNS, constant=("c",))
rows.add("triplet_margin_loss", lambda a, p, n: _one(F.triplet_margin_loss(a, p, n)),
         normal(4, 3), normal(4, 3), normal(4, 3))
rows.add("triplet_margin_loss/swapped, p = 3",
         lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=5.0, p=3, swap=True,
                                               reduction="none"),
         normal(4, 3), normal(4, 3), normal(4, 3))
rows.add("triplet_margin_loss_with",
         lambda a, p, n: _one(F.triplet_margin_with_distance_loss(
             a, p, n, distance_function=_manhattan, reduction="sum")),
         normal(4, 3), normal(4, 3), normal(4, 3))
rows.add("info_nce_loss", _info_nce, normal(4, 3), normal(4, 3))
