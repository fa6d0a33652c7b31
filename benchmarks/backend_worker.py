"""One architecture of backend.py, in a process of its own: everything is compiled and checked, then, when no
other process uses the GPU, timed."""
import contextlib
import fcntl
import os
import statistics
import sys
import time
import warnings
from unittest import mock

WARM_UP = 3
COMPILING_RUNS = 2  # reduce-overhead records its CUDA graph in the second
INPUTS = (1, 2, 8, 32, 128)
CALLS = 100


class Turn:
    """A file's lock: who measures on the GPU while compiling does it alone. Freed when its process ends."""

    def __init__(self, path):
        self.file, self.depth = open(path, "w"), 0

    def __enter__(self):
        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def around(self, owner, name):
        """Has the method called in turn only."""
        method = getattr(owner, name, None)
        if method is None:  # of another version
            return contextlib.nullcontext()

        def called(*args, **kwargs):
            with self:
                return method(*args, **kwargs)

        return mock.patch.object(owner, name, called)


def reason(problem):
    """In one line."""
    lines = (str(problem).strip() or "?").splitlines()
    return f"{type(problem).__name__}: {lines[0][:200]}"


def fusions_backend():
    import torch
    from fusion import _dynamo
    listed = torch._dynamo.list_backends(exclude_tags=())  # a build tree that is not installed has no entry
    return "fusion" if "fusion" in listed else _dynamo.backend


def how(way, device):
    """The arguments of torch.compile."""
    if way == "fusion":
        return {"backend": fusions_backend(), "options": {} if device == "cuda" else {"device": device}}
    return {"mode": "reduce-overhead"} if way == "reduce-overhead" else {}


def synchronized(device):
    import torch
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def timed(decode, forward, iterations, device):
    """Median microseconds of a step on an idle device, from the call to the end of its work, and of the call
    alone."""
    wait, whole, host = synchronized(device), [], []
    for _ in range(WARM_UP + iterations):
        decode.rewind()
        wait()
        begin = time.perf_counter()
        decode.step(forward)
        returned = time.perf_counter()
        wait()
        whole.append(1e6 * (time.perf_counter() - begin))
        host.append(1e6 * (returned - begin))
    return statistics.median(whole[WARM_UP:]), statistics.median(host[WARM_UP:])


def compiled(decode, way, options, turn):
    """The compiled forward, its logits, and what is to be said of it."""
    import fusion
    import torch
    from fusion import _dynamo
    skips = torch._dynamo.utils.counters["inductor"]
    skipped = skips["cudagraph_skips"]
    fusion.torch_reports(clear=True)
    forward = torch.compile(decode.model.forward, **how(way, options.device))
    with contextlib.ExitStack() as stack:
        if way == "fusion":
            stack.enter_context(turn.around(_dynamo._Piece, "forward"))
        else:
            from torch._inductor.runtime.triton_heuristics import CachingAutotuner
            stack.enter_context(turn.around(CachingAutotuner, "benchmark_all_configs"))
        for _ in range(COMPILING_RUNS):
            decode.logits(forward)
    with turn:
        logits = decode.logits(forward)
    facts = {}
    if way == "fusion":
        reports = fusion.torch_reports()
        facts = {"graphs": len(reports), "pieces": sum(len(report.programs) for report in reports),
                 "left": [f"{where}: {why}" for report in reports for where, why in report.left]}
    elif skips["cudagraph_skips"] > skipped:
        facts = {"note": f"without CUDA graphs: skipped {skips['cudagraph_skips'] - skipped} times"}
    return forward, logits, facts


class Model:
    def __init__(self, name, options, turn):
        import torch

        from backend_models import Decode
        from models_torch import distance
        self.options = options
        self.device = torch.device("cuda" if options.device == "cuda" else "cpu")
        self.forwards, self.result = {}, {"distance from f32": {}, "failed": {}, "seconds": {}, "notes": {}}
        with turn:
            self.decode = Decode(name, self.device, options.device != "cuda")
            exact = self.decode.exact()
        for way in options.ways:
            begin = time.perf_counter()
            try:
                if way == "eager":
                    forward = self.decode.model.forward
                    with turn:
                        logits = self.decode.logits(forward)
                else:
                    forward, logits, facts = compiled(self.decode, way, options, turn)
                    if "note" in facts:
                        self.result["notes"][way] = facts["note"]
                    elif facts:
                        self.result.update(facts)
                self.result["distance from f32"][way] = distance(logits, exact)
                self.forwards[way] = forward
            except Exception as problem:  # of any library: the other ways go on
                self.result["failed"][way] = reason(problem)
            self.result["seconds"][way] = round(time.perf_counter() - begin, 1)

    def timed(self):
        times = self.result["microseconds"] = {}
        hosts = self.result["host microseconds"] = {}
        for way, forward in self.forwards.items():
            times[way], hosts[way] = timed(self.decode, forward, self.options.iterations, self.device)
        return self.result


class Host:
    """What a call costs the host: sums of small tensors, as many as there are inputs."""

    def __init__(self, options, turn):
        import fusion
        import torch

        class Sum(torch.nn.Module):
            def forward(self, *given):
                return torch.relu(sum(given[1:], given[0])) + 1  # a piece has two ops at least

        self.wait = synchronized(torch.device("cuda" if options.device == "cuda" else "cpu"))
        self.batches = max(3, options.iterations // 5)
        self.calls = {}
        for count in INPUTS:
            given = [torch.randn(64, device="cuda" if options.device == "cuda" else "cpu")
                     for _ in range(count)]
            fusion.torch_reports(clear=True)
            module = torch.compile(Sum(), dynamic=False, **how("fusion", options.device))
            with turn:
                if not torch.equal(module(*given), Sum()(*given)):
                    raise RuntimeError(f"a wrong sum of {count} inputs")
            (report,) = fusion.torch_reports()
            (program,) = report.programs
            named = dict(zip([port.name for port in program.inputs], given, strict=True))
            self.calls[count] = (lambda program=program, named=named: program(named),
                                 lambda module=module, given=given: module(*given))

    def timed(self):
        return {what: {count: self.cost(calls[i]) for count, calls in self.calls.items()}
                for i, what in enumerate(("program", "torch.compile"))}

    def cost(self, call):
        """Microseconds on the host of a call whose work is queued and not waited for."""
        times = []
        for _ in range(1 + self.batches):
            self.wait()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times.append(1e6 * (time.perf_counter() - begin) / CALLS)
        return statistics.median(times[1:])


def work(connection, name, options):
    """The process. Answers ("ready", None), and when asked ("timed", result); or ("failed", reason)."""
    os.dup2(os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    sys.stdout.flush()
    try:
        import torch
        import transformers
        warnings.filterwarnings("ignore")
        transformers.logging.set_verbosity_error()
        import fusion
        fusion.set_progress(False)
        torch._dynamo.config.recompile_limit = 64
        with torch.no_grad():
            turn = Turn(options.turn)
            job = Host(options, turn) if name == "host" else Model(name, options, turn)
            connection.send(("ready", None))
            connection.recv()
            connection.send(("timed", job.timed()))
    except EOFError:  # nobody asks any more
        return
    except Exception as problem:  # the others go on
        connection.send(("failed", reason(problem)))
