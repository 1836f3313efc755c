"""Maximum, average and adaptive pooling."""

import torch.nn.functional as F

from .case import Case, distinct, literal, normal


def _max(function):
    def run(inputs, attributes):
        y, indices = function(
            inputs["x"],
            attributes["kernel"],
            stride=attributes["stride"],
            padding=attributes["padding"],
            dilation=attributes["dilation"],
            ceil_mode=attributes["ceil_mode"],
            return_indices=True,
        )
        return {"y": y, "indices": indices}

    return run


def _average(function):
    def run(inputs, attributes):
        return {
            "y": function(
                inputs["x"],
                attributes["kernel"],
                stride=attributes["stride"],
                padding=attributes["padding"],
                ceil_mode=attributes["ceil_mode"],
                count_include_pad=attributes["count_include_pad"],
            )
        }

    return run


def _adaptive_average(function):
    return lambda inputs, attributes: {"y": function(inputs["x"], attributes["output_size"])}


def _adaptive_max(function):
    def run(inputs, attributes):
        y, indices = function(inputs["x"], attributes["output_size"], return_indices=True)
        return {"y": y, "indices": indices}

    return run


OPERATIONS = {
    "max_pool1d": _max(F.max_pool1d),
    "max_pool2d": _max(F.max_pool2d),
    "max_pool3d": _max(F.max_pool3d),
    "avg_pool1d": _average(F.avg_pool1d),
    "avg_pool2d": _average(F.avg_pool2d),
    "avg_pool3d": _average(F.avg_pool3d),
    "adaptive_avg_pool1d": _adaptive_average(F.adaptive_avg_pool1d),
    "adaptive_avg_pool2d": _adaptive_average(F.adaptive_avg_pool2d),
    "adaptive_avg_pool3d": _adaptive_average(F.adaptive_avg_pool3d),
    "adaptive_max_pool1d": _adaptive_max(F.adaptive_max_pool1d),
    "adaptive_max_pool2d": _adaptive_max(F.adaptive_max_pool2d),
}


def _max_case(name, x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False, **options):
    rank = len(x) - 2
    kernel = _per_axis(kernel, rank)
    attributes = {
        "kernel": kernel,
        "stride": kernel if stride is None else _per_axis(stride, rank),
        "padding": _per_axis(padding, rank),
        "dilation": _per_axis(dilation, rank),
        "ceil_mode": ceil_mode,
    }
    op = f"max_pool{rank}d"
    inputs = {"x": options.pop("values", distinct(*x))}
    return Case(f"{op}_{name}", op, inputs, attributes, **options)


def _average_case(
    name, x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True, **options
):
    rank = len(x) - 2
    kernel = _per_axis(kernel, rank)
    attributes = {
        "kernel": kernel,
        "stride": kernel if stride is None else _per_axis(stride, rank),
        "padding": _per_axis(padding, rank),
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
    }
    op = f"avg_pool{rank}d"
    return Case(f"{op}_{name}", op, {"x": normal(*x)}, attributes, **options)


def _adaptive_case(kind, name, x, output_size):
    op = f"adaptive_{kind}_pool{len(x) - 2}d"
    values = distinct(*x) if kind == "max" else normal(*x)
    return Case(f"{op}_{name}", op, {"x": values}, {"output_size": list(output_size)})


def _per_axis(value, rank):
    return [value] * rank if isinstance(value, int) else list(value)


