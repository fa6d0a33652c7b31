"""Node tests of SwiGLU, which ONNX Runtime's CPU provider lacks, and of ScaledSiLU."""
import numpy as np
from onnx import helper

from nodes import MICROSOFT, case, write


def swish(x, alpha=1.0):
    return x / (1 + np.exp(-alpha * x))


def gated_activations():
    own = np.random.default_rng(13)
    x, up = own.standard_normal((2, 64)).astype(np.float32), own.standard_normal((2, 64)).astype(np.float32)
    node = helper.make_node("SwiGLU", ["x"], ["y"],
                            domain=MICROSOFT,
                            activation_alpha=1.702,
                            activation_beta=1.0,
                            limit=0.5)
    wide = x.astype(np.float64)
    gate, line = np.minimum(wide[:, :32], 0.5), np.clip(wide[:, 32:], -0.5, 0.5)
    write("swiglu_halves", [node], {"x": x}, ["y"],
          results=[(swish(gate, 1.702) * (line + 1)).astype(np.float32)])
    x, up = x.astype(np.float16), up.astype(np.float16)
    node = helper.make_node("SwiGLU", ["x", "up"], ["y"], domain=MICROSOFT, round_activation=1)
    rounded = swish(x.astype(np.float64)).astype(np.float16)
    write("swiglu_rounded", [node], {"x": x, "up": up}, ["y"], results=[rounded * up])
    node = helper.make_node("SwiGLU", ["x", "up"], ["y"], alpha=1.5)
    y = swish(x.astype(np.float64), 1.5) * up.astype(np.float64)
    write("swiglu_onnx", [node], {"x": x, "up": up}, ["y"], results=[y.astype(np.float16)], opset=28)
    case("scaled_silu", "ScaledSiLU", {"x": x}, alpha=1.5)
    case("scaled_silu_operand", "ScaledSiLU", {"x": x, "s": np.array(0.75, np.float32)})
