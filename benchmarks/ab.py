"""A/B of one graph: fused, without fusion, and with each fusion that fired left out, on the same inputs.

    benchmarks/run.py ab GRAPH --inputs=F.safetensors [--expect=F.safetensors] [--fusion-run=...]
        [--device=cuda]
                               [--rounds=3] [--bench=200] [--json=FILE]

The variants take turns, `rounds` times, and each reports its median over all rounds; a difference below the
spread between rounds is noise. Needs no PyTorch. Exit codes: 0, 1 if a variant's outputs are off, 2 bad
input.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile


def run(options, folder, *flags):
    """One run of fusion-run: (median microseconds, the fusion report)."""
    report = f"{folder}/report.json"
    command = [options.fusion_run, options.graph, f"--inputs={options.inputs}", f"--device={options.device}",
               "--quiet",
               f"--bench={options.bench}", f"--report={report}", *flags]
    if options.expect:
        command.append(f"--expect={options.expect}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        print(f"run.py ab: {' '.join(flags) or 'fused'}: exit {done.returncode}", file=sys.stderr)
        sys.exit(done.returncode)
    with open(report) as file:
        return float(re.search(r"median ([\d.]+) us", done.stdout).group(1)), json.load(file)


def main(argv):
    parser = argparse.ArgumentParser(prog="run.py ab", description=__doc__.splitlines()[0])
    parser.add_argument("graph")
    parser.add_argument("--inputs", help="default: inputs.safetensors beside the graph")
    parser.add_argument("--expect", help="compare every variant's outputs with these")
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--device", default="cuda",
                        help="cuda, or emulate: host times, to try the command out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench", type=int, default=200, help="runs a round")
    parser.add_argument("--json")
    options = parser.parse_args(argv)
    options.inputs = options.inputs or os.path.join(os.path.dirname(options.graph), "inputs.safetensors")
    with tempfile.TemporaryDirectory() as folder:
        _, fusions = run(options, folder)
        fired = sorted(name for name, pattern in fusions["patterns"].items() if pattern["fired"])
        variants = {"fused": [], "no fusion": ["--no-fuse"],
                    **{f"without {name}": [f"--fuse-disable={name}"] for name in fired}}
        times, kernels = {label: [] for label in variants}, {}
        for turn in range(options.rounds):
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for label, flags in variants.items():
                microseconds, fusions = run(options, folder, *flags)
                times[label].append(microseconds)
                kernels[label] = fusions["kernels"]["before" if label == "no fusion" else "after"]
    rows = [{"variant": label, "kernels": kernels[label], "us": statistics.median(times[label]),
             "spread": max(times[label]) - min(times[label])} for label in variants]
    base = rows[0]["us"]
    width = max(len(row["variant"]) for row in rows)
    print(f"{'variant':{width}} {'kernels':>7} {'us':>10} {'spread':>8}  {'to fused':>8}")
    for row in rows:
        print(f"{row['variant']:{width}} {row['kernels']:7} {row['us']:10.1f} {row['spread']:8.1f}  {row['us'] / base:8.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"graph": options.graph, "device": options.device, "variants": rows}, file, indent=1)
    return 0
