"""The kernel engineer's loop through the tools, and the commands of docs/kernels.md."""
import glob
import json
import os
import re
import shutil
import subprocess
import unittest
from unittest import mock

from harness import BINARIES, ToolTest

SOURCE = os.environ["FUSION_SOURCE"]
LLAMA = os.path.join(SOURCE, "examples", "llama", "model.onnx")
INPUTS = "--inputs=" + os.path.join(SOURCE, "examples", "llama", "inputs.safetensors")

NORM_AND_MATMUL = """
func.func @main(%x: tensor<?x128xf16> {nn.name = "x", nn.dims = ["tokens", 128]},
                %g: tensor<128xf16> {nn.name = "g"}, %w: tensor<128x64xf16> {nn.name = "w"})
    -> (tensor<?x64xf16> {nn.name = "y"}) {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %0 = nn.matmul %n, %w : (tensor<?x128xf16>, tensor<128x64xf16>) -> tensor<?x64xf16>
  return %0 : tensor<?x64xf16>
}
"""

STEPS = """
func.func @main(%q: tensor<1x4x?x32xf16> {nn.name = "q", nn.dims = [1, 4, "new", 32]},
    %k: tensor<1x2x?x32xf16> {nn.name = "k", nn.dims = [1, 2, "new", 32]},
    %v: tensor<1x2x?x32xf16> {nn.name = "v", nn.dims = [1, 2, "new", 32]},
    %pk: tensor<1x2x?x32xf16> {nn.name = "pk", nn.dims = [1, 2, "past", 32], nn.storage = [1, 2, 64, 32]},
    %pv: tensor<1x2x?x32xf16> {nn.name = "pv", nn.dims = [1, 2, "past", 32], nn.storage = [1, 2, 64, 32]},
    %c: tensor<1x1x?x32xf16> {nn.name = "c", nn.dims = [1, 1, "new", 32]},
    %s: tensor<1x1x?x32xf16> {nn.name = "s", nn.dims = [1, 1, "new", 32]})
    -> (tensor<1x4x?x32xf16> {nn.name = "y"}, tensor<1x2x?x32xf16> {nn.name = "keys", nn.alias = 3 : i64},
        tensor<1x2x?x32xf16> {nn.name = "values", nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %c, %s {interleaved = false, rotary_dim = 32 : i64}
      : (tensor<1x4x?x32xf16>, tensor<1x1x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<1x4x?x32xf16>
  %1 = nn.rope %k, %c, %s {interleaved = false, rotary_dim = 32 : i64}
      : (tensor<1x2x?x32xf16>, tensor<1x1x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<1x2x?x32xf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64}
      : (tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>) -> tensor<1x2x?x32xf16>
  %3 = nn.concat %pv, %v {axis = 2 : i64}
      : (tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>) -> tensor<1x2x?x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32, causal = true}
      : (tensor<1x4x?x32xf16>, tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>) -> tensor<1x4x?x32xf16>
  return %4, %2, %3 : tensor<1x4x?x32xf16>, tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>
}
"""


