"""Decompositions, equations and functions of matrices.

Ambiguities of a decomposition (signs, phases, the order of complex eigenvalues) are not compared: the outputs are
invariant functions of its parts. An op named `spd_...` or `sym_...` first makes a symmetric
matrix of `x`: positive definite `x x^T + 1`, or `x + x^T`.
"""

import torch

from .case import Case, Tolerance, normal, uniform

L = torch.linalg


def _spd(x):
    return x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)


def _sym(x):
    return x + x.mT


def _one(function):
    """An op of `x` alone, whose output is `y`."""
    return lambda inputs, attributes: {"y": function(inputs["x"], **attributes)}


def _two(function):
    return lambda inputs, attributes: {"y": function(inputs["a"], inputs["b"], **attributes)}


def _positive_rows(q, r):
    """Signs of the rows of R so that its diagonal is positive."""
    signs = torch.sign(torch.diagonal(r, dim1=-2, dim2=-1).real).detach()
    k = signs.shape[-1]
    q = torch.cat([q[..., :k] * signs[..., None, :], q[..., k:]], -1)
    r = torch.cat([r[..., :k, :] * signs[..., :, None], r[..., k:, :]], -2)
    return q, r


def _qr(inputs, attributes):
    q, r = _positive_rows(*L.qr(inputs["x"], mode=attributes["mode"]))
    k = min(inputs["x"].shape[-2:])
    # The additional columns of a complete Q are not unique.
    return {"y": r if attributes["first"] == "r" else q[..., :k]}


def _lu(inputs, attributes):
    p, lower, upper = L.lu(inputs["x"])
    parts = {"l": lower, "u": upper, "p": p}
    first = attributes["first"]
    return {first: parts.pop(first), **parts}


def _lu_factor(inputs, _):
    factors, pivots = L.lu_factor(inputs["x"])
    return {"y": factors, "pivots": pivots.long()}


def _lu_solve(inputs, attributes):
    factors, pivots = L.lu_factor(inputs["a"])
    return {"y": L.lu_solve(factors, pivots, inputs["b"], left=attributes["left"])}


def _svd(inputs, attributes):
    u, s, vt = L.svd(inputs["x"], full_matrices=attributes["full"])
    k = s.shape[-1]
    u, vt = u[..., :k], vt[..., :k, :]
    return {"y": (u * (s**2 + 1)[..., None, :]) @ vt, "s": s}


def _eigh(inputs, attributes):
    w, v = L.eigh(_sym(inputs["x"]), UPLO=attributes["uplo"])
    return {"y": (v * torch.sin(w)[..., None, :]) @ v.mT, "w": w}


def _eig(inputs, _):
    w, v = L.eig(inputs["x"])
    weights = w.real + (w * w.conj()).real
    return {"y": ((v * v.conj()).real * weights[..., None, :]).sum(-1)}


def _eigvals(inputs, _):
    w = L.eigvals(inputs["x"])
    return {"y": torch.stack([w.real.sum(-1), (w * w).real.sum(-1), (w * w.conj()).real.sum(-1)], -1)}


def _slogdet(inputs, _):
    sign, log = L.slogdet(inputs["x"])
    return {"log": log, "sign": sign}


def _lstsq(inputs, attributes):
    found = L.lstsq(inputs["a"], inputs["b"], rcond=attributes["rcond"], driver="gelsd")
    return {"y": found.solution, "rank": found.rank, "s": found.singular_values}


def _residuals(inputs, _):
    x = L.lstsq(inputs["a"], inputs["b"], driver="gelsd").solution
    return {"y": ((inputs["a"] @ x - inputs["b"]) ** 2).sum(-2)}


def _norm(inputs, attributes):
    order = attributes["ord"]
    return {"y": L.matrix_norm(inputs["x"], float(order) if order in ("inf", "-inf") else order)}


def _cond(inputs, attributes):
    x, order = inputs["x"], attributes["ord"]
    order = float(order) if order in ("inf", "-inf") else order
    if order in (2, -2):
        return {"y": L.cond(x, order)}
    # PyTorch cannot differentiate its own `cond` for these: it writes over the inverse.
    y = L.matrix_norm(x, order) * L.matrix_norm(L.inv(x), order)
    torch.testing.assert_close(y.detach(), L.cond(x.detach(), order))
    return {"y": y}


def _rank(inputs, attributes):
    return {"y": L.matrix_rank(inputs["x"], atol=attributes["atol"], rtol=attributes["rtol"])}


