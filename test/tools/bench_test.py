"""The benchmarks, as far as a machine without a GPU goes: every graph that they time fuses as they expect,
and computes what the reference computes; the A/B of a graph; figures from results."""
import contextlib
import io
import json
import math
import os
import py_compile
import re
import subprocess
import sys
import time
import unittest
from types import SimpleNamespace
from xml.etree import ElementTree

from harness import ToolTest, graph

FOLDER = os.path.join(os.environ["FUSION_SOURCE"], "benchmarks")
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True

import backend  # noqa: E402
import collectives  # noqa: E402
import families  # noqa: E402
import models_graph  # noqa: E402
import run  # noqa: E402
from families.chain import LINKS, Chain  # noqa: E402
from families.layer import Layer  # noqa: E402
from graph import write_small, written  # noqa: E402

CALLS = 2


def python(script, *arguments):
    return subprocess.run([sys.executable, os.path.join(FOLDER, script), *arguments], capture_output=True,
                          text=True,
                          timeout=240, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})


class Decode(ToolTest):
    def test_steps_replay_one_graph(self):
        done = python("decode.py", "--fusion-run=" + os.path.join(os.environ["FUSION_BINARIES"],
                                                                  "fusion-run"), "--small", "--layers=3",
                      "--batch=2", "--past=7", "--steps=4", "--device=emulate")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout,
                         r"decode: 4 steps, .* planned 1 times, .* recorded 1 times, replayed 4 times")


def stand_in(connection, name, options):
    """In place of backend_worker.work."""
    if name == "gpt2":
        return connection.send(("failed", "why"))
    if name == "phi3":
        os._exit(7)
    if name == "qwen2":
        time.sleep(60)
    connection.send(("ready", None))
    if connection.recv() == "time" and name == "host":
        costs = {"program": {1: 11.0, 2: 12.0, 3: 13.0}, "torch.compile": {1: 9, 3: 9}}
        return connection.send(("timed", costs))
    connection.send(("timed", {
        "distance from f32": {"eager": 0.01, "fusion": {"olmo2": 0.02, "granite": math.nan}.get(name, 0.009)},
        "microseconds": {"eager": 400.0, "torch.compile": 200.0, "fusion": 150.0},
        "host microseconds": {"eager": 390.0, "torch.compile": 190.0, "fusion": 50.0},
        "failed": {"reduce-overhead": "it cannot"}, "notes": {}, "graphs": 1, "pieces": 2,
        "left": ["a: b", "c: d"]
    }))


