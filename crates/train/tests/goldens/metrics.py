"""Writes metrics.json: inputs of metrics in batches, and their values by torchmetrics and scikit-learn.

    pip install torch==2.13.0 torchmetrics==1.9.0 scikit-learn==1.9.1 rouge-score==0.1.2
    python3 crates/train/tests/goldens/metrics.py

`inputs` maps the name of an input set to its batches, each from the name of a tensor or text to its
contents. `cases` maps the name of a case to its input set and to the expected numbers: one for a
scalar, those of a class or matrix in row-major order. Expected values are computed in f64 from all
batches together; inputs are multiples of 2^-8, which f32 represents exactly. `metrics_golden.rs` has a
row for each case.
"""

import json
import random
from pathlib import Path

import numpy as np
import sklearn.metrics as sk
import torch
import torchmetrics.functional as tm
import torchmetrics.functional.classification as tc
import torchmetrics.functional.regression as tr
import torchmetrics.functional.retrieval as rank
import torchmetrics.functional.text as text
from rouge_score import rouge_scorer

torch.set_default_dtype(torch.float64)
random.seed(20)
SIZES = [8, 5, 3]
INPUTS, CASES = {}, {}


def floats(shape, low=-3.0, high=3.0):
    count = int(np.prod(shape))
    numbers = [round(random.uniform(low, high) * 256) / 256 for _ in range(count)]
    return torch.tensor(numbers).reshape(shape)


def ints(shape, low, high, ignored=None):
    def draw():
        return ignored if ignored is not None and random.random() < 0.2 else random.randint(low, high)

    return torch.tensor([draw() for _ in range(int(np.prod(shape)))]).reshape(shape)


def inputs(name, make):
    """Stores the batches of an input set and returns the tensors of all batches, joined."""
    batches = [make(size) for size in SIZES]

    def stored(value):
        if isinstance(value, list):
            return value
        kind = "floats" if value.is_floating_point() else "ints"
        return {"shape": list(value.shape), kind: value.flatten().tolist()}

    INPUTS[name] = [{key: stored(value) for key, value in batch.items()} for batch in batches]

    def joined(key):
        values = [batch[key] for batch in batches]
        return sum(values, []) if isinstance(values[0], list) else torch.cat(values)

    return [joined(key) for key in batches[0]]


def case(name, source, value):
    value = torch.as_tensor(np.asarray(value, dtype=np.float64)).flatten().tolist()
    assert all(np.isfinite(value)), name
    CASES[name] = {"inputs": source, "expected": value}


def counts(task, source, scores, targets, **options):
    """The scores of counts that all tasks share."""
    averages = [""] if task == "binary" else ["macro", "micro", "weighted", "none"]
    functions = {
        "precision": getattr(tc, f"{task}_precision"),
        "recall": getattr(tc, f"{task}_recall"),
        "f1": getattr(tc, f"{task}_f1_score"),
        "f2": lambda *a, **k: getattr(tc, f"{task}_fbeta_score")(a[0], a[1], beta=2.0, **k),
        "specificity": getattr(tc, f"{task}_specificity"),
        "npv": getattr(tc, f"{task}_negative_predictive_value"),
        "hamming_distance": getattr(tc, f"{task}_hamming_distance"),
        "jaccard": getattr(tc, f"{task}_jaccard_index"),
    }
    for metric, function in functions.items():
        for average in averages:
            more = {"average": average} if average else {}
            name = "_".join(filter(None, [source, metric, average]))
            case(name, source, function(scores, targets, **more, **options))
    case(f"{source}_mcc", source, getattr(tc, f"{task}_matthews_corrcoef")(scores, targets, **options))


