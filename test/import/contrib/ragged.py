"""Node tests of sequences of different length whose tokens lie one behind the other."""
import numpy as np
from onnx import helper

from nodes import MICROSOFT, case, write


def convolution(name, lengths, taps=4, dilation=1, channels=6, activation="silu", bias=True):
    own = np.random.default_rng(len(name))
    make = lambda *shape: own.standard_normal(shape).astype(np.float32)
    history = (taps - 1) * dilation
    inputs = {
        "x": make(sum(lengths), channels),
        "w": make(channels, 1, taps),
        "lengths": np.cumsum([0] + lengths).astype(np.int32),
        "b": make(channels) if bias else None,
        "state": make(len(lengths), channels, history)
    }
    outputs, states = [], []
    for sequence, begin in enumerate(inputs["lengths"][:-1]):
        rows = inputs["x"][begin:begin + lengths[sequence]]
        rows = np.concatenate([inputs["state"][sequence].T, rows]).astype(np.float64)
        for place in range(lengths[sequence]):
            y = sum(rows[place + tap * dilation] * inputs["w"][:, 0, tap] for tap in range(taps))
            outputs.append(y + (inputs["b"] if bias else 0))
        states.append(rows[len(rows) - history:].T)
    y = np.array(outputs)
    y = y / (1 + np.exp(-y)) if activation == "silu" else y
    names = [key if value is not None else "" for key, value in inputs.items()]
    inputs = {key: value for key, value in inputs.items() if value is not None}
    node = helper.make_node("VarlenCausalConvWithState",
                            names, ["y", "last"],
                            domain=MICROSOFT,
                            dilation=dilation,
                            activation=activation)
    write(name, [node],
          inputs, ["y", "last"], ["w"] + ["b"] * bias,
          results=[y.astype(np.float32), np.array(states).astype(np.float32)])


def delta_net(name, lengths, rule="gated_delta", heads=2, values=4, size=8, **attributes):
    own = np.random.default_rng(len(name))
    make = lambda *shape: own.standard_normal(shape).astype(np.float32)
    total = sum(lengths)
    inputs = {
        "q": make(total, heads, size),
        "k": make(total, heads, size),
        "v": make(total, values, size),
        "lengths": np.cumsum([0] + lengths).astype(np.int32),
        "decay": -own.uniform(0, 1, (total, values)).astype(np.float32) if "gated" in rule else None,
        "beta": own.uniform(0, 1, (total, values)).astype(np.float32) if "delta" in rule else None,
        "state": make(len(lengths), values, size, size)
    }
    case(name, "GatedDeltaNet", inputs, ("y", "last"), update_rule=rule, qk_l2_norm=1, **attributes)


def rotary(name, op, lengths, heads=2, size=16, **attributes):
    """Positions that begin anew with each sequence; all tokens are more than the tables have rows."""
    own = np.random.default_rng(len(name))
    positions = np.concatenate([np.arange(length) for length in lengths])[None].astype(np.int64)
    positions = np.stack([positions, positions // 2, positions //
                          3]) if op == "MRotaryEmbedding" else positions
    make = lambda *shape: own.standard_normal(shape).astype(np.float32)
    inputs = {
        "x": make(1, sum(lengths), heads * size),
        "positions": positions,
        "cos": make(max(lengths), size // 2),
        "sin": make(max(lengths), size // 2)
    }
    case(name, op, inputs, weights=("cos", "sin"), is_packed_batching=1, **attributes)


def ragged():
    rotary("ragged_rotary", "RotaryEmbedding", [3, 6])
    rotary("ragged_mrotary",
           "MRotaryEmbedding", [3, 6],
           num_heads=2,
           rotary_embedding_dim=16,
           mrope_section=[3, 3, 2],
           mrope_layout=1)
    convolution("varlen_conv", [3, 1, 5])
    convolution("varlen_conv_dilation", [2, 7], taps=3, dilation=2, activation="none", bias=False)
    delta_net("ragged_delta_net", [3, 1, 5])
    delta_net("ragged_linear_attention", [1, 4], rule="linear")
