#!/usr/bin/env python3
"""Benchmarks over several GPUs of one host: ours against NCCL with PyTorch's and torch.compile's kernels, in
one session.

    benchmarks/collectives.py [--fusion-run=build/bin/fusion-run] [--ranks=4,2,1] [--only=REGEX]
        [--json=collectives.json]

Two kinds of case: chains of 12 all-reduces, each with an addition and a norm after it (families/chain.py;
microseconds a link), and decoder layers shaped like Llama 3 8B's, decoding over a cache (families/layer.py;
six of them, microseconds a layer), which one GPU runs too. Ours: fusion-run --tp=N --bench. The others: a
process a GPU (ranks_of_peers.py), started here, with a time limit, NCCL without multicast, all of it in one
CUDA graph on each GPU, the all-reduces between what torch.compile made. A time is the median of the slowest
rank's. Every output that was timed is compared with the exact computation. The limit: of a link, its bytes on
the wire and the hops of a signal (families/chain.py); of a layer, a rank's part of the bytes over the copy
rate measured here, and two sums.

Prints a line a case; what fails is printed as such, and the rest goes on. Results are written after every
case. Exit codes: 0, 1 if something of ours failed or was wrong, 3 if the machine lacks something.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from families.chain import LINKS, Chain  # noqa: E402
from families.layer import Layer  # noqa: E402

PEERS = {"eager": "NCCL + PyTorch", "compile": "NCCL + torch.compile"}
COPY = 4.27e6  # bytes a microsecond, where no GPU is there to be measured


def cases(ranks, pattern=""):
    """What N ranks run: [(case, equal calls in the graph, parts that a call's time is divided by)]."""
    found = []
    if ranks > 1:
        found += [(Chain(tokens, ranks=ranks), 1, len(LINKS)) for tokens in (1, 16, 128, 512, 2048, 8192)]
        found += [(Chain(tokens, quant=quant, ranks=ranks), 1, len(LINKS))
                  for quant in ("static", "token", "group")
                  for tokens in (1, 128, 512, 2048)]
    found.append((Layer(1, 1, 1024), 6, 1))
    return [one for one in found if re.search(pattern, one[0].name)]


def limit(case, ranks, copy):
    if isinstance(case, Chain):
        return case.wire()
    sums = Chain(case.sizes["batch"] * case.sizes["new"], case.hidden, case.dtype,
                 ranks=ranks).wire() if ranks > 1 else 0
    return case.bytes() / ranks / copy + 2 * sums


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--ranks", default="4,2,1", help="numbers of GPUs, one after another (default 4,2,1)")
    parser.add_argument("--json", default="collectives.json", help="where the results go")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--seconds", type=int, default=150,
                        help="limit for the others' processes, a number of GPUs")
    parser.add_argument("--our-seconds", type=int, default=40, help="limit for one measurement of ours")
    parser.add_argument("--minutes", type=float, default=9,
                        help="stop starting measurements after that (default 9)")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--list", action="store_true", help="print the cases and end; needs no GPU")
    return parser.parse_args()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_peers(ranks, options, folder, seconds, scripts=HERE):
    """The lines of rank 0, as far as it came, and why it came no further. Nothing of it is left running."""
    port, processes, problem = free_port(), [], None
    logs = [os.path.join(folder, f"peer-{rank}.log") for rank in range(ranks)]
    results = os.path.join(folder, f"peers-{ranks}.jsonl")
    try:
        for rank in range(ranks):
            caches = {name: os.path.join(folder, f"{name}-{rank}")
                      for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
            environment = {**os.environ, **caches, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                           "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port), "NCCL_NVLS_ENABLE": "0",
                           "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            with open(logs[rank], "wb") as log:
                processes.append(subprocess.Popen(
                    [sys.executable, os.path.join(scripts, "ranks_of_peers.py"), results, options.only],
                    env=environment,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
        problem = awaited(processes, logs, seconds)
    finally:
        for process in processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it started
            except ProcessLookupError:
                pass
            process.wait()
    lines = []
    if os.path.exists(results):
        with open(results) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
    return lines, problem


def awaited(processes, logs, seconds):
    """Why not all of them ended well, or None."""
    end = time.monotonic() + seconds
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:  # the others would wait for it
            return f"rank {failed[0]}: {last_line(logs[failed[0]])}"
        if None not in codes:
            return None
        if time.monotonic() > end:
            return f"not done within {seconds:.0f} s; rank 0: {last_line(logs[0])}"
        time.sleep(0.1)


def last_line(path):
    with open(path, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def text(row):
    line = f"{row['ranks']} GPUs  {row['name']:52} "
    ours = row["us"].get("fusion")
    line += f"ours {ours:8.2f}  limit {row['limit']:7.2f}" if ours else f"ours {'-':>8}  limit {row['limit']:7.2f}"
    for label, us in row["us"].items():
        if label != "fusion":
            line += f"  {PEERS[label]} {us:.2f}" + (f" ({us / ours:.2f})" if ours else "")
    return line + "".join(f"  {PEERS.get(label, 'ours')} FAILED: {why}"
                          for label, why in row["missing"].items())


class Run:
    def __init__(self, options, folder):
        from measure import Bench, released, timed

        class Ours(Bench):
            timeout = options.our_seconds

            def cold(self, case, calls):
                return False
        self.options, self.folder, self.rows = options, folder, []
        self.end = time.monotonic() + 60 * options.minutes
        self.bench, self.timed, self.released = Ours(options.fusion_run, folder), timed, released
        import torch
        a, b = (torch.empty(1 << 28, device="cuda") for _ in "ab")
        self.copy = 2 * a.nbytes / self.bench.alone(lambda: torch.mul(a, 1.5, out=b))
        self.device = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "cuda": torch.version.cuda,
                       "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()),
                       "copy_tb_per_s": self.copy / 1e6}
        print(", ".join(f"{key} {value}" for key, value in self.device.items()), flush=True)

    def ranks(self, ranks):
        found, problem = [], None
        if not self.options.no_peers:
            seconds = max(0, min(self.options.seconds, self.end - time.monotonic()))
            found, problem = run_peers(ranks, self.options, self.folder, seconds)
        self.released()
        for case, calls, parts in cases(ranks, self.options.only):
            row = {"name": case.name, "ranks": ranks, "sizes": case.sizes,
                   "limit": limit(case, ranks, self.copy),
                   "us": {}, "error": {}, "missing": {}}
            result = "out of time"
            if time.monotonic() < self.end:
                result, _ = self.timed(lambda: self.ours(case, calls, ranks))
            self.record(row, "fusion", result, parts)
            if not self.options.no_peers:
                for label in PEERS:
                    got = [line for line in found if line["name"] == case.name and line["label"] == label]
                    self.record(row, label, got[0]["result"] if got else problem or "no result", parts)
            self.rows.append(row)
            self.released()
            with open(self.options.json + ".part", "w") as file:
                json.dump({"device": self.device, "cases": self.rows}, file, indent=1)
            os.replace(self.options.json + ".part", self.options.json)
            print(text(row), flush=True)

    def ours(self, case, calls, ranks):
        tensors = self.bench.make(case, calls)
        case.options = (*case.options, f"--tp={ranks}") if ranks > 1 else case.options
        return self.bench.ours(case, tensors, [case.exact(call) for call in tensors])

    @staticmethod
    def record(row, label, result, parts):
        if isinstance(result, str):
            row["missing"][label] = result
        else:
            row["us"][label], row["error"][label] = result["us"] / parts, result["error"]


def main():
    options = arguments()
    numbers = [int(number) for number in options.ranks.split(",")]
    if options.list:
        for ranks in numbers:
            for case, _, _ in cases(ranks, options.only):
                print(f"{ranks} GPUs  {case.name}  limit {limit(case, ranks, COPY):.2f}")
        return 0
    try:
        import torch
        import safetensors.torch  # noqa: F401
    except ImportError as error:
        print(f"collectives.py: {error.name} is not installed", file=sys.stderr)
        return 3
    if torch.cuda.device_count() < max(numbers):
        print(f"collectives.py: PyTorch finds {torch.cuda.device_count()} GPUs, not {max(numbers)}",
              file=sys.stderr)
        return 3
    if not shutil.which(options.fusion_run):
        print(f"collectives.py: {options.fusion_run} is not there: build it, or name it with --fusion-run",
              file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the others' processes end with this one
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # large tensors pass through files
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        run = Run(options, folder)
        for ranks in numbers:
            run.ranks(ranks)
        wrong = [row for row in run.rows if "fusion" not in row["us"]]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
