"""Random ONNX graphs of standard ops, well typed at every opset from 13 to 23.

A value is *exact* if it is computed without rounding from inputs that lie on a grid. What jumps (comparisons,
roundings to integers, places of extremes, sorting, quantisation) reads exact values only: of others a
rounding decides it.
"""

import random

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnx_ops import OPS

FLOATS = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}
TYPES = {
    **FLOATS,
    np.int64: TensorProto.INT64,
    np.int32: TensorProto.INT32,
    np.bool_: TensorProto.BOOL,
    np.int8: TensorProto.INT8,
    np.uint8: TensorProto.UINT8,
}
BATCH, SEQUENCE = 3, 5  # sizes of the symbolic dims; no other dim has them


class Value:
    def __init__(self, name, dtype, shape, exact=False, depth=0):
        self.name, self.dtype, self.shape, self.exact, self.depth = name, dtype, tuple(shape), exact, depth

    @property
    def rank(self):
        return len(self.shape)


class Graph:
    """A graph in the making; `values` holds what the next op may read."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.random.randint(13, 23)
        self.float = self.random.choice([np.float32, np.float32, np.float32, np.float16])
        self.symbolic = self.random.random() < 0.4
        self.nodes, self.constants, self.inputs, self.data, self.values = [], [], [], {}, []
        self.count = 0

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def chance(self, percent):
        return self.random.random() * 100 < percent

    def array(self, dtype, shape, grid=True):
        """Values of moderate size; floats in eighths, if they are to be exact."""
        if dtype == np.bool_:
            return self.numbers.integers(0, 2, shape).astype(dtype)
        if np.issubdtype(dtype, np.integer):
            return self.numbers.integers(0 if dtype == np.uint8 else -9, 10, shape).astype(dtype)
        if grid:
            return (self.numbers.integers(-24, 25, shape) / 8).astype(dtype)
        return self.numbers.standard_normal(shape).astype(dtype)

    def input(self, dtype, shape):
        exact = self.chance(60) or dtype not in FLOATS
        value = Value(self.name(), dtype, shape, exact)
        self.data[value.name] = self.array(dtype, value.shape, exact)
        dims = [
            {BATCH: "batch", SEQUENCE: "seq"}.get(dim, dim) if self.symbolic else dim for dim in value.shape
        ]
        self.inputs.append(helper.make_tensor_value_info(value.name, TYPES[dtype], dims))
        self.values.append(value)
        return value

    def constant(self, array):
        """An initialiser, or at times a node."""
        array = np.asarray(array)
        value = Value(self.name(), array.dtype.type, array.shape, True)
        if self.chance(80):
            self.constants.append(numpy_helper.from_array(array, value.name))
        else:
            tensor = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor))
        return value

    def weight(self, dtype, shape):
        return self.constant(self.array(dtype, tuple(shape), self.chance(60)))

    def node(self, op, operands, results, exact=False, **attributes):
        """`results`: (dtype, shape) of each. Operands may be None."""
        depth = 1 + max([o.depth for o in operands if o is not None], default=0)
        names = [o.name if o is not None else "" for o in operands]
        values = [Value(self.name(), dtype, shape, exact, depth) for dtype, shape in results]
        self.nodes.append(helper.make_node(op, names, [v.name for v in values], **attributes))
        self.values += values
        return values[0]

    def pick(self, fits=lambda value: True):
        """One of the newest values that fit, or a new input."""
        fitting = [v for v in self.values if fits(v)][-6:]
        if fitting and self.chance(90):
            return self.random.choice(fitting)
        return None

    def floats(self, least=0, exact=False, most=4):
        value = self.pick(
            lambda v: v.dtype == self.float and least <= v.rank <= most and (v.exact or not exact)
        )
        make = self.exact_input if exact else self.input
        return value or make(self.float, self.shape(max(least, 1), most))

    def exact_input(self, dtype, shape):
        value = self.input(dtype, shape)
        self.data[value.name] = self.array(dtype, value.shape, True)
        value.exact = True
        return value

    def integers(self, least=0):
        value = self.pick(lambda v: v.dtype in (np.int64, np.int32) and v.rank >= least and 0 not in v.shape)
        return value or self.input(self.random.choice([np.int64, np.int32]), self.shape(max(least, 1)))

    def shape(self, least=1, most=4):
        rank = self.random.randint(least, most)
        dims = [self.random.choice([1, 2, 4, 8, 6, 16]) for _ in range(rank)]
        if rank > 1 and self.chance(70):
            dims[0] = BATCH
        if rank > 2 and self.chance(60):
            dims[1] = SEQUENCE
        return tuple(dims)

    def model(self):
        read = {name for node in self.nodes for name in node.input}
        made = {name: value for value in self.values for name in [value.name]}
        results = [name for node in self.nodes for name in node.output if name in made]
        outputs = [name for name in results if name not in read or self.chance(10)]
        used = read | set(outputs)
        infos = [
            helper.make_tensor_value_info(n, TYPES[made[n].dtype], [None] * made[n].rank) for n in outputs
        ]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [i for i in self.inputs if i.name in used],
            infos,
            [c for c in self.constants if c.name in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return model, {i.name: self.data[i.name] for i in graph.input}


def random_graph(seed):
    """A model and its inputs by name: the same for the same seed and numpy."""
    graph = Graph(seed)
    graph.input(graph.float, graph.shape(2))
    wanted = graph.random.randint(1, 7)
    while len(graph.nodes) < wanted:
        graph.random.choice(OPS)(graph)
        for value in graph.values[-3:]:
            if np.prod(value.shape, dtype=np.int64) > 20000:
                graph.values.remove(value)
    return graph.model()
