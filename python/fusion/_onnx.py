"""Writes ONNX models as bytes: the few messages of onnx.proto that a graph needs, so that no package is."""

import struct

# TensorProto.DataType by numpy's name.
TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e5m2": 19,
}
_OPSET, _IR = 23, 10


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes(field, value):
    value = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _attribute(name, value):
    out = _bytes(1, name)
    if isinstance(value, bool) or isinstance(value, int):
        return out + _int(3, int(value)) + _int(20, 2)
    if isinstance(value, float):
        return out + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    if isinstance(value, str):
        return out + _bytes(4, value) + _int(20, 3)
    return out + b"".join(_int(8, each) for each in value) + _int(20, 7)


class Builder:
    """A graph that grows by nodes; names of values are strings."""

    def __init__(self):
        self._nodes, self._initializers, self._inputs, self._outputs = [], [], [], []
        self._count = 0
        self._constants = {}

    def fresh(self, hint):
        self._count += 1
        return f"{hint}.{self._count}"

    def node(self, op, inputs, outputs=1, path="", domain="", **attributes):
        """Adds a node; the name of its output, or a list where there are several. `path`: of the module that
        it comes from."""
        names = [self.fresh(op) for _ in range(outputs)]
        node = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in names)
        node += _bytes(3, f"/{path.replace('.', '/')}/{names[0]}" if path else names[0]) + _bytes(4, op)
        node += b"".join(
            _bytes(5, _attribute(name, value)) for name, value in attributes.items() if value is not None
        )
        if domain:
            node += _bytes(7, domain)
        self._nodes.append(node)
        return names[0] if outputs == 1 else names

    def constant(self, dtype, shape, data):
        """An initializer of little-endian bytes."""
        key = (dtype, tuple(shape), bytes(data))
        if key not in self._constants:
            name = self._constants[key] = self.fresh("constant")
            self._initializers.append(
                b"".join(_int(1, dim) for dim in shape)
                + _int(2, TYPES[dtype])
                + _bytes(8, name)
                + _bytes(9, data)
            )
        return self._constants[key]

    def ints(self, values):
        """A vector of int64."""
        return self.constant("int64", [len(values)], struct.pack(f"<{len(values)}q", *values))

    def weight(self, name, dtype, shape):
        """An initializer whose contents load() gets as `weights`."""
        self._initializers.append(
            b"".join(_int(1, dim) for dim in shape)
            + _int(2, TYPES[dtype])
            + _bytes(8, name)
            + _bytes(13, _bytes(1, "location") + _bytes(2, "given"))
            + _int(14, 1)
        )

    def input(self, name, dtype, shape):
        self._inputs.append(_port(name, dtype, shape))

    def output(self, name, value, dtype, shape):
        self._nodes.append(_bytes(1, value) + _bytes(2, name) + _bytes(3, name) + _bytes(4, "Identity"))
        self._outputs.append(_port(name, dtype, shape))

    def model(self):
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, "main")
        graph += b"".join(_bytes(5, tensor) for tensor in self._initializers)
        graph += b"".join(_bytes(11, port) for port in self._inputs) + b"".join(
            _bytes(12, port) for port in self._outputs
        )
        imports = [_bytes(1, "") + _int(2, _OPSET), _bytes(1, "com.microsoft") + _int(2, 1)]
        return (
            _int(1, _IR)
            + _bytes(2, "fusion")
            + _bytes(7, graph)
            + b"".join(_bytes(8, each) for each in imports)
        )


def _port(name, dtype, shape):
    dims = b"".join(_bytes(1, _int(1, dim) if isinstance(dim, int) else _bytes(2, dim)) for dim in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _int(1, TYPES[dtype]) + _bytes(2, dims)))
