"""Optimizers: parameters after each of twelve steps, and gradient clipping.

The gradients of all steps are inputs. An optimizer sees nothing else of the problem, and drawn
gradients change sign more than those of a converging problem would.
"""

import torch
from torch import optim

from .case import Case, literal, normal

STEPS = 12
# PyTorch's names of the manifest's optimizer options.
ARGUMENTS = {"learning_rate": "lr", "epsilon": "eps"}


def _trajectory(optimizer):
    def run(inputs, attributes):
        names = [name for name in inputs if f"{name}_gradients" in inputs]
        parameters = {name: inputs[name].clone().requires_grad_() for name in names}
        options = {ARGUMENTS.get(key, key): value for key, value in attributes.items()}
        method = optimizer(list(parameters.values()), foreach=False, **options)
        steps = {f"{name}_steps": [] for name in names}
        for step in range(STEPS):
            for name, parameter in parameters.items():
                parameter.grad = inputs[f"{name}_gradients"][step].to(parameter.dtype).clone()
            method.step()
            for name, parameter in parameters.items():
                steps[f"{name}_steps"].append(parameter.detach().clone())
        return {name: torch.stack(values) for name, values in steps.items()}

    return run


def clip_by_norm(inputs, attributes):
    parameters = _with_gradients(inputs)
    total = torch.nn.utils.clip_grad_norm_(
        list(parameters.values()), attributes["max_norm"], float(attributes["norm_type"])
    )
    return {f"clipped_{name}": parameter.grad for name, parameter in parameters.items()} | {
        "total_norm": total
    }


def clip_by_value(inputs, attributes):
    parameters = _with_gradients(inputs)
    torch.nn.utils.clip_grad_value_(list(parameters.values()), attributes["limit"])
    return {f"clipped_{name}": parameter.grad for name, parameter in parameters.items()}


def _with_gradients(inputs):
    parameters = {name: torch.zeros_like(value) for name, value in inputs.items()}
    for name, parameter in parameters.items():
        parameter.grad = inputs[name].clone()
    return parameters


OPERATIONS = {
    "sgd": _trajectory(optim.SGD),
    "adam": _trajectory(optim.Adam),
    "adamw": _trajectory(optim.AdamW),
    "adamax": _trajectory(optim.Adamax),
    "nadam": _trajectory(optim.NAdam),
    "radam": _trajectory(optim.RAdam),
    "rmsprop": _trajectory(optim.RMSprop),
    "adagrad": _trajectory(optim.Adagrad),
    "adadelta": _trajectory(optim.Adadelta),
    "clip_by_norm": clip_by_norm,
    "clip_by_value": clip_by_value,
}

SGD = {"learning_rate": 0.05, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0,
       "nesterov": False, "maximize": False}
ADAM = {"learning_rate": 0.05, "betas": [0.9, 0.999], "epsilon": 1e-8, "weight_decay": 0.0,
        "amsgrad": False}
ADAMW = ADAM | {"weight_decay": 0.01}
ADAMAX = {"learning_rate": 0.05, "betas": [0.9, 0.999], "epsilon": 1e-8, "weight_decay": 0.0}
NADAM = ADAMAX | {"momentum_decay": 0.004}
RMSPROP = {"learning_rate": 0.02, "alpha": 0.99, "epsilon": 1e-8, "weight_decay": 0.0,
           "momentum": 0.0, "centered": False}
ADAGRAD = {"learning_rate": 0.1, "lr_decay": 0.0, "weight_decay": 0.0,
           "initial_accumulator_value": 0.0, "epsilon": 1e-10}
ADADELTA = {"learning_rate": 1.0, "rho": 0.9, "epsilon": 1e-6, "weight_decay": 0.0}


def _case(name, op, defaults, **changes):
    unknown = set(changes) - set(defaults)
    if unknown:
        raise ValueError(f"{name}: {op} has no {unknown}")
    inputs = {
        "weight": normal(2, 3),
        "bias": normal(3),
        "weight_gradients": normal(STEPS, 2, 3),
        "bias_gradients": normal(STEPS, 3, scale=0.1),
    }
    return Case(name, op, inputs, defaults | changes, gradient=False)


