"""Graphs: from files, from bytes, from onnx.ModelProto."""

import os
from typing import NamedTuple

from . import _core
from ._errors import BadInput
from ._options import options_of
from ._report import Report, of_json
from ._tensor import to_core


class Port(NamedTuple):
    """An input or output."""

    name: str
    dtype: str  #: as numpy and ml_dtypes call it: 'float16', 'bfloat16', 'int64' ...
    shape: tuple  #: of int, and of str for what inputs decide: 'batch', 'past + 1'


class Explanation(NamedTuple):
    """What was printed of a graph, and the report of it."""

    text: str
    report: Report


_DTYPES = {
    "i1": "bool",
    "i4": "int4",
    "ui4": "uint4",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "bf16": "bfloat16",
}


def _dtype(name):
    for short, long in (("ui", "uint"), ("i", "int"), ("f", "float")):
        if name.startswith(short) and name not in _DTYPES:
            return long + name[len(short) :]
    return _DTYPES[name]


def ports(rows):
    return [
        Port(name, _dtype(dtype), tuple(int(dim) if dim.lstrip("-").isdigit() else dim for dim in dims))
        for name, dtype, dims in rows
    ]


class HasPorts:
    """What has inputs and outputs."""

    @property
    def inputs(self):
        """The inputs, as Ports."""
        return ports(self._core.inputs)

    @property
    def outputs(self):
        """The outputs, as Ports."""
        return ports(self._core.outputs)


class Graph(HasPorts):
    """An imported graph; made by load(). May be used by several threads."""

    def __init__(self, core, name):
        self._core, self.name = core, name

    def explain(self, what="mlir", **options):
        """What the graph is lowered to for `target`: 'mlir', 'cuda', 'plan' or 'dot', and the report. Needs
        no GPU. `options` are compile()'s."""
        text, report = self._core.explain(options_of(**options), what)
        return Explanation(text, of_json(report))

    def verify(self, **options):
        """Checks every rewrite and kernel against what it replaced, on random inputs: on the GPU if there is
        one, else emulated. Raises AnswerIsNo with the fusion, its location and the element that differs."""
        self._core.verify(options_of(**options))

    def write_bundle(self, folder, **options):
        """Writes a folder with kernels for `target`, plan and weights, which compile() opens without a
        compiler."""
        self._core.write_bundle(options_of(**options), os.fspath(folder))

    def __repr__(self):
        return (
            f"<fusion.Graph {self.name}: {', '.join(port.name for port in self.inputs)} -> "
            f"{', '.join(port.name for port in self.outputs)}>"
        )


def load(
    model,
    *,
    weights=None,
    files=None,
    constants=None,
    shared_caches=False,
    sampling=None,
    ranks=1,
    name=None,
):
    """Imports a graph.

    model: the path of an .onnx or .mlir file; or bytes (anything with a buffer), or an onnx.ModelProto. Bytes
        are not copied and must not change.
    weights: contents of initializers, and of inputs that stay the same, by name: tensors on the host or a
        GPU, which are not copied if they are dense and must not change. On a GPU what fills them must be
        done; a program on another device copies them there.
    files: contents of external data files, by the location that the model calls them.
    constants: graph inputs whose contents are known now; they become constants.
    shared_caches: caches of GroupQueryAttention are given as buffers of full capacity.
    sampling: 'greedy', or some of 'temperature=0.8,top-k=50,top-p=0.9': the graph gets a result `next_tokens`
        (batch x 1), which Program.generate() needs, and `logits` are those of the last position.
    ranks: how many files the {rank} in a path stands for.
    name: what messages call a model of bytes; external data lies beside it.

    Raises BadInput with file, node and reason.
    """
    options = _core.Options()
    for key, tensor in (weights or {}).items():
        options.weight(key, to_core(tensor, f"weight '{key}'"))
    for key, tensor in (constants or {}).items():
        options.constant(key, to_core(tensor, f"constant '{key}'"))
    for location, contents in (files or {}).items():
        options.file(location, contents)
    options.set("shared-caches", "1" if shared_caches else "0")
    options.set("ranks", str(ranks))
    if sampling is not None:
        options.set("sample", sampling)
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        return Graph(_core.Graph.load(path, options), path)
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    try:
        memoryview(model)
    except TypeError:
        raise BadInput(
            f"a model is a path, bytes or an onnx.ModelProto, not a {type(model).__name__}"
        ) from None
    name = name or "model.onnx"
    return Graph(_core.Graph.load_bytes(model, name, options), name)
