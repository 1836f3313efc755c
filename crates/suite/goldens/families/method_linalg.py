"""Products and norms."""

import torch
import torch.nn.functional as F

from .case import distinct, literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

rows.add("outer", torch.outer, normal(2), normal(3))
rows.add("dot", lambda a, b: torch.dot(a, b).reshape(1), normal(4), normal(4))
rows.add(
    "vecdot", lambda a, b: torch.linalg.vecdot(a, b, dim=1).unsqueeze(1), normal(2, 3), normal(2, 3)
)
rows.add("matvec", torch.mv, normal(2, 3), normal(3))
rows.add("inner_product", torch.inner, normal(2, 3), normal(4, 2, 3))
rows.add("tensordot", lambda a, b: torch.tensordot(a, b, 2), normal(2, 3, 2), normal(3, 2, 4))
rows.add(
    "tensordot/lists",
    lambda a, b: torch.tensordot(a, b, ([0, 2], [2, 0])),
    normal(2, 3, 4),
    normal(4, 2, 2),
)
rows.add("kron", torch.kron, normal(2, 2), normal(2, 3))
rows.add("kron", torch.kron, normal(2), normal(2, 3), name="kron_ranks")
rows.add("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), normal(2, 4), normal(2, 3), normal(3, 4))
rows.add("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), normal(4), normal(2, 3), normal(3, 4),
         name="addmm_row")
rows.add("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), normal(2, 1), normal(2, 0), normal(0, 4),
         name="addmm_of_nothing")
rows.add("addmm/beta 0", lambda c, a, b: torch.addmm(c, a, b, beta=0), normal(2, 4), normal(2, 3), normal(3, 4))
rows.add("addmm/beta 0", lambda c, a, b: torch.addmm(c, a, b, beta=0),
         literal([[float("nan"), float("inf")], [0.0, 1.0]]), normal(2, 3), normal(3, 2), name="addmm_beta_0_nan")
rows.add("addbmm", lambda c, a, b: torch.addbmm(c, a, b, alpha=2), normal(2, 4), normal(3, 2, 3), normal(3, 3, 4))
rows.add("addbmm", lambda c, a, b: torch.addbmm(c, a, b, alpha=2), normal(4), normal(2, 2, 3), normal(2, 3, 4),
         name="addbmm_row")
rows.add("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, alpha=2), normal(3, 2, 4), normal(3, 2, 3), normal(3, 3, 4))
rows.add("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, alpha=2), normal(1, 4), normal(3, 2, 3), normal(3, 3, 4),
         name="baddbmm_row")
rows.add("cross", lambda a, b: torch.linalg.cross(a, b, dim=1), normal(2, 3), normal(2, 3))
rows.add("trace", torch.trace, normal(3, 4))

_ZEROS = literal([[0.0, 1.5, -2.0], [0.0, 0.0, 0.0]])


def _norm(order, axis=1):
    return lambda a: torch.linalg.vector_norm(a, order, dim=axis, keepdim=True)


rows.add("vector_norm", _norm(2), normal(2, 3))
rows.add("vector_norm", _norm(2), _ZEROS, name="vector_norm_of_zeros")
rows.add("vector_norm/l0", _norm(0), _ZEROS, gradient=False)
rows.add("vector_norm/l1", _norm(1), _ZEROS)
rows.add("vector_norm/max", _norm(float("inf")), distinct(2, 3))
rows.add("vector_norm/min", _norm(float("-inf")), distinct(2, 3))
rows.add("vector_norm/lp", _norm(3.5), _ZEROS)
_TIES = literal([[2.0, -2.0, 1.0], [0.0, 0.0, 0.0]])
rows.add("vector_norm/max", _norm(float("inf")), _TIES, name="vector_norm_max_ties")
rows.add("vector_norm/min", _norm(float("-inf")), _TIES, name="vector_norm_min_ties")
rows.add("vector_norm_dims", _norm(2, (0, -1)), normal(2, 3, 4))
rows.add("vector_norm_dims", _norm(2, (0, -1)), literal([[[0.0, 0.0]], [[0.0, 0.0]]]), name="vector_norm_dims_zeros")
rows.add("vector_norm_dims/all", _norm(3, None), normal(2, 3))
rows.add("vector_norm_dims/max", _norm(float("inf"), (0, 1)), _TIES)
rows.add("vector_norm_dims/min", _norm(float("-inf"), (0, 1)), _TIES)
rows.add("vector_norm_dims/l0", _norm(0, (0, 1)), _ZEROS, gradient=False)
# The last column is short enough, the middle one is zeros.
_COLUMNS = literal([[3.0, 0.0, 0.125], [-4.0, 0.0, -0.25]])
for variant, p in [("", 2.0), ("/1", 1.0), ("/3.5", 3.5), ("/max", float("inf"))]:
    rows.add(f"renorm{variant}", lambda a, p=p: torch.renorm(a, p, 1, 1.0), _COLUMNS)
    rows.add(f"renorm{variant}", lambda a, p=p: torch.renorm(a, p, 1, 1.0), uniform(0.2, 1.0, 2, 3, 2),
             name=f"renorm_{variant[1:] or 2}_blocks")
rows.add("vector_normalize", lambda a: F.normalize(a, dim=1), normal(2, 3))
rows.add(
    "cosine_similarity",
    lambda a, b: F.cosine_similarity(a, b, 1, 1e-8).unsqueeze(1),
    normal(2, 3),
    normal(2, 3),
)
rows.add(
    "pairwise_distance",
    lambda a, b: F.pairwise_distance(a, b, keepdim=True),
    normal(2, 3),
    normal(2, 3),
)
