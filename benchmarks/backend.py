#!/usr/bin/env python3
"""torch.compile(backend="fusion") against PyTorch: a step of decode of Hugging Face's architectures.

    benchmarks/backend.py [--models=llama,gpt2] [--ways=eager,fusion] [--device=cuda] [--quick]
                          [--minutes=2.4] [--json=FILE]

Random weights in bf16, 4 layers, a sequence's next token over a static cache of 1024 positions, of which 1000
are filled. A line each: median microseconds from the call on an idle GPU to the end of its work, so with what
the host does, for eager, torch.compile, the same with mode="reduce-overhead", and fusion; how many ops fusion
left to PyTorch, and why; and the distance of the logits of 4 steps from those in f32: fusion's may be no more
than 10 % further than eager's. Then what a call of a program with small inputs costs the host.

Each architecture has a process, which compiles beside the others and is timed alone; one that fails is said,
and so is one that is not ready when the minutes are over. --device=cpu and emulate are dry runs of tiny
sizes, where 50 % are allowed.
Exit codes: 1 numbers of fusion are wrong, or it failed; 3 PyTorch, transformers, fusion or a GPU is missing,
or nothing was measured in time.
"""
import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import wait

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import backend_worker  # noqa: E402

MODELS = ("llama", "qwen3", "gemma3", "mistral", "phi3", "gpt2", "gpt-neox", "qwen2", "olmo2", "granite")
WAYS = ("eager", "torch.compile", "reduce-overhead", "fusion")
QUICK = ("llama", "gemma3", "gpt2")
FURTHER = 1.1  # fusion's distance from f32 over eager's
FURTHER_TINY = 1.5  # of sizes whose few roundings are no average
BASE, EACH = 15, 0.2  # microseconds that a call may cost the host, and an input of it
TIMING = 3  # seconds that timing a model may take, of those that are left
NEEDS = ("torch", "transformers", "fusion")


class Process:
    """A model's, or that of the host's cost: `state` is compiling, ready, timed, failed or left out."""

    def __init__(self, context, name, options, target):
        self.name, self.state, self.answer = name, "compiling", None
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(theirs, name, options))
        self.process.start()
        theirs.close()

    def take(self):
        """Reads an answer, which has come."""
        try:
            self.state, self.answer = self.connection.recv()
        except EOFError:
            self.process.join()
            self.state, self.answer = "failed", f"its process ended with {self.process.exitcode}"

    def timed(self, deadline):
        try:
            self.connection.send("time")
        except OSError:  # it has ended: take() says so
            pass
        if self.connection.poll(max(deadline - time.monotonic(), 1)):
            self.take()
        else:
            self.leave()

    def leave(self):
        self.state, self.answer = "left out", "not ready when the time was over"

    def end(self):
        self.connection.close()
        if self.state == "left out":
            self.process.kill()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def survey(names, options, target, tell):
    """Has each compiled by a process, some side by side, and timed one after the other; tell(process) as each
    is done. Those that began."""
    deadline = time.monotonic() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    waiting, begun = list(names), []
    compiling = lambda: [each for each in begun if each.state == "compiling"]
    try:
        while waiting or compiling():
            ready = sum(each.state == "ready" for each in begun)
            left = deadline - TIMING * (ready + 1) - time.monotonic()
            if left <= 0:
                break
            while waiting and len(compiling()) < options.jobs:
                begun.append(Process(context, waiting.pop(0), options, target))
            for connection in wait([each.connection for each in compiling()], left):
                process = next(each for each in begun if each.connection is connection)
                process.take()
                if process.state == "failed":
                    tell(process.name, process.state, process.answer)
        for process in compiling():
            process.leave()
            process.process.kill()  # it would disturb those that are timed
            tell(process.name, process.state, process.answer)
        for name in waiting:
            tell(name, "left out", "not begun when the time was over")
        for process in begun:
            if process.state == "ready":
                process.timed(deadline)
                tell(process.name, process.state, process.answer)
                process.end()
    finally:
        for process in begun:
            if process.state in ("compiling", "ready"):  # interrupted
                process.leave()
            process.end()


def is_right(result, further=FURTHER):
    """Whether fusion's logits are as near as eager's, if both were asked for."""
    distances = result["distance from f32"]
    if "fusion" in result["failed"]:
        return False
    if "fusion" not in distances or "eager" not in distances:
        return True
    return distances["fusion"] <= further * distances["eager"]  # NaN is not


