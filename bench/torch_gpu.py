"""The workloads of `cargo xtask bench gpu` in PyTorch, eager or compiled.

`python3 torch_gpu.py [--compile | --graph]` answers the requests that bench/protocol/src/lib.rs describes, on the first GPU. The sizes are
those of bench/protocol/src/gpu.rs. With `--compile`, workloads where `torch.compile` has nothing to compile are unsupported; with
`--graph`, all but those that are replayed as a CUDA graph by hand.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

from peer import Unsupported, serve, timed

DEVICE = "cuda"
MATMULS = {
    "matmul_bf16_4096": (4096, torch.bfloat16, 50),
    "matmul_bf16_8192": (8192, torch.bfloat16, 5),
    "matmul_tf32_4096": (4096, torch.float32, 20),
    "matmul_tf32_8192": (8192, torch.float32, 5),
}
FLOAT8 = {"matmul_e4m3_4096": (4096, 50), "matmul_e4m3_8192": (8192, 5)}
CHAIN = 1 << 28
ROWS = (32_768, 4096)
SIGNALS = (4096, 4096)
ATTENTION = (4, 16, 4096, 128)
CONV_INPUT, CONV_WEIGHT = (64, 256, 56, 56), (256, 256, 3, 3)
ADAMW = (64, (4096, 4096))
POINTS = (4096, 64)
COUNTED, DIFFERENT = 1_000_000, 1000
ADDITIONS = 2000
BATCH, LENGTH, VOCABULARY, WIDTH, HEADS, LAYERS = 16, 1024, 50_304, 768, 12, 12
IMAGES, CLASSES, BLOCKS = 256, 1000, (3, 4, 6, 3)

# Workloads that run without torch.compile.
NOT_COMPILED = {
    *MATMULS, *FLOAT8, "attention", "attention_backward", "conv3x3", "cdist", "bincount", "adamw", "op_overhead", "rfft",
}
# Workloads that can be replayed as a CUDA graph.
GRAPHED = {"op_overhead", "llama_decode"}


def normal(shape, dtype=torch.bfloat16):
    return torch.randn(shape, device=DEVICE).to(dtype)


def first(y):
    """The first element of a result."""
    return y[(0,) * y.dim()].item()


class GptLayer(nn.Module):
    """A pre-norm layer of GPT-2."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.feed_forward_norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        mixed = self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (part.view(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2) for part in mixed)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.projection(seen.reshape(BATCH, LENGTH, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.feed_forward_norm(x))))


