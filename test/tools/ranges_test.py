"""Sizes that only a run knows and that an op cannot have: one line, whatever the device."""
import struct
import sys
import unittest

from harness import ToolTest, write_safetensors

try:
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def floats(*shape):
    count = 1
    for dim in shape:
        count *= dim
    return "F32", list(shape), struct.pack(f"<{count}f", *range(count))


def zeros(*shape):
    kind, dims, data = floats(*shape)
    return "I64", dims, bytes(2 * len(data))


class Ranges(ToolTest):
    def model(self, nodes, inputs, outputs, constants=()):
        """`inputs`: name, type, dims. `constants`: name, values."""
        graph = helper.make_graph(
            nodes,
            "ranges",
            [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
             for name, values in constants],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(model, self.path("model.onnx"))

    def refuse_on_all(self, tensors, *says):
        """`says`: what the CPU and the emulated GPU print."""
        write_safetensors(self.path("i.safetensors"), tensors)
        for device, text in zip(("cpu", "emulate"), says):
            self.refuse("fusion-run", "model.onnx", "--inputs=i.safetensors", f"--device={device}", "--quiet",
                        says=text)

    def take_on_all(self, tensors, *lines):
        write_safetensors(self.path("i.safetensors"), tensors)
        for device in ("cpu", "emulate"):
            out, _ = self.run_tool("fusion-run", "model.onnx", "--inputs=i.safetensors", f"--device={device}")
            for line in lines:
                self.assertIn(line, out)

    def test_split(self):
        x = ("x", TensorProto.FLOAT, ["n", 3])
        self.model([helper.make_node("Split", ["x", "sizes"], ["a", "b"])], [x], ["a", "b"],
                   [("sizes", [2, 3])])
        self.refuse_on_all({"x": floats(4, 3)}, *["input x dim 0 is 4, expected 5"] * 2)
        self.refuse_on_all({"x": floats(6, 3)}, *["input x dim 0 is 6, expected 5"] * 2)
        self.take_on_all({"x": floats(5, 3)}, "a 2x3", "b 3x3")

    def test_split_by_another_input(self):
        nodes = [
            helper.make_node("Shape", ["y"], ["m"], start=0, end=1),
            helper.make_node("Concat", ["m", "one"], ["sizes"], axis=0),
            helper.make_node("Split", ["x", "sizes"], ["a", "b"]),
        ]
        inputs = [("x", TensorProto.FLOAT, ["n", 3]), ("y", TensorProto.FLOAT, ["m", 2])]
        self.model(nodes, inputs, ["a", "b"], [("one", [1])])
        self.refuse_on_all({"x": floats(4, 3), "y": floats(7, 2)}, "out of range for dim 0 of size 4",
                           "m is 7, of which 4 fit")
        self.take_on_all({"x": floats(4, 3), "y": floats(3, 2)}, "a 3x3", "b 1x3")

    def test_reading_an_empty_dim(self):
        data = ("x", TensorProto.FLOAT, ["n", "m"])
        for op, dims, shape, attributes in (
            ("Gather", ["k"], [2], {"axis": 0}),
            ("GatherElements", ["k", "m"], [2, 3], {"axis": 0}),
            ("GatherND", ["k", 1], [2, 1], {}),
        ):
            index = ("i", TensorProto.INT64, dims)
            self.model([helper.make_node(op, ["x", "i"], ["a"], **attributes)], [data, index], ["a"])
            self.refuse_on_all({"x": floats(0, 3), "i": zeros(*shape)}, "index 0 into a table of no rows",
                               "is 1, of which 0 fit")
            self.take_on_all({"x": floats(0, 3), "i": zeros(0, *shape[1:])}, "a 0x3")
            self.take_on_all({"x": floats(1, 3), "i": zeros(*shape)}, "a 2x3")
            # Computed indices: the device's plan asks for a row.
            nodes = [helper.make_node("Neg", ["i"], ["j"]),
                     helper.make_node(op, ["x", "j"], ["a"], **attributes)]
            self.model(nodes, [data, index], ["a"])
            self.refuse_on_all({"x": floats(0, 3), "i": zeros(*shape)}, "dim 0 is empty",
                               "is 1, of which 0 fit")

    def test_more_indices_than_elements(self):
        inputs = [("x", TensorProto.FLOAT, ["n", "m"]), ("i", TensorProto.INT64, ["k", "l"])]
        self.model([helper.make_node("GatherElements", ["x", "i"], ["a"], axis=0)], inputs, ["a"])
        self.refuse_on_all({"x": floats(4, 3), "i": zeros(2, 5)}, "more than x has: 4x3",
                           "l is 5, of which 3 fit")

    def test_expand_to_the_size_of_another_input(self):
        nodes = [
            helper.make_node("Shape", ["y"], ["m"], start=0, end=1),
            helper.make_node("Concat", ["m", "three"], ["shape"], axis=0),
            helper.make_node("Expand", ["x", "shape"], ["a"]),
        ]
        y = ("y", TensorProto.FLOAT, ["m", 2])
        self.model(nodes, [("x", TensorProto.FLOAT, [1, 3]), y], ["a"], [("three", [3])])
        self.take_on_all({"x": floats(1, 3), "y": floats(9, 2)}, "a 9x3")
        self.model(nodes, [("x", TensorProto.FLOAT, ["n", 3]), y], ["a"], [("three", [3])])
        self.refuse_on_all({"x": floats(4, 3), "y": floats(9, 2)}, "4x3 cannot be expanded to 9x3",
                           "n is 4 but m is 9")
        self.take_on_all({"x": floats(9, 3), "y": floats(9, 2)}, "a 9x3")

    def test_a_dim_that_is_known_to_be_1(self):
        inputs = [("x", TensorProto.FLOAT, ["seq", "seq"]), ("mask", TensorProto.FLOAT, ["batch", "seq"])]
        self.model([helper.make_node("Add", ["x", "mask"], ["a"])], inputs, ["a"])
        tensors = {"x": floats(3, 3), "mask": floats(1, 3)}
        write_safetensors(self.path("i.safetensors"), tensors)
        args = ["fusion-run", "model.onnx", "--inputs=i.safetensors", "--device=emulate"]
        out, err = self.run_tool(*args, "--dim=batch=1", "--outputs=o.safetensors")
        self.assertIn("a 3x3", out)
        self.assertNotIn("variant", err)
        for device in ("cpu", "emulate"):  # not known, it is found out when the inputs come
            same = ["fusion-run", "model.onnx", "--inputs=i.safetensors", f"--device={device}"]
            _, err = self.run_tool(*same, "--expect=o.safetensors")
            self.assertEqual(err.count("variant: batch is 1 and broadcast to seq (nn.add at a)"), 1, err)
            _, err = self.run_tool(*same, "--quiet")
            self.assertNotIn("variant", err)
        write_safetensors(self.path("i.safetensors"), {**tensors, "mask": floats(2, 3)})
        self.refuse(*args, "--quiet", says="batch is 2 but seq is 3")
        write_safetensors(self.path("i.safetensors"), tensors)
        self.run_tool("fusion-compile", "model.onnx", "-o", "bundle", "--target=sm_90a")
        self.refuse("fusion-run", "bundle", "--inputs=i.safetensors", "--device=emulate", "--quiet",
                    says="say so before compiling: --dim=batch=1")
        self.refuse(*args, "--dim=batch=1,seq=4", says="input x dim 0 is 3, expected 4")
        self.refuse(*args, "--dim=tokens=1", says="no input has a dim 'tokens'; named dims: batch, seq")
        self.refuse(*args, "--dim=batch=1,batch=3", says="--dim gives 'batch' twice")
        for wrong in ("batch", "batch=", "=1", "batch=-1", "batch=many"):
            self.refuse(*args, f"--dim={wrong}", says=f"--dim takes NAME=SIZE, not '{wrong}'")


if __name__ == "__main__":
    unittest.main()
