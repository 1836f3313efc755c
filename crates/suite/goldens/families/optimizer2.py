"""More optimizers: parameters after each of fifty steps, and L-BFGS on a small regression.

As in the family `optimizer`, the gradients of all steps are inputs.
"""

from unittest import mock

import torch
from torch import optim
from torch.optim import _muon

from .case import Case, Tolerance, normal
from .optimizer import ADADELTA, ADAGRAD, ADAMAX, ARGUMENTS, NADAM, RMSPROP

STEPS = 50


def _trajectory(optimizer):
    def run(inputs, attributes):
        names = [name for name in inputs if f"{name}_gradients" in inputs]
        parameters = {name: inputs[name].clone().requires_grad_() for name in names}
        options = {ARGUMENTS.get(key, key): value for key, value in attributes.items()}
        method = optimizer(list(parameters.values()), **options)
        steps = {f"{name}_steps": [] for name in names}
        for step in range(STEPS):
            for name, parameter in parameters.items():
                parameter.grad = inputs[f"{name}_gradients"][step].to(parameter.dtype).clone()
            method.step()
            for name, parameter in parameters.items():
                steps[f"{name}_steps"].append(parameter.detach().clone())
        return {name: torch.stack(values) for name, values in steps.items()}

    return run


def _adafactor(parameters, epsilon_1, eps_2, **options):
    return optim.Adafactor(parameters, eps=(epsilon_1, eps_2), **options)


