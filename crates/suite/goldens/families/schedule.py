"""Learning-rate schedules: the rates of fifty steps.

The tests of kiln-optim compare them; the suite has no op to run. The optimizer has one parameter
without a gradient, so that its steps change nothing.
"""

import torch
from torch.optim import lr_scheduler as lr
from torch.optim.swa_utils import SWALR

from .case import Case, Tolerance, literal

STEPS = 50
# Recursive formulas of PyTorch round at each step. Near zero only the absolute part passes.
TOLERANCE = Tolerance(1e-16, 1e-12)


def _optimizer(rate):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)


def _rates(optimizer, scheduler):
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"rates": torch.tensor(rates, dtype=torch.float64)}


def _schedule(make):
    """The rates of a scheduler that is made from an optimizer and the attributes without `rate`."""

    def run(_inputs, attributes):
        options = dict(attributes)
        optimizer = _optimizer(options.pop("rate", 0.1))
        return _rates(optimizer, make(optimizer, **options))

    return run


def _sequential(optimizer, warmup, gamma, milestone):
    first = lr.LinearLR(optimizer, start_factor=0.25, total_iters=warmup)
    return lr.SequentialLR(optimizer, [first, lr.ExponentialLR(optimizer, gamma)], [milestone])


def _chained(optimizer, factor, steps, gamma):
    parts = [lr.ConstantLR(optimizer, factor, steps), lr.ExponentialLR(optimizer, gamma)]
    return lr.ChainedScheduler(parts, optimizer)


def plateau(inputs, attributes):
    """The rates after each of the given metrics."""
    options = dict(attributes)
    optimizer = _optimizer(options.pop("rate"))
    scheduler = lr.ReduceLROnPlateau(optimizer, **options)
    rates = []
    for metric in inputs["metrics"].tolist():
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return {"rates": torch.tensor(rates, dtype=torch.float64)}


OPERATIONS = {
    "constant": _schedule(lr.ConstantLR),
    "linear": _schedule(lr.LinearLR),
    "polynomial": _schedule(lr.PolynomialLR),
    "exponential": _schedule(lr.ExponentialLR),
    "step": _schedule(lr.StepLR),
    "multi_step": _schedule(lr.MultiStepLR),
    "cosine": _schedule(lr.CosineAnnealingLR),
    "cosine_warm_restarts": _schedule(lr.CosineAnnealingWarmRestarts),
    "one_cycle": _schedule(lambda optimizer, **options: lr.OneCycleLR(
        optimizer, cycle_momentum=False, **options)),
    "cyclic": _schedule(lambda optimizer, **options: lr.CyclicLR(
        optimizer, cycle_momentum=False, **options)),
    "lambda": _schedule(lambda optimizer: lr.LambdaLR(
        optimizer, lambda step: 1.0 / (1.0 + 0.5 * step))),
    "multiplicative": _schedule(lambda optimizer: lr.MultiplicativeLR(
        optimizer, lambda step: 1.0 - 0.5 / step)),
    "sequential": _schedule(_sequential),
    "chained": _schedule(_chained),
    "swa": _schedule(SWALR),
    "plateau": plateau,
}


def _case(name, op, **attributes):
    return Case(name, op, {}, attributes, gradient=False, dtype="f64", tolerance=TOLERANCE)


CONSTANT = {"rate": 0.1, "factor": 1 / 3, "total_iters": 5}
LINEAR = {"rate": 0.1, "start_factor": 1 / 3, "end_factor": 1.0, "total_iters": 5}
ONE_CYCLE = {"max_lr": 0.3, "total_steps": 60, "pct_start": 0.3, "anneal_strategy": "cos",
             "div_factor": 25.0, "final_div_factor": 1e4, "three_phase": False}
CYCLIC = {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 7, "step_size_down": 7,
          "mode": "triangular", "gamma": 1.0}
PLATEAU = {"rate": 0.1, "mode": "min", "factor": 0.1, "patience": 10, "threshold": 1e-4,
           "threshold_mode": "rel", "cooldown": 0, "min_lr": 0.0, "eps": 1e-8}
