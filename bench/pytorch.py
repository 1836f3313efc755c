"""The workloads of `cargo xtask bench cpu` and `bench gpu` in PyTorch, eager or compiled.

`python3 pytorch.py --threads N [--compile]`, or `python3 pytorch.py --device cuda [--compile | --graph]` on the first GPU, answers the
requests that bench/protocol/src/lib.rs describes. workloads.txt tells for which workloads `torch.compile` has something to compile, and
which are replayed as a CUDA graph by hand; others are unsupported.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

from peer import Unsupported, memory, rows, serve, timed

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# Operations of one operand.
SINGLE = {
    "gelu": lambda x: x * (torch.erf(x * math.sqrt(0.5)) + 1.0) * 0.5,
    "softmax": lambda x: torch.softmax(x, 1),
    "sum": torch.sum,
    "sum_dim0": lambda x: torch.sum(x, 0),
    "rfft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    "transpose_copy": lambda x: x.t().contiguous(),
}


def first(y):
    """The first element of a result."""
    return y[(0,) * y.dim()].item()


class Layer(nn.Module):
    """A pre-norm layer of a language model."""

    def __init__(self, width, heads, feed_forward):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, feed_forward)
        self.narrow = nn.Linear(feed_forward, width)

    def forward(self, x):
        batch, length, width = x.shape
        mixed = self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in mixed)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.projection(seen.reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.wide(self.feed_forward_norm(x))))


class LanguageModel(nn.Module):
    """The embeddings and layers of a causal language model."""

    def __init__(self, row, positions):
        super().__init__()
        width = row["width"]
        self.tokens = nn.Embedding(row["vocabulary"], width)
        self.positions = positions
        self.layers = nn.Sequential(*(Layer(width, row["heads"], row["feed_forward"]) for _ in range(row["layers"])))
        self.norm = nn.LayerNorm(width)


class Transformer(LanguageModel):
    """A small causal language model."""

    def __init__(self, row):
        super().__init__(row, nn.Parameter(torch.zeros(1, row["length"], row["width"])))
        self.output = nn.Linear(row["width"], row["vocabulary"])

    def forward(self, tokens):
        x = self.layers(self.tokens(tokens) + self.positions)
        return self.output(self.norm(x).flatten(0, 1))


class Gpt(LanguageModel):
    """GPT-2; logits are made with the embedding of tokens."""

    def __init__(self, row):
        super().__init__(row, nn.Embedding(row["length"], row["width"]))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, row["deviation"])

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.tokens(tokens) + self.positions(places))
        return F.linear(self.norm(x).flatten(0, 1), self.tokens.weight)


def perceptron(widths):
    """Linear layers with rectifiers between them."""
    layers = [module for pair in zip(widths, widths[1:]) for module in (nn.Linear(*pair), nn.ReLU())]
    return layers[:-1]


def conv_norm(channels_in, channels_out, kernel, stride):
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out))


class Block(nn.Module):
    """Two convolutions with a shortcut; with an expansion of the width three, of which the middle one sees neighbours."""

    def __init__(self, channels, width, expansion, stride):
        super().__init__()
        output = width * expansion
        shapes = [(channels, width, 3, stride), (width, width, 3, 1)]
        if expansion > 1:
            shapes = [(channels, width, 1, 1), (width, width, 3, stride), (width, output, 1, 1)]
        self.convs = nn.ModuleList(conv_norm(*shape) for shape in shapes)
        self.shortcut = conv_norm(channels, output, 1, stride) if channels != output else nn.Identity()

    def forward(self, x):
        y = self.convs[0](x)
        for conv in self.convs[1:]:
            y = conv(F.relu(y))
        return F.relu(y + self.shortcut(x))


def resnet(row):
    """ResNet-18 or ResNet-50."""
    blocks, channels = [], 64
    for stage, count in enumerate(row["blocks"]):
        for block in range(count):
            blocks.append(Block(channels, 64 << stage, row["expansion"], 2 if block == 0 and stage > 0 else 1))
            channels = (64 << stage) * row["expansion"]
    return nn.Sequential(
        conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, row["classes"]),
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


class Llama(nn.Module):
    """A model in the shape of Llama with a cache of fixed size."""

    def __init__(self, row, device):
        super().__init__()
        self.width, self.heads, self.key_heads, self.layers = (row[name] for name in ("width", "heads", "key_heads", "layers"))
        self.head = self.width // self.heads
        weight = lambda *shape: nn.Parameter((torch.randn(shape, device=device) * 0.02).bfloat16(), requires_grad=False)
        ones = lambda: nn.Parameter(torch.ones(self.width, device=device, dtype=torch.bfloat16), requires_grad=False)
        keys, vocabulary, feed_forward = self.key_heads * self.head, row["vocabulary"], row["feed_forward"]
        self.tokens, self.norm, self.output = weight(vocabulary, self.width), ones(), weight(vocabulary, self.width)
        self.weights = nn.ParameterList(
            parameter
            for _ in range(self.layers)
            for parameter in (
                ones(), weight(self.width, self.width), weight(keys, self.width), weight(keys, self.width),
                weight(self.width, self.width), ones(), weight(feed_forward, self.width),
                weight(feed_forward, self.width), weight(self.width, feed_forward),
            )
        )
        cache = (self.layers, 2, 1, self.key_heads, row["cache"], self.head)
        self.cache = torch.zeros(cache, device=device, dtype=torch.bfloat16)
        exponents = torch.arange(0, self.head, 2, device=device).repeat(2) / self.head
        angles = torch.arange(row["cache"], device=device)[:, None] / float(row["rotary_base"])**exponents
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        self.places = torch.arange(row["cache"], device=device)

    def forward(self, token, index):
        x = self.tokens.index_select(0, token)
        cos, sin = self.cos.index_select(0, index), self.sin.index_select(0, index)
        visible = (self.places <= index).view(1, 1, 1, -1)

        def rotated(x):
            one, two = x.chunk(2, dim=-1)
            return x * cos + torch.cat((-two, one), dim=-1) * sin

        norm = lambda x, weight: F.rms_norm(x, (self.width,), weight, 1e-5)
        for layer in range(self.layers):
            n1, wq, wk, wv, wo, n2, gate, wide, narrow = self.weights[9 * layer : 9 * layer + 9]
            keys, values = self.cache[layer]
            y = norm(x, n1)
            q = rotated(F.linear(y, wq).view(1, self.heads, 1, self.head))
            keys.index_copy_(2, index, rotated(F.linear(y, wk).view(1, self.key_heads, 1, self.head)))
            values.index_copy_(2, index, F.linear(y, wv).view(1, self.key_heads, 1, self.head))
            seen = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible, enable_gqa=True)
            x = x + F.linear(seen.reshape(1, self.width), wo)
            y = norm(x, n2)
            x = x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, wide), narrow)
        return F.linear(norm(x, self.norm), self.output).argmax(1)


class Operations:
    """The repeats of workloads: a method for each operation of the table. `row[NAME]` is a setting."""

    def __init__(self, device, name):
        self.device, self.name = device, name
        self.operations = 1

    def workload(self, row, file):
        """The work of one repeat."""
        if self.name not in row.peers:
            reasons = {"torch.compile": "torch.compile changes nothing here", "torch.graph": "only short operations gain from a graph"}
            raise Unsupported(reasons.get(self.name, f"{self.name} does not have it"))
        self.row = row
        if row.operation in SINGLE:
            return self.repeated(SINGLE[row.operation], self.normal("x"))
        operation = getattr(self, row.operation)
        return operation(row, file) if row.operation == "load" else operation(row)

    def normal(self, name):
        """Standard normal numbers of the shape that a setting names."""
        return self.randn(self.row[name]).to(DTYPES[self.row.dtype])

    def randn(self, *shape):
        return torch.randn(*shape, device=self.device)

    def integers(self, below, *shape):
        return torch.randint(0, below, shape, device=self.device)

    def function(self, f):
        """The function, compiled if that is asked for."""
        return torch.compile(f, dynamic=False) if self.name == "torch.compile" else f

    def repeated(self, f, *inputs):
        """An operation without gradients that is done `rounds` times in one repeat, and waited for once."""
        self.operations = rounds = self.row.rounds
        f = self.function(f)

        def repeat():
            with torch.inference_mode():
                for _ in range(rounds):
                    y = f(*inputs)
                return first(y)

        return repeat

    def differentiated(self, f, gradient, *inputs):
        """The same with the gradients of all inputs."""
        self.operations = rounds = self.row.rounds
        f = self.function(f)
        inputs = [x.requires_grad_() for x in inputs]

        def repeat():
            for _ in range(rounds):
                gradients = torch.autograd.grad(f(*inputs), inputs, gradient)
            return sum(first(x) for x in gradients)

        return repeat

    def training(self, loss_of, optimizer, *inputs):
        """A workload of whole training steps."""
        loss_of = self.function(loss_of)

        def repeat():
            optimizer.zero_grad()
            loss = loss_of(*inputs)
            loss.backward()
            optimizer.step()
            value = loss.item()
            if self.device == "cuda":
                torch.cuda.synchronize()
            return value

        return repeat

    def classification(self, model, optimizer, x, targets):
        """Training with the cross-entropy of a model's logits."""
        loss_of = lambda x, targets: F.cross_entropy(model(x), targets)

        def mixed(x, targets):
            with torch.autocast(self.device, dtype=torch.bfloat16):
                return F.cross_entropy(model(x), targets)

        return self.training(mixed if self.row.dtype == "mixed" else loss_of, optimizer, x, targets)

    def matmul(self, row):
        return self.repeated(torch.matmul, self.normal("a"), self.normal("b"))

    bmm = matmul

    def matmul_float8(self, row):
        normal = lambda: self.randn(row["x"]).bfloat16()
        scaled = lambda x: (x / x.abs().max() * 448).to(torch.float8_e4m3fn)
        scale = torch.ones((), device=self.device)
        product = lambda a, b: torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)
        return self.repeated(product, scaled(normal()), scaled(normal()).t())

    def conv(self, row):
        stride, padding, groups = row["stride"], row["padding"], row["groups"]
        conv = lambda x, weight: F.conv2d(x, weight, None, stride, padding, 1, groups)
        return self.repeated(conv, self.normal("x"), self.normal("weight"))

    def conv_channels_last(self, row):
        stride, padding, groups = row["stride"], row["padding"], row["groups"]
        x, weight = (self.normal(name).to(memory_format=torch.channels_last) for name in ("x", "weight"))
        return self.repeated(lambda x, weight: F.conv2d(x, weight, None, stride, padding, 1, groups), x, weight)

    def max_pool(self, row):
        window = (row["kernel"], row["stride"], row["padding"])
        return self.repeated(lambda x: F.max_pool2d(x, *window), self.normal("x"))

    def fused_chain(self, row):
        chain = lambda a, b, c, d: ((a * b + c).tanh() * d - a).exp()
        return self.repeated(chain, *(self.normal("x") for _ in range(4)))

    def layernorm(self, row):
        return self.repeated(*self.norm(row))

    def norm(self, row):
        """Layer normalisation with its operands."""
        width, dtype = row["x"][1], DTYPES[row.dtype]
        affine = (make(width, device=self.device).to(dtype) for make in (torch.ones, torch.zeros))
        return lambda x, weight, bias: F.layer_norm(x, (width,), weight, bias, 1e-5), self.normal("x"), *affine

    def layernorm_backward(self, row):
        gradient = self.normal("x")
        norm, *inputs = self.norm(row)
        return self.differentiated(norm, gradient, *inputs)

    def softmax_backward(self, row):
        return self.differentiated(SINGLE["softmax"], self.normal("x"), self.normal("x"))

    def cumsum(self, row):
        axis = row["axis"]
        return self.repeated(lambda x: torch.cumsum(x, axis), self.normal("x"))

    def take(self, row):
        rows = self.integers(row["table"][0], row["count"])
        return self.repeated(lambda table, rows: table.index_select(0, rows), self.normal("table"), rows)

    def scatter_add(self, row):
        places = row["places"]
        sums = lambda indices, values: torch.zeros(places).scatter_add_(0, indices, values)
        return self.repeated(sums, self.integers(places, row["count"]), self.randn(row["count"]))

    def bincount(self, row):
        return self.repeated(torch.bincount, self.integers(row["places"], row["count"]))

    def cdist(self, row):
        return self.repeated(torch.cdist, self.normal("x"), self.normal("x"))

    def sort(self, row):
        x = self.normal("x")

        def repeat():
            with torch.inference_mode():
                values, indices = torch.sort(x)
                return first(values) + first(indices)

        return repeat

    def attend(self, row):
        """Attention with its operands."""
        causal = bool(row["causal"])
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return attend, *(self.normal("x") for _ in range(3))

    def attention(self, row):
        return self.repeated(*self.attend(row))

    def attention_backward(self, row):
        gradient = self.normal("x")
        attend, *inputs = self.attend(row)
        return self.differentiated(attend, gradient, *inputs)

    def additions_eager(self, row):
        self.operations = count = row["count"]
        x = self.randn(1)

        def repeat():
            with torch.inference_mode():
                y = x
                for _ in range(count):
                    y = y + x
                return first(y)

        return repeat

    def additions(self, row):
        """The same, into a tensor that a CUDA graph writes again."""
        self.operations = count = row["count"]
        x = self.randn(1)
        result = torch.empty_like(x)

        def repeat():
            with torch.inference_mode():
                y = x
                for _ in range(count):
                    y = y + x
                result.copy_(y)
                return 0.0 if torch.cuda.is_current_stream_capturing() else first(result)

        if self.name != "torch.graph":
            return repeat
        repeat()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            repeat()

        def replay():
            graph.replay()
            return first(result)

        return replay

    def classifier(self, row, model, *shape):
        optimizer = torch.optim.Adam(model.parameters(), lr=row["learning_rate"], fused=True)
        images = self.randn(row["batch"], *shape)
        return self.classification(model, optimizer, images, self.integers(row["widths"][-1], row["batch"]))

    def mlp(self, row):
        return self.classifier(row, nn.Sequential(*perceptron(row["widths"])), row["widths"][0])

    def cnn(self, row):
        channels = row["channels"]
        convs = [module for pair in zip(channels, channels[1:]) for module in (nn.Conv2d(*pair, 3), nn.ReLU())]
        model = nn.Sequential(*convs, nn.AdaptiveAvgPool2d(row["pooled"]), nn.Flatten(), *perceptron(row["widths"]))
        return self.classifier(row, model, channels[0], row["image"], row["image"])

    def language(self, row, model):
        rate, decay = row["learning_rate"], row["weight_decay"]
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)
        batch, length = row["batch"], row["length"]
        tokens = self.integers(row["vocabulary"], batch, length)
        return self.classification(model, optimizer, tokens, self.integers(row["vocabulary"], batch * length))

    def transformer(self, row):
        return self.language(row, Transformer(row))

    def gpt2(self, row):
        return self.language(row, Gpt(row).to(self.device))

    def recurrent(self, row, module):
        model = module(row["width"], row["width"], row["layers"], batch_first=True).eval()
        return self.repeated(lambda x: model(x)[0], self.randn(row["sequences"], row["steps"], row["width"]))

    def lstm(self, row):
        return self.recurrent(row, nn.LSTM)

    def gru(self, row):
        return self.recurrent(row, nn.GRU)

    def mha_causal(self, row):
        _, length, width = row["x"]
        model = nn.MultiheadAttention(width, row["heads"], batch_first=True).eval()
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        attend = lambda x: model(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return self.repeated(attend, self.normal("x"))

    def encoder_layer(self, row):
        width, heads, feed_forward = row["x"][2], row["heads"], row["feed_forward"]
        model = nn.TransformerEncoderLayer(width, heads, feed_forward, dropout=0.0, batch_first=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=row["learning_rate"], fused=True)
        x, targets = self.normal("x"), self.normal("x")
        return self.training(lambda x: F.mse_loss(model(x), targets), optimizer, x)

    def update(self, row, optimizer, **options):
        """One step of an optimizer with gradients that do not change."""
        parameters = [nn.Parameter(self.normal("x")) for _ in range(row["count"])]
        for parameter in parameters:
            parameter.grad = self.normal("x")
        optimizer = optimizer(parameters, **options)

        def repeat():
            optimizer.step()
            return first(parameters[0].detach())

        return repeat

    def adamw(self, row):
        return self.update(row, torch.optim.AdamW, lr=1e-3, fused=True)

    def lion(self, row):
        return self.update(row, Lion)

    def muon(self, row):
        return self.update(row, torch.optim.Muon, lr=1e-3)

    def resnet(self, row):
        model = resnet(row)
        if row.dtype != "mixed":
            return self.repeated(model.eval(), self.normal("x"))
        model = model.to(self.device, memory_format=torch.channels_last)
        rate, momentum = row["learning_rate"], row["momentum"]
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, fused=True)
        images = self.randn(row["x"]).to(memory_format=torch.channels_last)
        return self.classification(model, optimizer, images, self.integers(row["classes"], row["x"][0]))

    def llama(self, row):
        model = Llama(row, self.device)
        token = torch.ones(1, dtype=torch.long, device=self.device)
        start, count = row["cache"] // 2, row["tokens"]
        index = torch.full((1,), start, dtype=torch.long, device=self.device)
        self.operations = count
        step = self.function(model)
        graph = self.name == "torch.graph"

        def advance():
            token.copy_(step(token, index))
            index.add_(1)

        with torch.inference_mode():
            for _ in range(3):
                advance()
            if graph:
                captured = torch.cuda.CUDAGraph()
                with torch.cuda.graph(captured):
                    advance()

        def repeat():
            with torch.inference_mode():
                token.fill_(1)
                index.fill_(start)
                for _ in range(count):
                    captured.replay() if graph else advance()
                return float(token.item())

        return repeat

    def load(self, row, file):
        """Loads all tensors and then reads every number of them once: they are mapped, not read."""
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise Unsupported("the Python package safetensors is not installed") from error

        def repeat():
            with torch.inference_mode():
                return sum(tensor.sum().item() for tensor in load_file(file).values())

        return repeat