def _multi_dot(inputs, _):
    return {"y": L.multi_dot([inputs[name] for name in "abcd" if name in inputs])}


def _cholesky_solve(inputs, attributes):
    factor = L.cholesky(_spd(inputs["a"]), upper=attributes["upper"])
    return {"y": torch.cholesky_solve(inputs["b"], factor, upper=attributes["upper"])}


def _cholesky_inverse(x, upper):
    return torch.cholesky_inverse(L.cholesky(_spd(x), upper=upper), upper=upper)


def _operands(inputs):
    """The complex inputs `a` and `b`, which are stored as their parts `a_re`, `a_im`, ..."""
    return [
        torch.complex(inputs[f"{name}_re"], inputs[f"{name}_im"])
        for name in "ab"
        if f"{name}_re" in inputs
    ]


def _parts(x):
    return torch.view_as_real(x.resolve_conj())


def _complex(function):
    """An op of complex operands, whose output `y` has real and imaginary parts along a last axis."""
    return lambda inputs, attributes: {"y": _parts(function(*_operands(inputs), **attributes))}


def _complex_spd(x):
    return x @ x.mH + torch.eye(x.shape[-2], dtype=x.dtype)


def _complex_slogdet(inputs, attributes):
    sign, log = L.slogdet(*_operands(inputs))
    return {"log": log, "sign": _parts(sign)} if attributes["first"] == "log" else {"sign": _parts(sign), "log": log}


def _complex_qr(inputs, attributes):
    q, r = _positive_rows(*L.qr(*_operands(inputs), mode=attributes["mode"]))
    k = min(inputs["a_re"].shape[-2:])
    return {"y": _parts(r if attributes["first"] == "r" else q[..., :k])}


def _complex_svd(inputs, attributes):
    u, s, vh = L.svd(*_operands(inputs), full_matrices=attributes["full"])
    k = s.shape[-1]
    u, vh = u[..., :k], vh[..., :k, :]
    return {"y": _parts((u * (s**2 + 1)[..., None, :]) @ vh), "s": s}


def _complex_vectors(inputs, attributes):
    """The squared magnitudes of the elements of one side's singular vectors."""
    u, _, vh = L.svd(*_operands(inputs), full_matrices=False)
    x = u if attributes["side"] == "u" else vh
    return {"y": (x * x.conj()).real}


def _complex_eigh(inputs, attributes):
    (x,) = _operands(inputs)
    w, v = L.eigh(x + x.mH, UPLO=attributes["uplo"])
    return {"y": _parts((v * torch.sin(w)[..., None, :]) @ v.mH), "w": w}


def _complex_eigvalsh(inputs, attributes):
    (x,) = _operands(inputs)
    return {"y": L.eigvalsh(x + x.mH, UPLO=attributes["uplo"])}


def _complex_eig(inputs, _):
    w, v = L.eig(*_operands(inputs))
    weights = w.real + w.imag + (w * w.conj()).real
    return {"y": ((v * v.conj()).real * weights[..., None, :]).sum(-1)}


def _complex_eigvals(inputs, _):
    w = L.eigvals(*_operands(inputs))
    return {"y": torch.cat([_parts(w.sum(-1)), _parts((w * w).sum(-1))], -1)}


def _sym_ldl_factor(inputs, _):
    factors, pivots = L.ldl_factor(_sym(inputs["x"]))
    return {"y": factors, "pivots": pivots.long()}


def _sym_ldl_solve(inputs, _):
    factors, pivots = L.ldl_factor(_sym(inputs["a"]))
    # PyTorch differentiates it by nothing: the gradient by `b` is that of the same equation.
    y = L.solve(_sym(inputs["a"]), inputs["b"])
    torch.testing.assert_close(y.detach(), L.ldl_solve(factors, pivots, inputs["b"].detach()), rtol=1e-4, atol=1e-4)
    return {"y": y}


