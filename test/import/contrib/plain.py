"""One node at a time: tensors of a generator of their own, and what ONNX's reference says of them."""
import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from nodes import MICROSOFT, write

own = np.random.default_rng(28)


def f32(*shape):
    return own.standard_normal(shape).astype(np.float32)


def f16(*shape):
    return f32(*shape).astype(np.float16)


def i64(*values):
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def u8(*shape):
    return own.integers(0, 256, shape).astype(np.uint8)


def scale(value):
    return np.array(value, np.float32)


def op(name,
       kind,
       inputs,
       outputs=("y", ),
       weights=(),
       results=None,
       opset=17,
       domain="",
       dims=None,
       **attributes):
    """One node. A value of None leaves an input out."""
    names = [key if value is not None else "" for key, value in inputs.items()]
    node = helper.make_node(kind, names, list(outputs), domain=domain, **attributes)
    given = {key: value for key, value in inputs.items() if value is not None}
    write(name, [node], given, [output for output in outputs if output], weights, dims, results, opset=opset)


def contrib(name, kind, inputs, results=None, **attributes):
    op(name, kind, inputs, results=results, domain=MICROSOFT, **attributes)


def reference(kind, inputs, opset, **attributes):
    """What ONNX's own reference says of a node."""
    node = helper.make_node(kind, list(inputs), ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for key, value in inputs.items()
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, inputs)
