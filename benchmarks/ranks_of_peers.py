"""One rank of collectives.py's opponents: NCCL between PyTorch's or torch.compile's kernels. Started by
collectives.py.

    RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… ranks_of_peers.py RESULTS.jsonl REGEX

Rank 0 appends a line for each case and form: {"name", "label", "result": {"us", "error"} or a text}. Every
rank walks through the same cases in the same order; what depends on one rank alone (the check) holds no
collective.
"""
import datetime
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
import torch.distributed as dist

from collectives import PEERS, cases
from families.chain import Chain
from measure import Bench, released, timed

WARM_UP, RUNS, REPLAYS = 3, 8, 12  # before the capture; in one graph; of that graph


class Rank(Bench):
    def __init__(self, rank, ranks):
        torch.cuda.set_device(rank)
        super().__init__(None, None)
        self.rank, self.ranks = rank, ranks
        if ranks > 1:
            dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=60),
                                    device_id=torch.device("cuda", rank))

    def reduced(self, tensor):
        if self.ranks > 1:
            dist.all_reduce(tensor)
        return tensor

    def measured(self, function):
        """(the slowest rank's median microseconds of a call, what the last one returned). The replays follow
        one another without a gap: ranks that the host started apart have met after the first."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads, NCCL's watchdog among them, may call the driver meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(RUNS):
                results = function()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(WARM_UP + REPLAYS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            graph.replay()
            mark.record()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) * 1000 / RUNS for a, b in zip(marks[WARM_UP:], marks[WARM_UP + 1:])]
        if self.ranks > 1:
            slowest = torch.tensor(times, device=self.device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            times = slowest.tolist()
        return statistics.median(times), results

    def averaged(self, tensor):
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        return tensor

    def chain(self, case, label, tensors):
        """The mean of what is N times as large is the sum, and stays what it is from replay to replay:
        all-reduces are in place, and a copy in front of each would be timed too."""
        after = torch.compile(case.after, dynamic=False, fullgraph=True) if label == "compile" else case.after
        large = [{name: value * self.ranks if name[0] == "x" else value for name, value in call.items()}
                 for call in tensors]
        return lambda: [case.linked(call, self.averaged, after) for call in large]

    def layer(self, case, label, tensors):
        def form(function):
            return torch.compile(function, dynamic=False, fullgraph=True) if label == "compile" else function
        if self.ranks == 1:
            whole = form(case.eager)
            return lambda: [whole(call) for call in tensors]
        attended, fed = form(case.attended), form(case.fed)

        def step(call):
            o, results = attended(call)
            s, m = fed(call, self.reduced(o))
            return {"y": s + self.reduced(m), **results}
        return lambda: [step(call) for call in tensors]

    def case(self, case, label, calls):
        torch.compiler.reset()  # else a size too many falls back to eager
        whole = self.make(case, calls)
        exact = [case.exact(call) for call in whole] if self.rank == 0 else None
        if isinstance(case, Chain):
            us, results = self.measured(self.chain(case, label, whole))
        else:
            shards = [case.prepared(case.shard(call, self.rank, self.ranks)) for call in whole]
            us, results = self.measured(self.layer(case, label, shards))
        if self.rank:
            return None
        for call in exact if not isinstance(case, Chain) else []:
            call.update({name: call[name].chunk(self.ranks, 1)[0] for name in ("keys", "values")
                         if name in call})
        return {"us": us / calls, "error": max(self.errors(case, whole, results, exact))}


def main():
    results, pattern = sys.argv[1:3]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    bench = Rank(rank, ranks)
    for case, calls, _ in cases(ranks, pattern):
        for label in PEERS:
            result, _ = timed(lambda: bench.case(case, label, calls))
            released()
            if rank == 0:
                with open(results, "a") as file:
                    file.write(json.dumps({"name": case.name, "label": label, "result": result}) + "\n")
            print(case.name, label, result, flush=True)
    if ranks > 1:
        bench.reduced(torch.zeros(1, device=bench.device))
    torch.cuda.synchronize()
    # Not destroy_process_group: NCCL's communicator waits there, without end, for every graph that was
    # captured with it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
