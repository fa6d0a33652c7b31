#!/usr/bin/env python3
"""Whole models with random weights: a step of decode over cached positions, and the prefill of a prompt.

    benchmarks/models.py [--fusion-run=build/bin/fusion-run] [--models=llama-3.2-1b,…]
                         [--cases=decode-1,prefill-2048] [--peers] [--leave-out] [--tp=2] [--generate]
                         [--write=FOLDER] [--json=FILE]

Each case: microseconds of a step on the device, fused and with --no-fuse, the chosen tokens left there, and
the limit: the bytes that a step must move at a copy's rate, or its products at a large matmul's. --leave-out
times it without each fusion that fired, --tp=N on N GPUs too, --generate with the host, from a prompt of as
many positions. --peers measures PyTorch over the same weights: a stack by hand with packed QKV and gate/up and
in-place caches, in a CUDA graph, eager and compiled by default and by max-autotune; and Hugging Face's model,
compiled, with a static cache. Our logits may then be no more than 10 % further from those of the same weights
in f32 than the stack's are: else the exit code is 1. Weights of 4 bits have no peer here.
"""
import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from models_graph import MODELS, Writer  # noqa: E402

CASES = {
    "decode-1": (1, 1, 1024), "decode-8": (8, 1, 1024), "decode-32": (32, 1, 1024), "prefill-2048":
    (1, 2048, 0)
}
# An H200's copy and large bf16 matmul, as run.py measures them.
BYTES_A_MICROSECOND, FLOPS_A_MICROSECOND = 4.25e6, 7.7e8
FURTHER = 1.1  # our distance from f32 over PyTorch's


class Failed(Exception):
    """A measurement that did not come about, with its one-line reason."""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed((done.stderr.strip() or done.stdout.strip()
                      or f"exit {done.returncode}").splitlines()[-1])
    return done.stdout


class Ours:
    def __init__(self, options, folder, case, sizes):
        self.options, self.folder, self.case, self.sizes = options, folder, case, sizes
        self.base = [
            options.fusion_run, f"{folder}/graph.mlir", f"--device={options.device}", "--quiet",
            "--sample=greedy", f"--kv-capacity={sum(sizes[1:]) + 80}"
        ]
        self.inputs = f"--inputs={folder}/{case}.safetensors"

    def step(self, *more):
        """Median microseconds."""
        out = run([*self.base, self.inputs, f"--bench={self.options.iterations}", *more])
        return float(re.search(r"median (\S+) us", out)[1])

    def times(self):
        """Microseconds by name of what was measured. The folder then holds the fused run's logits."""
        options, report = self.options, f"{self.folder}/report.json"
        run([*self.base, self.inputs, f"--outputs={self.folder}/{self.case}.out", f"--report={report}"])
        times = {"fused": self.step(), "no-fuse": self.step("--no-fuse")}
        if options.tp > 1:
            ranks = f"--tp={options.tp}", "--tp-vocabulary"
            times[f"tp={options.tp}"] = self.step(*ranks)
            times[f"tp={options.tp} no-fuse"] = self.step(*ranks, "--no-fuse")
        if options.leave_out:
            with open(report) as file:
                patterns = json.load(file)["patterns"]
            for name in sorted(name for name, pattern in patterns.items() if pattern.get("fired")):
                times[f"without {name}"] = self.step(f"--fuse-disable={name}")
        if options.generate:
            times.update(self.generated())
        return times

    def generated(self):
        batch, new, past = self.sizes
        prompt = ",".join(str(i % 90) for i in range(max(past, new)))
        out = run([
            *self.base, "--generate=65", "--bench=1", f"--chunk={self.options.chunk}",
            *[f"--prompt={prompt}"] * batch
        ])
        first, each = re.search(r"first after (\S+) us, then one in (\S+) us", out).groups()
        return {"first token": float(first), "a token": float(each)}