class Backend(ToolTest):
    def run_on(self, *arguments, lacks=lambda options: None):
        """Exit code, output."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = backend.main(["--device=cpu", *arguments], stand_in, lacks)
        return code, out.getvalue()

    def test_lines(self):
        code, out = self.run_on("--models=llama,host", "--json=" + self.path("times.json"))
        self.assertEqual(code, 0, out)
        self.assertIn("llama: us a step: eager 400, torch.compile 200, fusion 150; fusion takes 0.75 of "
                      "torch.compile, 2 ops left to PyTorch, 2 pieces of 1 graphs\n", out)
        self.assertIn("  distance from f32: eager 0.0100, fusion 0.0090\n", out)
        self.assertIn("  reduce-overhead: it cannot\n  left: a: b\n  left: c: d\n", out)
        self.assertIn("inputs: 1: 11.0, 2: 12.0, 3: 13.0; 10.0 + 1.00 an input; within 15 + 0.2 an input\n",
                      out)
        with open(self.path("times.json")) as file:
            self.assertEqual(json.load(file)["llama"]["microseconds"]["fusion"], 150)

    def test_one_that_fails_leaves_the_others(self):
        code, out = self.run_on("--models=llama,gpt2,phi3,mistral", "--jobs=2")
        self.assertEqual(code, 1, out)
        self.assertIn("gpt2: failed: why\n", out)
        self.assertIn("phi3: failed: its process ended with 7\n", out)
        self.assertEqual(len(re.findall("^(llama|mistral): us a step", out, re.M)), 2, out)

    def test_wrong_numbers(self):
        for name in ("olmo2", "granite"):
            code, out = self.run_on("--models=" + name)
            self.assertEqual(code, 1, out)
            self.assertRegex(out, "fusion (0.0200|nan): FAIL, more than 1.5 times")

    def test_what_is_not_ready_in_time_is_left_out(self):
        began = time.monotonic()
        code, out = self.run_on("--models=llama,qwen2", "--minutes=0.4")
        self.assertEqual(code, 0, out)
        self.assertIn("llama: us a step", out)
        self.assertIn("1 of 2 left out: qwen2", out)
        self.assertEqual(self.run_on("--models=qwen2", "--minutes=0.1")[0], 3)
        self.assertLess(time.monotonic() - began, 50)

    def test_what_lacks(self):
        self.assertEqual(self.run_on(lacks=lambda options: "no GPU")[0], 3)


class Models(ToolTest):
    def written(self, model):
        done = python("models.py", f"--models={model}", "--cases=decode-2-6,prefill-5",
                      "--write=" + self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.path("graph.mlir")

    def test_whole_models(self):
        """Kernels are planned, and the prompt's step and the steps after it are one graph."""
        layers = {"tiny": 2, "tiny-experts": 2, "tiny-int4": 2, "tiny-gemma": 6}
        fired = {"tiny": "gated_matmul=2", "tiny-experts": "router=2", "tiny-int4": "gated_matmul=2",
                 "tiny-gemma": "gated_matmul=6"}
        for name, count in layers.items():
            model = self.written(name)
            self.run_tool("fusion-opt", model, "--fuse", "--sample=greedy", "--kv-capacity=8",
                          "--require-plan", f"--require=rope_kv_write={count}", f"--require={fired[name]}",
                          "-o", self.path("plan.txt"))
            for case, shape in (("decode-2-6", "2x1"), ("prefill-5", "1x1")):
                out, _ = self.run_tool("fusion-run", model, "--device=cpu", "--sample=greedy",
                                       "--inputs=" + self.path(case + ".safetensors"))
                self.assertEqual(out,
                                 f"logits {shape}x96 bf16\nnext_tokens {shape} i64\n{2 * count} caches\n")
            out, _ = self.run_tool("fusion-run", model, "--device=cpu", "--generate=3", "--prompt=1,2,3",
                                   "--prompt=4,5,6")
            self.assertTrue(out.startswith("tokens: "), out)

    def test_limit_of_whole_models(self):
        """The bytes of a step are those of all weights but norms, of caches, of the ids' rows, of logits."""
        for name in ("tiny", "tiny-experts", "tiny-int4"):
            writer = models_graph.Writer(name)
            m, (batch, new, past) = writer.m, (64, 1, 6)  # as many tokens as to choose nearly every expert
            weights = sum(models_graph.BYTES[value.dtype] * math.prod(dims)
                          for name, (_, dims, value) in writer.places.items()
                          if len(dims) > 1 and (m.tied or name != "embed"))
            caches = m.layers * 2 * m.kv_heads * m.width * batch * (past + new) * 2
            ends = 2 * batch * (new * m.hidden + m.vocabulary)
            self.assertAlmostEqual(m.step_bytes(batch, new, past) / (weights + caches + ends), 1, places=6)


class Cases(ToolTest):
    def fused(self, case):
        """Every call becomes the kernels that the case promises."""
        report = self.path("report.json")
        self.run_tool("fusion-opt", self.path("graph.mlir"), "--fuse", *case.options, f"--report={report}",
                      "-o", self.path("fused.mlir"))
        with open(report) as file:
            fusions = json.load(file)
        if case.pattern:
            self.assertGreaterEqual(fusions["patterns"][case.pattern]["fired"], CALLS, case.name)
        if case.kernels:
            self.assertLessEqual(fusions["kernels"]["after"], CALLS * case.kernels, case.name)

    def test_every_case_fuses(self):
        cases = families.cases()
        self.assertEqual(len({case.name for case in cases}), len(cases))
        for case in cases:
            self.write("graph.mlir", written(case, CALLS)[0].text())
            self.fused(case)

    def test_small_ones_compute_what_the_reference_computes(self):
        inputs = [self.path("graph.mlir"), f"--inputs={self.path('inputs.safetensors')}"]
        for seed, case in enumerate(families.small_cases()):
            write_small(case, CALLS, self.folder, seed)
            self.fused(case)
            expected = self.path("expected.safetensors")
            self.run_tool("fusion-run", *inputs, "--device=cpu", "--no-fuse", f"--outputs={expected}",
                          "--quiet")
            out, _ = self.run_tool("fusion-run", *inputs, "--device=emulate", f"--expect={expected}",
                                   "--bench=1", "--quiet",
                                   *case.options)
            self.assertNotIn("FAIL", out, case.name)
            self.assertGreaterEqual(out.count("PASS"), CALLS, case.name)
            self.assertRegex(out, r"median [\d.]+ us")  # what measure.py reads