# Falls, stays, falls a little, rises, with NaN and infinity.
LOSSES = [5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 2.5, 2.5, 2.49, 2.48, 2.4799, 2.5, 2.6, 2.4, float("nan"),
          2.4, 2.4, 2.4, float("inf"), 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3,
          2.3, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25, 2.25,
          2.25, 2.25, 2.25, 2.25]


def _plateau(name, sign=1.0, **changes):
    metrics = literal([sign * loss for loss in LOSSES])
    return Case(name, "plateau", {"metrics": metrics}, PLATEAU | changes, gradient=False,
                dtype="f64", tolerance=TOLERANCE)


CASES = [
    _case("constant", "constant", **CONSTANT),
    _case("constant_long", "constant", **CONSTANT | {"factor": 0.5, "total_iters": 30}),
    _case("linear", "linear", **LINEAR),
    _case("linear_decay", "linear", **LINEAR | {"start_factor": 1.0, "end_factor": 0.1,
                                                "total_iters": 40}),
    _case("polynomial", "polynomial", rate=0.1, total_iters=5, power=1.0),
    _case("polynomial_power", "polynomial", rate=0.1, total_iters=45, power=2.5),
    _case("exponential", "exponential", rate=0.1, gamma=0.9),
    _case("step", "step", rate=0.1, step_size=8, gamma=0.1),
    _case("multi_step", "multi_step", rate=0.1, milestones=[3, 10, 10, 40], gamma=0.3),
    _case("cosine", "cosine", rate=0.1, T_max=60, eta_min=0.0),
    _case("cosine_periodic", "cosine", rate=0.1, T_max=12, eta_min=0.01),
    _case("cosine_warm_restarts", "cosine_warm_restarts", rate=0.1, T_0=7, T_mult=1, eta_min=0.0),
    _case("cosine_warm_restarts_longer", "cosine_warm_restarts", rate=0.1, T_0=4, T_mult=2,
          eta_min=0.01),
    _case("one_cycle", "one_cycle", **ONE_CYCLE),
    _case("one_cycle_linear", "one_cycle", **ONE_CYCLE | {"anneal_strategy": "linear",
                                                          "pct_start": 0.37}),
    _case("one_cycle_three_phase", "one_cycle", **ONE_CYCLE | {"three_phase": True,
                                                               "total_steps": 50}),
    _case("one_cycle_options", "one_cycle", **ONE_CYCLE | {
        "three_phase": True, "anneal_strategy": "linear", "div_factor": 10.0,
        "final_div_factor": 50.0, "pct_start": 0.25, "total_steps": 53}),
    _case("cyclic_triangular", "cyclic", **CYCLIC),
    _case("cyclic_triangular2", "cyclic", **CYCLIC | {"mode": "triangular2", "step_size_down": 4}),
    _case("cyclic_exp_range", "cyclic", **CYCLIC | {"mode": "exp_range", "gamma": 0.97}),
    _case("lambda", "lambda", rate=0.1),
    _case("multiplicative", "multiplicative", rate=0.1),
    _case("sequential", "sequential", rate=0.1, warmup=6, gamma=0.9, milestone=10),
    _case("chained", "chained", rate=0.1, factor=0.5, steps=7, gamma=0.95),
    _case("swa", "swa", rate=0.1, swa_lr=0.05, anneal_epochs=10, anneal_strategy="cos"),
    _case("swa_linear", "swa", rate=0.01, swa_lr=0.05, anneal_epochs=20,
          anneal_strategy="linear"),
    _case("swa_at_once", "swa", rate=0.01, swa_lr=0.05, anneal_epochs=0, anneal_strategy="cos"),
    _plateau("plateau"),
    _plateau("plateau_cooldown", patience=2, cooldown=3, factor=0.5),
    _plateau("plateau_max", -1.0, mode="max", patience=3, factor=0.5),
    _plateau("plateau_absolute", threshold_mode="abs", threshold=0.05, patience=1, factor=0.7),
    _plateau("plateau_max_absolute", -1.0, mode="max", threshold_mode="abs", threshold=0.05,
             patience=1, factor=0.7, cooldown=1),
    _plateau("plateau_min_lr", patience=0, min_lr=0.02, factor=0.5),
    _plateau("plateau_epsilon", patience=0, factor=0.5, eps=0.01),
]