def binary():
    scores, targets = inputs("binary", lambda n: {"logits": floats([n]), "targets": ints([n], 0, 1)})
    counts("binary", "binary", scores, targets)
    case("binary_threshold", "binary", tc.binary_precision(scores, targets, threshold=0.25))
    case("binary_kappa", "binary", tc.binary_cohen_kappa(scores, targets))
    case("binary_matrix", "binary", tc.binary_confusion_matrix(scores, targets))
    case("binary_auroc", "binary", tc.binary_auroc(scores, targets))
    case("binary_auroc_partial", "binary", tc.binary_auroc(scores, targets, max_fpr=0.3))
    case("binary_ap", "binary", tc.binary_average_precision(scores, targets))
    for norm in ["l1", "l2", "max"]:
        error = tc.binary_calibration_error(scores, targets, n_bins=5, norm=norm)
        case(f"binary_calibration_{norm}", "binary", error)
    brier = sk.brier_score_loss(targets.numpy(), scores.sigmoid().numpy())
    case("binary_brier", "binary", brier)
    scores, targets = inputs(
        "binary_ignored",
        lambda n: {
            # Ties, which AUROC counts half.
            "predictions": torch.round(floats([n], 0.0, 1.0) * 4) / 4,
            "targets": ints([n], 0, 1, ignored=-1),
        },
    )
    counts("binary", "binary_ignored", scores, targets, ignore_index=-1)
    case("binary_ignored_auroc", "binary_ignored", tc.binary_auroc(scores, targets, ignore_index=-1))
    case("binary_ignored_ap", "binary_ignored", tc.binary_average_precision(scores, targets, ignore_index=-1))


def multiclass():
    c = 4
    scores, targets = inputs("multiclass", lambda n: {"logits": floats([n, c]), "targets": ints([n], 0, c - 2)})
    counts("multiclass", "multiclass", scores, targets, num_classes=c)
    for k in [2, 3]:
        for average in ["macro", "micro"]:
            value = tc.multiclass_precision(scores, targets, num_classes=c, top_k=k, average=average)
            case(f"multiclass_precision_top{k}_{average}", "multiclass", value)
            value = tc.multiclass_recall(scores, targets, num_classes=c, top_k=k, average=average)
            case(f"multiclass_recall_top{k}_{average}", "multiclass", value)
    case("multiclass_stat_scores", "multiclass", tc.multiclass_stat_scores(scores, targets, c, average=None))
    for weights in ["none", "linear", "quadratic"]:
        case(f"multiclass_kappa_{weights}", "multiclass", tc.multiclass_cohen_kappa(scores, targets, c, weights=weights))
    for normalize in ["none", "true", "pred", "all"]:
        matrix = tc.multiclass_confusion_matrix(scores, targets, c, normalize=normalize)
        case(f"multiclass_matrix_{normalize}", "multiclass", matrix)
    for norm in ["l1", "l2", "max"]:
        error = tc.multiclass_calibration_error(scores, targets, c, n_bins=6, norm=norm)
        case(f"multiclass_calibration_{norm}", "multiclass", error)
    probabilities = scores.softmax(1).numpy()
    brier = ((probabilities - np.eye(c)[targets.numpy()]) ** 2).sum(1).mean()
    case("multiclass_brier", "multiclass", brier)

    scores, targets = inputs(
        "multiclass_ignored", lambda n: {"logits": floats([n, 3]), "targets": ints([n], 0, 2, ignored=-100)}
    )
    counts("multiclass", "multiclass_ignored", scores, targets, num_classes=3, ignore_index=-100)
    for average in ["macro", "weighted", "none"]:
        value = tc.multiclass_auroc(scores, targets, 3, average=average, ignore_index=-100)
        case(f"multiclass_ignored_auroc_{average}", "multiclass_ignored", value)
        value = tc.multiclass_average_precision(scores, targets, 3, average=average, ignore_index=-100)
        case(f"multiclass_ignored_ap_{average}", "multiclass_ignored", value)
    kept = targets != -100
    one_hot = np.eye(3)[targets[kept].numpy()]
    micro = sk.roc_auc_score(one_hot, scores[kept].softmax(1).numpy(), average="micro")
    case("multiclass_ignored_auroc_micro", "multiclass_ignored", micro)

    scores, targets = inputs(
        "multiclass_labels", lambda n: {"predictions": ints([n, 2], 0, 4), "targets": ints([n, 2], 0, 4)}
    )
    counts("multiclass", "multiclass_labels", scores, targets, num_classes=5, ignore_index=1)

    scores, targets = inputs(
        "multiclass_pixels", lambda n: {"logits": floats([n, 3, 2, 2]), "targets": ints([n, 2, 2], 0, 2)}
    )
    counts("multiclass", "multiclass_pixels", scores, targets, num_classes=3)


