"""Schedules that cycle the momentum: rates and momenta of fifty steps, and the parameters that optimizers reach.

The schedules are those of `torch.optim.lr_scheduler` with `cycle_momentum=True`. Of the optimizers, the gradients of
all steps are inputs.
"""

import torch
from torch import optim
from torch.optim import lr_scheduler as lr

from .case import Case, Tolerance, normal

STEPS = 50
EXACT = Tolerance(1e-16, 1e-12)
TRAJECTORY = Tolerance(2e-5, 2e-5)
SCHEDULES = {"one_cycle": lr.OneCycleLR, "cyclic": lr.CyclicLR}
OPTIMIZERS = {
    "sgd": lambda parameters, **options: optim.SGD(parameters, momentum=0.9, **options),
    "sgd_nesterov": lambda parameters, **options: optim.SGD(parameters, momentum=0.9, nesterov=True, **options),
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "adamax": optim.Adamax,
    "nadam": optim.NAdam,
    "radam": optim.RAdam,
    "rmsprop": lambda parameters, **options: optim.RMSprop(parameters, momentum=0.9, **options),
}


def _momentum(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


def _schedule(name):
    def run(_inputs, attributes):
        optimizer = optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
        scheduler = SCHEDULES[name](optimizer, cycle_momentum=True, **attributes)
        rates, momenta = [], []
        for _ in range(STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            momenta.append(_momentum(optimizer.param_groups[0]))
            optimizer.step()
            scheduler.step()
        return {"rates": torch.tensor(rates, dtype=torch.float64), "momenta": torch.tensor(momenta, dtype=torch.float64)}

    return run


def _trajectory(name):
    def run(inputs, attributes):
        parameter = inputs["x"].clone().requires_grad_()
        optimizer = OPTIMIZERS[name]([parameter], lr=0.1)
        scheduler = lr.OneCycleLR(optimizer, cycle_momentum=True, **attributes)
        steps = []
        for gradient in inputs["gradients"]:
            parameter.grad = gradient.to(parameter.dtype).clone()
            optimizer.step()
            scheduler.step()
            steps.append(parameter.detach().clone())
        return {"x_steps": torch.stack(steps)}

    return run


OPERATIONS = {name: _schedule(name) for name in SCHEDULES} | {name: _trajectory(name) for name in OPTIMIZERS}

ONE_CYCLE = {"max_lr": 0.3, "total_steps": 60, "pct_start": 0.3, "anneal_strategy": "cos", "div_factor": 25.0,
             "final_div_factor": 1e4, "three_phase": False, "base_momentum": 0.85, "max_momentum": 0.95}
CYCLIC = {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 7, "step_size_down": 7, "mode": "triangular",
          "gamma": 1.0, "base_momentum": 0.8, "max_momentum": 0.9}
# Half of the steps rise, so that the momentum moves both ways.
RUN = ONE_CYCLE | {"total_steps": STEPS, "pct_start": 0.5, "max_lr": 0.05, "base_momentum": 0.5}


def _case(name, op, attributes):
    return Case(name, op, {}, attributes, gradient=False, dtype="f64", tolerance=EXACT)


def _run(op):
    inputs = {"x": normal(3), "gradients": normal(STEPS - 1, 3)}
    return Case(f"{op}_trajectory", op, inputs, RUN, gradient=False, tolerance=TRAJECTORY)


CASES = [
    _case("one_cycle", "one_cycle", ONE_CYCLE),
    _case("one_cycle_linear", "one_cycle", ONE_CYCLE | {"anneal_strategy": "linear", "base_momentum": 0.6}),
    _case("one_cycle_three_phase", "one_cycle", ONE_CYCLE | {"three_phase": True, "total_steps": 50}),
    _case("cyclic_triangular", "cyclic", CYCLIC),
    _case("cyclic_triangular2", "cyclic", CYCLIC | {"mode": "triangular2", "step_size_down": 4}),
    _case("cyclic_exp_range", "cyclic", CYCLIC | {"mode": "exp_range", "gamma": 0.97, "max_momentum": 0.95}),
    *[_run(op) for op in OPTIMIZERS],
]