def model_lines(name, result, further=FURTHER):
    times, right = result["microseconds"], is_right(result, further)
    peers = {way: us for way, us in times.items() if way != "fusion"}
    text = ", ".join(f"{way} {us:.0f}" for way, us in times.items())
    if "fusion" in times and peers:
        best = min(peers, key=peers.get)
        text += f"; fusion takes {times['fusion'] / peers[best]:.2f} of {best}"
    if "left" in result:
        text += (f", {len(result['left'])} ops left to PyTorch, "
                 f"{result['pieces']} pieces of {result['graphs']} graphs")
    yield f"{name}: us a step: {text}"
    yield "  on the host " + ", ".join(f"{way} {us:.0f}" for way, us in result["host microseconds"].items())
    yield ("  distance from f32: " + ", ".join(f"{way} {value:.4f}"
                                               for way, value in result["distance from f32"].items())
           + ("" if right else f": FAIL, more than {further} times that of eager, or none"))
    for way, text in [*result["failed"].items(), *result["notes"].items()]:
        yield f"  {way}: {text}"
    for text in sorted(set(result.get("left", ())))[:5]:
        yield f"  left: {text}"


def host_lines(result):
    for what, costs in result.items():
        base, each = line_through(costs)
        text = ", ".join(f"{count}: {us:.1f}" for count, us in costs.items())
        verdict = ""
        if what == "program":
            late = [count for count, us in costs.items() if us > BASE + EACH * count]
            verdict = f"; {f'above at {late} inputs' if late else 'within'} {BASE} + {EACH} an input"
        yield f"host, us a call of a {what} by inputs: {text}; {base:.1f} + {each:.2f} an input{verdict}"


def line_through(points):
    """What is left at none, and what one adds: least squares."""
    xs, ys = list(points), list(points.values())
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    each = sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x)**2 for a in xs)
    return y - each * x, each


def lacking(options):
    for name in NEEDS:
        if importlib.util.find_spec(name) is None:
            return f"there is no Python package {name}"
    if options.device == "cuda":
        import torch
        if not torch.cuda.is_available():
            return "there is no GPU that PyTorch can use: --device=cpu is a dry run"
    return None


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help=f"of {', '.join(MODELS)}, and host; default: all")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu", "emulate"])
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--minutes", type=float, default=2.4, help="when to end")
    parser.add_argument("--jobs", type=int, default=max(1, min(12, len(os.sched_getaffinity(0)) - 2)),
                        help="models that are compiled side by side")
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)} and host; fewer steps")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    known = {"models": (*MODELS, "host"), "ways": WAYS}
    options.models = options.models or ",".join([*(QUICK if options.quick else MODELS), "host"])
    for what, names in known.items():
        chosen = getattr(options, what).split(",")
        setattr(options, what, [name for name in names if name in chosen])
        for name in chosen:
            if name not in names:
                parser.error(f"--{what}: no {name}: there are {', '.join(names)}")
    if not options.iterations:
        options.iterations = 5 if options.device != "cuda" else 20 if options.quick else 100
    return options


def main(arguments=None, target=backend_worker.work, lacks=lacking):
    options = parsed(arguments)
    reason = lacks(options)
    if reason:
        print(f"backend.py: {reason}", file=sys.stderr)
        return 3
    results, wrong = {}, []
    further = FURTHER if options.device == "cuda" else FURTHER_TINY

    def tell(name, state, answer):
        results[name] = answer if state == "timed" else {state: answer}
        lines = [f"{name}: {state}: {answer}"]
        if state == "timed":
            lines = host_lines(answer) if name == "host" else model_lines(name, answer, further)
        print(*lines, sep="\n", flush=True)
        if state == "failed" or state == "timed" and name != "host" and not is_right(answer, further):
            wrong.append(name)

    with tempfile.TemporaryDirectory() as folder:
        options.log, options.turn = f"{folder}/log", f"{folder}/turn"
        survey(options.models, options, target, tell)
        if wrong and os.path.exists(options.log):
            with open(options.log, errors="replace") as file:
                print(*file.read().splitlines()[-20:], sep="\n", file=sys.stderr)
    left = [name for name in options.models if "left out" in results[name]]
    if left:
        print(f"{len(left)} of {len(options.models)} left out: {', '.join(left)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 1 if wrong else 3 if len(left) == len(options.models) else 0


if __name__ == "__main__":
    sys.exit(main())
