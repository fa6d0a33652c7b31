"""Graphs that were cut into one file for each rank before they came here."""
import os
import struct
import sys
import unittest

from harness import ToolTest, graph, read_safetensors, write_safetensors

try:
    import onnx
    from onnx import TensorProto, helper

    from cut_graph import cut_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

RANKS = 2


class RankFiles(ToolTest):
    def cut(self, name):
        folder = self.path("cut")
        os.makedirs(folder, exist_ok=True)
        cut_file(graph(name), folder, RANKS)
        return os.path.join(folder, "rank_{rank}.onnx")

    def arguments(self, name):
        return [f"--inputs={graph(name, 'inputs.safetensors')}",
                f"--expect={graph(name, 'outputs.safetensors')}", "--quiet"]

    def test_same_numbers(self):
        for name in ("llama-fp32-op18", "llama-fp16-decode"):  # the second one's caches are divided, and joined again
            path = self.cut(name)
            for fuse in ([], ["--no-fuse"]):
                out, _ = self.run_tool("fusion-run", path, f"--tp={RANKS}", "--device=cpu",
                                       *self.arguments(name), *fuse)
                self.assertNotIn("FAIL", out)
                self.assertIn("logits", out)

    def test_gathered(self):
        """Each rank scales the same input by numbers of its own; what comes together is theirs side by side,
        to the last bit, negative zeros too."""
        for axis, dims in ((0, [4, 3]), (-1, [2, 6]), (1, [2, 6])):
            for rank in range(RANKS):
                scale = helper.make_tensor("scale", TensorProto.FLOAT, [3],
                                           [-0.1, 3.0 + rank, 0.7 * (rank + 1)])
                attributes = {"axis": axis, "group_size": RANKS}
                nodes = [helper.make_node("Mul", ["x", "scale"], ["own"]),
                         helper.make_node("AllGather", ["own"], ["y"], domain="com.microsoft", **attributes)]
                ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in
                         (("x", ["n", 3]), ("y", None))]
                model = helper.make_model(helper.make_graph(nodes, "gather", *ports, [scale]), opset_imports=[
                    helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
                onnx.save(model, self.path(f"gather_{rank}.onnx"))
            x = [0.0, 1.5, -2.0, 1e-3, -0.0, 7.0]
            own = [[struct.unpack("f", struct.pack("f", a * b))[0] for a, b in zip(x, 2 * factors)]
                   for factors in
                   ([struct.unpack("f", struct.pack("f", s))[0] for s in (-0.1, 3.0 + rank, 0.7 * (rank + 1))]
                    for rank in range(RANKS))]
            rows = [part[3 * i:3 * i + 3] for part in own for i in range(2)] if axis == 0 else \
                   [own[0][3 * i:3 * i + 3] + own[1][3 * i:3 * i + 3] for i in range(2)]
            expected = struct.pack("12f", *(value for row in rows for value in row))
            write_safetensors(self.path("x.safetensors"), {"x": ("F32", [2, 3], struct.pack("6f", *x))})
            for device in ("cpu", "emulate"):
                self.run_tool("fusion-run", self.path("gather_{rank}.onnx"), f"--tp={RANKS}",
                              f"--device={device}", "--quiet",
                              f"--inputs={self.path('x.safetensors')}",
                              f"--outputs={self.path('y.safetensors')}")
                kind, shape, data = read_safetensors(self.path("y.safetensors"))["y"]
                self.assertEqual((kind, shape, data), ("F32", dims, expected), f"axis {axis} on {device}")
        self.refuse("fusion-run", self.path("gather_0.onnx"), "--device=cpu",
                    f"--inputs={self.path('x.safetensors')}",
                    says=["is cut for 2 ranks, not 1"])

    def test_refusals(self):
        name = "llama-fp32-op18"
        path = self.cut(name)
        run = ["fusion-run", path, "--device=cpu", *self.arguments(name)]
        self.refuse(*run, says=["stands for the files of several ranks; say how many"])
        self.refuse(*run, "--tp=3", says=["rank_2.onnx: no such file"])
        whole = os.path.join(self.folder, "whole_{rank}.onnx")
        for rank in range(RANKS):
            os.symlink(graph(name), whole.replace("{rank}", str(rank)))
        self.refuse("fusion-run", whole, "--tp=2", "--device=cpu", *self.arguments(name),
                    says=["holds no AllReduce"])
        other = path.replace("{rank}", "1")
        os.remove(other)
        os.symlink(graph("llama-fp16-op20-eager"), other)
        self.refuse(*run, "--tp=2", says=["rank_1.onnx: "])


if __name__ == "__main__":
    unittest.main()
