"""Writes the golden files of this folder: results of PyTorch for small inputs.

Run from anywhere, with the packages that README.md names:

    python3 crates/suite/goldens/generate.py             # every family
    python3 crates/suite/goldens/generate.py conv pool   # only these
    python3 crates/suite/goldens/generate.py --check     # write nothing, fail on a difference

Each family becomes `<family>.safetensors` (the tensors) and `<family>.json` (the cases). README.md
specifies both. Running again gives the same bytes: inputs come from Python's own generator, seeded
by the case's name and rounded to multiples of 2^-16. PyTorch computes in f64, on one thread and
without instructions that only some processors have, before a result is rounded to its dtype.

Every f32 case is also computed in f32, and the script fails if that alone uses more than half of
the tolerance of the case: a tolerance that PyTorch itself cannot keep is a mistake in the table.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path

# Read when PyTorch is loaded.
os.environ["ATEN_CPU_CAPABILITY"] = "default"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import torch
from safetensors.torch import save

from families import FAMILIES
from families.case import Case

FOLDER = Path(__file__).resolve().parent
PYTORCH = "2.13.0"
CASE_BYTES = 3072
TOTAL_BYTES = 3_000_000
STORED = {torch.float64: torch.float32, torch.int64: torch.int32, torch.bool: torch.bool}


def main() -> None:
    arguments = parse_arguments()
    make_deterministic()
    changed, total = [], 0
    for family in arguments.families or FAMILIES:
        tensors, manifest, count = build_family(family)
        total += len(tensors) + len(manifest)
        print(f"{family:20} {count:4} cases {len(tensors):8} + {len(manifest):7} bytes")
        for path, content in [
            (FOLDER / f"{family}.safetensors", tensors),
            (FOLDER / f"{family}.json", manifest),
        ]:
            if not path.exists() or path.read_bytes() != content:
                changed.append(path.name)
                if not arguments.check:
                    path.write_bytes(content)
    print(f"total {total} bytes, changed: {', '.join(changed) or 'none'}")
    if total > TOTAL_BYTES:
        sys.exit(f"the files together exceed {TOTAL_BYTES} bytes")
    if arguments.check and changed:
        sys.exit("the files in this folder are not what this script makes")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write the golden files from PyTorch.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.families) - set(FAMILIES))
    if unknown:
        parser.error(f"no such family: {', '.join(unknown)}")
    return arguments


def make_deterministic() -> None:
    found = torch.__version__.split("+")[0]
    if found != PYTORCH:
        print(f"warning: made for PyTorch {PYTORCH}, running {found}", file=sys.stderr)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # oneDNN picks its algorithm by instruction set.
    torch.backends.mkldnn.enabled = False


def build_family(family: str) -> tuple[bytes, bytes, int]:
    """The bytes of the family's two files and its number of cases."""
    module = FAMILIES[family]
    tensors, lines, names, problems = {}, [], set(), []
    for case in module.CASES:
        try:
            if case.name in names:
                raise ValueError("another case has the same name")
            names.add(case.name)
            entry, stored = run_case(family, case, module.OPERATIONS[case.op])
            check_size(stored)
        except (ValueError, TypeError, RuntimeError, KeyError, IndexError) as error:
            problems.append(f"{family}/{case.name}: {type(error).__name__}: {error}")
            continue
        tensors |= {f"{case.name}/{name}": tensor for name, tensor in stored.items()}
        lines.append(json.dumps(entry, allow_nan=False))
    if problems:
        sys.exit("\n".join(problems))
    # One metadata key only: safetensors does not order them.
    content = save(tensors, metadata={"source": f"PyTorch {PYTORCH}"})
    return content, ("[\n" + ",\n".join(lines) + "\n]\n").encode(), len(lines)


def check_size(stored: dict) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
    if size > CASE_BYTES:
        raise ValueError(f"{size} bytes, more than {CASE_BYTES}")


def run_case(family: str, case: Case, operation) -> tuple[dict, dict]:
    """The manifest entry of a case, and its tensors by name as they are stored."""
    source = random.Random(f"{family}/{case.name}")
    inputs = {name: make(source) for name, make in case.inputs.items()}
    output_gradient = None
    if case.differentiated():
        with torch.no_grad():
            shape = next(iter(operation(inputs, case.attributes).values())).shape
        output_gradient = case.draw_output_gradient(source, shape)
    outputs, gradients = evaluate(case, operation, inputs, output_gradient)
    expected = outputs | {f"grad_{name}": value for name, value in gradients.items()}
    if case.dtype == "f32":
        check_tolerance(case, operation, inputs, output_gradient, expected)

    stored = inputs | expected
    if len(stored) != len(inputs) + len(expected):
        raise ValueError("an output has the name of an input")
    if output_gradient is not None:
        stored["grad_output"] = output_gradient
    entry = {
        "name": case.name,
        "op": case.op,
        "dtype": case.dtype,
        "attributes": case.attributes,
        "inputs": list(inputs),
        "outputs": list(outputs),
        "gradients": {name: f"grad_{name}" for name in gradients},
        "tolerance": case.tolerance._asdict(),
    }
    return entry, {name: to_stored(value, case.dtype) for name, value in stored.items()}


def evaluate(case: Case, operation, inputs: dict, output_gradient) -> tuple[dict, dict]:
    """Outputs and gradients by name, in the dtype that the inputs have."""
    leaves = {
        name: inputs[name].detach().clone().requires_grad_() for name in case.differentiated()
    }
    outputs = operation(inputs | leaves, case.attributes)
    gradients = {}
    if leaves:
        first = next(iter(outputs.values()))
        results = torch.autograd.grad(first, list(leaves.values()), output_gradient.to(first.dtype))
        gradients = dict(zip(leaves, results, strict=True))
    return {name: value.detach() for name, value in outputs.items()}, gradients


def check_tolerance(case: Case, operation, inputs, output_gradient, expected) -> None:
    """Fails where f32 arithmetic alone uses more than half of the tolerance of the case."""
    singles = {
        name: value.float() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    outputs, gradients = evaluate(case, operation, singles, output_gradient)
    for name, value in (outputs | {f"grad_{name}": g for name, g in gradients.items()}).items():
        if not torch.allclose(
            value.double(),
            expected[name].double(),
            rtol=case.tolerance.relative / 2,
            atol=case.tolerance.absolute / 2,
            equal_nan=True,
        ):
            error = (value.double() - expected[name].double()).abs().max()
            raise ValueError(f"{name}: f32 differs by {error:.2e}, tolerance {case.tolerance}")


def to_stored(value: torch.Tensor, dtype: str) -> torch.Tensor:
    kind = STORED[value.dtype]
    if kind == torch.float32 and dtype == "f64":
        kind = torch.float64
    return value.detach().to(kind).contiguous().clone()


if __name__ == "__main__":
    main()
