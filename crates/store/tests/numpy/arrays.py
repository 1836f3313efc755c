"""The arrays that NumPy and Kiln exchange in the tests.

`python3 arrays.py make` writes the input of the tests, arrays.npz next to this file.
`python3 arrays.py check FOLDER` compares the files that Kiln wrote into FOLDER with these arrays.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent

DTYPES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def arrays() -> dict[str, np.ndarray]:
    """Every dtype in both byte orders, both orders of axes, ranks 0 to 4, empty arrays, and extreme values."""
    table = {}
    for dtype in DTYPES:
        table[f"c_{dtype}"] = np.array([[0, 1, 2], [1, 0, 77]]).astype(dtype)
        table[f"f_{dtype}"] = np.asfortranarray(table[f"c_{dtype}"])
        table[f"big_{dtype}"] = table[f"c_{dtype}"].astype(np.dtype(dtype).newbyteorder(">"))
    for part in ["f4", "f8"]:
        real = np.array([[1, -2], [0.5, np.inf]], part)
        complex_numbers = real + 1j * np.array([[0, 3], [-0.25, 1]], part)
        table[f"c_c{2 * int(part[1])}"] = complex_numbers.astype(f"c{2 * int(part[1])}")
    table["big_f_c8"] = np.asfortranarray(table["c_c8"]).astype(">c8")
    table["scalar"] = np.array(-0.0)
    table["empty"] = np.zeros((0, 3), "u1")
    table["no_columns"] = np.zeros((2, 0), "f4")
    table["deep"] = np.asfortranarray(np.arange(2 * 3 * 2 * 5, dtype="i4").reshape(2, 3, 2, 5))
    table["ends_i8"] = np.array([np.iinfo("i8").min, -1, np.iinfo("i8").max])
    table["ends_u8"] = np.array([0, np.iinfo("u8").max], "u8")
    table["special_f4"] = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], "f4")
    table["name with spaces/é"] = np.array([7], "i2")
    return table


def check(folder: Path) -> None:
    """Every file of Kiln holds the same numbers; in C order and little-endian the very same bytes."""
    table = arrays()
    for name in ["stored", "deflated"]:
        with np.load(folder / f"{name}.npz") as archive:
            written = dict(archive)
        assert written.keys() == {name for name in table if "c8" not in name and "c16" not in name}
        for key, array in written.items():
            np.testing.assert_array_equal(array, table[key], strict=array.dtype.isnative and table[key].dtype.isnative)
            assert array.shape == table[key].shape and array.flags.c_contiguous
    for part in ["c8", "c16"]:
        np.testing.assert_array_equal(np.load(folder / f"{part}.npy"), table[f"c_{part}"], strict=True)
    scalar = np.load(folder / "scalar.npy")
    assert scalar.shape == () and np.signbit(scalar)
    brains = np.load(folder / "bf16.npy")
    assert brains.dtype == np.dtype("V2")
    assert (brains.view("u2").astype("u4") << 16).view("f4").tolist() == [1.0, -2.5]
    print(f"{len(table)} arrays agree with NumPy {np.__version__}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        np.savez_compressed(HERE / "arrays.npz", **arrays())
        plain = {name: array for name, array in arrays().items() if name.startswith("c_") or name in ("scalar", "empty")}
        np.savez(HERE / "plain.npz", **plain)
    else:
        check(Path(sys.argv[2]))
