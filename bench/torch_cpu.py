"""The workloads of `cargo xtask bench cpu` in PyTorch, eager or compiled.

`python3 torch_cpu.py --threads N [--compile]` answers the requests that bench/protocol/src/lib.rs describes. The sizes are
those of bench/protocol/src/shapes.rs. With `--compile`, workloads where `torch.compile` has nothing to compile are unsupported.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

from peer import Unsupported, memory, serve, timed

MATMULS = {
    "matmul_512": ((512, 512), (512, 512)),
    "matmul_1024": ((1024, 1024), (1024, 1024)),
    "matmul_2048": ((2048, 2048), (2048, 2048)),
    "bmm_32x128": ((32, 128, 128), (32, 128, 128)),
    "gemv_4096": ((1, 4096), (4096, 4096)),
    "matmul_tall": ((8192, 64), (64, 512)),
}
# Input, weight, stride, padding, groups.
CONVS = {
    "conv3x3": ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    "conv7x7s2": ((1, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    "conv1x1": ((8, 256, 56, 56), (64, 256, 1, 1), 1, 0, 1),
    "convdw3x3": ((8, 128, 56, 56), (128, 1, 3, 3), 1, 1, 128),
}
MAXPOOL = (8, 64, 112, 112)
CHAIN = 4 << 20
ROWS = (4096, 1024)
SQUARE = (4096, 4096)
TABLE = (32_000, 512)
GATHERED = 8192
SORTED = 1_000_000
SCATTERED, PLACES = 1_000_000, 10_000
POINTS = (4096, 64)
ATTENTION = (4, 8, 512, 64)
ADDITIONS = 2000
BATCH = 64
# Features and units, layers, sequences, steps.
RECURRENT = (512, 2, 32, 128)
# Sequences, length, width, heads of `mha_causal`.
CAUSAL = (4, 512, 512, 8)
# Sequences, length, width, heads, width of the feed-forward layer of `encoder_layer_train_step`.
ENCODER = (8, 128, 512, 8, 2048)
# The tensors of `adamw_1m_in_100_tensors` and `lion`, and those of `muon`.
TENSORS, TENSOR = 100, (100, 100)
MATRICES, MATRIX = 8, (512, 512)
LENGTH, VOCABULARY, WIDTH, HEADS, FEED_FORWARD, LAYERS, SEQUENCES = 256, 8192, 256, 8, 1024, 4, 8

# Workloads that run without torch.compile.
NOT_COMPILED = {"matmul_512", "matmul_1024", "matmul_2048", "scatter_add", "cdist", "sort_1m", "op_overhead", "safetensors_load",
                "lstm", "gru", "adamw_1m_in_100_tensors", "lion", "muon"}


def first(y):
    """The first element of a result."""
    return y[(0,) * y.dim()].item()


class Layer(nn.Module):
    """A pre-norm layer of the language model."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.feed_forward_norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, FEED_FORWARD)
        self.narrow = nn.Linear(FEED_FORWARD, WIDTH)

    def forward(self, x):
        mixed = self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (part.view(SEQUENCES, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2) for part in mixed)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.projection(seen.reshape(SEQUENCES, LENGTH, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.feed_forward_norm(x))))


class Transformer(nn.Module):
    """A small causal language model."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(1, LENGTH, WIDTH))
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.layers(self.tokens(tokens) + self.positions)
        return self.output(self.norm(x).flatten(0, 1))


def mlp():
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(8),
        nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10),
    )


class Block(nn.Module):
    """Two convolutions of ResNet-18 with a shortcut."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.first = conv_norm(channels_in, channels_out, 3, stride)
        self.second = conv_norm(channels_out, channels_out, 3, 1)
        self.shortcut = conv_norm(channels_in, channels_out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def conv_norm(channels_in, channels_out, kernel, stride):
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out))