def multilabel():
    scores, targets = inputs(
        "multilabel", lambda n: {"logits": floats([n, 3]), "targets": ints([n, 3], 0, 1, ignored=-1)}
    )
    options = {"num_labels": 3, "ignore_index": -1}
    counts("multilabel", "multilabel", scores, targets, **options)
    for average in ["macro", "weighted", "micro", "none"]:
        value = tc.multilabel_auroc(scores, targets, average=average, **options)
        case(f"multilabel_auroc_{average}", "multilabel", value)
        value = tc.multilabel_average_precision(scores, targets, average=average, **options)
        case(f"multilabel_ap_{average}", "multilabel", value)
    scores, targets = inputs(
        "multilabel_full", lambda n: {"predictions": floats([n, 3], 0.0, 1.0), "targets": ints([n, 3], 0, 1)}
    )
    case("multilabel_exact_match", "multilabel_full", tc.multilabel_exact_match(scores, targets, num_labels=3))


def regression():
    def far(n):
        targets = floats([n], 900.0, 1100.0)
        return {"predictions": targets + floats([n], -8.0, 8.0), "targets": targets}

    p, t = inputs("regression", lambda n: {"predictions": floats([n], 0.0, 5.0), "targets": floats([n], 0.0, 5.0)})
    case("mse", "regression", tr.mean_squared_error(p, t))
    case("rmse", "regression", tr.mean_squared_error(p, t, squared=False))
    case("mae", "regression", tr.mean_absolute_error(p, t))
    case("mape", "regression", tr.mean_absolute_percentage_error(p, t))
    case("smape", "regression", tr.symmetric_mean_absolute_percentage_error(p, t))
    case("wmape", "regression", tr.weighted_mean_absolute_percentage_error(p, t))
    case("msle", "regression", tr.mean_squared_log_error(p, t))
    case("log_cosh", "regression", tr.log_cosh_error(p, t))
    for source, (p, t) in [("regression", (p, t)), ("regression_far", inputs("regression_far", far))]:
        case(f"{source}_r2", source, sk.r2_score(t.numpy(), p.numpy()))
        case(f"{source}_r2_adjusted", source, tr.r2_score(p, t, adjusted=3))
        case(f"{source}_explained", source, sk.explained_variance_score(t.numpy(), p.numpy()))
        case(f"{source}_pearson", source, tr.pearson_corrcoef(p, t))
        case(f"{source}_concordance", source, tr.concordance_corrcoef(p, t))
        case(f"{source}_spearman", source, tr.spearman_corrcoef(p, t))
    p, t = inputs("regression_outputs", lambda n: {"predictions": floats([n, 2]), "targets": floats([n, 2])})
    for average in ["uniform_average", "raw_values", "variance_weighted"]:
        case(f"outputs_r2_{average}", "regression_outputs", tr.r2_score(p, t, multioutput=average))
        case(f"outputs_explained_{average}", "regression_outputs", tr.explained_variance(p, t, multioutput=average))
    case("outputs_pearson", "regression_outputs", tr.pearson_corrcoef(p, t))
    case("outputs_cosine", "regression_outputs", tr.cosine_similarity(p, t, reduction="mean"))
    p, t = inputs(
        "regression_ties",
        lambda n: {"predictions": ints([n], 0, 4).double(), "targets": ints([n], 0, 3).double()},
    )
    case("ties_spearman", "regression_ties", tr.spearman_corrcoef(p, t))


def ranking():
    def measures(source, queries):
        def mean(function, **options):
            return np.mean([float(function(p, t, **options)) for p, t in queries])

        case(f"{source}_mrr", source, mean(rank.retrieval_reciprocal_rank))
        case(f"{source}_mrr2", source, mean(rank.retrieval_reciprocal_rank, top_k=2))
        case(f"{source}_hit2", source, mean(rank.retrieval_hit_rate, top_k=2))
        case(f"{source}_recall2", source, mean(rank.retrieval_recall, top_k=2))
        case(f"{source}_precision2", source, mean(rank.retrieval_precision, top_k=2))
        case(f"{source}_map", source, mean(rank.retrieval_average_precision))
        case(f"{source}_map3", source, mean(rank.retrieval_average_precision, top_k=3))
        case(f"{source}_r_precision", source, mean(rank.retrieval_r_precision))

    def distinct(n, documents):
        order = random.sample(range(1, 256), n * documents)
        return torch.tensor(order).double().reshape(n, documents) / 256

    p, t = inputs("ranking", lambda n: {"predictions": distinct(n, 5), "targets": ints([n, 5], 0, 1)})
    measures("ranking", list(zip(p, t)))
    p, t, q = inputs(
        "ranking_queries",
        lambda n: {
            "predictions": distinct(1, 2 * n)[0],
            "targets": ints([2 * n], 0, 1),
            "queries": ints([2 * n], 0, 3),
        },
    )
    measures("ranking_queries", [(p[q == query], t[q == query]) for query in sorted(set(q.tolist()))])
    p, t = inputs(
        "relevances", lambda n: {"predictions": ints([n, 6], 0, 3).double(), "targets": ints([n, 6], 0, 4)}
    )
    for k in [None, 3]:
        case(f"ndcg{k or ''}", "relevances", sk.ndcg_score(t.numpy(), p.numpy(), k=k))
    gains = 2.0 ** t.numpy() - 1
    case("ndcg_exponential", "relevances", sk.ndcg_score(gains, p.numpy()))


