"""Times and checks one case on one GPU: ours through fusion-run, the others in this process, both the same
way.

The method: a CUDA graph of many calls over distinct buffers that together exceed the L2 cache five times.
Small cases do not reach that with `MAX_CALLS` calls: their figure has the tensors in the cache, as the kernel
before leaves them in a model, and a second one, `cold`, empties the cache before each replay. Random data,
three replays to warm up, the median of the next ones, over the calls. What was timed is then compared with
the case's exact computation.
"""
import gc
import json
import os
import re
import statistics
import subprocess
import time

import torch
from safetensors.torch import load_file, save_file

from families.case import TOLERANCE
from graph import WEIGHTS, written

MAX_CALLS, REPLAYS, WARM_UP = 128, 40, 3
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i64": torch.int64,
         "i8": torch.int8, "f8E4M3FN": torch.float8_e4m3fn}
L2_TIMES = 5


class Failed(Exception):
    """A measurement that did not come about, with its one-line reason."""


class Bench:
    """What all cases share: where the program is, the chip's two rates, a buffer that empties the L2
    cache."""

    timeout = None  # seconds for one measurement of ours

    def __init__(self, fusion_run, folder):
        self.fusion_run, self.folder = fusion_run, folder
        self.device = torch.device("cuda")
        properties = torch.cuda.get_device_properties(self.device)
        self.l2 = properties.L2_cache_size
        self.flush = torch.empty(4 * self.l2, dtype=torch.uint8, device=self.device)
        torch.backends.cuda.matmul.allow_tf32 = False

    def calls(self, case):
        if case.kernels is None:  # layers: six, as many weights as fit no cache
            return 6
        if case.most_calls:
            return case.most_calls
        return max(2, min(MAX_CALLS, -(-L2_TIMES * self.l2 // int(case.bytes()))))

    def cold(self, case, calls):
        return calls * case.bytes() < L2_TIMES * self.l2

    def make(self, case, calls):
        """Random tensors for every call, the same for the same case."""
        torch.manual_seed(sum(case.name.encode()))
        return [{name: self.tensor(spec, case.sizes) for name, spec in case.tensors().items()}
                for _ in range(calls)]

    def tensor(self, spec, sizes):
        shape = spec.shape(sizes)
        if spec.dtype == "ui4":  # as it lies in memory: two to a byte, low half first
            return torch.randint(0, 256, [*shape[:-1], shape[-1] // 2], dtype=torch.uint8, device=self.device)
        return (torch.randn(shape, device=self.device) * spec.scale + spec.shift).to(TYPES[spec.dtype])

    def captured(self, function):
        """A graph of `function`, and what it returned."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = function()
        return graph, results

    def replayed(self, graph, calls, cold=False):
        """Median microseconds of a call in a graph of `calls` calls."""
        times = []
        for _ in range(WARM_UP + REPLAYS):
            if cold:
                self.flush.fill_(0)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / calls)
        return statistics.median(times[WARM_UP:])

    def alone(self, function):
        return self.replayed(self.captured(function)[0], 1)

    def sustained(self, function, seconds=1.5):
        """As alone(), when the device has done nothing else for some time: its power cap has lowered
        clocks."""
        graph, times = self.captured(function)[0], []
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(9)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for mark in marks[:-1]:
                mark.record()
                graph.replay()
            marks[-1].record()
            torch.cuda.synchronize()
            times.append(marks[0].elapsed_time(marks[-1]) * 1000 / (len(marks) - 1))
        return statistics.median(times[len(times) // 2:])

    def rates(self):
        """Bytes a microsecond of a copy kernel, floating-point operations a microsecond of a bf16 product: for
        60 ms, and for seconds."""
        a = torch.randn(1 << 29, device=self.device)
        b = torch.empty_like(a)
        copy = max(2 * a.nbytes / self.alone(lambda: f(a, b))
                   for f in (lambda a, b: torch.mul(a, 1.5, out=b),
                             torch.compile(lambda a, b: b.copy_(a * 1.5))))
        del a, b
        x, y = (torch.randn(8192, 8192, device=self.device).bfloat16() for _ in "xy")
        flops = 2 * 8192 ** 3
        return copy, flops / self.alone(lambda: x @ y), flops / self.sustained(lambda: x @ y)

    # --- ours ---

    def ours(self, case, tensors, exact):
        calls, graph_file = len(tensors), f"{self.folder}/graph.mlir"
        graph, offsets = written(case, calls)
        with open(graph_file, "w") as file:
            file.write(graph.text())
        given = {}
        with open(f"{self.folder}/{WEIGHTS}", "wb") as file:
            for i, call in enumerate(tensors):
                for name, spec in case.tensors().items():
                    if not spec.weight:
                        given[f"{name}{i}"] = call[name].cpu()
                        continue
                    file.seek(offsets[f"{name}{i}"])
                    file.write(call[name].cpu().flatten().view(torch.uint8).numpy())
        save_file(given, f"{self.folder}/in.safetensors")
        del given
        outputs, report = f"{self.folder}/out.safetensors", f"{self.folder}/report.json"
        command = [self.fusion_run, graph_file, "--device=cuda", "--quiet", f"--bench={REPLAYS}",
                   *case.options,
                   f"--inputs={self.folder}/in.safetensors", f"--outputs={outputs}", f"--report={report}"]
        run = subprocess.run(command + (["--cold"] if self.cold(case, calls) else []), capture_output=True,
                             text=True,
                             timeout=self.timeout)
        if run.returncode:
            raise Failed((run.stderr.strip() or run.stdout.strip()
                          or f"exit {run.returncode}").splitlines()[-1])
        with open(report) as file:
            fusions = json.load(file)
        kernels = fusions["kernels"]["after"] / calls
        found = load_file(outputs, device="cuda")
        os.remove(outputs)
        error = max(self.errors(case, tensors, [{name: found[f"{name}{i}"] for name in names(graph)} for i in range(calls)],
                                exact))
        times = [float(text) / calls for text in re.findall(r"median ([\d.]+) us", run.stdout)]
        return {"us": times[0], "cold": times[1] if len(times) > 1 else None, "error": error,
                "kernels": kernels}

    # --- the others ---

    def peer(self, case, step, tensors, exact):
        if isinstance(step, str):
            raise Failed(step)
        calls = len(tensors)
        if hasattr(case, "prepared"):
            tensors = [case.prepared(call) for call in tensors]
        restore = []
        if getattr(step, "prepares", False):
            prepared = [step(call) for call in tensors]
            restore = [one for _, one in prepared]
            function = lambda: [call() for call, _ in prepared]
        else:
            function = lambda: [step(call) for call in tensors]
        graph, results = self.captured(function)
        measured = {"us": self.replayed(graph, calls),
                    "cold": self.replayed(graph, calls, True) if self.cold(case, calls) else None}
        if restore:  # in-place kernels start afresh for the check
            for one in restore:
                one()
            graph.replay()
            torch.cuda.synchronize()
        return {**measured, "error": max(self.errors(case, tensors, results, exact))}

    def compiled(self, case, **options):
        torch.compiler.reset()  # else a size too many falls back to eager
        return torch.compile(case.eager, dynamic=False, fullgraph=True, **options)

    # --- checks ---

    def errors(self, case, tensors, results, exact):
        """Relative L2 distance of every output of every call, each checked against its tolerance."""
        for call, (given, got, want) in enumerate(zip(tensors, results, exact, strict=True)):
            want = want(got) if callable(want) else want
            for name, value in want.items():
                tolerance = case.tolerance.get(name, TOLERANCE[KIND[got[name].dtype]])
                actual = dequantized(got[name], got.get("scales" + name[1:], given.get("scale")))
                error = ((actual.to(value.dtype).reshape(value.shape) - value).norm() / value.norm()).item()
                if not error <= tolerance:  # NaN fails
                    raise Failed(f"call {call}, {name}: relative L2 {error:.3g} from the exact result, above {tolerance:g}")
                yield error


KIND = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float8_e4m3fn: "f8E4M3FN",
        torch.int32: "i32", torch.int64: "i64"}


def dequantized(actual, scales):
    """An 8-bit result times its scales: one, or one for each group of its rows."""
    if actual.dtype != torch.float8_e4m3fn:
        return actual
    wide, scales = actual.to(torch.float64), scales.to(torch.float64)
    if scales.ndim == 0:
        return wide * scales
    return (wide.reshape(wide.shape[0], scales.shape[1], -1) * scales.unsqueeze(-1)).reshape(wide.shape)


def names(graph):
    return {name.rstrip("0123456789") for name, _ in graph.results}


def released():
    gc.collect()
    torch.cuda.empty_cache()


def timed(function):
    """(result or the reason why not, seconds)"""
    begin = time.perf_counter()
    try:
        result = function()
    except Failed as error:
        result = str(error)
    except Exception as error:  # an opponent that does not take the case: its words, and on with the next
        result = f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0][:160]}"
    return result, time.perf_counter() - begin
