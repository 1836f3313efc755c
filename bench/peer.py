"""What the Python peers of the benchmarks share: bench/protocol/src/lib.rs describes the requests and answers."""

import json
import math
import pathlib
import resource
import sys
import time


class Unsupported(Exception):
    """The peer has no such workload."""


class Row:
    """A row of workloads.txt. `row[NAME]` is a setting: a number, a tuple of sizes, or text."""

    def __init__(self, cells):
        self.name, self.operation, self.settings, self.dtype, rounds, self.peers = cells[1:7]
        self.rounds, self.peers = int(rounds), self.peers.split()

    def __getitem__(self, name):
        text = dict(setting.split("=") for setting in self.settings.split())[name]
        for parse in (int, float, lambda text: tuple(map(int, text.split("x")))):
            try:
                return parse(text)
            except ValueError:
                pass
        return text


def rows(bench):
    """The rows of a comparison, by the names of their workloads."""
    lines = pathlib.Path(__file__).with_name("workloads.txt").read_text(encoding="utf-8").splitlines()
    found = (line.split(" | ") for line in lines)
    return {cells[1]: Row(cells) for cells in found if cells[0] == bench}


def timed(repeat, count, operations=1):
    """The answer to `run`: the milliseconds of each repeat for one of its operations, and the numbers that it returns.

    A repeat may return the number with its milliseconds, which the peer itself measured.
    """
    times, values = [], []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        started = time.perf_counter()
        value = repeat()
        milliseconds = (time.perf_counter() - started) * 1e3
        if isinstance(value, tuple):
            value, milliseconds = value
        times.append(milliseconds / operations)
        values.append(value if math.isfinite(value) else None)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return {"ms": times, "values": values, "faults": faults}


def memory():
    """Memory of the process, in MiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    mebibytes = lambda key: int(fields[key].split()[0]) / 1024
    return {"resident_mib": mebibytes("VmRSS"), "peak_mib": mebibytes("VmHWM")}


def serve(answer):
    """Answers the requests on standard input: `answer` gets the words of one, and returns a JSON object."""
    for line in sys.stdin:
        try:
            text = "ok " + json.dumps(answer(line.rstrip("\n").split(" ", 2)))
        except Unsupported as refusal:
            text = f"unsupported {refusal}"
        except Exception as error:  # Whatever fails is the answer; the next workload may work.
            text = "error " + " ".join(f"{type(error).__name__}: {error}".split())[:500]
        print(text, flush=True)