class Ranks(ToolTest):
    """collectives.py without GPUs: its graphs, its list, and how it deals with processes that fail."""

    def fired(self, pattern):
        with open(self.path("report.json")) as file:
            return json.load(file)["patterns"][pattern]["fired"]

    def test_every_chain_fuses(self):
        chains = [case for ranks in (2, 4) for case,
                  _, _ in collectives.cases(ranks) if isinstance(case, Chain)]
        self.assertEqual(len(chains), 36)
        for case in chains:
            self.write("graph.mlir", written(case, 1)[0].text())
            self.run_tool("fusion-opt", self.path("graph.mlir"), "--fuse",
                          f"--report={self.path('report.json')}", "-o",
                          self.path("fused.mlir"))
            self.assertEqual(self.fired("all_reduce_add_norm_quant" if case.quant else "all_reduce_add_norm"),
                             len(LINKS))

    def test_small_ones_compute_what_the_reference_computes(self):
        inputs = [self.path("graph.mlir"), f"--inputs={self.path('inputs.safetensors')}"]
        small = [(Chain(1).shrunk(), (2, 4)), *((Chain(1, quant=quant).shrunk(), (2,))
                                                for quant in ("static", "token", "group")),
                 (Layer(1, 1, 1024).shrunk(), (2,))]
        for case, numbers in small:
            calls = 1 if isinstance(case, Chain) else CALLS
            write_small(case, calls, self.folder)
            for ranks in numbers:
                expected = self.path("expected.safetensors")
                self.run_tool("fusion-run", *inputs, f"--tp={ranks}", "--device=cpu", "--no-fuse",
                              f"--outputs={expected}",
                              "--quiet")
                out, _ = self.run_tool("fusion-run", *inputs, f"--tp={ranks}", "--device=emulate",
                                       "--bench=1", "--quiet",
                                       f"--expect={expected}", f"--report={self.path('report.json')}",
                                       *case.options)
                self.assertNotIn("FAIL", out, case.name)
                self.assertRegex(out, r"median [\d.]+ us")  # what measure.py reads
                if isinstance(case, Layer):
                    self.assertEqual(self.fired("shard"), 2 * calls)
                    self.assertEqual(self.fired("all_reduce_add_norm"), calls)

    def test_limits(self):
        for ranks, least in ((2, 91.7), (4, 137.5)):  # 2048 tokens in two hops: see notes-collectives.md
            case = Chain(2048, ranks=ranks)
            self.assertGreater(case.wire(), least)
            self.assertLess(case.wire(), least + 5)
        one, four = (collectives.limit(Layer(1, 1, 1024), ranks, collectives.COPY) for ranks in (1, 4))
        self.assertGreater(four, one / 4)

    def test_list(self):
        done = python("collectives.py", "--list", "--ranks=2,1")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = done.stdout.splitlines()
        self.assertEqual(len(names), 20)
        self.assertTrue(names[-1].startswith("1 GPUs  decoder layer"), names)
        self.assertEqual(
            len(python("collectives.py", "--list", "--ranks=4", "--only=fp8").stdout.splitlines()), 12)

    def test_what_is_missing_is_named(self):
        done = python("collectives.py", "--fusion-run=/nowhere/fusion-run", "--ranks=64")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"^collectives.py: .*(not installed|GPUs, not)")

    def test_processes_that_fail(self):
        write = 'open(sys.argv[1], "a").write("1\\n")'
        wait = "(print('busy', flush=True), time.sleep(60))"
        for code, seconds, lines, problem in (
                (f"rank == '0' and {write}", 50, [1], None),
                (f"sys.exit('no such thing') if rank == '1' else {wait}", 50, [], "rank 1: no such thing"),
                (f"{write}, {wait}", 3, None, r"not done within 3 s; rank 0: (busy|it said nothing)")):
            folder = self.path("ranks")
            os.makedirs(folder, exist_ok=True)
            for file in os.listdir(folder):
                os.remove(os.path.join(folder, file))
            with open(os.path.join(folder, "ranks_of_peers.py"), "w") as file:
                file.write(f"import os, sys, time\nrank = os.environ['RANK']\n{code}\n")
            found = collectives.run_peers(2, SimpleNamespace(only=""), folder, seconds, scripts=folder)
            self.assertRegex(str(found[1]), f"^{problem}$")
            if lines is not None:
                self.assertEqual(found[0], lines)


