"""Node tests of SparseAttention, whose caches are buffers that are written in place."""
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from nodes import MICROSOFT, write
from plain import f32


def sparse_attention(name,
                     batch,
                     new,
                     lengths,
                     packed=False,
                     layouts=2,
                     heads=4,
                     groups=2,
                     size=16,
                     capacity=64,
                     rotates=1,
                     **attributes):
    """Blocks of 16 keys, the own one and some before."""
    blocks, mask = capacity // 16, np.zeros((layouts, capacity // 16, capacity // 16), bool)
    for layout in range(layouts):
        for row in range(blocks):
            mask[layout, row, row] = mask[layout, row, 0] = True
            mask[layout, row, max(row - 1 - layout, 0)] = True
    rows = np.concatenate([np.zeros((layouts, 1), int), mask.sum(-1).cumsum(-1)], 1).astype(np.int32)
    columns = np.full((layouts, rows[:, -1].max()), -1, np.int32)
    for layout in range(layouts):
        columns[layout, :rows[layout, -1]] = np.nonzero(mask[layout])[1]
    width = (heads + 2 * groups if packed else heads) * size
    inputs = {
        "q": f32(batch, new, width),
        "k": None if packed else f32(batch, new, groups * size),
        "v": None if packed else f32(batch, new, groups * size),
        "past_key": f32(batch, groups, capacity, size),
        "past_value": f32(batch, groups, capacity, size),
        "rows": rows,
        "columns": columns,
        "total": np.array([max(lengths)], np.int32),
        "lengths": np.array(lengths, np.int32),
        "cos": f32(capacity, size // 2),
        "sin": f32(capacity, size // 2)
    }
    names = [key if value is not None else "" for key, value in inputs.items()]
    node = helper.make_node("SparseAttention",
                            names, ["y", "present_key", "present_value"],
                            domain=MICROSOFT,
                            num_heads=heads,
                            kv_num_heads=groups,
                            sparse_block_size=16,
                            do_rotary=rotates,
                            **attributes)
    inputs = {key: value for key, value in inputs.items() if value is not None}

    outputs = ["y", "present_key", "present_value"]
    write(name, [node],
          inputs,
          outputs, ["rows", "columns", "total", "cos", "sin"],
          results=in_place(node, inputs, outputs, lengths,
                           (batch, new, heads *
                            size)) if rotates else by_definition(inputs, lengths, mask, heads, groups))


def in_place(node, inputs, outputs, lengths, shape):
    """What ONNX Runtime makes of a node whose caches are the same buffers before and behind."""
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for key, value in inputs.items()
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=output) for output in outputs])
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17),
                                             helper.make_opsetid(MICROSOFT, 1)],
                              ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    held = {key: value.copy() for key, value in inputs.items()}  # the values are views of them
    values = {key: onnxruntime.OrtValue.ortvalue_from_numpy(value) for key, value in held.items()}
    for key, value in values.items():
        binding.bind_ortvalue_input(key, value)
    held["y"] = np.zeros(shape, np.float32)
    y = onnxruntime.OrtValue.ortvalue_from_numpy(held["y"])
    for output, value in zip(outputs, (y, values["past_key"], values["past_value"])):
        binding.bind_ortvalue_output(output, value)
    session.run_with_iobinding(binding)
    results = [value.numpy().copy() for value in binding.get_outputs()]
    for cache, source in ((results[1], inputs["past_key"]), (results[2], inputs["past_value"])):
        for entry, length in enumerate(lengths):  # what follows the new tokens is not specified
            cache[entry, :, length:] = source[entry, :, length:]
    return results


def by_definition(inputs, lengths, mask, heads, groups):
    """Without rotation, of entries of different length, which ONNX Runtime's CPU provider gets wrong."""
    q, (batch, new) = inputs["q"], inputs["q"].shape[:2]
    caches = [inputs["past_key"].copy(), inputs["past_value"].copy()]
    size, y = caches[0].shape[-1], np.zeros_like(q)
    for entry, length in enumerate(lengths):
        for cache, fresh in zip(caches, (inputs["k"], inputs["v"])):
            cache[entry, :, length - new:length] = fresh[entry].reshape(new, groups, size).transpose(1, 0, 2)
        for token, head in np.ndindex(new, heads):
            place, group = length - new + token, head * groups // heads
            seen = [key for key in range(place + 1) if mask[head % len(mask), place // 16, key // 16]]
            part = slice(head * size, (head + 1) * size)
            scores = np.exp(caches[0][entry, group, seen] @ q[entry, token, part] / np.sqrt(size))
            y[entry, token, part] = scores / scores.sum() @ caches[1][entry, group, seen]
    return [y, *caches]


def sparse():
    sparse_attention("sparse_attention_prompt", 1, 40, [40])
    sparse_attention("sparse_attention_decode", 2, 1, [50, 50], packed=True)
    sparse_attention("sparse_attention_lengths", 2, 2, [50, 33], rotates=0)
    sparse_attention("sparse_attention_one_layout", 1, 1, [49], layouts=1, rotary_interleaved=1, scale=0.3)