WORDS = "the a cat dog sat on mat ran fast, over lazy Fox! and it's quick brown jumps".split()


def sentence():
    return " ".join(random.choice(WORDS) for _ in range(random.randint(5, 9)))


def changed(reference):
    words = [word if random.random() < 0.8 else random.choice(WORDS) for word in reference.split()]
    return " ".join(words[random.randint(0, 1) :])


def texts():
    def batch(n):
        targets = [sentence() for _ in range(n)]
        return {
            "predictions": [changed(target) for target in targets],
            "targets": targets,
            "more": [changed(target) + " " + random.choice(WORDS) for target in targets],
        }

    p, t, more = inputs("texts", batch)
    case("cer", "texts", text.char_error_rate(p, t))
    case("wer", "texts", text.word_error_rate(p, t))
    case("mer", "texts", text.match_error_rate(p, t))
    case("wip", "texts", text.word_information_preserved(p, t))
    case("wil", "texts", text.word_information_lost(p, t))
    case("edit", "texts", text.edit_distance(p, t))
    case("bleu", "texts", text.bleu_score(p, [[x] for x in t]))
    case("bleu2", "texts", text.bleu_score(p, [[x] for x in t], n_gram=2))
    case("bleu_smooth", "texts", text.bleu_score(p, [[x] for x in t], smooth=True))
    case("bleu_references", "texts", text.bleu_score(p, [list(x) for x in zip(t, more)]))
    case("chrf", "texts", text.chrf_score(p, [[x] for x in t], n_word_order=0))
    case("chrf++", "texts", text.chrf_score(p, [[x] for x in t], n_word_order=2))
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    scores = [scorer.score(target, prediction) for prediction, target in zip(p, t)]
    for key in ["rouge1", "rouge2", "rougeL"]:
        case(key, "texts", np.mean([score[key].fmeasure for score in scores]))
    multi = [scorer.score_multi(list(references), prediction) for *references, prediction in zip(t, more, p)]
    case("rougeL_references", "texts", np.mean([score["rougeL"].fmeasure for score in multi]))

    def lines(n):
        targets = ["\n".join(sentence() for _ in range(3)) for _ in range(n)]
        shuffled = ["\n".join(random.sample([changed(s) for s in t.split("\n")], 3)) for t in targets]
        return {"predictions": shuffled, "targets": targets}

    p, t = inputs("lines", lines)
    scorer = rouge_scorer.RougeScorer(["rougeLsum"])
    scores = [scorer.score(target, prediction)["rougeLsum"] for prediction, target in zip(p, t)]
    case("rougeLsum", "lines", np.mean([score.fmeasure for score in scores]))


def language_model():
    logits, targets = inputs(
        "tokens", lambda n: {"logits": floats([n, 3, 5]), "targets": ints([n, 3], 0, 4, ignored=-100)}
    )
    case("perplexity", "tokens", text.perplexity(logits, targets, ignore_index=-100))


binary()
multiclass()
multilabel()
regression()
ranking()
texts()
language_model()
folder = Path(__file__).resolve().parent
lines = [
    '{"inputs": {',
    ",\n".join(f" {json.dumps(name)}: {json.dumps(batches)}" for name, batches in INPUTS.items()),
    '}, "cases": {',
    ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in CASES.items()),
    "}}\n",
]
(folder / "metrics.json").write_text("\n".join(lines))
print(len(CASES), "cases")
