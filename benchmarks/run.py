#!/usr/bin/env python3
"""Benchmarks on one GPU: ours against PyTorch, torch.compile, cuBLASLt, cuDNN and FlashInfer, in one run.

    benchmarks/run.py [--fusion-run=build/bin/fusion-run] [--json=benchmark.json] [--only=REGEX] [--quick]
    benchmarks/run.py ab GRAPH [--inputs=F.safetensors]      fused, --no-fuse, each fusion left out (ab.py)
    benchmarks/before_after.py OLD NEW                       two builds of fusion-run, case by case
    benchmarks/plot.py benchmark.json                        figures from the results

Prints a line a case: median microseconds of a call, the limit (the bytes that must move over the copy rate,
or the operations over the matrix rate, both measured in this run; behind the others that at the rate which
the power cap leaves after a second, if it is another), the ratio to the best opponent; the same with an
emptied cache where the tensors would fit it. Every output that was timed, ours and theirs, is compared with
the exact computation (tolerances: families/case.py; the method: measure.py). Results are
written after every case, so that a run that is stopped leaves what it has. Needs a GPU, PyTorch and
safetensors. Exit codes: 0, 1 if a result of ours was wrong, 3 if the machine lacks something.
"""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="benchmarks/run.py ab --help: A/B of a graph")
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--json", default="benchmark.json", help="where the results go")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--peers", default="", metavar="REGEX",
                        help="opponents whose name matches; none: ours alone")
    parser.add_argument("--quick", action="store_true", help="one case a group, no max-autotune")
    parser.add_argument("--minutes", type=float, default=8.5,
                        help="stop starting measurements after that (default 8.5)")
    parser.add_argument("--list", action="store_true", help="print the cases and end; needs no GPU")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser.parse_args()


def chosen(options):
    import families
    cases = [case for case in families.cases() if re.search(options.only, case.name)]
    if options.quick:
        largest = {case.group: case for case in cases}
        cases = [case for case in cases if largest[case.group] is case]
    return cases


def environment(bench):
    import torch
    copy, flops, sustained = bench.rates()
    device = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
              "copy_tb_per_s": copy / 1e6, "matmul_tflop_per_s": flops / 1e6,
              "sustained_matmul_tflop_per_s": sustained / 1e6, "l2_bytes": bench.l2}
    print(f"{device['gpu']}, torch {device['torch']}, CUDA {device['cuda']}; measured here: copy {copy / 1e6:.2f} TB/s, "
          f"bf16 matmul {flops / 1e6:.0f} TFLOP/s, {sustained / 1e6:.0f} for seconds; microseconds a call")
    return device


