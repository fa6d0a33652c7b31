"""Node tests of what opset 28 of ONNX added to ops that were there before, computed here."""
import numpy as np
from onnx import helper

from nodes import write


def node(name, op, inputs, result, **attributes):
    write(name, [helper.make_node(op, list(inputs), ["y"], **attributes)],
          inputs, ["y"],
          results=[result],
          opset=28)


def opset28():
    x = np.array([5, -5, 127, -128, 1, -1, 90, -90, 3, -3], np.int8)
    by = np.array([1, 1, 2, 2, 7, 7, 8, 100, -1, -1], np.int8)
    inside = (by >= 0) & (by < 8)
    places = np.where(inside, by, 0).astype(np.int8)
    node("shift_signed_left",
         "BitShift", {
             "x": x,
             "by": by
         },
         np.where(inside, x << places, 0).astype(np.int8),
         direction="LEFT")
    node("shift_signed_right",
         "BitShift", {
             "x": x,
             "by": by
         },
         np.where(inside, x >> places, np.where(x < 0, -1, 0)).astype(np.int8),
         direction="RIGHT")
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    blocks = x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 12, 2, 3)
    node("space_to_depth_columns", "SpaceToDepth", {"x": x}, blocks, blocksize=2, mode="CRD")
