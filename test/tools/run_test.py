"""fusion-run as its users call it."""
import json
import os
import struct
import unittest

from harness import ToolTest, graph, named, read_safetensors, write_safetensors

LLAMA = "llama-fp32-op18"
OUTPUTS = graph(LLAMA, "outputs.safetensors")
INPUTS = graph(LLAMA, "inputs.safetensors")


def changed(path, change):
    """A copy of a tensor file at `path`, after change(tensors)."""

    def write(source):
        tensors = read_safetensors(source)
        change(tensors)
        write_safetensors(path, tensors)
        return path

    return write


DECODE = "llama-fp16-decode"


class KvCapacity(ToolTest):
    """Caches that are extended in place; tensors in files have no gaps."""

    def test_same_numbers(self):
        for device in ("cpu", "emulate"):
            out, _ = self.run_tool("fusion-run", *named(DECODE, expect=graph(DECODE, "outputs.safetensors"),
                                                        device=device),
                                   "--kv-capacity=20", "--outputs=" + self.path("o.safetensors"))
            self.assertRegex(out, r"present_value_1 2x2x13x32 f16 max_abs \S+ rel_l2 \S+ PASS\n")
            self.assertEqual(read_safetensors(self.path("o.safetensors"))["present_key_0"][1], [2, 2, 13, 32])

    def test_steps_replay_one_graph(self):
        out, _ = self.run_tool("fusion-run", *named(DECODE, device="emulate"), "--kv-capacity=24",
                               "--decode=6", "--bench=2")
        self.assertRegex(out, r"decode: 6 steps, host median \S+ us, whole median \S+ us; shapes planned 1 times, changed \d+ times, "
                              r"5 speculated; graphs recorded 1 times, replayed 6 times, \d+ kernels changed\n")
        self.assertRegex(out, r"bench: 2 runs on .*, fastest \S+ us\n")
        self.refuse("fusion-run", *named(DECODE, device="emulate"), "--quiet", "--decode=2",
                    says="steps need caches that are extended in place")
        self.refuse("fusion-run", *named(DECODE, device="emulate"), "--decode=0",
                    says="--decode takes a number of steps")
        self.refuse("fusion-run", *named(DECODE, device="emulate"), "--kv-capacity=14", "--quiet",
                    "--decode=2",
                    says="needs 15 positions, the cache was compiled for a capacity of 14")

    def test_refusals(self):
        self.refuse("fusion-run", *named(DECODE, device="emulate"), "--kv-capacity=12", "--quiet",
                    says="dim 2 needs 13 positions, the cache was compiled for a capacity of 12")
        self.refuse("fusion-run", *named(DECODE, device="cpu"), "--kv-capacity=0",
                    says="--kv-capacity takes a number")
        self.refuse("fusion-run", *named(LLAMA, device="cpu"), "--kv-capacity=12",
                    says="no input is extended by Concat(past, new) or GroupQueryAttention into a result")
        self.refuse("fusion-opt", graph(DECODE), "--kv-capacity=12", says="--kv-capacity needs --fuse")

    def test_plan(self):
        out, _ = self.run_tool("fusion-opt", graph(DECODE), "--fuse", "--kv-capacity=20", "--emit=plan")
        self.assertRegex(out, r"input past_key_0: f16 .* in place in %(\d+)\n(.*\n)*output present_key_0: f16 .* in place in %\1\n")


