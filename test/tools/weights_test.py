"""Graphs apart from their weights: text with references to files, and bundles of fusion-compile."""
import json
import os
import shutil
import unittest

from harness import ToolTest, graph, write_safetensors

LLAMA = "llama-fp32-op18"
OUTPUTS = graph(LLAMA, "outputs.safetensors")
INPUTS = graph(LLAMA, "inputs.safetensors")


class Text(ToolTest):
    def test_beside_the_weights(self):
        shutil.copy(graph(LLAMA), self.path("model.onnx"))
        self.run_tool("fusion-opt", "model.onnx", "-o", "graph.mlir")
        os.mkdir(self.path("elsewhere"))
        for device in ("cpu", "emulate"):
            options = [f"--inputs={INPUTS}", f"--expect={OUTPUTS}", f"--device={device}"]
            self.assertIn("PASS", self.run_tool("fusion-run", "graph.mlir", *options)[0])
            full = self.path("graph.mlir")
            self.assertIn("PASS", self.run_tool("fusion-run", full, *options, cwd=self.path("elsewhere"))[0])

    def test_away_from_the_weights(self):
        self.run_tool("fusion-opt", graph(LLAMA), "-o", "graph.mlir")
        self.run_tool("fusion-opt", graph(LLAMA), "--fuse", "-o", "fused.mlir")
        for name in ("graph.mlir", "fused.mlir"):
            options = [name, f"--inputs={INPUTS}", f"--expect={OUTPUTS}", "--device=cpu"]
            self.refuse("fusion-run", *options, says="--trust-paths")
            self.assertIn("PASS", self.run_tool("fusion-run", *options, "--trust-paths")[0])
        self.run_tool("fusion-compile", "graph.mlir", "-o", "bundle", "--quiet", "--trust-paths")

    def test_weights_stay_in_the_folder_of_the_graph(self):
        os.mkdir(self.path("graphs"))
        self.write("secret", bytes(64))
        text = """func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %w = nn.weight {name = "w", path = "PATH", offset = 0 : i64, length = 64 : i64} : () -> tensor<16xf32>
  %y = nn.add %x, %w : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %y : tensor<16xf32>
}
"""
        os.symlink("../secret", self.path("graphs/link"))
        os.link(self.path("secret"), self.path("graphs/hard"))
        write_safetensors(self.path("in.safetensors"), {"arg0": ("F32", [16], bytes(64))})
        for path in (self.path("secret"), "../secret", "link", "hard", "secret"):
            self.write("graphs/g.mlir", text.replace("PATH", path))
            options = ["graphs/g.mlir", "--inputs=in.safetensors", "--device=cpu"]
            self.refuse("fusion-run", *options, says="--trust-paths")
            self.run_tool("fusion-run", *options, "--trust-paths")

    def test_weights_are_gone(self):
        shutil.copy(graph(LLAMA), self.path("model.onnx"))
        self.run_tool("fusion-opt", "model.onnx", "-o", "graph.mlir")
        os.remove(self.path("model.onnx"))
        self.refuse("fusion-run", "graph.mlir", f"--inputs={INPUTS}", says=["model.onnx", "weight"])
        self.refuse("fusion-run", "graph.mlir", f"--inputs={INPUTS}", "--device=emulate", "--quiet",
                    says="model.onnx")
        self.refuse("fusion-compile", "graph.mlir", "-o", "bundle", "--quiet", says="model.onnx")
        self.write("model.onnx", "short")
        self.refuse("fusion-run", "graph.mlir", f"--inputs={INPUTS}", says="model.onnx")
        self.refuse("fusion-run", "graph.mlir", f"--inputs={INPUTS}", "--device=emulate", "--quiet",
                    says="model.onnx")
        self.refuse("fusion-compile", "graph.mlir", "-o", "bundle", "--quiet", says="model.onnx")


class Bundle(ToolTest):
    def bundle(self):
        self.run_tool("fusion-compile", graph(LLAMA), "-o", "bundle")
        return "bundle"

    def options(self, **extra):
        return [f"--inputs={INPUTS}", f"--expect={OUTPUTS}",
                *(f"--{key}={value}" for key, value in extra.items())]

    def test_runs(self):
        self.bundle()
        self.assertEqual(os.listdir(self.folder), ["bundle"])
        os.rename(self.path("bundle"), self.path("moved"))
        out, _ = self.run_tool("fusion-run", "moved", *self.options(device="emulate"))
        self.assertIn("PASS", out)
        self.run_tool("fusion-run", "moved", *self.options(device="emulate", report="r.json"))
        self.assertEqual(json.loads(self.read("r.json"))["patterns"]["matmul_epilogue"]["fired"], 3)
        self.refuse("fusion-run", "moved", *self.options(device="cpu"), exit=3, says="bundle")

    def test_overwrites_only_bundles(self):
        self.bundle()
        self.bundle()
        self.assertEqual(os.listdir(self.folder), ["bundle"])
        os.mkdir(self.path("precious"))
        self.write("precious/file", "data")
        self.refuse("fusion-compile", graph(LLAMA), "-o", "precious", "--quiet",
                    says=["precious", "not a bundle"])
        self.assertEqual(self.read("precious/file"), "data")
        self.write("file", "data")
        self.refuse("fusion-compile", graph(LLAMA), "-o", "file", "--quiet", says=["file", "not a bundle"])
        self.refuse("fusion-compile", graph(LLAMA), says="-o")
        self.refuse("fusion-compile", "-o", "b", says="INPUT")
        self.refuse("fusion-compile", graph(LLAMA), "-o", "b", "--target=sm_70", says="sm_70")

    def test_damaged(self):
        self.bundle()
        for file in ("bundle.json", "plan.json", "kernels/0.cubin", "weights.bin"):
            for damage in ("gone", "short"):
                with self.subTest(file=file, damage=damage):
                    shutil.rmtree(self.path("damaged"), ignore_errors=True)
                    shutil.copytree(self.path("bundle"), self.path("damaged"))
                    at = self.path(f"damaged/{file}")
                    if damage == "gone":
                        os.remove(at)
                    else:
                        os.truncate(at, os.path.getsize(at) // 2)
                    options = self.options(device="emulate")
                    self.refuse("fusion-run", "damaged", *options, "--quiet", says=file)
        self.refuse("fusion-run", self.folder, *self.options(), says="not a bundle")


if __name__ == "__main__":
    unittest.main()