class Run:
    def __init__(self, options, bench, cases):
        from measure import released, timed
        self.options, self.bench, self.cases = options, bench, cases
        self.released, self.timed = released, timed
        self.begin = time.monotonic()
        self.device = environment(bench)
        self.rows = {}

    def left(self):
        return self.options.minutes * 60 - (time.monotonic() - self.begin)

    def progress(self, text):
        if not self.options.quiet:
            print(f"[{time.monotonic() - self.begin:4.0f} s] {text}", file=sys.stderr, flush=True)

    def opponents(self, case, autotune):
        """label -> a function that makes the step; made one by one, since torch.compile keeps global
        state."""
        bench = self.bench
        if autotune:
            found = {"max-autotune": lambda: bench.compiled(case, mode="max-autotune-no-cudagraphs")}
        else:
            found = {"eager": lambda: case.eager}
            if case.compiles:
                found["compile"] = lambda: bench.compiled(case)
            found.update({label: (lambda step=step: step) for label, step in case.peers().items()})
        return {label: make for label, make in found.items() if re.search(self.options.peers, label)}

    def measure(self, case, autotune=False):
        bench, row = self.bench, self.row(case)
        tensors = bench.make(case, row["calls"])
        exact = [case.exact(call) for call in tensors]
        work = {} if autotune else {"fusion": None}
        work.update(self.opponents(case, autotune))
        for label, make in work.items():
            if label == "fusion":
                result, seconds = self.timed(lambda: bench.ours(case, tensors, exact))
            else:
                result, seconds = self.timed(lambda: bench.peer(case, make(), tensors, exact))
            row["seconds"][label] = round(seconds, 2)
            if isinstance(result, str):
                row["missing"][label] = result
                continue
            for key, value in result.items():
                if key == "kernels":
                    row[key] = value
                elif value is not None:
                    row[key][label] = value
            result = None
            self.released()
        del tensors, exact
        self.released()
        for times, ratio in (("us", "ratio"), ("cold", "cold_ratio")):
            best = min(((us, label) for label, us in row[times].items() if label != "fusion"), default=None)
            if best and "fusion" in row[times]:
                row[ratio], row[f"{ratio}_to"] = best[0] / row[times]["fusion"], best[1]
        self.write()

    def row(self, case):
        if case.name not in self.rows:
            calls = self.bench.calls(case)
            def limits_at(rate):
                return {"memory": case.bytes() / self.device["copy_tb_per_s"] / 1e6,
                        "matrix units": case.flops / case.rate / self.device[rate] / 1e6}
            limits = limits_at("matmul_tflop_per_s")
            self.rows[case.name] = {
                "name": case.name, "group": case.group, "label": case.label, "pattern": case.pattern,
                "kernels_at_most": case.kernels,
                "sizes": case.sizes, "calls": calls, "bytes": case.bytes(),
                "flops": case.flops, "limit": max(limits.values()), "limited_by": max(limits, key=limits.get),
                "sustained_limit": max(limits_at("sustained_matmul_tflop_per_s").values()),
                "us": {}, "cold": {}, "error": {}, "missing": {}, "seconds": {}}
        return self.rows[case.name]

    def write(self):
        with open(self.options.json + ".part", "w") as file:
            json.dump({"device": self.device, "cases": list(self.rows.values())}, file, indent=1)
        os.replace(self.options.json + ".part", self.options.json)

    def all(self):
        print(f"{'case':44} {'ours':>8} {'limit':>8} {'of it':>5}  {'ratio':>5}  opponents")
        slowest = 0
        for i, case in enumerate(self.cases):
            if self.left() < slowest:
                self.progress(f"out of time: {len(self.cases) - i} cases left out")
                break
            self.progress(f"{i + 1}/{len(self.cases)} {case.name}")
            start = time.monotonic()
            _, seconds = self.timed(lambda: self.measure(case))
            if isinstance(_, str):
                self.rows[case.name]["missing"]["case"] = _
            slowest = max(slowest, time.monotonic() - start)
            print(line(self.rows[case.name]), flush=True)
        tuned = [] if self.options.quick else sorted(self.cases, key=lambda case: not case.autotune)
        tuned = [case for case in tuned if case.compiles and case.name in self.rows
                 and re.search(self.options.peers, "max-autotune")]
        for i, case in enumerate(tuned):
            if self.left() < (45 if case.autotune else 15):
                self.progress(f"out of time: {len(tuned) - i} cases without max-autotune")
                break
            self.progress(f"max-autotune {i + 1}/{len(tuned)} {case.name}")
            self.timed(lambda: self.measure(case, autotune=True))
            print(line(self.rows[case.name]), flush=True)
        missing = sorted({f"{label}: {why}" for row in self.rows.values()
                          for label, why in row["missing"].items()
                          if "not installed" in why})
        for text in missing:
            print(text)
        wrong = [row["name"] for row in self.rows.values() if "fusion" not in row["us"]]
        for name in wrong:
            print(f"no result of ours: {name}: {self.rows[name]['missing'].get('fusion', '?')}")
        return 1 if wrong else 0


def line(row):
    ours = row["us"].get("fusion")
    others = "  ".join(f"{label} {us:.2f}" for label, us in sorted(row["us"].items(),
                                                                   key=lambda item: item[1])
                       if label != "fusion")
    if ours and row["kernels_at_most"] and row["kernels"] > row["kernels_at_most"]:
        others += f"  [{row['kernels']:g} kernels of ours, {row['kernels_at_most']} expected]"
    failed = "".join(f"  {label}: {why}" for label, why in row["missing"].items()
                     if "not installed" not in why)
    text = f"{row['name']:44} "
    text += f"{ours:8.2f} {row['limit']:8.2f} {100 * row['limit'] / ours:4.0f}%" if ours else f"{'-':>8} {row['limit']:8.2f}     "
    text += f"  {row['ratio']:5.2f}" if "ratio" in row else "       "
    cold = f"  (cold {row['cold']['fusion']:.2f}: {row['cold_ratio']:.2f})" if "cold_ratio" in row else ""
    sustained = row["sustained_limit"]
    sustained = f"  (limit for seconds {sustained:.0f})" if sustained > row["limit"] else ""
    return f"{text}{cold}  {others}{sustained}{failed}"


def main():
    if sys.argv[1:2] == ["ab"]:
        import ab
        return ab.main(sys.argv[2:])
    options = arguments()
    if options.list:
        for case in chosen(options):
            print(case.name)
        return 0
    try:
        import torch
        import safetensors.torch  # noqa: F401
    except ImportError as error:
        print(f"run.py: {error.name} is not installed", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("run.py: PyTorch finds no GPU", file=sys.stderr)
        return 3
    if not shutil.which(options.fusion_run):
        print(f"run.py: {options.fusion_run} is not there: build it, or name it with --fusion-run",
              file=sys.stderr)
        return 3
    cases = chosen(options)
    if not cases:
        print(f"run.py: no case matches {options.only!r}", file=sys.stderr)
        return 2
    from measure import Bench
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # large tensors pass through files
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        return Run(options, Bench(options.fusion_run, folder), cases).all()


if __name__ == "__main__":
    sys.exit(main())