def resnet():
    blocks = []
    for channels_in, channels_out, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]:
        blocks += [Block(channels_in, channels_out, stride), Block(channels_out, channels_out, 1)]
    return nn.Sequential(
        conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
    )


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023), over all tensors at once: `torch.optim` has none."""

    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            gradients = [p.grad for p in parameters]
            for p in parameters:
                if not self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            momenta = [self.state[p]["momentum"] for p in parameters]
            first, second = group["betas"]
            updates = torch._foreach_lerp(momenta, gradients, 1 - first)
            torch._foreach_sign_(updates)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, updates, alpha=-group["lr"])
            torch._foreach_lerp_(momenta, gradients, 1 - second)


class Peer:
    """Answers requests."""

    def __init__(self, threads, compiled):
        self.threads = threads
        self.compiled = compiled
        self.repeat = None
        self.operations = 1

    def function(self, f):
        """The function, compiled if that is asked for."""
        return torch.compile(f, dynamic=False) if self.compiled else f

    def inference(self, f, *inputs):
        """A workload without gradients."""
        f = self.function(f)

        def repeat():
            with torch.inference_mode():
                return first(f(*inputs))

        return repeat

    def training(self, model, optimizer, x, targets):
        """A workload of whole training steps."""
        loss_of = self.function(lambda x, targets: F.cross_entropy(model(x), targets))

        def repeat():
            optimizer.zero_grad()
            loss = loss_of(x, targets)
            loss.backward()
            optimizer.step()
            return loss.item()

        return repeat

    def workload(self, name, file):
        """The work of one repeat."""
        if self.compiled and name in NOT_COMPILED:
            raise Unsupported("torch.compile changes nothing here")
        if name in MATMULS:
            a, b = (torch.randn(shape) for shape in MATMULS[name])
            return self.inference(torch.matmul, a, b)
        if name in CONVS:
            x, weight, stride, padding, groups = CONVS[name]
            conv = lambda x, weight: F.conv2d(x, weight, None, stride, padding, 1, groups)
            return self.inference(conv, torch.randn(x), torch.randn(weight))
        single = {
            "maxpool": (lambda x: F.max_pool2d(x, 3, 2, 1), MAXPOOL),
            "gelu_chain": (lambda x: x * (torch.erf(x * math.sqrt(0.5)) + 1.0) * 0.5, (CHAIN,)),
            "softmax": (lambda x: torch.softmax(x, 1), ROWS),
            "cumsum": (lambda x: torch.cumsum(x, 1), ROWS),
            "sum_all": (torch.sum, SQUARE),
            "sum_dim0": (lambda x: torch.sum(x, 0), SQUARE),
            "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), SQUARE),
            "transpose_copy": (lambda x: x.t().contiguous(), SQUARE),
        }
        if name in single:
            f, shape = single[name]
            return self.inference(f, torch.randn(shape))
        several = {
            "fused_chain": self.fused_chain,
            "layernorm": self.layernorm,
            "gather_rows": self.gather_rows,
            "scatter_add": self.scatter_add,
            "cdist": lambda: self.inference(torch.cdist, torch.randn(POINTS), torch.randn(POINTS)),
            "sort_1m": self.sort,
            "attention_fwd": self.attention,
            "op_overhead": self.overhead,
            "mlp_train_step": lambda: self.classifier(mlp(), (BATCH, 784)),
            "cnn_train_step": lambda: self.classifier(cnn(), (BATCH, 1, 28, 28)),
            "transformer_train_step": self.transformer,
            "lstm": lambda: self.recurrent(nn.LSTM),
            "gru": lambda: self.recurrent(nn.GRU),
            "mha_causal": self.causal_attention,
            "encoder_layer_train_step": self.encoder_layer,
            "adamw_1m_in_100_tensors": lambda: self.update(
                lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True), TENSORS, TENSOR
            ),
            "lion": lambda: self.update(Lion, TENSORS, TENSOR),
            "muon": lambda: self.update(lambda parameters: torch.optim.Muon(parameters, lr=1e-3), MATRICES, MATRIX),
            "resnet18_infer": lambda: self.inference(resnet().eval(), torch.randn(1, 3, 224, 224)),
            "safetensors_load": lambda: self.load(file),
        }
        if name not in several:
            raise Unsupported(f"no workload is called `{name}`")
        return several[name]()

    def fused_chain(self):
        chain = lambda a, b, c, d: ((a * b + c).tanh() * d - a).exp()
        return self.inference(chain, *(torch.randn(CHAIN) for _ in range(4)))

    def layernorm(self):
        norm = lambda x, weight, bias: F.layer_norm(x, (ROWS[1],), weight, bias, 1e-5)
        return self.inference(norm, torch.randn(ROWS), torch.ones(ROWS[1]), torch.zeros(ROWS[1]))

    def gather_rows(self):
        rows = torch.randint(0, TABLE[0], (GATHERED,))
        return self.inference(lambda table, rows: table.index_select(0, rows), torch.randn(TABLE), rows)

    def scatter_add(self):
        places = torch.randint(0, PLACES, (SCATTERED,))
        sums = lambda places, values: torch.zeros(PLACES).scatter_add_(0, places, values)
        return self.inference(sums, places, torch.randn(SCATTERED))

    def sort(self):
        x = torch.randn(SORTED)

        def repeat():
            with torch.inference_mode():
                values, indices = torch.sort(x)
                return first(values) + first(indices)

        return repeat

    def attention(self):
        return self.inference(F.scaled_dot_product_attention, *(torch.randn(ATTENTION) for _ in range(3)))

    def overhead(self):
        self.operations = ADDITIONS
        x = torch.randn(1)

        def repeat():
            with torch.inference_mode():
                y = x
                for _ in range(ADDITIONS):
                    y = y + x
                return first(y)

        return repeat

    def classifier(self, model, shape):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        return self.training(model, optimizer, torch.randn(shape), torch.randint(0, 10, (BATCH,)))

    def transformer(self):
        model = Transformer()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
        tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH))
        return self.training(model, optimizer, tokens, torch.randint(0, VOCABULARY, (SEQUENCES * LENGTH,)))

    def recurrent(self, module):
        width, layers, sequences, steps = RECURRENT
        model = module(width, width, layers, batch_first=True).eval()
        return self.inference(lambda x: model(x)[0], torch.randn(sequences, steps, width))

    def causal_attention(self):
        sequences, length, width, heads = CAUSAL
        model = nn.MultiheadAttention(width, heads, batch_first=True).eval()
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        attend = lambda x: model(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return self.inference(attend, torch.randn(sequences, length, width))

    def encoder_layer(self):
        sequences, length, width, heads, feed_forward = ENCODER
        model = nn.TransformerEncoderLayer(width, heads, feed_forward, dropout=0.0, batch_first=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        x = torch.randn(sequences, length, width)
        targets = torch.randn(sequences, length, width)
        loss_of = self.function(lambda x: F.mse_loss(model(x), targets))

        def repeat():
            optimizer.zero_grad()
            loss = loss_of(x)
            loss.backward()
            optimizer.step()
            return loss.item()

        return repeat

    def update(self, optimizer, count, shape):
        """One step of an optimizer with gradients that do not change."""
        parameters = [nn.Parameter(torch.randn(shape)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.randn(shape)
        optimizer = optimizer(parameters)

        def repeat():
            optimizer.step()
            return first(parameters[0].detach())

        return repeat

    def load(self, file):
        """Loads all tensors and then reads every number of them once: they are mapped, not read."""
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise Unsupported("the Python package safetensors is not installed") from error

        def repeat():
            with torch.inference_mode():
                return sum(tensor.sum().item() for tensor in load_file(file).values())

        return repeat

    def prepare(self, name, file=""):
        self.repeat = None
        self.operations = 1
        torch.manual_seed(1)
        torch.compiler.reset()
        repeat = self.workload(name, file)
        # Compilation is no part of any repeat.
        if self.compiled:
            repeat()
        self.repeat = repeat
        return {}

    def run(self, count):
        if self.repeat is None:
            raise RuntimeError("nothing is prepared")
        return timed(self.repeat, int(count), self.operations)

    def answer(self, words):
        match words:
            case ["hello"]:
                name = "torch.compile" if self.compiled else "torch"
                return {"peer": name, "version": torch.__version__, "threads": torch.get_num_threads()}
            case ["prepare", name, *file]:
                return self.prepare(name, *file)
            case ["run", count]:
                return self.run(count)
            case ["drop"]:
                self.repeat = None
                return {}
            case ["memory"]:
                return memory()
            case ["limit"]:
                raise Unsupported("this peer does not measure the machine")
            case _:
                raise RuntimeError(f"unknown request `{' '.join(words)}`")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    peer = Peer(options.threads, options.compile)
    serve(peer.answer)


if __name__ == "__main__":
    main()
