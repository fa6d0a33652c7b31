"""Quantised graphs, made from the exported ones: every device computes what the unfused reference does, and
the families that must fire do."""
import os
import sys
import unittest

from harness import ToolTest, graph

try:
    from quantize_graph import quantize
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

WEIGHT_ONLY = {"qkv_matmul": 2, "gated_matmul": 2, "matmul_epilogue": 4, "scaled_matmul": 1}
QDQ = {**WEIGHT_ONLY, "norm_quant": 5}

# Where activations are f8, a rounding of attention's weights to f16 (tensor cores) moves codes, each by a
# sixteenth to an eighth, and those move more in the layers after it: the tolerance of values that were e4m3.
RTOL = {"fp8": "5e-2"}

# kind, graph, products, what fires; f32 results differ by how sums are ordered, and by single codes that this
# moves.
CASES = [
    ("int8", "llama-fp32-op18", 15, QDQ),
    ("uint8", "bert-fp32-op18", 12, {"qkv_matmul": 2, "matmul_epilogue": 6}),
    ("fp8", "llama-fp16-op20-eager", 15, QDQ),
    ("dynamic", "llama-fp32-op18", 15, {"qkv_matmul": 2, "gated_matmul": 2, "matmul_epilogue": 5}),
    ("int4", "llama-fp16-op20-eager", 15, WEIGHT_ONLY),
    ("int8-blocks", "bert-fp32-op18", 12, {"qkv_matmul": 2, "matmul_epilogue": 6}),
    ("nbits", "qwen3-bf16-op23", 15, WEIGHT_ONLY),
]

class Quantised(ToolTest):
    def check(self, kind, name, products, families):
        path = self.path(f"{kind}.onnx")
        self.assertEqual(quantize(kind, graph(name), path), products)
        required = [f"--require={family}={count}" for family, count in families.items()]
        self.run_tool("fusion-opt", path, "--fuse", "--quiet", "-o", self.path("fused.mlir"), *required)
        expected, inputs = self.path("expected.safetensors"), graph(name, "inputs.safetensors")
        run = ["fusion-run", path, "--quiet", f"--inputs={inputs}"]
        tolerance = [f"--rtol={RTOL[kind]}"] if kind in RTOL else []
        self.run_tool(*run, "--device=cpu", "--no-fuse", f"--outputs={expected}")
        for way in (["--device=cpu"], ["--device=emulate"], ["--device=emulate", "--no-fuse"]):
            out, _ = self.run_tool(*run, f"--expect={expected}", *way, *tolerance)
            self.assertIn("PASS", out)

for kind, *rest in CASES:
    setattr(Quantised, f"test_{kind.replace('-', '_')}",
            lambda self, kind=kind, rest=rest: self.check(kind, *rest))

if __name__ == "__main__":
    unittest.main()