def _clip(name, op, attributes, a=normal(2, 3), b=normal(4)):
    return Case(name, op, {"a": a, "b": b}, attributes, gradient=False)


CASES = [
    _case("sgd_plain", "sgd", SGD),
    _case("sgd_momentum", "sgd", SGD, momentum=0.9),
    _case("sgd_nesterov", "sgd", SGD, momentum=0.9, nesterov=True),
    _case("sgd_dampening", "sgd", SGD, momentum=0.9, dampening=0.3),
    _case("sgd_weight_decay", "sgd", SGD, weight_decay=0.1),
    _case("sgd_momentum_weight_decay", "sgd", SGD, momentum=0.8, weight_decay=0.1),
    _case("sgd_nesterov_weight_decay", "sgd", SGD, momentum=0.8, weight_decay=0.1, nesterov=True),
    _case("sgd_momentum_dampening_weight_decay", "sgd", SGD, momentum=0.8, dampening=0.5,
          weight_decay=0.1),
    _case("sgd_maximize", "sgd", SGD, momentum=0.9, maximize=True),
    _case("adam_plain", "adam", ADAM),
    _case("adam_betas", "adam", ADAM, betas=[0.7, 0.9]),
    _case("adam_epsilon", "adam", ADAM, epsilon=0.1),
    _case("adam_weight_decay", "adam", ADAM, weight_decay=0.1),
    _case("adam_amsgrad", "adam", ADAM, betas=[0.9, 0.6], amsgrad=True),
    _case("adam_amsgrad_weight_decay", "adam", ADAM, betas=[0.9, 0.6], amsgrad=True,
          weight_decay=0.1),
    _case("adamw_plain", "adamw", ADAMW),
    _case("adamw_no_decay", "adamw", ADAMW, weight_decay=0.0),
    _case("adamw_strong_decay", "adamw", ADAMW, weight_decay=0.5, learning_rate=0.1),
    _case("adamw_amsgrad", "adamw", ADAMW, betas=[0.9, 0.6], amsgrad=True),
    _case("adamax_plain", "adamax", ADAMAX),
    _case("adamax_weight_decay", "adamax", ADAMAX, weight_decay=0.1),
    _case("nadam_plain", "nadam", NADAM),
    _case("radam_plain", "radam", ADAMAX),
    _case("rmsprop_plain", "rmsprop", RMSPROP),
    _case("rmsprop_momentum", "rmsprop", RMSPROP, momentum=0.9),
    _case("rmsprop_centered", "rmsprop", RMSPROP, alpha=0.9, centered=True),
    _case("rmsprop_centered_momentum_weight_decay", "rmsprop", RMSPROP, alpha=0.9, centered=True,
          momentum=0.5, weight_decay=0.1),
    _case("adagrad_plain", "adagrad", ADAGRAD),
    _case("adagrad_decays", "adagrad", ADAGRAD, lr_decay=0.1, weight_decay=0.1),
    _case("adagrad_initial", "adagrad", ADAGRAD, initial_accumulator_value=0.5),
    _case("adadelta_plain", "adadelta", ADADELTA),
    _case("adadelta_weight_decay", "adadelta", ADADELTA, weight_decay=0.1),
    _clip("clip_by_norm", "clip_by_norm", {"max_norm": 1.0, "norm_type": 2.0}),
    _clip("clip_by_norm_below", "clip_by_norm", {"max_norm": 100.0, "norm_type": 2.0}),
    _clip("clip_by_norm_one", "clip_by_norm", {"max_norm": 1.5, "norm_type": 1.0}),
    _clip("clip_by_norm_infinity", "clip_by_norm", {"max_norm": 0.5, "norm_type": "inf"}),
    _clip("clip_by_norm_zero", "clip_by_norm", {"max_norm": 1.0, "norm_type": 2.0},
          literal([[0.0, 0.0]]), literal([0.0])),
    _clip("clip_by_value", "clip_by_value", {"limit": 0.4}),
]
