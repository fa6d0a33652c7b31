"""Rows that NonZero finds, and that ScatterND writes after something was made of them: what boolean masks and loops over
experts are exported as, and Flax's scatters, which leave out what lies outside."""
import numpy as np
from onnx import helper

from nodes import write

own = np.random.default_rng(41)
node = helper.make_node


def f32(*shape):
    return own.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def masked():
    """x[mask] = 2 * x[mask], of all rows, some and none of them."""
    nodes = [node("NonZero", ["mask"], ["found"]), node("Transpose", ["found"], ["at"], perm=[1, 0]),
             node("GatherND", ["x", "at"], ["rows"]), node("Mul", ["rows", "two"], ["twice"]),
             node("ScatterND", ["x", "at", "twice"], ["y"])]
    for name, mask in {"some": [[1, 0, 1], [0, 0, 1]], "none": [[0] * 3] * 2, "all": [[1] * 3] * 2}.items():
        write("data_rows_" + name, nodes, {"x": f32(2, 3, 8), "mask": np.array(mask, bool), "two": np.float32(2)}, ["y"],
              ("two",), {"x": ["b", "s", 8], "mask": ["b", "s"]}, opset=18)


def expert():
    """The tokens of one expert, by the places in [experts' ranks, tokens], added to what others gave."""
    nodes = [node("Equal", ["chosen", "expert"], ["mine"]), node("NonZero", ["mine"], ["found"]),
             node("Split", ["found"], ["rank_row", "token_row"], axis=0, num_outputs=2),
             node("Squeeze", ["rank_row", "zero"], ["rank"]), node("Squeeze", ["token_row", "zero"], ["token"]),
             node("Unsqueeze", ["token", "one"], ["at"]), node("Unsqueeze", ["rank", "one"], ["of"]),
             node("GatherND", ["x", "at"], ["rows"]), node("MatMul", ["rows", "w"], ["products"]),
             node("Concat", ["of", "at"], ["both"], axis=1), node("GatherND", ["weights", "both"], ["weight"]),
             node("Unsqueeze", ["weight", "one"], ["column"]), node("Mul", ["products", "column"], ["weighed"]),
             node("GatherND", ["sum", "at"], ["before"]), node("Add", ["before", "weighed"], ["after"]),
             node("ScatterND", ["sum", "at", "after"], ["y"])]
    inputs = {"x": f32(5, 8), "w": f32(8, 8), "sum": f32(5, 8), "weights": f32(2, 5),
              "chosen": np.array([[0, 2, 1, 1, 3], [2, 1, 0, 3, 1]], np.int64), "expert": ints(1)[0], "zero": ints(0),
              "one": ints(1)}
    write("data_rows_expert", nodes, inputs, ["y"], ("w", "expert", "zero", "one"),
          {"x": ["t", 8], "sum": ["t", 8], "weights": [2, "t"], "chosen": [2, "t"]}, opset=18)


def dropped():
    """Adds to places of which some lie outside, and others repeat."""
    nodes = [node("GreaterOrEqual", ["places", "zero"], ["low"]), node("Less", ["places", "size"], ["high"]),
             node("And", ["low", "high"], ["inside"]), node("NonZero", ["inside"], ["found"]),
             node("Squeeze", ["found", "first"], ["at"]), node("Gather", ["places", "at"], ["kept"]),
             node("Unsqueeze", ["kept", "last"], ["to"]), node("Gather", ["updates", "at"], ["added"]),
             node("ScatterND", ["x", "to", "added"], ["y"], reduction="add")]
    write("data_rows_dropped", nodes,
          {"x": f32(4, 8), "places": ints(3, -1, 0, 3, 9), "updates": f32(5, 8), "zero": ints(0)[0], "size": ints(4)[0],
           "first": ints(0), "last": ints(1)}, ["y"], ("zero", "size", "first", "last"),
          {"places": ["n"], "updates": ["n", 8]}, opset=18)


def data_rows():
    masked()
    expert()
    dropped()


if __name__ == "__main__":
    data_rows()