class Figures(ToolTest):
    def results(self, **changes):
        row = {"name": "add+RMSNorm 8192x4096 bf16", "group": "add+RMSNorm", "label": "8192x4096",
               "bytes": 268e6,
               "flops": 168e6, "limit": 63.5, "us": {"fusion": 66.0, "compile": 70.0, "eager": 500.0},
               "ratio": 1.06,
               "ratio_to": "compile"}
        broken = {**row, "name": "QK <broken>", "group": "QK-norm+RoPE", "us": {"eager": 90.0}}
        broken.pop("ratio")
        tiny = {**row, "name": "add+RMSNorm 1x4096 bf16", "label": "1x4096", "limit": 0.01}
        device = {"gpu": "A GPU & more", "torch": "2.11", "copy_tb_per_s": 4.27, "matmul_tflop_per_s": 790.0}
        return self.write("r.json", json.dumps({"device": device, "cases": [row, broken, tiny]} | changes))

    def test_figures_are_drawn(self):
        done = python("plot.py", self.results(), f"--out={self.folder}")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("bars.svg", "roofline.svg"):
            ElementTree.parse(self.path(name))
        bars = self.read("bars.svg")
        self.assertIn("66.0 us", bars)
        self.assertIn("70.0 compile", bars)
        self.assertNotIn("1x4096", bars)
        self.assertEqual(self.read("roofline.svg").count("8192x4096"), 2)

    def test_bad_results(self):
        for text in ("no json", "[]", "{}"):
            done = python("plot.py", self.write("bad.json", text), f"--out={self.folder}")
            self.assertEqual(done.returncode, 2, text)
            self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertFalse(os.path.exists(self.path("bars.svg")))


class Lines(ToolTest):
    def test_the_limit_for_seconds_is_said_where_it_is_another(self):
        row = {"name": "experts", "us": {"fusion": 500.0, "compile": 1000.0}, "ratio": 2.0,
               "kernels_at_most": None, "missing": {}, "limit": 400.0, "sustained_limit": 460.0}
        self.assertRegex(run.line(row),
                         r"^experts +500\.00 +400\.00 +80% +2\.00 .*compile 1000\.00.*for seconds 460\)$")
        self.assertNotIn("seconds", run.line(row | {"sustained_limit": 400.0}))


class Commands(ToolTest):
    def test_every_file_is_python(self):
        for folder, _, files in os.walk(FOLDER):
            for file in files:
                if file.endswith(".py"):
                    py_compile.compile(os.path.join(folder, file), cfile=self.path("out.pyc"), doraise=True)

    def test_list(self):
        done = python("run.py", "--list", "--only=^QK")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = done.stdout.splitlines()
        self.assertGreater(len(names), 3)
        self.assertTrue(all(name.startswith("QK-norm+RoPE") for name in names), names)
        self.assertLess(len(python("run.py", "--list", "--quick", "--only=^QK").stdout.splitlines()),
                        len(names))

    def test_what_is_missing_is_named(self):
        done = python("run.py", "--fusion-run=/nowhere/fusion-run")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"^run.py: .*(not installed|no GPU|is not there)")
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_ab(self):
        folder = os.path.dirname(graph("llama-fp32-op18"))
        program = os.path.join(os.environ["FUSION_BINARIES"], "fusion-run")
        done = python("run.py", "ab", graph("llama-fp32-op18"), f"--expect={folder}/outputs.safetensors",
                      f"--fusion-run={program}", "--device=emulate", "--bench=1", "--rounds=1",
                      f"--json={self.path('ab.json')}")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["variant"]: row for row in json.loads(self.read("ab.json"))["variants"]}
        self.assertGreater(rows["no fusion"]["kernels"], rows["fused"]["kernels"])
        self.assertIn("without matmul_epilogue", rows)
        for variant in rows:
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(variant)} +\d+ +[\d.]+")

    def test_ab_says_what_fails(self):
        done = python("run.py", "ab", self.path("missing.onnx"),
                      f"--inputs={graph('llama-fp32-op18', 'inputs.safetensors')}", "--device=emulate",
                      f"--fusion-run={os.path.join(os.environ['FUSION_BINARIES'], 'fusion-run')}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("missing.onnx", done.stderr)


if __name__ == "__main__":
    unittest.main()