CASES = [
    _max_case("plain", (2, 3, 8), 2),
    _max_case("overlapping", (2, 3, 9), 3, stride=2),
    _max_case("padding", (2, 3, 8), 3, stride=2, padding=1),
    _max_case("dilation", (2, 3, 10), 3, stride=1, dilation=2),
    _max_case("ceil", (2, 3, 8), 3, stride=2, ceil_mode=True),
    _max_case("stride_beyond_kernel", (2, 3, 9), 2, stride=3),
    _max_case("all_negative", (1, 1, 5), 3, stride=2, padding=1,
              values=literal([[[-5.0, -4.0, -3.0, -2.5, -7.0]]])),
    _max_case("ties", (1, 1, 6), 3, stride=1, values=literal([[[1.0, 1.0, 0.0, 2.0, 2.0, 2.0]]])),
    # Of several NaN in a window PyTorch takes the last, Kiln the first.
    _max_case("not_a_number", (1, 1, 6), 3,
              values=literal([[[1.0, float("nan"), 2.0, 2.0, 2.0, 1.0]]])),
    _max_case("plain", (2, 2, 6, 6), 2),
    _max_case("uneven", (2, 2, 6, 7), (2, 3), stride=(1, 2)),
    _max_case("overlapping", (1, 3, 7, 7), 3, stride=2),
    _max_case("padding", (1, 3, 6, 6), 3, stride=2, padding=1),
    _max_case("dilation", (1, 3, 7, 7), 2, stride=1, dilation=(3, 2)),
    _max_case("ceil", (1, 3, 6, 6), 3, stride=2, ceil_mode=True),
    _max_case("ceil_padding", (1, 2, 6, 7), 3, stride=2, padding=1, ceil_mode=True),
    _max_case("ceil_window_starts_in_padding", (1, 2, 4, 4), 2, stride=3, padding=1,
              ceil_mode=True),
    _max_case("f64", (1, 2, 5, 5), 2, stride=1, dtype="f64"),
    _max_case("plain", (1, 2, 4, 4, 4), 2),
    _max_case("padding", (1, 2, 4, 4, 3), 3, stride=2, padding=1),
    _max_case("dilation", (1, 2, 5, 4, 3), 2, stride=1, dilation=(2, 1, 2)),
    _max_case("ceil", (1, 2, 5, 4, 5), 2, ceil_mode=True),
    _average_case("plain", (2, 3, 8), 2),
    _average_case("overlapping", (2, 3, 9), 3, stride=2),
    _average_case("padding_counted", (2, 3, 8), 3, stride=2, padding=1),
    _average_case("padding_not_counted", (2, 3, 8), 3, stride=2, padding=1,
                  count_include_pad=False),
    _average_case("ceil_counted", (2, 3, 8), 3, stride=2, ceil_mode=True),
    _average_case("ceil_padding_counted", (2, 3, 7), 4, stride=3, padding=2, ceil_mode=True),
    _average_case("ceil_padding_not_counted", (2, 3, 7), 4, stride=3, padding=2, ceil_mode=True,
                  count_include_pad=False),
    _average_case("plain", (2, 2, 6, 6), 2),
    _average_case("uneven", (2, 2, 6, 7), (2, 3), stride=(1, 2)),
    _average_case("padding_counted", (1, 3, 6, 6), 3, stride=2, padding=1),
    _average_case("padding_not_counted", (1, 3, 6, 6), 3, stride=2, padding=1,
                  count_include_pad=False),
    _average_case("ceil_counted", (1, 3, 6, 6), 3, stride=2, ceil_mode=True),
    _average_case("ceil_not_counted", (1, 3, 6, 6), 3, stride=2, ceil_mode=True,
                  count_include_pad=False),
    _average_case("ceil_padding_counted", (1, 2, 6, 7), (3, 4), stride=(2, 3), padding=(1, 2),
                  ceil_mode=True),
    _average_case("ceil_padding_not_counted", (1, 2, 6, 7), (3, 4), stride=(2, 3), padding=(1, 2),
                  ceil_mode=True, count_include_pad=False),
    _average_case("f64", (1, 2, 5, 5), 3, stride=1, padding=1, dtype="f64"),
    _average_case("plain", (1, 2, 4, 4, 4), 2),
    _average_case("padding_counted", (1, 2, 4, 4, 3), 3, stride=2, padding=1),
    _average_case("padding_not_counted", (1, 2, 4, 4, 3), 3, stride=2, padding=1,
                  count_include_pad=False),
    _average_case("ceil_padding_not_counted", (1, 2, 5, 4, 4), 2, stride=2, padding=1,
                  ceil_mode=True, count_include_pad=False),
    _adaptive_case("avg", "even", (2, 3, 8), [4]),
    _adaptive_case("avg", "uneven", (2, 3, 7), [3]),
    _adaptive_case("avg", "larger", (2, 3, 4), [6]),
    _adaptive_case("avg", "global", (2, 3, 7), [1]),
    _adaptive_case("avg", "even", (1, 3, 6, 6), [3, 2]),
    _adaptive_case("avg", "uneven", (1, 3, 7, 5), [3, 2]),
    _adaptive_case("avg", "larger", (1, 2, 3, 4), [5, 6]),
    _adaptive_case("avg", "global", (2, 3, 4, 5), [1, 1]),
    _adaptive_case("avg", "uneven", (1, 2, 3, 5, 4), [2, 3, 3]),
    _adaptive_case("max", "uneven", (2, 3, 7), [3]),
    _adaptive_case("max", "larger", (2, 3, 4), [6]),
    _adaptive_case("max", "uneven", (1, 3, 7, 5), [3, 2]),
    _adaptive_case("max", "even", (1, 3, 6, 6), [3, 2]),
]
