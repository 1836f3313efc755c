"""Packs tables of exact values that others publish into `tables.safetensors` beside this script.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 scipy==1.17.1
    venv/bin/python crates/suite/accuracy/pack.py
    venv/bin/python crates/suite/accuracy/pack.py --check   # write nothing, fail on a difference

The tables come with the installed packages; README.md says which they are and under which licence. Floats are
stored as their bits, so that nothing is rounded on the way. Running again gives the same bytes.
"""

import json
import struct
import sys
from pathlib import Path

import numpy
import scipy

TARGET = Path(__file__).resolve().parent / "tables.safetensors"
NUMPY, SCIPY = Path(numpy.__file__).parent, Path(scipy.__file__).parent
VERSIONS = {"numpy": "2.4.6", "scipy": "1.17.1"}

# Name of the function here, table, and which of its columns are the argument and the value.
BOOST = [
    ("erf", "erf_data_ipp-erf_data", 0, 1),
    ("erf", "erf_small_data_ipp-erf_small_data", 0, 1),
    ("erf", "erf_large_data_ipp-erf_large_data", 0, 1),
    ("erfc", "erf_data_ipp-erf_data", 0, 2),
    ("erfc", "erf_small_data_ipp-erf_small_data", 0, 2),
    ("erfc", "erf_large_data_ipp-erf_large_data", 0, 2),
    ("erfinv", "erf_inv_data_ipp-erf_inv_data", 0, 1),
    ("cbrt", "cbrt_data_ipp-cbrt_data", 1, 0),
    ("log1p", "log1p_expm1_data_ipp-log1p_expm1_data", 0, 1),
    ("expm1", "log1p_expm1_data_ipp-log1p_expm1_data", 0, 2),
    ("digamma", "digamma_data_ipp-digamma_data", 0, 1),
    ("digamma", "digamma_small_data_ipp-digamma_small_data", 0, 1),
    ("digamma", "digamma_root_data_ipp-digamma_root_data", 0, 1),
    ("digamma", "digamma_neg_data_ipp-digamma_neg_data", 0, 1),
    ("lgamma", "test_gamma_data_ipp-factorials", 0, 2),
    ("lgamma", "test_gamma_data_ipp-near_0", 0, 2),
    ("lgamma", "test_gamma_data_ipp-near_1", 0, 2),
    ("lgamma", "test_gamma_data_ipp-near_2", 0, 2),
    ("lgamma", "test_gamma_data_ipp-near_m10", 0, 2),
    ("lgamma", "test_gamma_data_ipp-near_m55", 0, 2),
]


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    for name, installed in [("numpy", numpy.__version__), ("scipy", scipy.__version__)]:
        if installed != VERSIONS[name]:
            sys.exit(f"the tables come from {name} {VERSIONS[name]}, not {installed}")
    content = safetensors({**umath(), **boost(), **bessel(), **fftw(), **philox()})
    print(f"{len(content)} bytes")
    if not check:
        TARGET.write_bytes(content)
    elif TARGET.read_bytes() != content:
        sys.exit(f"{TARGET.name} differs")


def umath() -> dict:
    """NumPy's validation sets: `numpy/FUNCTION/DTYPE/{x,y,bound}`; x and y are bits, the bound is in units in the last
    place."""
    tensors = {}
    for path in sorted((NUMPY / "_core/tests/data").glob("umath-validation-set-*.csv")):
        function = path.stem.rsplit("-", 1)[1]
        rows = [line.strip().split(",") for line in path.read_text().splitlines()]
        rows = [row for row in rows if row[0].startswith("np.float")]
        for dtype, bits in [("f32", "uint32"), ("f64", "uint64")]:
            of_dtype = [row for row in rows if row[0] == f"np.float{dtype[1:]}"]
            name = f"numpy/{function}/{dtype}"
            for column, letter in [(1, "x"), (2, "y")]:
                tensors[f"{name}/{letter}"] = numpy.array([int(row[column], 16) for row in of_dtype], bits)
            # NumPy's own test has one tolerance for all points, that of the worst one.
            tensors[f"{name}/bound"] = numpy.array([max(int(row[3]) for row in of_dtype)], "uint32")
    return tensors


def boost() -> dict:
    """The tables of the Boost libraries, as SciPy's tests hold them: `boost/FUNCTION/f64/{x,y}`."""
    archive = numpy.load(SCIPY / "special/tests/data/boost.npz")
    columns = {}
    for function, table, x, y in BOOST:
        pairs = columns.setdefault(function, ([], []))
        pairs[0].append(archive[table][:, x])
        pairs[1].append(archive[table][:, y])
    return pairs_as_tensors(columns)


def bessel() -> dict:
    """The modified Bessel functions of the first kind of order 0 and 1."""
    archive = numpy.load(SCIPY / "special/tests/data/boost.npz")
    table = archive["bessel_i_int_data_ipp-bessel_i_int_data"]
    columns = {}
    for order in [0, 1]:
        rows = table[table[:, 0] == order]
        columns[f"i{order}"] = ([rows[:, 1]], [rows[:, 2]])
    return pairs_as_tensors(columns)


def pairs_as_tensors(columns: dict) -> dict:
    tensors = {}
    for function, (x, y) in columns.items():
        for letter, parts in [("x", x), ("y", y)]:
            tensors[f"boost/{function}/f64/{letter}"] = numpy.concatenate(parts).astype("float64").view("uint64")
    return tensors


def fftw() -> dict:
    """FFTW's results for 0, 1, .., n - 1: `fftw/{dct,dst}TYPE/N`."""
    archive = numpy.load(SCIPY / "fftpack/tests/fftw_double_ref.npz")
    names = sorted((name for name in archive.files if name != "sizes"), key=lambda name: name.split("_"))
    return {"fftw/{}{}/{}".format(*name.split("_")): archive[name].astype("float64") for name in names}


def philox() -> dict:
    """NumPy's streams of Philox4x64-10: `philox/SET/{key,words}`. NumPy derives the key from the seed."""
    tensors = {}
    for number in [1, 2]:
        lines = (NUMPY / f"random/tests/data/philox-testset-{number}.csv").read_text().splitlines()
        values = [int(line.split(",")[1], 16) for line in lines]
        key = numpy.random.Philox(values[0]).state["state"]["key"]
        tensors[f"philox/{number}/key"] = numpy.array(key, "uint64")
        tensors[f"philox/{number}/words"] = numpy.array(values[1:], "uint64")
    return tensors


def safetensors(tensors: dict) -> bytes:
    """The file format of https://github.com/huggingface/safetensors."""
    names = {"uint32": "U32", "uint64": "U64", "float64": "F64"}
    header, body = {}, b""
    # Wide elements first: the format asks for every tensor to start at a multiple of its element's size.
    for name, array in sorted(tensors.items(), key=lambda entry: -entry[1].itemsize):
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


if __name__ == "__main__":
    main()
