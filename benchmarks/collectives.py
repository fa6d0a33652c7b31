#!/usr/bin/env python3
"""Times all-reduce + add + RMSNorm over several GPUs: a chain of 12 as the product runs it, and as NCCL with a norm that
torch.compile fused runs it, in one session.

    python3 benchmarks/collectives.py --ranks=4 --fusion-run=build/bin/fusion-run --tokens=1,128,2048 -o out.json

Ours: fusion-run --tp=N --bench of a graph of 12 groups that follow from one another; every run's time is the slowest
rank's, the median counts. The peer: a CUDA graph of the same 12 on each rank, the slowest rank's median replay. Both
results are compared with the sum, the addition and the norm computed in f32 and rounded after each op. The limit is the
two-shot form's traffic, 2 (R - 1) / R of the message, at 366 GB/s a direction; it leaves out the two hops of a signal.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

LINKS = 12
WIRE = 366e3  # bytes a microsecond and direction: peer writes of four H200, all to all
EPS = 1e-6
REPLAYS = 40


def chain(hidden, dtype):
    """The graph in text form: what all ranks run, on the same inputs."""
    rows, weights = f"tensor<?x{hidden}x{dtype}>", f"tensor<{hidden}x{dtype}>"
    port = '{{nn.name = "{}", nn.dims = ["tokens", {}]}}'
    lines = [f'func.func @main(%x: {rows} {port.format("x", hidden)}, %r: {rows} {port.format("r", hidden)}, '
             f'%w: {weights} {{nn.name = "w"}}) -> ({rows} {{nn.name = "y"}}, {rows} {{nn.name = "s"}}) {{']
    y, s = "%x", "%r"
    for i in range(LINKS):
        lines += [f"  %a{i} = nn.all_reduce {y} : ({rows}) -> {rows}",
                  f"  %s{i} = nn.add %a{i}, {s} : ({rows}, {rows}) -> {rows}",
                  f"  %y{i} = nn.rms_norm %s{i}, %w {{eps = {EPS:.1e} : f32}} : ({rows}, {weights}) -> {rows}"]
        y, s = f"%y{i}", f"%s{i}"
    return "\n".join(lines + [f"  return {y}, {s} : {rows}, {rows}", "}", ""])


def inputs(tokens, hidden):
    import torch
    torch.manual_seed(tokens)
    make = lambda *shape: torch.randn(*shape).to(torch.bfloat16)
    return {"x": make(tokens, hidden), "r": make(tokens, hidden), "w": 1 + make(hidden) / 16}


def norm(sum_, weight):
    import torch
    wide = sum_.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS) * weight.float()).to(sum_.dtype)


def expected(tensors, ranks):
    y, s = tensors["x"], tensors["r"]
    for _ in range(LINKS):
        s = (y.float() * ranks).to(y.dtype) + s
        y = norm(s, tensors["w"])
    return {"y": y, "s": s}


def difference(actual, wanted):
    return max(((actual[name].float() - wanted[name].float()).norm() / wanted[name].float().norm()).item() for name in wanted)


def time_ours(options, tokens, folder):
    """Microseconds a link, and the relative error of what ran."""
    from safetensors.torch import load_file, save_file
    given = inputs(tokens, options.hidden)
    paths = {name: os.path.join(folder, name) for name in ("chain.mlir", "in.safetensors", "out.safetensors")}
    with open(paths["chain.mlir"], "w") as file:
        file.write(chain(options.hidden, "bf16"))
    save_file(given, paths["in.safetensors"])
    command = [options.fusion_run, paths["chain.mlir"], f"--tp={options.ranks}", "--device=cuda", f"--bench={REPLAYS}",
               f"--inputs={paths['in.safetensors']}", f"--outputs={paths['out.safetensors']}", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    found = re.search(r"median ([\d.]+) us", done.stdout)
    if done.returncode or not found:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    error = difference(load_file(paths["out.safetensors"]), expected(given, options.ranks))
    return {"us": float(found.group(1)) / LINKS, "error": error}


def peer_rank(rank, ranks, sizes, hidden, port, results):
    """One process of the peer: NCCL and a compiled norm."""
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    add_norm = torch.compile(lambda y, s, w: (y + s, norm(y + s, w)), dynamic=False)
    for tokens in sizes:
        given = {name: tensor.cuda() for name, tensor in inputs(tokens, hidden).items()}

        def run():
            y, s = given["x"].clone(), given["r"]
            for _ in range(LINKS):
                dist.all_reduce(y)
                s, y = add_norm(y, s, given["w"])
            return y, s

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                y, s = run()
            times = []
            for _ in range(REPLAYS + 3):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                times.append((begin, end))
            torch.cuda.synchronize()
        own = [begin.elapsed_time(end) * 1000 / LINKS for begin, end in times[3:]]
        gathered = [None] * ranks
        dist.all_gather_object(gathered, own)
        if rank == 0:
            slowest = [max(run) for run in zip(*gathered)]
            wanted = expected({name: tensor.cpu() for name, tensor in given.items()}, ranks)
            results[tokens] = {"us": statistics.median(slowest), "error": difference({"y": y.cpu(), "s": s.cpu()}, wanted)}
        dist.barrier()
    dist.destroy_process_group()


def time_peer(options, sizes):
    import torch.multiprocessing as mp
    results = mp.Manager().dict()
    mp.spawn(peer_rank, (options.ranks, sizes, options.hidden, 29500 + options.ranks, results), nprocs=options.ranks)
    return dict(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--tokens", default="1,16,128,512,2048,8192")
    parser.add_argument("--forms", default="auto", help="auto, one-shot, two-shot, library: FUSION_COLLECTIVE, one after another")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for each of our measurements")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    sizes = [int(size) for size in options.tokens.split(",")]
    peers = {} if options.no_peer else time_peer(options, sizes)
    rows = []
    for tokens in sizes:
        row = {"ranks": options.ranks, "tokens": tokens, "hidden": options.hidden,
               "limit_us": 2 * (options.ranks - 1) / options.ranks * tokens * options.hidden * 2 / WIRE,
               "nccl_and_norm": peers.get(tokens)}
        for form in options.forms.split(","):
            os.environ["FUSION_COLLECTIVE"] = "" if form == "auto" else form
            try:
                with tempfile.TemporaryDirectory() as folder:
                    row[form] = time_ours(options, tokens, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                row[form] = {"failed": str(problem)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    if options.output:
        with open(options.output, "w") as file:
            json.dump(rows, file, indent=1)
    return 0 if all("failed" not in row[form] for row in rows for form in options.forms.split(",")) else 1


if __name__ == "__main__":
    sys.exit(main())