class Gpt(nn.Module):
    """GPT-2 with 124 million parameters; logits are made with the embedding of tokens."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(GptLayer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, tokens):
        places = torch.arange(LENGTH, device=tokens.device)
        x = self.layers(self.tokens(tokens) + self.positions(places))
        return F.linear(self.norm(x).flatten(0, 1), self.tokens.weight)


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, channels, width, stride):
        super().__init__()
        output = 4 * width
        self.reduce = conv_norm(channels, width, 1, 1)
        self.spatial = conv_norm(width, width, 3, stride)
        self.expand = conv_norm(width, output, 1, 1)
        self.shortcut = conv_norm(channels, output, 1, stride) if channels != output else nn.Identity()

    def forward(self, x):
        y = F.relu(self.spatial(F.relu(self.reduce(x))))
        return F.relu(self.expand(y) + self.shortcut(x))


def conv_norm(channels_in, channels_out, kernel, stride):
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out))


def resnet():
    blocks, channels = [], 64
    for stage, count in enumerate(BLOCKS):
        width = 64 << stage
        for block in range(count):
            blocks.append(Bottleneck(channels, width, 2 if block == 0 and stage > 0 else 1))
            channels = 4 * width
    return nn.Sequential(
        conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES),
    )


class Llama(nn.Module):
    """A model in the shape of Llama with 1.1 billion parameters and a cache of fixed size."""

    VOCABULARY, WIDTH, HEADS, KEY_HEADS, FEED_FORWARD, LAYERS, CACHE, TOKENS = 32_000, 2048, 32, 4, 5632, 22, 1024, 64
    HEAD = WIDTH // HEADS

    def __init__(self):
        super().__init__()
        weight = lambda *shape: nn.Parameter((torch.randn(shape, device=DEVICE) * 0.02).bfloat16(), requires_grad=False)
        ones = lambda: nn.Parameter(torch.ones(self.WIDTH, device=DEVICE, dtype=torch.bfloat16), requires_grad=False)
        keys = self.KEY_HEADS * self.HEAD
        self.tokens, self.norm, self.output = weight(self.VOCABULARY, self.WIDTH), ones(), weight(self.VOCABULARY, self.WIDTH)
        self.weights = nn.ParameterList(
            parameter
            for _ in range(self.LAYERS)
            for parameter in (
                ones(), weight(self.WIDTH, self.WIDTH), weight(keys, self.WIDTH), weight(keys, self.WIDTH),
                weight(self.WIDTH, self.WIDTH), ones(), weight(self.FEED_FORWARD, self.WIDTH),
                weight(self.FEED_FORWARD, self.WIDTH), weight(self.WIDTH, self.FEED_FORWARD),
            )
        )
        cache = (self.LAYERS, 2, 1, self.KEY_HEADS, self.CACHE, self.HEAD)
        self.cache = torch.zeros(cache, device=DEVICE, dtype=torch.bfloat16)
        exponents = torch.arange(0, self.HEAD, 2, device=DEVICE).repeat(2) / self.HEAD
        angles = torch.arange(self.CACHE, device=DEVICE)[:, None] / 10_000.0**exponents
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        self.places = torch.arange(self.CACHE, device=DEVICE)

    def forward(self, token, index):
        x = self.tokens.index_select(0, token)
        cos, sin = self.cos.index_select(0, index), self.sin.index_select(0, index)
        visible = (self.places <= index).view(1, 1, 1, -1)

        def rotated(x):
            one, two = x.chunk(2, dim=-1)
            return x * cos + torch.cat((-two, one), dim=-1) * sin

        norm = lambda x, weight: F.rms_norm(x, (self.WIDTH,), weight, 1e-5)
        for layer in range(self.LAYERS):
            n1, wq, wk, wv, wo, n2, gate, wide, narrow = self.weights[9 * layer : 9 * layer + 9]
            keys, values = self.cache[layer]
            y = norm(x, n1)
            q = rotated(F.linear(y, wq).view(1, self.HEADS, 1, self.HEAD))
            keys.index_copy_(2, index, rotated(F.linear(y, wk).view(1, self.KEY_HEADS, 1, self.HEAD)))
            values.index_copy_(2, index, F.linear(y, wv).view(1, self.KEY_HEADS, 1, self.HEAD))
            seen = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible, enable_gqa=True)
            x = x + F.linear(seen.reshape(1, self.WIDTH), wo)
            y = norm(x, n2)
            x = x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, wide), narrow)
        return F.linear(norm(x, self.norm), self.output).argmax(1)


class Peer:
    """Answers requests."""

    def __init__(self, compiled, graph):
        self.compiled = compiled
        self.graph = graph
        self.repeat = None
        self.operations = 1

    def function(self, f):
        """The function, compiled if that is asked for."""
        return torch.compile(f, dynamic=False) if self.compiled else f

    def repeated(self, rounds, f, *inputs):
        """An operation that is done so many times in one repeat, and waited for once."""
        self.operations = rounds
        f = self.function(f)

        def repeat():
            with torch.inference_mode():
                for _ in range(rounds):
                    y = f(*inputs)
                return first(y)

        return repeat

    def differentiated(self, rounds, f, gradient, *inputs):
        """The same with the gradients of all inputs."""
        self.operations = rounds
        f = self.function(f)
        inputs = [x.requires_grad_() for x in inputs]

        def repeat():
            for _ in range(rounds):
                gradients = torch.autograd.grad(f(*inputs), inputs, gradient)
            return sum(first(x) for x in gradients)

        return repeat

    def training(self, model, optimizer, x, targets):
        """A workload of whole training steps, in mixed precision."""

        def loss_of(x, targets):
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                return F.cross_entropy(model(x), targets)

        loss_of = self.function(loss_of)

        def repeat():
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(x, targets)
            loss.backward()
            optimizer.step()
            value = loss.item()
            torch.cuda.synchronize()
            return value

        return repeat

    def workload(self, name):
        """The work of one repeat."""
        if self.compiled and name in NOT_COMPILED:
            raise Unsupported("torch.compile changes nothing here")
        if self.graph and name not in GRAPHED:
            raise Unsupported("only short operations gain from a graph")
        if name in MATMULS:
            size, dtype, rounds = MATMULS[name]
            return self.repeated(rounds, torch.matmul, normal((size, size), dtype), normal((size, size), dtype))
        if name in FLOAT8:
            size, rounds = FLOAT8[name]
            scaled = lambda x: (x / x.abs().max() * 448).to(torch.float8_e4m3fn)
            scale = torch.ones((), device=DEVICE)
            product = lambda a, b: torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)
            return self.repeated(rounds, product, scaled(normal((size, size))), scaled(normal((size, size))).t())
        gelu = lambda x: x * (torch.erf(x * math.sqrt(0.5)) + 1.0) * 0.5
        softmax = lambda x: torch.softmax(x, 1)
        rfft = lambda x: torch.view_as_real(torch.fft.rfft(x))
        norm = lambda x, weight, bias: F.layer_norm(x, (ROWS[1],), weight, bias, 1e-5)
        affine = lambda: (torch.ones(ROWS[1], device=DEVICE).bfloat16(), torch.zeros(ROWS[1], device=DEVICE).bfloat16())
        attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        heads = lambda: [normal(ATTENTION) for _ in range(3)]
        workloads = {
            "gelu_f32": lambda: self.repeated(20, gelu, normal(CHAIN, torch.float32)),
            "gelu_bf16": lambda: self.repeated(20, gelu, normal(CHAIN)),
            "softmax": lambda: self.repeated(20, softmax, normal(ROWS)),
            "softmax_backward": lambda: self.differentiated(20, softmax, normal(ROWS), normal(ROWS)),
            "layernorm": lambda: self.repeated(20, norm, normal(ROWS), *affine()),
            "layernorm_backward": lambda: self.differentiated(20, norm, normal(ROWS), normal(ROWS), *affine()),
            "rfft": lambda: self.repeated(100, rfft, normal(SIGNALS, torch.float32)),
            "attention": lambda: self.repeated(10, attention, *heads()),
            "attention_backward": lambda: self.differentiated(10, attention, normal(ATTENTION), *heads()),
            "conv3x3": self.conv,
            "cdist": lambda: self.repeated(10, torch.cdist, normal(POINTS, torch.float32), normal(POINTS, torch.float32)),
            "bincount": lambda: self.repeated(10, torch.bincount, torch.randint(0, DIFFERENT, (COUNTED,), device=DEVICE)),
            "adamw": self.adamw,
            "op_overhead": self.overhead,
            "gpt2_train_step": self.gpt,
            "resnet50_train_step": self.resnet,
            "llama_decode": self.llama,
        }
        if name not in workloads:
            raise Unsupported(f"no workload is called `{name}`")
        return workloads[name]()

    def conv(self):
        x, weight = (normal(shape).to(memory_format=torch.channels_last) for shape in (CONV_INPUT, CONV_WEIGHT))
        return self.repeated(10, lambda x, weight: F.conv2d(x, weight, None, 1, 1), x, weight)

    def adamw(self):
        count, shape = ADAMW
        weights = [nn.Parameter(normal(shape, torch.float32)) for _ in range(count)]
        for weight in weights:
            weight.grad = normal(shape, torch.float32)
        optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)

        def repeat():
            optimizer.step()
            return first(weights[-1].detach())

        return repeat

    def overhead(self):
        self.operations = ADDITIONS
        x = normal(1, torch.float32)
        self.result = torch.empty_like(x)

        def repeat():
            with torch.inference_mode():
                y = x
                for _ in range(ADDITIONS):
                    y = y + x
                self.result.copy_(y)
                return 0.0 if torch.cuda.is_current_stream_capturing() else first(self.result)

        return self.graphed(repeat) if self.graph else repeat

    def graphed(self, repeat):
        """A repeat as a CUDA graph."""
        repeat()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            repeat()

        def replay():
            graph.replay()
            return first(self.result)

        return replay

    def gpt(self):
        model = Gpt().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=DEVICE)
        return self.training(model, optimizer, tokens, torch.randint(0, VOCABULARY, (BATCH * LENGTH,), device=DEVICE))

    def resnet(self):
        model = resnet().to(DEVICE, memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
        images = normal((IMAGES, 3, 224, 224), torch.float32).to(memory_format=torch.channels_last)
        return self.training(model, optimizer, images, torch.randint(0, CLASSES, (IMAGES,), device=DEVICE))

    def llama(self):
        model = Llama()
        token = torch.ones(1, dtype=torch.long, device=DEVICE)
        index = torch.full((1,), Llama.CACHE // 2, dtype=torch.long, device=DEVICE)
        self.operations = Llama.TOKENS
        step = self.function(model)

        def advance():
            token.copy_(step(token, index))
            index.add_(1)

        with torch.inference_mode():
            for _ in range(3):
                advance()
            if self.graph:
                captured = torch.cuda.CUDAGraph()
                with torch.cuda.graph(captured):
                    advance()

        def repeat():
            with torch.inference_mode():
                token.fill_(1)
                index.fill_(Llama.CACHE // 2)
                for _ in range(Llama.TOKENS):
                    captured.replay() if self.graph else advance()
                return float(token.item())

        return repeat

    def prepare(self, name):
        self.repeat = None
        self.operations = 1
        torch.cuda.empty_cache()
        torch.manual_seed(1)
        torch.compiler.reset()
        repeat = self.workload(name)
        # Compilation is no part of any repeat.
        if self.compiled:
            repeat()
        self.repeat = repeat
        return {}

    def run(self, count):
        if self.repeat is None:
            raise RuntimeError("nothing is prepared")
        return {**timed(self.repeat, int(count), self.operations), "faults": 0}

    def answer(self, words):
        match words:
            case ["hello"]:
                name = "torch.compile" if self.compiled else "torch.graph" if self.graph else "torch"
                return {"peer": name, "version": torch.__version__, "threads": 1}
            case ["prepare", name, *_]:
                return self.prepare(name)
            case ["run", count]:
                return self.run(count)
            case ["drop"]:
                self.repeat = None
                torch.cuda.empty_cache()
                return {}
            case ["memory"]:
                return {"peak_mib": torch.cuda.max_memory_allocated() / 2**20, "resident_mib": 0.0}
            case ["limit"]:
                raise Unsupported("this peer does not measure the machine")
            case _:
                raise RuntimeError(f"unknown request `{' '.join(words)}`")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    peer = Peer(options.compile, options.graph)
    serve(peer.answer)


if __name__ == "__main__":
    main()