OPERATIONS = {
    "spd_cholesky": _one(lambda x, upper: L.cholesky(_spd(x), upper=upper)),
    "spd_cholesky_inverse": _one(_cholesky_inverse),
    "spd_cholesky_solve": _cholesky_solve,
    "qr": _qr,
    "lu": _lu,
    "lu_factor": _lu_factor,
    "lu_solve": _lu_solve,
    "svd": _svd,
    "svdvals": _one(L.svdvals),
    "sym_eigh": _eigh,
    "sym_eigvalsh": _one(lambda x, uplo: L.eigvalsh(_sym(x), UPLO=uplo)),
    "eig": _eig,
    "eigvals": _eigvals,
    "solve": _two(L.solve),
    "solve_triangular": _two(L.solve_triangular),
    "lstsq": _lstsq,
    "lstsq_residuals": _residuals,
    "inverse": _one(L.inv),
    "pinv": _one(lambda x, rtol: L.pinv(x, rtol=rtol)),
    "det": _one(L.det),
    "slogdet": _slogdet,
    "spd_logdet": _one(lambda x: torch.logdet(_spd(x))),
    "matrix_rank": _rank,
    "matrix_power": _one(lambda x, n: L.matrix_power(x, n)),
    "matrix_exp": _one(L.matrix_exp),
    "matrix_norm": _norm,
    "cond": _cond,
    "multi_dot": _multi_dot,
    "vander": _one(lambda x, n: L.vander(x, N=n)),
    "householder_product": lambda inputs, _: {"y": L.householder_product(inputs["x"], inputs["tau"])},
    "tensorinv": _one(lambda x, ind: L.tensorinv(x, ind=ind)),
    "sym_ldl_factor": _sym_ldl_factor,
    "sym_ldl_solve": _sym_ldl_solve,
    "complex_solve": _complex(L.solve),
    "complex_solve_triangular": _complex(L.solve_triangular),
    "complex_inverse": _complex(L.inv),
    "complex_det": _complex(L.det),
    "complex_slogdet": _complex_slogdet,
    "complex_spd_cholesky": _complex(lambda x, upper: L.cholesky(_complex_spd(x), upper=upper)),
    "complex_qr": _complex_qr,
    "complex_svd": _complex_svd,
    "complex_svd_vectors": _complex_vectors,
    "complex_svdvals": lambda inputs, _: {"y": L.svdvals(*_operands(inputs))},
    "complex_sym_eigh": _complex_eigh,
    "complex_sym_eigvalsh": _complex_eigvalsh,
    "complex_eig": _complex_eig,
    "complex_eigvals": _complex_eigvals,
    "tensorsolve": lambda inputs, _: {"y": L.tensorsolve(inputs["a"], inputs["b"])},
}

TIGHT = Tolerance(1e-9, 1e-9)
SINGLE = Tolerance(2e-4, 2e-4)


def regular(*shape: int):
    """Matrices far from singular."""
    draw, n = normal(*shape), shape[-1]
    return lambda source: draw(source) + 1.5 * n**0.5 * torch.eye(shape[-2], n, dtype=torch.float64)


def low_rank(rows: int, cols: int, rank: int):
    left, right = normal(rows, rank), normal(rank, cols)
    return lambda source: ((left(source) @ right(source)) * 256).round() / 256


def singular():
    """Of rank 2, exactly."""
    rows = torch.tensor([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0], [1.5, 3.0, 2.0]], dtype=torch.float64)
    return lambda source: rows


def _case(name, op, inputs, attributes=None, dtype="f64", **rest):
    inputs = inputs if isinstance(inputs, dict) else {"x": inputs}
    tolerance = TIGHT if dtype == "f64" else SINGLE
    return Case(f"{op}_{name}", op, inputs, attributes or {}, dtype=dtype, tolerance=tolerance, **rest)


def _solve(name, a, b, left=True, **rest):
    return _case(name, "solve", {"a": regular(*a), "b": normal(*b)}, {"left": left}, **rest)


def _triangular(name, a, b, upper, left=True, unitriangular=False):
    attributes = {"upper": upper, "left": left, "unitriangular": unitriangular}
    return _case(name, "solve_triangular", {"a": regular(*a), "b": normal(*b)}, attributes)


def _of_parts(name, op, a, b=None, attributes=None, make=normal, **rest):
    """A case with complex operands of these shapes."""
    inputs = {"a_re": make(*a), "a_im": normal(*a)}
    if b is not None:
        inputs |= {"b_re": normal(*b), "b_im": normal(*b)}
    return _case(name, f"complex_{op}", inputs, attributes, **rest)