def _orthogonalized(grad, coefficients, steps, eps):
    """PyTorch's Newton-Schulz iteration, without its conversion to bfloat16."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


def muon(inputs, attributes):
    with mock.patch.object(_muon, "_zeropower_via_newtonschulz", _orthogonalized):
        return _trajectory(optim.Muon)(inputs, attributes)


def lbfgs(inputs, attributes):
    """Steps on the mean of (tanh(a x) - y)^2 + |x|^2 / 20."""
    x = inputs["x"].clone().requires_grad_()
    options = {ARGUMENTS.get(key, key): value for key, value in attributes.items()}
    calls = options.pop("calls")
    method = optim.LBFGS([x], **options)

    def closure():
        method.zero_grad()
        output = torch.tanh(inputs["a"].to(x.dtype) @ x)
        loss = (output - inputs["y"].to(x.dtype)).square().mean() + x.square().sum() / 20
        loss.backward()
        return loss

    steps = []
    for _ in range(calls):
        method.step(closure)
        steps.append(x.detach().clone())
    return {"x_steps": torch.stack(steps)}


OPERATIONS = {
    "adadelta": _trajectory(optim.Adadelta),
    "adafactor": _trajectory(_adafactor),
    "adagrad": _trajectory(optim.Adagrad),
    "adamax": _trajectory(optim.Adamax),
    "asgd": _trajectory(optim.ASGD),
    "lbfgs": lbfgs,
    "muon": muon,
    "nadam": _trajectory(optim.NAdam),
    "radam": _trajectory(optim.RAdam),
    "rmsprop": _trajectory(optim.RMSprop),
    "rprop": _trajectory(optim.Rprop),
}

MAXIMIZE = {"maximize": False}
DECOUPLED = {"decoupled_weight_decay": False}
RADAM = ADAMAX | DECOUPLED | MAXIMIZE
NADAM2 = NADAM | DECOUPLED | MAXIMIZE
ASGD = {"learning_rate": 0.05, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "weight_decay": 0.0}
RPROP = {"learning_rate": 0.02, "etas": [0.5, 1.2], "step_sizes": [1e-6, 50.0]}
# Single precision has another machine epsilon than the generator's.
ADAFACTOR = {"learning_rate": 0.05, "beta2_decay": -0.8, "epsilon_1": 1e-7, "eps_2": 1e-3, "d": 1.0,
             "weight_decay": 0.0, "maximize": False}
MUON = {"learning_rate": 0.02, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True,
        "ns_steps": 5, "adjust_lr_fn": "original"}
LBFGS = {"learning_rate": 1.0, "max_iter": 20, "history_size": 100, "line_search_fn": None,
         "calls": 6}

LOOSE = Tolerance(1e-4, 1e-4)


def _case(name, op, defaults, tolerance=None, weight=(2, 2), **changes):
    unknown = set(changes) - set(defaults)
    if unknown:
        raise ValueError(f"{name}: {op} has no {unknown}")
    inputs = {
        "weight": normal(*weight),
        "weight_gradients": normal(STEPS, *weight),
    }
    if op != "muon":
        inputs |= {"bias": normal(2), "bias_gradients": normal(STEPS, 2, scale=0.1)}
    return Case(name, op, inputs, defaults | changes, gradient=False, tolerance=tolerance)


def _lbfgs(name, tolerance=1e-3, **changes):
    inputs = {"x": normal(3), "a": normal(6, 3), "y": normal(6, scale=0.5)}
    tolerance = Tolerance(tolerance, tolerance)
    return Case(name, "lbfgs", inputs, LBFGS | changes, gradient=False, tolerance=tolerance)


CASES = [
    _case("adadelta", "adadelta", ADADELTA | MAXIMIZE),
    _case("adadelta_maximize", "adadelta", ADADELTA | MAXIMIZE, maximize=True, rho=0.8),
    _case("adafactor", "adafactor", ADAFACTOR),
    _case("adafactor_decay", "adafactor", ADAFACTOR, weight_decay=0.1, d=1.5, beta2_decay=-0.5),
    _case("adafactor_maximize", "adafactor", ADAFACTOR, maximize=True, weight=(2, 1, 2)),
    _case("adagrad", "adagrad", ADAGRAD | MAXIMIZE),
    _case("adagrad_maximize", "adagrad", ADAGRAD | MAXIMIZE, maximize=True, lr_decay=0.05),
    _case("adamax", "adamax", ADAMAX | MAXIMIZE),
    _case("adamax_maximize", "adamax", ADAMAX | MAXIMIZE, maximize=True, weight_decay=0.1),
    _case("asgd", "asgd", ASGD),
    _case("asgd_average", "asgd", ASGD, lambd=0.01, t0=10.0, weight_decay=0.1),
    _lbfgs("lbfgs"),
    _lbfgs("lbfgs_one", max_iter=1, calls=12, learning_rate=0.8),
    _lbfgs("lbfgs_short_history", tolerance=3e-3, max_iter=7, history_size=2, calls=1),
    _lbfgs("lbfgs_wolfe", line_search_fn="strong_wolfe"),
    _lbfgs("lbfgs_wolfe_few", line_search_fn="strong_wolfe", max_iter=3, learning_rate=4.0),
    _case("muon", "muon", MUON, LOOSE),
    _case("muon_plain", "muon", MUON, LOOSE, nesterov=False, momentum=0.9, weight=(3, 2)),
    _case("muon_rms", "muon", MUON, LOOSE, adjust_lr_fn="match_rms_adamw", weight=(1, 3)),
    _case("nadam", "nadam", NADAM2),
    _case("nadam_decay", "nadam", NADAM2, weight_decay=0.1, momentum_decay=0.02),
    _case("nadam_decoupled", "nadam", NADAM2, weight_decay=0.1, decoupled_weight_decay=True),
    _case("radam", "radam", RADAM),
    _case("radam_decay", "radam", RADAM, weight_decay=0.1, betas=[0.8, 0.99]),
    _case("radam_decoupled", "radam", RADAM, weight_decay=0.1, decoupled_weight_decay=True,
          maximize=True),
    _case("rmsprop", "rmsprop", RMSPROP | MAXIMIZE),
    _case("rmsprop_all", "rmsprop", RMSPROP | MAXIMIZE, momentum=0.8, centered=True, alpha=0.9,
          weight_decay=0.1, maximize=True, epsilon=1e-3),
    _case("rprop", "rprop", RPROP),
    _case("rprop_limits", "rprop", RPROP, etas=[0.6, 1.5], step_sizes=[0.01, 0.05]),
]
