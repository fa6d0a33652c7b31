"""Node tests of sequences and optionals: ONNX's own ones with the tensors of a sequence as inputs and
outputs, and what TorchScript writes, with numbers of ONNX Runtime."""
import pathlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nodes import write

DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data/node"


def contents(path, info):
    """A tensor, a list of tensors, or None."""
    kind = info.type.WhichOneof("value")
    bytes_ = path.read_bytes()
    if kind == "tensor_type":
        return numpy_helper.to_array(onnx.TensorProto.FromString(bytes_))
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(bytes_))
    return numpy_helper.to_optional(onnx.OptionalProto.FromString(bytes_))


def wrapped(test):
    """ONNX's test with nodes around it that make sequences and take them apart."""
    model = onnx.load(DATA / f"test_{test}/model.onnx")
    graph, folder = model.graph, DATA / f"test_{test}/test_data_set_0"
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    before, behind, inputs, outputs, results = [], [], {}, [], []
    for index, info in enumerate(graph.input):
        value = contents(folder / f"input_{index}.pb", info)
        if isinstance(value, list):
            names = [f"{info.name}_{place}" for place in range(len(value))]
            inputs |= dict(zip(names, value))
            kind = "SequenceConstruct" if names else "SequenceEmpty"
            before.append(helper.make_node(kind, names, [info.name]))
        elif value is None:
            before.append(
                helper.make_node("Optional", [], [info.name], type=info.type.optional_type.elem_type))
        else:
            inputs[info.name] = value
    for index, info in enumerate(graph.output):
        value = contents(folder / f"output_{index}.pb", info)
        if isinstance(value, list):
            for place, entry in enumerate(value):
                name = f"{info.name}_{place}"
                weights[f"{name}_at"] = np.array(place, np.int64)
                behind.append(helper.make_node("SequenceAt", [info.name, f"{name}_at"], [name]))
                outputs.append(name)
                results.append(entry)
            behind.append(helper.make_node("SequenceLength", [info.name], [f"{info.name}_length"]))
            outputs.append(f"{info.name}_length")
            results.append(np.array(len(value), np.int64))
        else:
            outputs.append(info.name)
            results.append(value)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    write(f"as_tensors_{test}", [*before, *graph.node, *behind],
          inputs | weights,
          outputs,
          list(weights),
          results=results,
          opset=opset)


def script():
    """Lists that TorchScript keeps: split, append in a loop, stack, cat, pop, len."""
    own = np.random.default_rng(11)
    x = own.standard_normal((2, 7, 3)).astype(np.float32)
    numbers = {f"n{value}": np.array(value, np.int64) for value in (-1, 0, 1, 2, 3)}
    sizes = {"parts": np.array([2, 4, 1], np.int64)}
    node = helper.make_node
    split = [
        node("SplitToSequence", ["x", "n3"], ["list"], axis=1),
        node("SequenceAt", ["list", "n-1"], ["last"]),
        node("SequenceErase", ["list", "n-1"], ["rest"]),
        node("SequenceInsert", ["rest", "last", "n0"], ["turned"]),
        node("ConcatFromSequence", ["turned"], ["y"], axis=1),
        node("SequenceLength", ["turned"], ["length"])
    ]
    write("list_split", split, {"x": x} | numbers, ["y", "length"], list(numbers))
    given = [
        node("SplitToSequence", ["x", "parts"], ["list"], axis=1),
        node("SequenceAt", ["list", "n1"], ["y"])
    ]
    write("list_given_parts", given, {"x": x} | numbers | sizes, ["y"], [*numbers, "parts"],
          {"x": ["batch", 7, 3]})
    rows = [
        node("SplitToSequence", ["x"], ["list"], axis=0, keepdims=0),
        node("SequenceErase", ["list"], ["one"]),
        node("SequenceInsert", ["one", "more"], ["two"]),
        node("ConcatFromSequence", ["two"], ["y"], axis=1, new_axis=1)
    ]
    write("list_stack", rows, {"x": x, "more": x[0] * 2}, ["y"])
    # A size list whose tensor is a shape.
    shape = [
        node("Shape", ["x"], ["all"]),
        node("SplitToSequence", ["all"], ["dims"], axis=0, keepdims=0),
        node("SequenceAt", ["dims", "n1"], ["second"]),
        node("SequenceConstruct", ["second", "n-1"], ["wanted"]),
        node("ConcatFromSequence", ["wanted"], ["shape"], axis=0, new_axis=1),
        node("Reshape", ["x", "shape"], ["y"])
    ]
    write("list_of_sizes", shape, {"x": x} | numbers, ["y"], list(numbers), {"x": ["batch", "sequence", 3]})
    body = helper.make_graph([
        node("Cast", ["i"], ["factor"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["x", "factor"], ["entry"]),
        node("SequenceInsert", ["list_in", "entry"], ["list_out"]),
        node("Identity", ["go"], ["goes"])
    ], "body", [
        helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
        helper.make_tensor_sequence_value_info("list_in", onnx.TensorProto.FLOAT, None)
    ], [
        helper.make_tensor_value_info("goes", onnx.TensorProto.BOOL, []),
        helper.make_tensor_sequence_value_info("list_out", onnx.TensorProto.FLOAT, None)
    ])
    loop = [
        node("SequenceEmpty", [], ["empty"], dtype=onnx.TensorProto.FLOAT),
        node("Loop", ["n3", "true", "empty"], ["list"], body=body),
        node("ConcatFromSequence", ["list"], ["y"], axis=0)
    ]
    write("list_in_loop", loop, {"x": x, "true": np.array(True)} | numbers, ["y"], [*numbers, "true"])


def sequences():
    for test in ("sequence_insert_at_back", "sequence_insert_at_front",
                 "sequence_map_add_1_sequence_1_tensor", "sequence_map_add_2_sequences",
                 "sequence_map_extract_shapes", "sequence_map_identity_1_sequence",
                 "sequence_map_identity_1_sequence_1_tensor", "sequence_map_identity_2_sequences",
                 "sequence_map_add_2_sequences_expanded", "identity_sequence", "identity_opt", "if_seq",
                 "if_opt", "loop13_seq", "loop16_seq_none", "split_to_sequence_1", "split_to_sequence_2",
                 "split_to_sequence_nokeepdims", "optional_get_element_sequence",
                 "optional_get_element_optional_sequence", "optional_get_element_optional_tensor",
                 "optional_has_element_optional_input", "optional_has_element_empty_optional_input"):
        wrapped(test)
    script()