class Peer:
    """Answers requests."""

    def __init__(self, device, threads, name):
        self.device, self.threads, self.name = device, threads, name
        self.rows = rows("cpu" if device == "cpu" else "gpu")
        self.repeat, self.operations = None, 1

    def release(self):
        """Frees the inputs."""
        self.repeat = None
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def prepare(self, name, file=""):
        self.release()
        torch.manual_seed(1)
        torch.compiler.reset()
        if name not in self.rows:
            raise Unsupported(f"no workload is called `{name}`")
        operations = Operations(self.device, self.name)
        repeat = operations.workload(self.rows[name], file)
        # Compilation is no part of any repeat.
        if self.name == "torch.compile":
            repeat()
        self.repeat, self.operations = repeat, operations.operations
        return {}

    def run(self, count):
        if self.repeat is None:
            raise RuntimeError("nothing is prepared")
        answer = timed(self.repeat, int(count), self.operations)
        return answer if self.device == "cpu" else {**answer, "faults": 0}

    def memory(self):
        if self.device == "cpu":
            return memory()
        return {"peak_mib": torch.cuda.max_memory_allocated() / 2**20, "resident_mib": 0.0}

    def answer(self, words):
        match words:
            case ["hello"]:
                return {"peer": self.name, "version": torch.__version__, "threads": self.threads}
            case ["prepare", name, *file]:
                return self.prepare(name, *file)
            case ["run", count]:
                return self.run(count)
            case ["drop"]:
                self.release()
                return {}
            case ["memory"]:
                return self.memory()
            case ["limit"]:
                raise Unsupported("this peer does not measure the machine")
            case _:
                raise RuntimeError(f"unknown request `{' '.join(words)}`")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
        torch.set_num_interop_threads(1)
    else:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    name = "torch.compile" if options.compile else "torch.graph" if options.graph else "torch"
    peer = Peer(options.device, options.threads, name)
    serve(peer.answer)


if __name__ == "__main__":
    main()
