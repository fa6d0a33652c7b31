"""Zero points at both ends of their types, through every kernel that takes them as literals: emulated
kernels, fused and each op alone, compute what the reference does."""
import itertools
import sys
import unittest

from harness import ToolTest, write_safetensors

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROWS, INNER, COLUMNS = 5, 64, 32
ENDS = [np.int8(-128), np.int8(-2), np.int8(127), np.uint8(0), np.uint8(200), np.uint8(255)]
RANDOM = np.random.default_rng(11)


class Graph:
    """Inputs: x of f32 [ROWS, INNER]; codes of each type that is asked for."""

    def __init__(self):
        self.nodes, self.weights, self.inputs, self.outputs = [], [], {}, []

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def input(self, name, array):
        self.inputs[name] = array
        return name

    def node(self, op, *inputs, **attributes):
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def result(self, value, kind):
        self.outputs.append(helper.make_tensor_value_info(value, kind, None))

    def codes(self, name, shape, like):
        limits = np.iinfo(like.dtype)
        return self.input(name, RANDOM.integers(limits.min, limits.max + 1, shape).astype(like.dtype))

    def save(self, folder_path):
        described = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                                   array.shape)
                     for name, array in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "zero_points", described, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(onnx.shape_inference.infer_shapes(model), folder_path("m.onnx"))
        kinds = {"float32": "F32", "int8": "I8", "uint8": "U8"}
        write_safetensors(folder_path("in.safetensors"), {
            name: (kinds[array.dtype.name], list(array.shape), array.tobytes())
            for name, array in self.inputs.items()})


def kind_of(zero):
    return TensorProto.INT8 if zero.dtype == np.int8 else TensorProto.UINT8


class ZeroPoints(ToolTest):
    def compare(self, graph):
        graph.save(self.path)
        run = ["fusion-run", "m.onnx", "--quiet", "--inputs=in.safetensors"]
        self.run_tool(*run, "--device=cpu", "--no-fuse", "--outputs=expected.safetensors")
        for way in ([], ["--no-fuse"]):
            # Sums in another order may fall on the other side of the middle between two steps; a wrong zero
            # point moves all.
            out, _ = self.run_tool(*run, "--device=emulate", "--expect=expected.safetensors", "--rtol=0.002",
                                   *way)
            self.assertIn("PASS", out)
        self.run_tool("fusion-opt", "m.onnx", "--fuse", "--verify-fusions", "--quiet", "-o", "f.mlir")

    def test_quantized_norm_and_product(self):
        graph = Graph()
        x = graph.input("x", RANDOM.normal(size=(ROWS, INNER)).astype(np.float32))
        weight = graph.constant(RANDOM.normal(size=(INNER, COLUMNS)).astype(np.float32))
        scale = graph.constant(np.float32(0.05))
        gain, bias = (graph.constant(RANDOM.normal(size=INNER).astype(np.float32)) for _ in range(2))
        norm = graph.node("LayerNormalization", x, gain, bias, axis=-1)
        product = graph.node("MatMul", x, weight)
        for zero in ENDS:
            for value in (x, norm, product):
                graph.result(graph.node("QuantizeLinear", value, scale, graph.constant(zero)), kind_of(zero))
        self.compare(graph)

    def test_integer_products(self):
        graph = Graph()
        for number, (left, right) in enumerate(itertools.product(ENDS[:2] + ENDS[4:5], ENDS[1:3] + ENDS[5:])):
            a = graph.codes(f"a{number}", (ROWS, INNER), left)
            b = graph.constant(RANDOM.integers(0, 100, (INNER, COLUMNS)).astype(right.dtype))
            graph.result(graph.node("MatMulInteger", a, b, graph.constant(left), graph.constant(right)),
                         TensorProto.INT32)
        self.compare(graph)

    def test_dequantized_products(self):
        graph = Graph()
        scale = graph.constant(np.float32(0.02))
        for number, (left, right) in enumerate(itertools.product(ENDS[:2] + ENDS[4:5], ENDS[1:3] + ENDS[5:])):
            a = graph.codes(f"a{number}", (ROWS, INNER), left)
            b = graph.constant(RANDOM.integers(0, 100, (INNER, COLUMNS)).astype(right.dtype))
            sides = [graph.node("DequantizeLinear", codes, scale, graph.constant(zero))
                     for codes, zero in ((a, left), (b, right))]
            product = graph.node("MatMul", *sides)
            graph.result(graph.node("QuantizeLinear", product, scale, graph.constant(left)), kind_of(left))
        self.compare(graph)


if __name__ == "__main__":
    unittest.main()