class Compare(ToolTest):
    def test_pass_on_host_devices(self):
        for device in ("cpu", "emulate", "auto"):
            out, err = self.run_tool("fusion-run", *named(LLAMA, expect=OUTPUTS, device=device))
            self.assertRegex(out, r"^logits 2x16x256 f32 max_abs \S+ rel_l2 \S+ PASS\n$")
            self.assertRegex(err, r"\d+ kernels, \d+ without fusion")

    def test_without_fusion(self):
        out, _ = self.run_tool("fusion-run", *named(LLAMA, expect=OUTPUTS, device="emulate"), "--no-fuse")
        self.assertIn("PASS", out)
        _, err = self.run_tool("fusion-run", *named(LLAMA, device="cpu"), "--no-fuse")
        before, after = [int(word) for word in err.split(":")[-1].replace(",", "").split() if word.isdigit()]
        self.assertEqual(before, after)

    def test_quiet(self):
        _, err = self.run_tool("fusion-run", *named(LLAMA, expect=OUTPUTS, device="emulate"), "--quiet")
        self.assertEqual(err, "")

    def test_doctored_expectation_fails(self):
        def off_by_a_little(tensors):
            kind, shape, data = tensors["logits"]
            first = struct.unpack("<f", data[:4])[0]
            tensors["logits"] = (kind, shape, struct.pack("<f", first + 0.01) + data[4:])

        expected = changed(self.path("e.safetensors"), off_by_a_little)(OUTPUTS)
        for device in ("cpu", "emulate"):
            out, _ = self.run_tool("fusion-run", *named(LLAMA, expect=expected, device=device), exit=1)
            self.assertRegex(out, r"^logits 2x16x256 f32 max_abs 0\.01 rel_l2 \S+ FAIL\n$")
        self.run_tool("fusion-run", *named(LLAMA, expect=expected, device="cpu", rtol="0.1"))
        self.run_tool("fusion-run", *named(LLAMA, expect=expected, device="cpu", atol="0.02"))
        self.run_tool("fusion-run", *named(LLAMA, expect=expected, device="cpu", atol="0.001"), exit=1)
        self.run_tool("fusion-run", *named(LLAMA, expect=OUTPUTS, device="cpu", rtol="0"), exit=1)

    def test_expectation_of_another_shape_fails(self):
        def flat(tensors):
            kind, _, data = tensors["logits"]
            tensors["logits"] = (kind, [2 * 16 * 256], data)

        expected = changed(self.path("e.safetensors"), flat)(OUTPUTS)
        out, _ = self.run_tool("fusion-run", *named(LLAMA, expect=expected, device="cpu"), exit=1)
        self.assertIn("FAIL the shapes differ", out)

    def test_expectation_that_the_graph_has_no_output_for(self):
        """Not an error: it may be a reference. But if an output is expected by no name, this may be the
        one."""

        def rename(tensors):
            tensors["present.key`\n"] = tensors.pop("present_key_0")

        expected = changed(self.path("e.safetensors"), rename)(graph(DECODE, "outputs.safetensors"))
        out, err = self.run_tool("fusion-run", *named(DECODE, expect=expected, device="cpu"))
        self.assertRegex(out, r"\n1 output not expected\n$")
        self.assertIn("present.key`_ is compared with nothing in ", err)
        _, err = self.run_tool("fusion-run", *named(DECODE, expect=graph(DECODE, "outputs.safetensors"),
                                                    device="cpu"))
        self.assertNotIn("compared with nothing", err)

    def test_expectation_of_another_type(self):
        def typed(kind, convert):
            def change(tensors):
                values = [value for (value,) in struct.iter_unpack("<f", tensors["logits"][2])]
                tensors["logits"] = (kind, [2, 16, 256], b"".join(convert(value) for value in values))

            return changed(self.path(f"{kind}.safetensors"), change)(OUTPUTS)

        double = typed("F64", lambda value: struct.pack("<d", value))
        out, _ = self.run_tool("fusion-run", *named(LLAMA, expect=double, device="cpu"))
        self.assertRegex(out, r"^logits 2x16x256 f32 max_abs \S+ rel_l2 \S+ PASS, expected as f64\n$")
        for kind, name in (("I32", "i32"), ("BOOL", "i1")):
            other = typed(kind, lambda value: bytes(4 if kind == "I32" else 1))
            for options in ((), ("--atol=1e9",)):
                out, _ = self.run_tool("fusion-run", *named(LLAMA, expect=other, device="cpu"), *options,
                                       exit=1)
                self.assertEqual(out, f"logits 2x16x256 f32 FAIL {name} was expected\n")

    def test_expectation_without_the_outputs(self):
        self.refuse("fusion-run", *named(LLAMA, expect=INPUTS), f"--outputs={self.path('o')}",
                    says="none of the graph")

    def test_outputs(self):
        self.run_tool("fusion-run", *named(LLAMA, device="cpu", outputs="o.safetensors"))
        self.assertEqual(os.listdir(self.folder), ["o.safetensors"])
        self.run_tool("fusion-run", *named(LLAMA, device="cpu", expect="o.safetensors", rtol="0"))
        self.assertEqual(read_safetensors(self.path("o.safetensors"))["logits"][:2], ("F32", [2, 16, 256]))
        self.refuse("fusion-run", *named(LLAMA, outputs="no/o.safetensors"), "--quiet",
                    says="no/o.safetensors")
        self.refuse("fusion-run", *named(LLAMA, outputs=self.folder), "--quiet", says=self.folder)
        # A failed run leaves what was there.
        before = read_safetensors(self.path("o.safetensors"))
        self.refuse("fusion-run", graph(LLAMA), f"--inputs={OUTPUTS}", "--outputs=o.safetensors",
                    says="unknown input")
        self.assertEqual(read_safetensors(self.path("o.safetensors")), before)

    def test_report(self):
        self.run_tool("fusion-run", *named(LLAMA, device="cpu", report="r.json"))
        self.run_tool("fusion-opt", graph(LLAMA), "--fuse", "--report=o.json", "-o", "f.mlir")
        planned = json.loads(self.read("o.json"))
        for kernels in ("launches", "kernel_sources"):
            self.assertTrue(planned.pop(kernels))  # the reference runs ops, not kernels
        self.assertEqual(json.loads(self.read("r.json")), planned)
        self.refuse("fusion-run", *named(LLAMA, report="r.txt"), says="r.txt")


