"""Functions behind layers that other families do not have, with the arguments of the method tables."""

import torch
import torch.nn.functional as F

from .case import distinct, integers, literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

# Away from whole numbers, where bilinear sampling bends.
OFFSETS = literal([-1.3, -0.6, -0.2, 0.3, 0.7, 1.4])


def _offsets(*shape):
    def make(source):
        values = OFFSETS(source)
        count = torch.Size(shape).numel()
        return torch.stack([values[source.randrange(len(values))] for _ in range(count)]).reshape(shape)

    return make


def _window(x):
    """The padding and dilation of the rows, which PyTorch's functions cannot express on one side."""
    return F.pad(x, (1, 1, 1, 0))


def _unfold(x):
    return F.unfold(_window(x), (2, 2), dilation=(1, 2), stride=(2, 1))


def _fold(x):
    padded = F.fold(x, (4 + 1, 5 + 2), (2, 2), dilation=(1, 2), stride=(2, 1))
    return padded[:, :, 1:, 1:-1]


def _conv(x, weight, bias):
    return F.conv2d(_window(x), weight, bias, stride=(2, 1), dilation=(1, 2), groups=2)


def _deform(x, offset, weight, mask, bias):
    """torchvision's `deform_conv2d` with padding 1 and two groups of each kind, written out."""
    batch, channels, height, width = x.shape
    out_height, out_width = offset.shape[2:]
    groups, kernel = 2, weight.shape[2:]
    offset = offset.reshape(batch, groups, kernel[0], kernel[1], 2, out_height, out_width)
    mask = mask.reshape(batch, groups, kernel[0], kernel[1], out_height, out_width)
    columns = []
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            y = offset[:, :, row, column, 0] + torch.arange(out_height).reshape(-1, 1) + row - 1
            z = offset[:, :, row, column, 1] + torch.arange(out_width) + column - 1
            places = torch.stack([(2 * z + 1) / width - 1, (2 * y + 1) / height - 1], -1)
            sampled = F.grid_sample(
                x.reshape(batch * groups, channels // groups, height, width),
                places.reshape(batch * groups, out_height, out_width, 2),
                align_corners=False,
            ).reshape(batch, groups, channels // groups, out_height, out_width)
            columns.append(sampled * mask[:, :, row, column].unsqueeze(2))
    columns = torch.stack(columns, 3).reshape(batch, channels, -1, out_height, out_width)
    parts = columns.reshape(batch, 2, channels // 2 * columns.shape[2], -1)
    filters = weight.reshape(2, weight.shape[0] // 2, -1)
    y = torch.einsum("god,bgdp->bgop", filters, parts)
    return y.reshape(batch, weight.shape[0], out_height, out_width) + bias.reshape(-1, 1, 1)


def _max_pool(x):
    return F.max_pool2d(x, (2, 3), (2, 1), (1, 1), ceil_mode=True, return_indices=True)


def _bags(x, indices, weights=None, mode="sum"):
    return F.embedding_bag(indices, x, torch.tensor([0, 2, 2]), mode=mode,
                           per_sample_weights=weights)


def _rotary(x, cos, sin, first, second, join):
    a, b = first(x), second(x)
    return join(a * cos - b * sin, a * sin + b * cos)


def _attention(q, k, v):
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _masked_attention(q, k, v, mask):
    hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
    mask = mask.masked_fill(hidden, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.5)


rows.add("bilinear", F.bilinear, normal(2, 3), normal(2, 2), normal(4, 3, 2), normal(4))
rows.add("conv", _conv, normal(1, 4, 4, 5), normal(2, 2, 2, 2), normal(2))
rows.add("conv_input_gradient",
         lambda g, w: torch.func.vjp(lambda x: _conv(x, w, None), torch.zeros(1, 4, 4, 5).to(g))[1](g)[0],
         normal(1, 2, 2, 5), normal(2, 2, 2, 2))
rows.add("conv_weight_gradient",
         lambda x, g: torch.func.vjp(lambda w: _conv(x, w, None), torch.zeros(2, 2, 2, 2).to(g))[1](g)[0],
         normal(1, 4, 4, 5), normal(1, 2, 2, 5))
rows.add("deform_conv2d", _deform, normal(1, 4, 2, 2), _offsets(1, 16, 3, 3), normal(2, 2, 2, 2),
         uniform(0.5, 2.5, 1, 8, 3, 3), normal(2))
rows.add("unfold4d", _unfold, normal(1, 2, 4, 5))
rows.add("fold4d", _fold, normal(1, 8, 10))
rows.add("max_pool_with_indices", _max_pool, distinct(1, 2, 4, 5))
def _averages(x, window, stride, divisor, padding=0):
    return F.avg_pool2d(x, window, stride, padding, ceil_mode=True, divisor_override=divisor)


rows.add("avg_pool_with_divisor", lambda x: _averages(x, (2, 3), (2, 1), 3, (1, 1)), normal(1, 2, 4, 5))
rows.add("avg_pool_with_divisor/over the end", lambda x: _averages(x, (3, 2), (2, 3), 2),
         normal(1, 2, 6, 6))
rows.add("avg_pool_with_divisor/three axes",
         lambda x: F.avg_pool3d(x, 2, (2, 1, 2), (1, 0, 1), ceil_mode=True, divisor_override=5),
         normal(1, 2, 4, 3, 3))


def _fractional(x, samples):
    """PyTorch takes the samples of two axes the last axis first, those of three axes in order."""
    return F.fractional_max_pool2d(x, (2, 2), (3, 2), _random_samples=samples.flip(-1))


rows.add("fractional_max_pool", _fractional, distinct(1, 2, 6, 5), uniform(0.05, 0.95, 1, 2, 2),
         constant=("b",))
for name, low, high in [("low", 0.0, 0.01), ("high", 0.98, 0.99), ("middle", 0.3, 0.7)]:
    rows.add("fractional_max_pool", _fractional, distinct(2, 2, 7, 6), uniform(low, high, 2, 2, 2),
             name=f"fractional_max_pool_{name}", constant=("b",))
rows.add("fractional_max_pool/three axes",
         lambda x, u: F.fractional_max_pool3d(x, (2, 1, 2), (2, 3, 1), _random_samples=u),
         distinct(1, 2, 4, 5, 3), uniform(0.05, 0.95, 1, 2, 3), constant=("b",))
rows.add("lp_pool", lambda x: F.lp_pool2d(x, 3.0, 2), uniform(0.5, 2.5, 1, 2, 4, 4))
rows.add("adaptive_max_pool_with_indices",
         lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True), distinct(1, 2, 5))
rows.add("embedding", lambda x, i: F.embedding(i, x), normal(5, 3), integers(0, 5, 2, 3))
def _embedded(x, i, **options):
    """Of a copy: PyTorch scales the rows of the table in place."""
    return F.embedding(i, x.clone(), **options)


# The fourth row is shorter than 1, the second is not read.
_TABLE = literal([[3.0, -4.0, 0.5], [9.0, 9.0, 9.0], [0.5, 1.5, -0.25], [0.25, -0.5, 0.125]])
_READS = literal([[0, 2, 3], [3, 0, 0]])
rows.add("embedding_with", lambda x, i: _embedded(x, i, max_norm=1.0), _TABLE, _READS)
rows.add("embedding_with/padding", lambda x, i: _embedded(x, i, padding_idx=2), _TABLE, _READS)
rows.add("embedding_with/padding, norm 1",
         lambda x, i: _embedded(x, i, padding_idx=0, max_norm=2.0, norm_type=1.0), _TABLE, _READS)
rows.add("embedding_bag",
         lambda x, i, w: F.embedding_bag(i, x, mode="sum", per_sample_weights=w),
         normal(5, 3), integers(0, 5, 2, 3), normal(2, 3))
rows.add("embedding_bag/mean", lambda x, i: F.embedding_bag(i, x, mode="mean"),
         normal(5, 3), integers(0, 5, 2, 3))
rows.add("embedding_bag_offsets", lambda x, i: _bags(x, i, mode="mean"), normal(5, 3),
         integers(0, 5, 6))
rows.add("embedding_bag_offsets/weighted", _bags, normal(5, 3), integers(0, 5, 6), normal(6))
rows.add("attention", _attention, normal(1, 2, 2, 3), normal(1, 1, 3, 3), normal(1, 1, 3, 2))
rows.add("attention/masked", _masked_attention, normal(1, 2, 3, 2), normal(1, 2, 3, 2),
         normal(1, 2, 3, 2), normal(3, 3))
rows.add("rotary_embedding",
         lambda x, c, s: _rotary(x, c, s, lambda x: x[..., :2], lambda x: x[..., 2:],
                                 lambda a, b: torch.cat([a, b], -1)),
         normal(2, 3, 4), normal(3, 2), normal(3, 2))
rows.add("rotary_embedding/interleaved",
         lambda x, c, s: _rotary(x, c, s, lambda x: x[..., ::2], lambda x: x[..., 1::2],
                                 lambda a, b: torch.stack([a, b], -1).flatten(-2)),
         normal(2, 3, 4), normal(3, 2), normal(3, 2))
rows.add("interpolate/area", lambda x: F.interpolate(x, (2, 3), mode="area"), normal(1, 2, 5, 4))
rows.add("interpolate/cubic by factors",
         lambda x: F.interpolate(x, scale_factor=(1.6, 0.6), mode="bicubic"), normal(1, 2, 3, 4))
rows.add("interpolate/nearest exact",
         lambda x: F.interpolate(x, 5, mode="nearest-exact"), normal(1, 2, 4))
rows.add("interpolate/antialiased",
         lambda x: F.interpolate(x, (2, 3), mode="bilinear", antialias=True), normal(1, 2, 5, 4))
rows.add("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), normal(1, 8, 2, 3))
rows.add("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), normal(1, 2, 4, 6))
rows.add("channel_shuffle", lambda x: F.channel_shuffle(x, 2), normal(1, 6, 2, 2))
