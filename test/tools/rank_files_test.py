"""Graphs that were cut into one file for each rank before they came here."""
import os
import sys
import unittest

from harness import ToolTest, graph, named

try:
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
        return [f"--inputs={graph(name, 'inputs.safetensors')}", f"--expect={graph(name, 'outputs.safetensors')}", "--quiet"]

    def test_same_numbers(self):
        for name in ("llama-fp32-op18", "llama-fp16-decode"):  # the second one's caches are divided, and joined again
            path = self.cut(name)
            for fuse in ([], ["--no-fuse"]):
                out, _ = self.run_tool("fusion-run", path, f"--tp={RANKS}", "--device=cpu", *self.arguments(name), *fuse)
                self.assertNotIn("FAIL", out)
                self.assertIn("logits", out)

    def test_refusals(self):
        name = "llama-fp32-op18"
        path = self.cut(name)
        run = ["fusion-run", path, "--device=cpu", *self.arguments(name)]
        self.refuse(*run, says=["stands for the files of several ranks; say how many"])
        self.refuse(*run, "--tp=3", says=["rank_2.onnx: no such file"])
        whole = os.path.join(self.folder, "whole_{rank}.onnx")
        for rank in range(RANKS):
            os.symlink(graph(name), whole.replace("{rank}", str(rank)))
        self.refuse("fusion-run", whole, "--tp=2", "--device=cpu", *self.arguments(name), says=["holds no AllReduce"])
        other = path.replace("{rank}", "1")
        os.remove(other)
        os.symlink(graph("llama-fp16-op20-eager"), other)
        self.refuse(*run, "--tp=2", says=["rank_1.onnx: "])


if __name__ == "__main__":
    unittest.main()
