#!/usr/bin/env python3
"""Two builds of fusion-run on one GPU, case by case in one session: how much faster or slower the second one
is.

    benchmarks/before_after.py BEFORE AFTER [--only=REGEX] [--json=before_after.json] [--rounds=2]
        [--minutes=8.5]

The cases are run.py's, the method is measure.py's, and every output is compared with the exact computation.
Each round times both builds on the same tensors, in turns (before, after, after, before, …), so that a drift
of the clocks meets both; a build's time is the least of its medians. Prints a line a case, then the geometric
mean of after / before, and the cases that are slower by more than 2 %. Exit codes: 0, 1 if a result was wrong
or missing, 3 if the machine lacks something.
"""
import argparse
import json
import math
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a fusion-run")
    parser.add_argument("after", help="another one")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--json", default="before_after.json", help="where the results go")
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each build (default 2)")
    parser.add_argument("--minutes", type=float, default=8.5, help="start no case after that (default 8.5)")
    return parser.parse_args()


def compared(bench, case, builds, rounds):
    """{build: least median in microseconds, or the reason why there is none}"""
    from measure import released, timed
    tensors = bench.make(case, bench.calls(case))
    exact = [case.exact(call) for call in tensors]
    found = {}
    for turn in range(rounds):
        for label, program in builds if turn % 2 == 0 else reversed(builds):
            bench.fusion_run = program
            result, _ = timed(lambda: bench.ours(case, tensors, exact))
            if isinstance(result, str):
                found[label] = result
            elif not isinstance(found.get(label), str):
                found[label] = min(found.get(label, math.inf), result["us"])
    del tensors, exact
    released()
    return found


def summary(rows):
    ratios = {name: row["after"] / row["before"] for name, row in rows.items() if "ratio" in row}
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        print(f"{len(ratios)} cases, geometric mean of after / before {mean:.4f}")
    for name, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        if ratio > 1.02:
            print(f"slower by {100 * (ratio - 1):.1f} %: {name}")
    failed = [f"{name}: {build}: {row[build]}" for name, row in rows.items() for build in ("before", "after")
              if not isinstance(row[build], float)]
    for text in failed:
        print(f"no result: {text}")
    return 1 if failed else 0


def main():
    options = arguments()
    try:
        import torch
    except ImportError as error:
        print(f"before_after.py: {error.name} is not installed", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("before_after.py: PyTorch finds no GPU", file=sys.stderr)
        return 3
    import families
    from measure import Bench
    begin, rows = time.monotonic(), {}
    builds = [("before", options.before), ("after", options.after)]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        bench = Bench(options.before, folder)
        for case in families.cases():
            if not re.search(options.only, case.name):
                continue
            if time.monotonic() - begin > options.minutes * 60:
                print("out of time: the remaining cases are left out")
                break
            row = rows[case.name] = compared(bench, case, builds, options.rounds)
            if all(isinstance(row[label], float) for label, _ in builds):
                row["ratio"] = row["after"] / row["before"]
                print(f"{case.name:52} {row['before']:9.2f} {row['after']:9.2f}  {row['ratio']:.3f}",
                      flush=True)
            else:
                print(f"{case.name:52} {row['before']} | {row['after']}", flush=True)
            with open(options.json, "w") as file:
                json.dump(rows, file, indent=1)
    return summary(rows)


if __name__ == "__main__":
    sys.exit(main())
