"""Node tests of contrib ops in ONNX's own format: what make.py writes them with."""
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).parent
MICROSOFT = "com.microsoft"
random = np.random.default_rng(7)


def f32(*shape):
    return random.standard_normal(shape).astype(np.float32)


def f16(*shape):
    return random.standard_normal(shape).astype(np.float16)


def i32(values):
    return np.array(values, np.int32)


def write(name, nodes, inputs, outputs, weights=(), dims=None, results=None, adjust=list, opset=17):
    """`inputs`: name to array; those in `weights` are initializers; `dims` overrides declared shapes.
    `results`: the expected outputs, where the CPU provider lacks the form. `adjust` makes them of those of
    ONNX Runtime."""
    dims = dims or {}
    feeds = {key: value for key, value in inputs.items() if key not in weights}
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype),
                                      dims.get(key, value.shape))
        for key, value in feeds.items()
    ]
    graph = helper.make_graph(nodes, name, infos, [onnx.ValueInfoProto(name=output) for output in outputs],
                              [numpy_helper.from_array(inputs[key], key) for key in weights])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 23 else 11)
    if results is None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # DynamicQuantizeLSTM rounds by how it divides the batch
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               options,
                                               providers=["CPUExecutionProvider"])
        results = adjust(session.run(None, feeds))
    del model.graph.output[:]
    for output, value in zip(outputs, results):
        model.graph.output.append(
            helper.make_tensor_value_info(output, helper.np_dtype_to_tensor_dtype(value.dtype), None))
    folder = HERE / f"test_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "test_data_set_0").mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    for kind, values in (("input", feeds.values()), ("output", results)):
        for index, value in enumerate(values):
            (folder / f"test_data_set_0/{kind}_{index}.pb").write_bytes(
                numpy_helper.from_array(value).SerializeToString())


def case(name, op, inputs, outputs=("y",), domain=MICROSOFT, weights=(), adjust=list, **attributes):
    """One node. A value of None leaves an input out."""
    node = helper.make_node(op, [key if value is not None else "" for key, value in inputs.items()],
                            list(outputs),
                            domain=domain, **attributes)
    write(name, [node], {key: value for key, value in inputs.items() if value is not None},
          [output for output in outputs if output], weights, adjust=adjust)
