"""Averages of weights over the steps, and recomputed running statistics of batch normalisation.

The tests of kiln-optim compare them; the suite has no op to run.
"""

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from .case import Case, normal

STEPS = 8


class Layer(torch.nn.Module):
    def __init__(self, weight, mean):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.clone())
        self.register_buffer("mean", mean.clone())


def _average(inputs, multi_avg_fn, use_buffers):
    layer = Layer(inputs["weights"][0], inputs["means"][0])
    averaged = AveragedModel(layer, multi_avg_fn=multi_avg_fn, use_buffers=use_buffers)
    weights, means = [], []
    for weight, mean in zip(inputs["weights"], inputs["means"], strict=True):
        layer.weight.data.copy_(weight)
        layer.mean.copy_(mean)
        averaged.update_parameters(layer)
        weights.append(averaged.module.weight.detach().clone())
        means.append(averaged.module.mean.clone())
    return {"average_weights": torch.stack(weights), "average_means": torch.stack(means)}


def ema(inputs, attributes):
    return _average(inputs, get_ema_multi_avg_fn(attributes["decay"]), attributes["use_buffers"])


def swa(inputs, attributes):
    return _average(inputs, None, attributes["use_buffers"])


def batch_norm(inputs, attributes):
    layer = torch.nn.BatchNorm1d(3, momentum=attributes["momentum"]).to(inputs["batches"].dtype)
    update_bn(list(inputs["batches"]), layer)
    return {"running_mean": layer.running_mean, "running_var": layer.running_var}


OPERATIONS = {"ema": ema, "swa": swa, "batch_norm": batch_norm}
WEIGHTS = {"weights": normal(STEPS, 2, 3), "means": normal(STEPS, 3)}


def _case(name, op, inputs=WEIGHTS, **attributes):
    return Case(name, op, inputs, attributes, gradient=False)


CASES = [
    _case("ema", "ema", decay=0.9, use_buffers=False),
    _case("ema_fast", "ema", decay=0.3, use_buffers=True),
    _case("swa", "swa", use_buffers=False),
    _case("swa_buffers", "swa", use_buffers=True),
    _case("batch_norm", "batch_norm", {"batches": normal(4, 6, 3)}, momentum=0.1),
]
