#!/usr/bin/env python3
"""Row kernels against PyTorch on one GPU: add + norm (RMS, Gemma, Layer), bf16.

    benchmarks/rows.py [--fusion-run build/bin/fusion-run] [--json rows.json]

Each figure is the median time of one kernel inside a CUDA graph of several calls over distinct buffers whose total
exceeds the L2 cache five times where the sizes allow (24 calls at most). Ours comes from `fusion-run --bench` on a graph
of that many calls; PyTorch's, eager and torch.compile, from a CUDA graph in the same session. All outputs are compared
first. The limit is the bytes that must move over 4.27 TB/s, the copy bandwidth of an H200.
"""
import argparse
import json
import re
import statistics
import subprocess
import tempfile

import torch
from safetensors.torch import save_file

L2_BYTES, COPY_BYTES_PER_US = 60 << 20, 4.27e6
NORMS = {
    "rms": ("nn.rms_norm {s}, {w} {{eps = 1.0e-6 : f32}} : ({t}, {wt}) -> {t}", lambda s, w: rms(s, w.dtype) * w),
    "gemma": ("nn.rms_norm {s}, {w} {{eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}} : ({t}, {wt}) -> {t}",
              lambda s, w: (rms(s, torch.float32) * (1 + w.float())).to(s.dtype)),
    "layer": ("nn.layer_norm {s}, {w}, {w} {{eps = 1.0e-5 : f32}} : ({t}, {wt}, {wt}) -> {t}",
              lambda s, w: torch.nn.functional.layer_norm(s, s.shape[-1:], w, w, 1e-5)),
}


def rms(s, dtype):
    f = s.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-6)).to(dtype)


def graph_text(kind, calls, hidden):
    t, wt = f"tensor<?x{hidden}xbf16>", f"tensor<{hidden}xbf16>"
    arguments, lines, results = [], [], []
    for i in range(calls):
        for name in ("x", "r"):
            arguments.append(f'%{name}{i}: {t} {{nn.name = "{name}{i}", nn.dims = ["tokens", {hidden}]}}')
        lines.append(f'%w{i} = nn.weight {{name = "w{i}", path = "weights.bin", offset = {i * hidden * 2} : i64, '
                     f'length = {hidden * 2} : i64}} : () -> {wt}')
        lines.append(f"%s{i} = nn.add %x{i}, %r{i} : ({t}, {t}) -> {t}")
        lines.append(f"%n{i} = " + NORMS[kind][0].format(s=f"%s{i}", w=f"%w{i}", t=t, wt=wt))
        results += [(f"sum{i}", f"%s{i}"), (f"norm{i}", f"%n{i}")]
    types = ", ".join(f'{t} {{nn.name = "{name}"}}' for name, _ in results)
    values = ", ".join(value for _, value in results)
    return (f"func.func @main({', '.join(arguments)}) -> ({types}) {{\n  " + "\n  ".join(lines)
            + f"\n  return {values} : {', '.join([t] * len(results))}\n}}\n")


def ours(program, kind, inputs, expected, calls, hidden, folder):
    graph, given, wanted = f"{folder}/graph.mlir", f"{folder}/in.safetensors", f"{folder}/out.safetensors"
    with open(graph, "w") as file:
        file.write(graph_text(kind, calls, hidden))
    with open(f"{folder}/weights.bin", "wb") as file:
        for i in range(calls):
            file.write(inputs[f"w{i}"].view(torch.uint8).cpu().numpy().tobytes())
    save_file({k: v.cpu() for k, v in inputs.items() if k[0] != "w"}, given)
    save_file({k: v.cpu() for k, v in expected.items()}, wanted)
    run = subprocess.run([program, graph, "--device=cuda", "--quiet", "--bench=200", f"--inputs={given}",
                          f"--expect={wanted}"], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{kind} {hidden}: {run.stdout[-600:]}{run.stderr[-600:]}")
    return float(re.search(r"median ([\d.]+) us", run.stdout).group(1)) / calls


def replayed(function, calls):
    function()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    times = []
    for _ in range(60):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    return statistics.median(times[10:])


def measure(program, kind, tokens, hidden, folder):
    moved = tokens * hidden * 2 * 4 + hidden * 2
    calls = max(2, min(24, -(-5 * L2_BYTES // moved)))
    inputs, expected = {}, {}
    norm = NORMS[kind][1]
    for i in range(calls):
        inputs[f"x{i}"], inputs[f"r{i}"] = (torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16) for _ in "xr")
        inputs[f"w{i}"] = torch.randn(hidden, device="cuda", dtype=torch.bfloat16)
        expected[f"sum{i}"] = inputs[f"x{i}"] + inputs[f"r{i}"]
        expected[f"norm{i}"] = norm(expected[f"sum{i}"], inputs[f"w{i}"])

    def step(x, r, w):
        s = x + r
        return s, norm(s, w)

    def all_calls(f):
        return lambda: [f(inputs[f"x{i}"], inputs[f"r{i}"], inputs[f"w{i}"]) for i in range(calls)]

    torch.compiler.reset()  # else a size too many falls back to eager
    compiled = torch.compile(step, dynamic=False)
    for out, want in zip(compiled(inputs["x0"], inputs["r0"], inputs["w0"]), (expected["sum0"], expected["norm0"])):
        torch.testing.assert_close(out, want, rtol=3e-2, atol=3e-2)
    return {"norm": kind, "tokens": tokens, "hidden": hidden, "calls": calls,
            "fusion": ours(program, kind, inputs, expected, calls, hidden, folder),
            "compile": replayed(all_calls(compiled), calls), "eager": replayed(all_calls(step), calls),
            "limit": moved / COPY_BYTES_PER_US}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fusion-run", default="build/bin/fusion-run")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, microseconds a call")
    print(f"{'norm':6} {'tokens':>6} {'hidden':>6} {'fusion':>8} {'compile':>8} {'eager':>8} {'limit':>8} {'ratio':>6}")
    sizes = [(tokens, 4096) for tokens in (1, 16, 128, 1024, 8192)] + [(1024, 2880), (1024, 5120), (1024, 7168), (8192, 8192)]
    with tempfile.TemporaryDirectory() as folder:
        for kind in NORMS:
            for tokens, hidden in sizes:
                row = measure(options.fusion_run, kind, tokens, hidden, folder)
                rows.append(row)
                print(f"{kind:6} {tokens:6} {hidden:6} {row['fusion']:8.2f} {row['compile']:8.2f} {row['eager']:8.2f} "
                      f"{row['limit']:8.2f} {row['compile'] / row['fusion']:6.2f}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