class Timing(ToolTest):
    def test_bench(self):
        for device, runs in (("cpu", 3), ("emulate", 2)):
            out, _ = self.run_tool("fusion-run", *named(LLAMA, device=device, bench=runs))
            self.assertRegex(out, rf"bench: {runs} runs on .*, median \S+ us, fastest \S+ us\n$")
            out, _ = self.run_tool("fusion-run", *named(LLAMA, device=device, bench=runs), "--cold")
            self.assertRegex(out, rf"bench: {runs} runs .*\nbench, cold: {runs} runs on .*, median \S+ us, .*\n$")
        for bad in ("0", "-3"):
            self.refuse("fusion-run", *named(LLAMA, bench=bad), says="--bench")

    def test_profile(self):
        out, _ = self.run_tool("fusion-run", *named(LLAMA, device="emulate", profile="p.json"))
        self.assertRegex(out, r"times of the host.*\nkernel .*of limit\n")
        self.assertRegex(out, r"\ntotal +\d+ ")
        spans = [event for event in json.loads(self.read("p.json"))["traceEvents"] if event["ph"] == "X"]
        kernels = [span for span in spans if span["tid"] == 2]
        self.assertGreater(len(kernels), 10)
        self.assertTrue(all(span["ts"] >= 0 and span["dur"] >= 0 for span in spans))
        # The exporter's layer names lie around the kernels.
        layer = next(span for span in spans if span["tid"] == 1 and span["name"].startswith("layers.1"))
        inside = [k for k in kernels if layer["ts"] <= k["ts"] <= layer["ts"] + layer["dur"]]
        self.assertGreater(len(inside), 3)
        _, err = self.run_tool("fusion-run", *named(LLAMA, device="cpu", profile="q.json"), "--quiet", exit=2)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertFalse(os.path.exists(self.path("q.json")))


