"""Graphs of which an input decides which branch runs: who runs them chooses then, others ask beforehand."""
import sys
import unittest

from harness import ToolTest, write_safetensors
from ranges_test import floats

try:
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def decoder(name, has_past):
    """Attention over `k`, behind `past` if there is one."""
    join = helper.make_node("Concat", ["past", "k"], [f"{name}_keys"], axis=1)
    nodes = [
        join if has_past else helper.make_node("Identity", ["k"], [f"{name}_keys"]),
        helper.make_node("Transpose", [f"{name}_keys"], [f"{name}_turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", f"{name}_turned"], [f"{name}_scores"]),
        helper.make_node("Softmax", [f"{name}_scores"], [f"{name}_p"], axis=-1),
        helper.make_node("MatMul", [f"{name}_p", f"{name}_keys"], [f"{name}_y"]),
    ]
    outputs = [helper.make_tensor_value_info(f"{name}_{output}", TensorProto.FLOAT, None)
               for output in ("y", "keys")]
    return helper.make_graph(nodes, name, [], outputs)


class Variants(ToolTest):
    says = ("input 'use_cache_branch' alone decides it: say its value before compiling: "
            "--constant=use_cache_branch=1")

    def setUp(self):
        super().setUp()
        inputs = [(name, TensorProto.FLOAT, ["batch", dim, 8])
                  for name, dim in (("q", "seq"), ("k", "seq"), ("past", "past"))]
        inputs.insert(1, ("use_cache_branch", TensorProto.BOOL, [1]))
        graph = helper.make_graph(
            [helper.make_node("If", ["use_cache_branch"], ["y", "present"], then_branch=decoder("a", True),
                              else_branch=decoder("b", False))],
            "merged",
            [helper.make_tensor_value_info(*each) for each in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "present")],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
                  self.path("model.onnx"))

    def test_a_run_chooses(self):
        for uses_cache, past, present in ((0, 1, 3), (1, 4, 7)):
            tensors = {"q": floats(2, 3, 8), "k": floats(2, 3, 8), "past": floats(2, past, 8),
                       "use_cache_branch": ("BOOL", [1], bytes([uses_cache]))}
            write_safetensors(self.path("i.safetensors"), tensors)
            args = ["fusion-run", "model.onnx", "--inputs=i.safetensors"]
            out, err = self.run_tool(*args, "--device=cpu", "--outputs=o.safetensors")
            self.assertIn(f"variant: use_cache_branch is {uses_cache}: compiled for such runs", err)
            self.assertEqual(err.count("variant:"), 1, err)
            self.assertIn("1 caches", out)
            self.run_tool(*args, "--device=emulate", "--expect=o.safetensors")
        out, _ = self.run_tool("fusion-run", "model.onnx", "--describe")
        for line in ("use_cache_branch", "present_1"):
            self.assertIn(line, out)
        self.run_tool("fusion-run", "model.onnx", "--random-inputs", "--device=emulate")

    def test_without_a_run_it_is_asked_for(self):
        self.refuse("fusion-opt", "model.onnx", "--fuse", "-o", "/dev/null", says=self.says)
        self.refuse("fusion-compile", "model.onnx", "-o", "bundle", "--target=sm_90a",
                    says="say its value before compiling: --constant=use_cache_branch=1")
        self.refuse("fusion-run", "model.onnx", "--random-inputs", "--device=cpu", "--tp=2", "--quiet",
                    says="say its value before compiling: --constant=use_cache_branch=1")


if __name__ == "__main__":
    unittest.main()
