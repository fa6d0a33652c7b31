"""Routers that choose experts from the best groups of experts only, as exporters spell them."""
import numpy as np
from onnx import TensorProto, helper

from nodes import write

own = np.random.default_rng(31)


def limited_router(name, rows, experts, groups, kept, count, bias, spelling, other=-np.inf, best=2):
    """DeepSeek-V3's (a group's score is the sum of its `best` scores) or, where best is 0, DeepSeek-V2's."""
    size, hidden = experts // groups, 24
    inputs = {"x": own.standard_normal((2, rows, hidden)).astype(np.float32),
              "w": own.standard_normal((hidden, experts)).astype(np.float32),
              "bias": own.standard_normal(experts).astype(np.float32) * (0.5 if bias else 0)}
    numbers = {"flat": [-1, hidden], "grouped": [-1, groups, size], "all": [-1, experts], "best": [best],
               "kept": [kept], "count": [count], "last": [-1], "second": [1], "column": [-1, groups, 1],
               "spread": [1, 1, size], "groups": groups}
    inputs |= {key: np.array(value, np.int64) for key, value in numbers.items()}
    inputs |= {"few": np.array(1e-20, np.float32), "factor": np.array(2.5, np.float32),
               "other": np.array(other, np.float32), "one": np.array(1, np.float32),
               "zero": np.array(0, np.float32), "bounds": np.array([0, 1], np.float32)}
    node = helper.make_node
    nodes = [node("Reshape", ["x", "flat"], ["rows"]), node("MatMul", ["rows", "w"], ["logits"]),
             node("Sigmoid", ["logits"], ["scores"]) if bias else
             node("Softmax", ["logits"], ["scores"], axis=-1)]
    choice = "scores"
    if bias:
        choice = "shifted"
        nodes.append(node("Add", ["scores", "bias"], ["shifted"]))
    nodes.append(node("Reshape", [choice, "grouped"], ["of_groups"]))
    if best:
        nodes += [node("TopK", ["of_groups", "best"], ["largest", "largest_at"], axis=-1),
                  node("ReduceSum", ["largest", "last"], ["group_scores"], keepdims=0)]
    else:
        nodes.append(node("ReduceMax", ["of_groups"], ["group_scores"], axes=[-1], keepdims=0))
    nodes.append(node("TopK", ["group_scores", "kept"], ["group_best", "group"], axis=-1))
    if spelling == "scatter":  # torch.onnx
        nodes += [node("Shape", ["group_scores"], ["shape"]), node("Expand", ["zero", "shape"], ["zeros"]),
                  node("Shape", ["group"], ["found"]), node("Expand", ["one", "found"], ["ones"])]
    if spelling == "static":  # torch.onnx of known sizes
        inputs |= {"zeros": np.zeros((2 * rows, groups), np.float32), "ones": np.ones((2 * rows, kept), np.float32)}
    if spelling != "one hot":
        nodes += [node("ScatterElements", ["zeros", "group", "ones"], ["mask"], axis=1),
                  node("Unsqueeze", ["mask", "last"], ["mask_column"]),
                  node("Expand", ["mask_column", "spread"], ["mask_spread"]),
                  node("Reshape", ["mask_spread", "all"], ["mask_all"]),
                  node("Cast", ["mask_all"], ["inside"], to=TensorProto.BOOL), node("Not", ["inside"], ["outside"]),
                  node("Where", ["outside", "other", choice], ["limited"])]
    else:  # mobius-onnx
        nodes += [node("OneHot", ["group", "groups", "bounds"], ["hot"], axis=-1),
                  node("ReduceMax", ["hot"], ["mask"], axes=[1], keepdims=0),
                  node("Reshape", ["mask", "column"], ["mask_column"]),
                  node("Expand", ["mask_column", "spread"], ["mask_spread"]),
                  node("Reshape", ["mask_spread", "all"], ["mask_all"]),
                  node("Greater", ["mask_all", "zero"], ["inside"]),
                  node("Where", ["inside", choice, "other"], ["limited"])]
    nodes += [node("TopK", ["limited", "count"], ["values", "index"], axis=-1)]
    taken = "values"
    if bias:
        taken = "normalised"
        nodes += [node("GatherElements", ["scores", "index"], ["taken"], axis=1),
                  node("ReduceSum", ["taken", "last"], ["sum"], keepdims=1), node("Add", ["sum", "few"], ["divisor"]),
                  node("Div", ["taken", "divisor"], ["normalised"])]
    nodes.append(node("Mul", [taken, "factor"], ["weights"]))
    read = {name for made in nodes for name in made.input}
    inputs = {key: value for key, value in inputs.items() if key in read}
    dims = None if spelling == "static" else {"x": ["batch", "seq", hidden]}
    write(name, nodes, inputs, ["index", "weights"], [key for key in inputs if key != "x"], dims)


def routers():
    limited_router("limited_router_two", 5, 32, 8, 4, 6, True, "scatter")
    limited_router("limited_router_one_hot", 5, 48, 4, 2, 5, True, "one hot")
    limited_router("limited_router_largest", 4, 40, 8, 3, 4, False, "scatter", other=0.0, best=0)
    limited_router("limited_router_one_kept", 4, 24, 3, 1, 4, True, "scatter", other=0.0)
    limited_router("limited_router_fewer", 3, 8, 4, 1, 3, False, "one hot", other=0.0, best=0)
    limited_router("limited_router_of_one", 3, 16, 1, 1, 3, True, "scatter")
    limited_router("limited_router_static", 5, 32, 8, 4, 6, True, "static")


if __name__ == "__main__":
    routers()