class Environment(ToolTest):
    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a GPU")
    def test_no_gpu(self):
        self.refuse("fusion-run", *named(LLAMA, device="cuda"), exit=3, says=["libcuda.so.1", "install"])

    def test_tensor_parallel(self):
        for device in ("cpu", "emulate"):
            out, _ = self.run_tool("fusion-run", *named(LLAMA, tp=2, device=device, expect=OUTPUTS))
            self.assertIn("PASS", out)
        out, err = self.run_tool("fusion-run", *named(LLAMA, tp=2, device="emulate"), "--bench=2",
                                 "--profile=p.json")
        self.assertIn("2 × emulation on the host, shared memory", err)
        self.assertIn("bench: 2 runs on 2 × emulation", out)
        self.assertIn("all_reduce_add_norm", out)
        forced = {"FUSION_COLLECTIVE": "three-shot"}
        self.refuse("fusion-run", *named(LLAMA, tp=2, device="emulate"), env=forced,
                    says="FUSION_COLLECTIVE is one-shot")
        self.refuse("fusion-run", *named(LLAMA, tp=0), says="--tp")

    def test_no_nvrtc(self):
        nowhere = {"FUSION_NVRTC": "/nonexistent/libnvrtc.so", "FUSION_CACHE_DIR": self.path("cache")}
        self.refuse("fusion-compile", graph(LLAMA), "-o", "bundle", exit=3, env=nowhere,
                    says=["NVRTC", "FUSION_NVRTC"])

    def test_no_host_compiler(self):
        self.refuse(
            "fusion-run",
            *named(LLAMA, device="emulate"),
            exit=3,
            env={"FUSION_HOST_CXX": "/nonexistent/c++", "FUSION_CACHE_DIR": ""},
            says="FUSION_HOST_CXX",
        )

    def test_cache_that_cannot_be_written(self):
        blocked = os.path.join(self.write("file", ""), "cache")
        for folder in (blocked, "/proc/nonexistent"):
            out, err = self.run_tool(
                "fusion-run", *named(LLAMA, expect=OUTPUTS, device="emulate"),
                env={"FUSION_CACHE_DIR": folder}
            )
            self.assertIn("PASS", out)
            warnings = [line for line in err.splitlines() if "cannot be written to" in line]
            self.assertEqual(len(warnings), 1, err)
            self.assertIn(folder, warnings[0])

    def test_damaged_cache(self):
        cache = {"FUSION_CACHE_DIR": self.path("cache")}
        self.run_tool("fusion-run", *named(LLAMA, expect=OUTPUTS, device="emulate"), env=cache)
        entries = [os.path.join(at, file) for at, _, files in os.walk(self.path("cache")) for file in files]
        self.assertTrue(entries)
        for size in (20000, 0):
            for entry in entries:
                os.truncate(entry, size)
            out, _ = self.run_tool("fusion-run", *named(LLAMA, expect=OUTPUTS, device="emulate"), env=cache)
            self.assertIn("PASS", out)

    def test_one_rank_sums_nothing(self):
        """The reference of a graph with a collective is a rank of its own."""
        alone = """
            func.func @main(%x: tensor<4x64xf32>, %w: tensor<64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {
              %0 = nn.all_reduce %x {group = "tp"} : (tensor<4x64xf32>) -> tensor<4x64xf32>
              %1 = nn.add %0, %x : (tensor<4x64xf32>, tensor<4x64xf32>) -> tensor<4x64xf32>
              %2 = nn.rms_norm %1, %w {eps = 1.0e-6 : f32} : (tensor<4x64xf32>, tensor<64xf32>) -> tensor<4x64xf32>
              return %1, %2 : tensor<4x64xf32>, tensor<4x64xf32>
            }"""
        without = "\n".join(line for line in alone.splitlines()
                            if "all_reduce" not in line).replace("%0", "%x")
        values = struct.pack("<320f", *(0.1 * ((7 * i) % 31 - 15) for i in range(320)))
        inputs = {"arg0": ("F32", [4, 64], values[:1024]), "arg1": ("F32", [64], values[1024:])}
        write_safetensors(self.path("in.safetensors"), inputs)
        self.write("alone.mlir", alone)
        self.write("without.mlir", without)
        common = ("--inputs=in.safetensors", "--device=cpu")
        self.run_tool("fusion-run", "without.mlir", *common, "--outputs=out.safetensors")
        out, _ = self.run_tool(
            *("fusion-run", "alone.mlir", *common, "--expect=out.safetensors", "--rtol=0", "--report=r.json")
        )
        self.assertEqual(out.count("PASS"), 2)
        self.assertEqual(json.loads(self.read("r.json"))["patterns"]["all_reduce_add_norm"]["fired"], 1)

    def test_warm_start_prints_the_same_report(self):
        cache = {"FUSION_CACHE_DIR": self.path("cache")}
        for kind in ("json", "md", "html"):
            for start in ("cold", "warm"):
                options = named(LLAMA, expect=OUTPUTS, device="emulate", report=f"{start}.{kind}")
                self.run_tool("fusion-run", *options, env=cache)
            self.assertIn("add_norm", self.read(f"cold.{kind}"))
            self.assertEqual(self.read(f"warm.{kind}"), self.read(f"cold.{kind}"))

    def test_two_processes_share_a_cache(self):
        cache = {"FUSION_CACHE_DIR": self.path("cache")}
        both = [self.start("fusion-run", *named(LLAMA, expect=OUTPUTS, device="emulate"), env=cache)
                for _ in range(2)]
        for process in both:
            out, err = process.communicate(timeout=240)
            self.assertEqual(process.returncode, 0, err)
            self.assertIn("PASS", out)
            self.assertNotIn("warning", err)


