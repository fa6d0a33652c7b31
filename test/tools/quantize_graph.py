"""Makes a quantised graph from an exported one: quantize_graph.py KIND MODEL.onnx RESULT.onnx

Kinds, for every product by a weight matrix:
  int8     QuantizeLinear → DequantizeLinear on the activation (one scale), DequantizeLinear on the weight (a
  scale a channel) uint8    the same, with activations in u8 and a zero point fp8      the same in f8e4m3,
  without zero points dynamic  DynamicQuantizeLinear → MatMulInteger → Cast → Mul(scale_a · scale_w) int4,
  int8-blocks   DequantizeLinear(block_size) on the weight alone; int4 has zero points nbits    com.microsoft
  MatMulNBits, 4 bits in blocks with zero points
Scales of activations are guesses: what matters is that every device computes the same numbers.
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32


class Quantizer:
    def __init__(self, model, kind):
        self.model, self.graph, self.kind = model, model.graph, kind
        self.weights = {w.name: w for w in self.graph.initializer}
        self.added, self.dead, self.shared = [], set(), {}

    def constant(self, name, array):
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def raw_constant(self, name, kind, shape, data):
        self.graph.initializer.append(helper.make_tensor(name, kind, shape, data, raw=True))
        return name

    def node(self, nodes, op, inputs, domain="", **attributes):
        output = f"{op}_{len(self.added)}_{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
        return nodes[-1].output

    def once(self, nodes, key, make):
        """One value for all products of one input."""
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def activation(self, nodes, x, dtype):
        """The input quantised and dequantised again, with one scale."""
        def make():
            name = f"{x}_quantised"
            if self.kind == "fp8":
                zero = self.raw_constant(name + "_zero", TensorProto.FLOAT8E4M3FN, [], b"\0")
                scale = 0.02
            else:
                zero = self.constant(name + "_zero", np.uint8(117) if self.kind == "uint8" else np.int8(0))
                scale = 0.03
            parts = [self.constant(name + "_scale", np.array(scale, dtype)), zero]
            (q,) = self.node(nodes, "QuantizeLinear", [x, *parts])
            return self.node(nodes, "DequantizeLinear", [q, *parts])[0]
        return self.once(nodes, x, make)

    def channels(self, name, w, dtype):
        """The weight as 8-bit codes and a scale for each column."""
        limit = 448.0 if self.kind == "fp8" else 127.0
        scale = (np.abs(w).max(0) / limit + 1e-6).astype(dtype)
        codes = w / scale.astype(np.float32)
        if self.kind == "fp8":
            import ml_dtypes
            data = np.clip(codes, -448, 448).astype(ml_dtypes.float8_e4m3fn).tobytes()
            q = self.raw_constant(name + "_q", TensorProto.FLOAT8E4M3FN, w.shape, data)
        else:
            q = self.constant(name + "_q", np.clip(np.rint(codes), -128, 127).astype(np.int8))
        return q, self.constant(name + "_scale", scale)

    def blocks(self, w, low, high):
        """Codes, scales and zero points for blocks along k, with k innermost: [n, blocks, BLOCK]."""
        k, n = w.shape
        parts = w.T.reshape(n, k // BLOCK, BLOCK)
        least, most = np.minimum(parts.min(2), 0), np.maximum(parts.max(2), 0)
        scale = ((most - least) / (high - low) + 1e-6).astype(np.float32)
        zero = np.clip(np.rint(low - least / scale), low, high)
        codes = np.clip(np.rint(parts / scale[..., None]) + zero[..., None], low, high)
        return codes.astype(np.int32), scale, zero.astype(np.int32)

    def packed(self, values):
        halves = np.asarray(values).reshape(-1).astype(np.int64) & 15
        halves = np.concatenate([halves, np.zeros(halves.size % 2, np.int64)])
        return (halves[0::2] | halves[1::2] << 4).astype(np.uint8)

    def product(self, nodes, x, weight, output):
        """The nodes of one product in place of MatMul(x, weight) → output."""
        w = numpy_helper.to_array(weight)
        dtype, wide = w.dtype, w.astype(np.float32)
        name = f"{weight.name}_{len(self.added)}"
        k, n = w.shape
        if self.kind in ("int8", "uint8", "fp8"):
            q, scale = self.channels(name, wide, dtype)
            (dequantised,) = self.node(nodes, "DequantizeLinear", [q, scale], axis=1)
            nodes.append(helper.make_node("MatMul", [self.activation(nodes, x, dtype), dequantised],
                                          [output]))
        elif self.kind == "dynamic":
            q, scale = self.channels(name, wide, np.float32)
            q_x, scale_x, zero_x = self.once(nodes, x, lambda: self.dynamic(nodes, x, dtype))
            (sums,) = self.node(nodes, "MatMulInteger", [q_x, q, zero_x])
            (sums,) = self.node(nodes, "Cast", [sums], to=TensorProto.FLOAT)
            (factor,) = self.node(nodes, "Mul", [scale_x, scale])
            if dtype == np.float32:
                nodes.append(helper.make_node("Mul", [sums, factor], [output]))
            else:
                (scaled,) = self.node(nodes, "Mul", [sums, factor])
                nodes.append(helper.make_node("Cast", [scaled], [output],
                                              to=helper.np_dtype_to_tensor_dtype(dtype)))
        elif self.kind in ("int4", "int8-blocks"):
            low, high = (-8, 7) if self.kind == "int4" else (-128, 127)
            codes, scale, zero = self.blocks(wide, low, high)
            codes, scale, zero = codes.reshape(n, k).T, scale.T, zero.T
            inputs = [None, self.constant(name + "_scale", scale.astype(dtype)), None]
            for i, part, values in ((0, "_q", codes), (2, "_zero", zero)):
                if self.kind == "int4":
                    inputs[i] = self.raw_constant(name + part, TensorProto.INT4, values.shape,
                                                  self.packed(values).tobytes())
                else:
                    inputs[i] = self.constant(name + part, values.astype(np.int8))
            (dequantised,) = self.node(nodes, "DequantizeLinear", inputs, axis=0, block_size=BLOCK)
            nodes.append(helper.make_node("MatMul", [x, dequantised], [output]))
        else:
            codes, scale, zero = self.blocks(wide, 0, 15)
            rows = [self.packed(row) for row in zero]
            inputs = [x, self.constant(name + "_q", self.packed(codes).reshape(n, k // BLOCK, BLOCK // 2)),
                      self.constant(name + "_scale", scale.astype(dtype).reshape(-1)),
                      self.constant(name + "_zero", np.concatenate(rows))]
            nodes.append(helper.make_node("MatMulNBits", inputs, [output], domain="com.microsoft", K=k, N=n,
                                          bits=4,
                                          block_size=BLOCK))

    def dynamic(self, nodes, x, dtype):
        if dtype != np.float32:
            (x,) = self.node(nodes, "Cast", [x], to=TensorProto.FLOAT)
        outputs = [f"{x}_{part}_{len(self.added)}" for part in ("q", "scale", "zero")]
        nodes.append(helper.make_node("DynamicQuantizeLinear", [x], outputs))
        return outputs

    def run(self):
        result = []
        for node in self.graph.node:
            weight = self.weights.get(node.input[1]) if len(node.input) > 1 else None
            fits = node.op_type == "MatMul" and weight is not None and len(weight.dims) == 2 and weight.dims[0] % BLOCK == 0
            if not fits:
                result.append(node)
                continue
            nodes = []
            self.product(nodes, node.input[0], weight, node.output[0])
            for made in nodes:
                made.metadata_props.extend(node.metadata_props)
                if not made.name:
                    made.name = node.name
            self.added.append(node.name)
            result += nodes
        del self.graph.node[:]
        self.graph.node.extend(result)
        used = {name for node in self.graph.node for name in node.input}
        kept = [w for w in self.graph.initializer if w.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        self.model.ir_version = max(self.model.ir_version, 10)
        for entry in self.model.opset_import:
            if entry.domain == "":
                entry.version = max(entry.version, 21)
        if self.kind == "nbits" and not any(entry.domain == "com.microsoft"
                                            for entry in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return len(self.added)


def quantize(kind, source, target):
    """Writes the quantised graph; returns how many products it has."""
    model = onnx.load(source)
    count = Quantizer(model, kind).run()
    onnx.save(model, target)
    return count


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(quantize(*sys.argv[1:]), "products")