COMPLEX = [
    _of_parts("matrix", "solve", (3, 3), (3, 2), {"left": True}, make=regular),
    _of_parts("vector", "solve", (3, 3), (3,), {"left": True}, make=regular),
    _of_parts("broadcast", "solve", (2, 3, 3), (1, 3, 2), {"left": True}, make=regular),
    _of_parts("right", "solve", (3, 3), (2, 3), {"left": False}, make=regular),
    _of_parts("single", "solve", (3, 3), (3, 2), {"left": True}, make=regular, dtype="f32"),
    *(
        _of_parts(
            f"{'upper' if upper else 'lower'}{'' if left else '_right'}{'_unit' if unit else ''}",
            "solve_triangular",
            (3, 3),
            (3, 2) if left else (2, 3),
            {"upper": upper, "left": left, "unitriangular": unit},
            make=regular,
        )
        for upper, left, unit in [(False, True, False), (True, True, False), (True, False, True)]
    ),
    _of_parts("square", "inverse", (3, 3), make=regular),
    _of_parts("batch", "inverse", (2, 2, 2), make=regular),
    _of_parts("single", "inverse", (3, 3), make=regular, dtype="f32"),
    _of_parts("square", "det", (3, 3)),
    _of_parts("batch", "det", (2, 2, 2)),
    _of_parts("one", "det", (1, 1)),
    _of_parts("log", "slogdet", (3, 3), attributes={"first": "log"}),
    _of_parts("sign", "slogdet", (2, 3, 3), attributes={"first": "sign"}),
    _of_parts("lower", "spd_cholesky", (3, 3), attributes={"upper": False}),
    _of_parts("upper", "spd_cholesky", (2, 3, 3), attributes={"upper": True}),
    *(
        _of_parts(f"{name}_{first}", "qr", shape, attributes={"mode": mode, "first": first}, make=regular)
        for name, shape, mode in [
            ("square", (3, 3), "reduced"),
            ("tall", (4, 3), "reduced"),
            ("wide", (3, 4), "reduced"),
            ("complete_wide", (2, 3), "complete"),
        ]
        for first in ["q", "r"]
    ),
    _of_parts("complete_tall", "qr", (4, 2), attributes={"mode": "complete", "first": "r"}, gradient=False),
    _of_parts("square", "svd", (3, 3), attributes={"full": False}),
    _of_parts("tall", "svd", (4, 2), attributes={"full": False}),
    _of_parts("wide", "svd", (2, 2, 3), attributes={"full": False}),
    _of_parts("full", "svd", (4, 2), attributes={"full": True}),
    _of_parts("single", "svd", (3, 2), attributes={"full": False}, dtype="f32"),
    *(
        _of_parts(f"{side}_{name}", "svd_vectors", shape, attributes={"side": side})
        for side in "uv"
        for name, shape in [("square", (3, 3)), ("tall", (4, 2)), ("wide", (2, 4))]
    ),
    _of_parts("tall", "svdvals", (4, 2)),
    _of_parts("wide", "svdvals", (2, 2, 3)),
    _of_parts("lower", "sym_eigh", (3, 3), attributes={"uplo": "L"}),
    _of_parts("upper", "sym_eigh", (2, 3, 3), attributes={"uplo": "U"}),
    _of_parts("single", "sym_eigh", (3, 3), attributes={"uplo": "L"}, dtype="f32"),
    _of_parts("lower", "sym_eigvalsh", (4, 4), attributes={"uplo": "L"}),
    _of_parts("upper", "sym_eigvalsh", (2, 3, 3), attributes={"uplo": "U"}),
    _of_parts("square", "eig", (3, 3)),
    _of_parts("batch", "eig", (2, 2, 2)),
    _of_parts("square", "eigvals", (4, 4)),
]