def isolated(work, *arguments):
    """In a process of its own: a peer's error on the GPU is then the end of that peer only."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def stack_by_hand(name, folder, case, sizes, iterations, on_gpu):
    import torch

    from models_torch import measure_peers
    device = torch.device("cuda" if on_gpu else "cpu")
    times, errors, exact = measure_peers(Writer(name), folder, case, sizes, iterations, device)
    return times, errors, exact.cpu()


def hugging_face(name, folder, case, sizes, iterations, on_gpu, exact):
    import torch

    from models_transformers import measure_transformers
    device = torch.device("cuda" if on_gpu else "cpu")
    return measure_transformers(Writer(name), folder, case, sizes, iterations, device, exact.to(device))


def peers(name, folder, case, sizes, options):
    """Microseconds by peer, and distances of all logits from those of f32."""
    given = name, folder, case, sizes, options.iterations, options.device == "cuda"
    times, errors, exact = isolated(stack_by_hand, *given)
    try:
        times["transformers"], errors["transformers"] = isolated(hugging_face, *given, exact)
    except Exception as error:  # it is a peer only where its version takes the model
        print(f"models.py: {name} {case}: transformers: {(str(error) or type(error).__name__).splitlines()[0]}",
              file=sys.stderr)
    return times, errors


def measured(writer, folder, case, sizes, options):
    """One case's times and errors; prints them. Returns them and whether our numbers are good enough."""
    result = {"microseconds": Ours(options, folder, case, sizes).times()}
    times, right = result["microseconds"], True
    m = writer.m
    limit = result["limit"] = max(
        m.step_bytes(*sizes) / BYTES_A_MICROSECOND,
        m.step_flops(*sizes) / FLOPS_A_MICROSECOND)
    has_peers = options.peers and not m.block
    if has_peers:
        their_times, errors = peers(writer.name, folder, case, sizes, options)
        times.update(their_times)
        result["distance from f32"] = errors
        # Where two experts are nearly as good, a rounding chooses: a distance then says nothing.
        right = bool(m.experts) or errors["fused"] <= FURTHER * errors["torch"]
    print(f"{writer.name} {case}: limit {limit:.1f}, fused at {limit / times['fused']:.0%} of it; "
          + ", ".join(f"{what} {us:.1f}" for what, us in times.items()), flush=True)
    if has_peers:
        print("  distance from f32: " + ", ".join(f"{what} {value:.4f}" for what, value in errors.items())
              + ("" if right else f": FAIL, more than {FURTHER} times that of torch"), flush=True)
    return result, right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--models", default=",".join(name for name in MODELS if not name.startswith("tiny")))
    parser.add_argument("--cases",
                        default=",".join(CASES),
                        help="also decode-BATCH-PAST or prefill-LENGTH of other sizes")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--generate", action="store_true", help="also with the host, token by token")
    parser.add_argument("--leave-out", action="store_true", help="also without each fusion that fired")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="also on N GPUs")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--write", metavar="FOLDER", help="only write graph, weights and inputs")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    for name in options.models.split(","):
        if name not in MODELS:
            parser.error(f"no model {name}: there are {', '.join(MODELS)}")
    results, right = {}, True
    for name in options.models.split(","):
        writer = Writer(name)
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.write or temporary
            os.makedirs(folder, exist_ok=True)
            writer.write(folder)
            for case in options.cases.split(","):
                sizes = CASES[case] if case in CASES else sizes_of(case)
                writer.write_inputs(f"{folder}/{case}.safetensors", *sizes)
                if options.write:
                    continue
                try:
                    results[f"{name} {case}"], good = measured(writer, folder, case, sizes, options)
                except Failed as error:
                    print(f"{name} {case}: {error}", flush=True)
                    good = False
                right = right and good
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0 if right else 1


def sizes_of(case):
    kind, *numbers = case.split("-")
    if kind == "prefill" and len(numbers) == 1:
        return 1, int(numbers[0]), 0
    if kind == "decode" and len(numbers) == 2:
        return int(numbers[0]), 1, int(numbers[1])
    sys.exit(f"models.py: a case is prefill-LENGTH or decode-BATCH-PAST, not {case}")


if __name__ == "__main__":
    sys.exit(main())
