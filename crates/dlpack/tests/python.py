"""Exchanges tensors between NumPy, PyTorch where it is installed, and Kiln: python3 python.py LIBRARY."""

import ctypes
import gc
import sys

import numpy as np

try:
    import torch
except ImportError:
    torch = None

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
          "uint64", "uint32", "uint16", "uint8", "bool"]

# Held for as long as the capsules that have them.
VERSIONED, LEGACY = b"dltensor_versioned", b"dltensor"
USED_VERSIONED, USED_LEGACY = b"used_dltensor_versioned", b"used_dltensor"

# Calls keep Python's lock: the deleters of other frameworks need it.
kiln = ctypes.PyDLL(sys.argv[1])
for name in ["kiln_export", "kiln_export_legacy", "kiln_share"]:
    getattr(kiln, name).restype = ctypes.c_void_p
for name in ["kiln_take", "kiln_take_legacy"]:
    getattr(kiln, name).argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    getattr(kiln, name).restype = ctypes.c_size_t
kiln.kiln_alive.restype = ctypes.c_size_t
python = ctypes.pythonapi
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Shared:
    """A tensor of Kiln, as the array API standard asks for it."""

    def __init__(self, function, name, dtype):
        self.pointer, self.name = getattr(kiln, function)(DTYPES.index(dtype)), name

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return python.PyCapsule_New(self.pointer, self.name, None)

    def address(self):
        """Of the first element: the tensor's first field."""
        return ctypes.c_void_p.from_address(self.pointer + (32 if self.name == VERSIONED else 0)).value


def take(tensor, legacy=False):
    """Kiln's text of a tensor that another framework shares."""
    capsule = tensor.__dlpack__() if legacy else tensor.__dlpack__(max_version=(1, 1))
    name, used = (LEGACY, USED_LEGACY) if legacy else (VERSIONED, USED_VERSIONED)
    pointer = python.PyCapsule_GetPointer(capsule, name)
    python.PyCapsule_SetName(capsule, used)
    buffer = ctypes.create_string_buffer(4096)
    length = (kiln.kiln_take_legacy if legacy else kiln.kiln_take)(pointer, buffer, len(buffer))
    return buffer.raw[:length].decode()


def numpy_takes():
    for dtype in DTYPES:
        for function, name in [("kiln_export", VERSIONED), ("kiln_export_legacy", LEGACY), ("kiln_share", VERSIONED)]:
            shared = Shared(function, name, dtype)
            if dtype == "bfloat16":
                continue
            address = shared.address()
            array = np.from_dlpack(shared)
            np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3).astype(dtype), strict=True)
            assert array.ctypes.data == address, "nothing is copied"
            # NumPy treats tensors without a version (before DLPack 1.0) as read-only: they have no read-only flag.
            assert array.flags.writeable == (function == "kiln_export")


def torch_takes():
    for dtype in DTYPES:
        for function, name in [("kiln_export", VERSIONED), ("kiln_export_legacy", LEGACY)]:
            shared = Shared(function, name, dtype)
            address = shared.address()
            tensor = torch.from_dlpack(shared)
            expected = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
            assert tensor.dtype == expected.dtype and tensor.shape == (2, 3)
            assert tensor.tolist() == expected.tolist()
            assert tensor.data_ptr() == address, "nothing is copied"


def kiln_takes_from_numpy():
    numbers = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for legacy in [False, True]:
        assert take(np.array([[1, -2], [3, 4]], "i2"), legacy) == "TensorData(i16[2, 2], [1, -2, 3, 4])"
        assert take(np.array([True, False]), legacy) == "TensorData(bool[2], [true, false])"
        assert take(np.array(2.5), legacy) == "TensorData(f64[], [2.5])"
        assert take(np.zeros((0, 3), "u1"), legacy) == "TensorData(u8[0, 3], [])"
        assert take(numbers[1, ::-2, 1::2], legacy) == "TensorData(f32[2, 2], [21.0, 23.0, 13.0, 15.0])"
        assert take(numbers.T[0, :, :], legacy) == "TensorData(f32[3, 2], [0.0, 12.0, 4.0, 16.0, 8.0, 20.0])"
        assert "type code 5 with 64 bits" in take(np.array([1j], "c8"), legacy)
    fixed = np.arange(3)
    fixed.flags.writeable = False
    assert take(fixed) == "TensorData(i64[3], [0, 1, 2])"
    before = sys.getrefcount(numbers)
    for _ in range(100):
        take(numbers)
    assert sys.getrefcount(numbers) == before, "every tensor was given back"


def kiln_takes_from_torch():
    numbers = torch.arange(6).reshape(2, 3)
    for dtype in DTYPES:
        text = take(numbers.to(getattr(torch, dtype)))
        assert text.startswith("TensorData(") and text.count(",") >= 5, text
    assert take(numbers.to(torch.bfloat16).T) == "TensorData(bf16[3, 2], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])"
    assert take(numbers[:, 1].expand(2, 2)) == "TensorData(i64[2, 2], [1, 4, 1, 4])"


def everything_is_given_back():
    shared = Shared("kiln_share", VERSIONED, "float32")
    before = kiln.kiln_alive()
    array = np.from_dlpack(shared)
    assert before >= 1 and not array.flags.writeable
    del array
    gc.collect()
    assert kiln.kiln_alive() == before - 1


everything_is_given_back()
numpy_takes()
kiln_takes_from_numpy()
if torch:
    torch_takes()
    kiln_takes_from_torch()
print(f"NumPy {np.__version__} and {f'PyTorch {torch.__version__}' if torch else 'no PyTorch'} exchange tensors with Kiln")