CASES = [
    _case("lower", "spd_cholesky", normal(4, 4), {"upper": False}),
    _case("upper", "spd_cholesky", normal(4, 4), {"upper": True}),
    _case("batch", "spd_cholesky", normal(2, 3, 3, 5), {"upper": False}),
    _case("one", "spd_cholesky", normal(1, 1), {"upper": False}),
    _case("single", "spd_cholesky", normal(3, 3), {"upper": False}, dtype="f32"),
    _case("lower", "spd_cholesky_inverse", normal(3, 3), {"upper": False}),
    _case("upper", "spd_cholesky_inverse", normal(2, 3, 3), {"upper": True}),
    _case("lower", "spd_cholesky_solve", {"a": normal(3, 3), "b": normal(3, 2)}, {"upper": False}),
    _case("upper", "spd_cholesky_solve", {"a": normal(2, 3, 3), "b": normal(2, 3, 2)}, {"upper": True}),
    *(
        _case(f"{name}_{first}", "qr", regular(*shape), {"mode": mode, "first": first})
        for name, shape, mode in [
            ("square", (4, 4), "reduced"),
            ("tall", (5, 3), "reduced"),
            ("wide", (3, 5), "reduced"),
            ("batch", (2, 4, 3), "reduced"),
            ("complete_wide", (3, 5), "complete"),
        ]
        for first in ["q", "r"]
    ),
    _case("complete_tall", "qr", regular(5, 3), {"mode": "complete", "first": "r"}, gradient=False),
    _case("single", "qr", regular(4, 3), {"mode": "reduced", "first": "q"}, dtype="f32"),
    *(
        _case(f"{name}_{first}", "lu", normal(*shape), {"first": first})
        for name, shape in [("square", (4, 4)), ("tall", (5, 3)), ("wide", (3, 5)), ("batch", (2, 3, 3))]
        for first in ["l", "u"]
    ),
    _case("square", "lu_factor", normal(4, 4)),
    _case("tall", "lu_factor", normal(2, 4, 3)),
    _case("wide", "lu_factor", normal(3, 4)),
    _case("singular", "lu", singular(), {"first": "u"}, gradient=False),
    _case("left", "lu_solve", {"a": regular(3, 3), "b": normal(3, 2)}, {"left": True}),
    _case("right", "lu_solve", {"a": regular(2, 3, 3), "b": normal(2, 2, 3)}, {"left": False}),
    _case("square", "svd", normal(4, 4), {"full": False}),
    _case("tall", "svd", normal(5, 3), {"full": False}),
    _case("wide", "svd", normal(3, 5), {"full": False}),
    _case("full", "svd", normal(5, 3), {"full": True}),
    _case("batch", "svd", normal(2, 2, 3, 2), {"full": False}),
    _case("single", "svd", normal(3, 2), {"full": False}, dtype="f32"),
    _case("square", "svdvals", normal(4, 4)),
    _case("tall", "svdvals", normal(5, 2)),
    _case("wide", "svdvals", normal(2, 3, 5)),
    _case("single", "svdvals", normal(3, 3), dtype="f32"),
    _case("lower", "sym_eigh", normal(4, 4), {"uplo": "L"}),
    _case("upper", "sym_eigh", normal(2, 3, 3), {"uplo": "U"}),
    _case("one", "sym_eigh", normal(1, 1), {"uplo": "L"}),
    _case("single", "sym_eigh", normal(3, 3), {"uplo": "L"}, dtype="f32"),
    _case("lower", "sym_eigvalsh", normal(5, 5), {"uplo": "L"}),
    _case("upper", "sym_eigvalsh", normal(2, 3, 3), {"uplo": "U"}),
    _case("real", "eig", uniform(0.1, 1.0, 3, 3)),
    _case("complex", "eig", normal(4, 4)),
    _case("batch", "eig", normal(2, 3, 3)),
    _case("complex", "eigvals", normal(5, 5)),
    _case("batch", "eigvals", normal(2, 3, 3)),
    _solve("matrix", (4, 4), (4, 3)),
    _solve("vector", (4, 4), (4,)),
    _solve("batch_of_vectors", (2, 3, 3), (2, 3)),
    _solve("broadcast_a", (3, 3), (2, 3, 2)),
    _solve("broadcast_b", (2, 3, 3), (1, 3, 2)),
    _solve("right", (3, 3), (2, 3), left=False),
    _solve("one", (1, 1), (1, 1)),
    _solve("large", (12, 12), (12, 1)),
    _solve("single", (3, 3), (3, 2), dtype="f32"),
    _triangular("lower", (4, 4), (4, 2), upper=False),
    _triangular("upper", (4, 4), (4, 2), upper=True),
    _triangular("lower_unit", (3, 3), (3, 2), upper=False, unitriangular=True),
    _triangular("upper_unit", (3, 3), (3, 2), upper=True, unitriangular=True),
    _triangular("lower_right", (3, 3), (2, 3), upper=False, left=False),
    _triangular("upper_right_unit", (3, 3), (2, 3), upper=True, left=False, unitriangular=True),
    _triangular("broadcast", (2, 3, 3), (3, 2), upper=False),
    _case("tall", "lstsq", {"a": normal(5, 3), "b": normal(5, 2)}, {"rcond": None}),
    _case("wide", "lstsq", {"a": normal(3, 5), "b": normal(3, 2)}, {"rcond": None}),
    _case("batch", "lstsq", {"a": normal(2, 4, 2), "b": normal(2, 4, 1)}, {"rcond": None}),
    _case(
        "rank", "lstsq", {"a": low_rank(4, 3, 2), "b": normal(4, 2)}, {"rcond": 0.05}, gradient=False
    ),
    _case("tall", "lstsq_residuals", {"a": normal(5, 3), "b": normal(5, 2)}),
    _case("square", "inverse", regular(4, 4)),
    _case("batch", "inverse", regular(2, 2, 3, 3)),
    _case("single", "inverse", regular(3, 3), dtype="f32"),
    _case("square", "pinv", normal(3, 3), {"rtol": None}),
    _case("tall", "pinv", normal(4, 2), {"rtol": None}),
    _case("wide", "pinv", normal(2, 2, 4), {"rtol": None}),
    _case("rank", "pinv", low_rank(4, 3, 2), {"rtol": 0.05}, gradient=False),
    _case("square", "det", normal(4, 4)),
    _case("batch", "det", normal(2, 3, 3)),
    _case("one", "det", normal(1, 1)),
    _case("singular", "det", singular(), gradient=False),
    _case("square", "slogdet", normal(4, 4)),
    _case("batch", "slogdet", normal(3, 3, 3)),
    _case("square", "spd_logdet", normal(3, 3)),
    _case("full", "matrix_rank", normal(4, 3), {"atol": None, "rtol": None}, gradient=False),
    _case("low", "matrix_rank", low_rank(4, 4, 2), {"atol": None, "rtol": 0.05}, gradient=False),
    _case("absolute", "matrix_rank", normal(2, 3, 3), {"atol": 1.0, "rtol": None}, gradient=False),
    *(_case(f"{n}".replace("-", "minus_"), "matrix_power", regular(2, 3, 3), {"n": n}) for n in [1, 2, 5, -1, -3]),
    _case("0", "matrix_power", regular(2, 3, 3), {"n": 0}, gradient=False),
    _case("square", "matrix_exp", normal(3, 3)),
    _case("batch", "matrix_exp", normal(2, 2, 2)),
    _case("large", "matrix_exp", normal(3, 3, scale=4.0)),
    _case("single", "matrix_exp", normal(2, 2), dtype="f32"),
    *(
        _case(f"{order}".replace("-", "minus_"), "matrix_norm", normal(2, 3, 4), {"ord": order})
        for order in ["fro", "nuc", 1, -1, 2, -2, "inf", "-inf"]
    ),
    *(
        _case(f"{order}".replace("-", "minus_"), "cond", regular(3, 3), {"ord": order})
        for order in ["fro", "nuc", 1, -1, 2, -2, "inf", "-inf"]
    ),
    _case("tall", "cond", normal(4, 2), {"ord": 2}),
    _case("three", "multi_dot", {"a": normal(2, 4), "b": normal(4, 3), "c": normal(3, 2)}),
    _case("vectors", "multi_dot", {"a": normal(4), "b": normal(4, 3), "c": normal(3, 2), "d": normal(2)}),
    _case("square", "vander", normal(4), {"n": None}),
    _case("batch", "vander", normal(2, 3), {"n": 5}),
    _case("tall", "householder_product", {"x": normal(4, 3), "tau": normal(3)}),
    _case("batch", "householder_product", {"x": normal(2, 3, 3), "tau": normal(2, 2)}),
    _case("matrix", "tensorinv", regular(6, 6), {"ind": 1}),
    _case(
        "axes", "tensorinv", lambda source: regular(6, 6)(source).reshape(2, 3, 6), {"ind": 2}
    ),
    _case(
        "axes",
        "tensorsolve",
        {"a": lambda source: regular(6, 6)(source).reshape(2, 3, 6), "b": normal(2, 3)},
    ),
    *COMPLEX,
    *(
        _case(name, "sym_ldl_factor", normal(*shape), gradient=False)
        for name, shape in [
            ("small", (4, 4)),
            ("odd", (5, 5)),
            ("batch", (3, 3, 3)),
            ("large", (12, 12)),
            ("one", (1, 1)),
        ]
    ),
    # With zeros on the diagonal the first block has 2 rows.
    _case(
        "hollow",
        "sym_ldl_factor",
        lambda source: (lambda x: x - torch.diag(torch.diag(x)))(normal(5, 5)(source)),
        gradient=False,
    ),
    _case("square", "sym_ldl_solve", {"a": normal(4, 4), "b": normal(4, 2)}, constant=("a",)),
    _case("batch", "sym_ldl_solve", {"a": normal(2, 3, 3), "b": normal(2, 3, 1)}, constant=("a",)),
]