class Kernels(ToolTest):
    def kernel(self, op):
        """The name and the file of one kernel that computes the op."""
        folder = self.path("kernels/")
        out, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--profit=model", "--emit=cuda", "-o", folder,
                               f"--report={self.path('report.json')}")
        self.assertEqual(out, "")
        for file in sorted(glob.glob(folder + "*.cu")):
            with open(file) as text:
                if op in text.read():
                    return os.path.basename(file)[: -len(".cu")], file
        self.fail(f"no kernel computes {op}")

    def edit(self, file, pattern, replacement):
        with open(file) as text:
            before = text.read()
        after = re.sub(pattern, replacement, before)
        self.assertNotEqual(before, after)
        with open(file, "w") as text:
            text.write(after)

    def test_edited_kernels(self):
        name, file = self.kernel("nn.rms_norm")
        plan, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--profit=model", "--emit=plan")
        self.assertIn(f" {name} <<<", plan)
        report = json.loads(self.read("report.json"))
        self.assertIn(name, [launch["kernel"] for launch in report["launches"]])
        taken = f"--kernel={name}={file}"
        # As it is, it agrees.
        _, err = self.run_tool("fusion-opt", LLAMA, "--fuse", "--profit=model", taken)
        self.assertIn(f"kernel {name} from {file} agrees with its body", err)
        out, _ = self.run_tool("fusion-run", LLAMA, INPUTS, "--device=emulate", "--profit=model", taken)
        self.assertIn(f"kernel {name} from {file} agrees with its body", out)
        # Wrong numbers.
        self.edit(file, r"\b[\d.]+e-0\d+f", "0.5f")  # the eps
        for tool, options in (("fusion-opt", ["--fuse"]), ("fusion-run", [INPUTS, "--device=emulate"])):
            line = self.refuse(tool, LLAMA, *options, "--profit=model", "--quiet", taken, exit=1,
                               says=[name, file, "differs from its body", "at element", "relative L2"])
            self.assertNotIn("NaN", line)
        # A name that is nearly one.
        for tool, options in (("fusion-opt", ["--fuse"]), ("fusion-run", [INPUTS, "--device=emulate"])):
            self.refuse(tool, LLAMA, *options, "--profit=model", "--quiet", f"--kernel={name}x={file}",
                        says=[f"no kernel '{name}x'", name])
        # What does not compile.
        self.write("broken.cu", "KERNEL(32) nothing() {\n")
        self.refuse("fusion-opt", LLAMA, "--fuse", "--profit=model", "--quiet",
                    f"--kernel={name}={self.path('broken.cu')}",
                    says="broken.cu")

    def test_a_kernel_of_several_numbers_of_rows(self):
        """One kernel is in the alternatives of a step for several numbers of rows: that of the inputs is tried."""
        self.write("norm.mlir", NORM_AND_MATMUL)
        graph, folder = self.path("fused.mlir"), self.path("kernels/")
        self.run_tool("fusion-opt", self.path("norm.mlir"), "--fuse-norm-matmul", "-o", graph)
        self.run_tool("fusion-opt", graph, "--emit=cuda", "-o", folder)
        plan, _ = self.run_tool("fusion-opt", graph, "--emit=plan")
        self.assertGreater(len(re.findall(r"^ *rms_norm_f16_128 <<<", plan, re.MULTILINE)), 1, plan)
        taken = f"--kernel=rms_norm_f16_128={folder}rms_norm_f16_128.cu"
        for tokens in (12, 40):
            out, _ = self.run_tool("fusion-run", graph, f"--random-inputs=tokens:{tokens}", "--device=emulate",
                                   "--profit=model", taken)
            self.assertIn("agrees with its body", out)

    def test_one_kernel_up_to_the_attention(self):
        graph, outputs = self.path("fused.mlir"), self.path("out.safetensors")
        self.run_tool("fusion-opt", os.path.join(SOURCE, "docs", "fusions", "qkv_rope.mlir"), "--fuse-qkv-rope",
                      "-o", graph)
        for past in (0, 7):
            sizes = f"--random-inputs=past:{past}"
            self.run_tool("fusion-run", graph, sizes, "--device=cpu", f"--outputs={outputs}")
            for forced, is_one in (("other", True), ("kernel", False)):
                with mock.patch.dict(os.environ, FUSION_MATMUL=forced):
                    self.run_tool("fusion-run", graph, sizes, "--device=emulate", "--profit=model",
                                  f"--expect={outputs}", f"--profile={self.path('trace.json')}")
                self.assertEqual("qkv_rope_bf16_64x2048" in self.read("trace.json"), is_one)

    def test_attention_that_rotates(self):
        graph = os.path.join(SOURCE, "docs", "fusions", "rope_attention.mlir")
        outputs = self.path("out.safetensors")
        for past in (0, 7, 130):
            sizes = f"--random-inputs=past:{past}"
            self.run_tool("fusion-run", graph, sizes, "--device=cpu", f"--outputs={outputs}")
            for left_out, kernel in (([], "rope_attention_decode_mma_bf16_d64"),
                                     (["--fuse-disable=rope_attention"], "rope_concat_bf16_64")):
                self.run_tool("fusion-run", graph, sizes, "--device=emulate", "--profit=model", *left_out,
                              f"--expect={outputs}", f"--profile={self.path('trace.json')}")
                self.assertIn(kernel, self.read("trace.json"))

    def test_attention_that_may_rotate(self):
        self.write("steps.mlir", STEPS)
        graph, outputs = self.path("fused.mlir"), self.path("out.safetensors")
        self.run_tool("fusion-opt", self.path("steps.mlir"), "--fuse-rope-attention", "-o", graph)
        for new, past in ((1, 0), (1, 40), (3, 7), (9, 20)):
            sizes = f"--random-inputs=new:{new},past:{past}"
            self.run_tool("fusion-run", graph, sizes, "--device=cpu", f"--outputs={outputs}")
            for forced, few in (("other", new < 9), ("kernel", False)):
                with mock.patch.dict(os.environ, FUSION_MATMUL=forced):
                    self.run_tool("fusion-run", graph, sizes, "--device=emulate", "--profit=model",
                                  f"--expect={outputs}", f"--profile={self.path('trace.json')}")
                self.assertEqual("rope_attention_decode_mma_f16_d32" in self.read("trace.json"), few)

    def test_options(self):
        self.refuse("fusion-opt", LLAMA, "--fuse", "--kernel=nothing", says="--kernel takes NAME=FILE.cu")
        self.refuse("fusion-run", LLAMA, INPUTS, "--kernel=a=", says="--kernel takes NAME=FILE.cu")

    def test_nvcc_takes_the_files(self):
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not os.path.exists(nvcc):
            self.skipTest("no nvcc here")
        _, file = self.kernel("nn.rms_norm")
        for source in (file,):
            command = [nvcc, "-std=c++17", "-arch=sm_90a", "-cubin", source, "-o", self.path("out.cubin")]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Text(ToolTest):
    def test_kernels_are_meant_to_be_read(self):
        out, _ = self.run_tool("fusion-opt", LLAMA, "--fuse", "--emit=cuda")
        kernels = out[re.search(r"^// \w+: schedule ", out, re.MULTILINE).start():].splitlines()
        count = sum(": schedule " in line for line in kernels)
        self.assertGreater(count, 30)
        self.assertLessEqual(len(kernels), 38 * count)
        code = [line for line in kernels if not line.startswith("//")]
        self.assertEqual([line for line in code if len(line) > 110], [])
        names = re.findall(r"^// (\w+): schedule row", "\n".join(kernels), re.MULTILINE)
        self.assertIn("add_rms_norm_f16_128", names)
        self.assertIn("rms_norm_f16_128", names)


class Documentation(ToolTest):
    def test_the_commands_do_what_they_say(self):
        with open(os.path.join(SOURCE, "docs", "kernels.md")) as page:
            commands = re.findall(r"^```sh\n(.*?)^```", page.read(), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(commands), 2)
        script = "".join(commands).replace("build/bin", BINARIES).replace("kernels/",
                                                                          self.path("kernels") + "/")
        environment = dict(os.environ, FUSION_CACHE_DIR=self.cache)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=SOURCE, env=environment,
                              capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((done.stdout + done.stderr).count("agrees with its body"), 2)
        self.assertIn("PASS", done.stdout)


if __name__ == "__main__":
    unittest.main()
