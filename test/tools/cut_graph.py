"""Cuts an exported Llama into one graph file for each rank, with com.microsoft AllReduce between, as a
serving system that shards before it exports leaves them: usage cut_graph.py MODEL FOLDER RANKS; writes
FOLDER/rank_R.onnx."""
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

HEADS, KEY_HEADS = 4, 2  # of the shared graphs
COLUMNS, ROWS = 1, 0
# The linears of a layer in their order: q, k, v, output, gate, up, down.
LAYER = [COLUMNS, COLUMNS, COLUMNS, ROWS, COLUMNS, COLUMNS, ROWS]


def cut(model, rank, ranks):
    """The graph of one rank; `model` is changed."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    linears = [node for node in graph.node if node.op_type == "MatMul"
               and node.name.startswith("node_linear")]
    sums = []
    for index, node in enumerate(linears[:-1]):  # the last is the head
        axis = LAYER[index % len(LAYER)]
        weight = weights[node.input[1]]
        shard = np.split(numpy_helper.to_array(weight), ranks, axis)[rank]
        weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(shard), weight.name))
        if axis == ROWS:
            sums.append(node)
    for node in sums:
        whole = node.output[0]
        node.output[0] = whole + "_part"
        reduce = helper.make_node("AllReduce", [node.output[0]], [whole], node.name + "_all_reduce",
                                  domain="com.microsoft")
        graph.node.insert(list(graph.node).index(node) + 1, reduce)
    # Shapes that spell out the number of heads: [batch, heads, tokens, width] and [batch, heads, group,
    # tokens, width].
    for count in (HEADS, KEY_HEADS):
        graph.initializer.append(numpy_helper.from_array(np.array([count // ranks], np.int64),
                                                         f"heads_{count}"))
    for node in graph.node:
        if node.op_type != "Concat" or len(node.input) not in (4, 5) or node.input[1] not in weights:
            continue
        value = numpy_helper.to_array(weights[node.input[1]])
        if value.tolist() == [HEADS if len(node.input) == 4 else KEY_HEADS]:
            node.input[1] = f"heads_{int(value[0])}"
    # ... or constant: [-1, tokens, heads, width] and [-1, tokens, all heads].
    for name in {node.input[1] for node in graph.node if node.op_type == "Reshape"
                 and node.input[1] in weights}:
        shape = numpy_helper.to_array(weights[name]).copy()
        if len(shape) > 2:
            shape[2] //= ranks
            weights[name].CopyFrom(numpy_helper.from_array(shape, name))
    for port in list(graph.input) + list(graph.output):  # caches
        dims = port.type.tensor_type.shape.dim
        if len(dims) == 4:
            dims[1].dim_value = KEY_HEADS // ranks
    del graph.value_info[:]
    if not any(entry.domain == "com.microsoft" for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def cut_file(path, folder, ranks):
    for rank in range(ranks):
        onnx.save(cut(onnx.load(path), rank, ranks), f"{folder}/rank_{rank}.onnx")


if __name__ == "__main__":
    cut_file(sys.argv[1], sys.argv[2], int(sys.argv[3]))