class Ports(ToolTest):
    def test_what_a_graph_takes(self):
        out, _ = self.run_tool("fusion-run", graph(DECODE), "--describe")
        self.assertRegex(out, r"^inputs\n")
        self.assertRegex(out, r"\n  input_ids +i64 +\[batch")
        self.assertRegex(out, r"\noutputs\n  logits +f16 ")
        self.assertRegex(out, r"\nany size: batch, ")
        self.refuse("fusion-run", "absent.onnx", "--describe", says="no such file")

    def test_random_inputs(self):
        out, _ = self.run_tool("fusion-run", graph(LLAMA), "--random-inputs=batch:3", "--device=cpu",
                               "--quiet")
        self.assertRegex(out, r"^logits 3x16x256 f32\n")
        again, _ = self.run_tool("fusion-run", graph(LLAMA), "--random-inputs", "--device=cpu", "--quiet",
                                 "--outputs=" + self.path("a.safetensors"))
        self.assertRegex(again, r"^logits 1x16x256 f32\n")
        out, _ = self.run_tool("fusion-run", graph(LLAMA), "--random-inputs=batch:1", "--device=cpu",
                               "--quiet",
                               "--expect=" + self.path("a.safetensors"), "--rtol=0")
        self.assertIn("PASS", out)
        out, _ = self.run_tool("fusion-run", graph(DECODE), "--random-inputs", "--device=cpu", "--quiet")
        self.assertRegex(out, r"^logits 1x\d+x\d+ f16\n")

    def test_random_inputs_that_make_no_sense(self):
        for option, says in (("=bacth:3", "no input has a dim 'bacth'; did you mean 'batch'?"),
                             ("=batch", "takes dim:size,..., not 'batch'"),
                             ("=batch:-1", "takes dim:size,..., not 'batch:-1'"),
                             ("=batch:x", "takes dim:size,..., not 'batch:x'")):
            self.refuse("fusion-run", graph(LLAMA), "--random-inputs" + option, says=says)
        self.refuse("fusion-run", graph(LLAMA), "--random-inputs", f"--inputs={INPUTS}",
                    says="give one of them")
        self.refuse("fusion-run", graph(LLAMA), says="--random-inputs")


if __name__ == "__main__":
    unittest.main()
