"""Graphs: from files, from bytes, from onnx.ModelProto."""

import os
import sys
from typing import NamedTuple

from . import _core
from ._errors import BadInput, Lacking
from ._options import options_of, with_options
from ._report import Report, of_json
from ._tensor import to_core


class Port(NamedTuple):
    """An input or output."""

    name: str
    dtype: str  #: as numpy and ml_dtypes call it: 'float16', 'bfloat16', 'int64' ...
    shape: tuple  #: of int, and of str for what inputs decide: 'batch', 'past + 1'


class Explanation(NamedTuple):
    """What a graph is lowered to. str() is the text; a notebook shows the report."""

    text: str  #: as explain()'s `what` says
    report: Report

    def __str__(self):
        return self.text

    def _repr_html_(self):
        return self.report._repr_html_()


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
        self._conditions = None  # on the sizes of inputs, see _exported_sizes.py

    @with_options
    def explain(self, what="mlir", **options):
        """What the graph is lowered to for `target`, as an Explanation: `text`, and the `report` of what
        fused and what did not. Needs no GPU; default target: 'sm_90a' where there is none.

        what: 'mlir', the graph after fusion; 'cuda', the kernels' source; 'plan', kernels, buffers and
            launches; 'dot', the plan for Graphviz.
        options: those of compile(). Raises BadInput for an unknown one.
        """
        text, report = self._core.explain(options_of(**options), what)
        return Explanation(text, of_json(report))

    @with_options
    def verify(self, **options):
        """Checks every rewrite and kernel against what it replaced, on random inputs: on the GPU if there is
        one, else emulated. The options are compile()'s. Raises AnswerIsNo with the fusion, its location and
        the element that differs."""
        self._core.verify(options_of(**options))

    @with_options
    def write_bundle(self, folder, **options):
        """Writes a folder with kernels for `target`, plan and weights, which compile() opens without a
        compiler. The options are compile()'s. Raises BadInput where no kernels compute the graph, or the
        folder cannot be written; Lacking where no NVRTC compiles them."""
        self._core.write_bundle(options_of(**options), os.fspath(folder))

    def __copy__(self):  # nobody changes it
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a fusion.Graph cannot be pickled: pickle what load() made it of")

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

    model: the path of an .onnx, .mlir or .pt2 file; bytes (anything with a buffer), an onnx.ModelProto, or
        what torch.onnx.export() or torch.export.export() returned. Bytes are not copied and must not change.
    weights: contents of initializers, and of inputs that stay the same, by name: tensors on the host or a
        GPU, which are not copied if they are dense and must not change. On a GPU what fills them must be
        done; a program on another device copies them there.
    files: contents of external data files, by the location that the model calls them.
    constants: graph inputs whose contents are known now; they become constants.
    shared_caches: caches of GroupQueryAttention are given as buffers of full capacity.
    sampling: 'greedy', or some of 'temperature=0.8,top-k=50,top-p=0.9': the graph gets a result `next_tokens`
        (batch x 1), which Program.generate() needs, and `logits` are those of the last position; with
        ',no-logits' behind it they are no result.
    ranks: how many files the {rank} in a path stands for.
    name: what messages call a model of bytes; external data lies beside it.

    Raises BadInput with file, node and reason.
    """
    given = {"weights": weights, "files": files, "constants": constants, "name": name, "sampling": sampling}
    given |= {"shared_caches": shared_caches or None, "ranks": None if ranks == 1 else ranks}
    is_path = isinstance(model, (str, os.PathLike))
    if type(model).__name__ == "ExportedProgram" or (is_path and os.fspath(model).endswith(".pt2")):
        return from_exported(model, **{key: value for key, value in given.items() if value is not None})
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
    if is_path:
        path = os.fspath(model)
        if os.path.isfile(os.path.join(path, "config.json")):
            raise BadInput(f"{path}: a folder of transformers is taken by fusion.from_pretrained()")
        return Graph(_core.Graph.load(path, options), path)
    model = getattr(model, "model_proto", model)  # of torch.onnx.ONNXProgram
    if hasattr(model, "SerializeToString"):
        model = _serialized(model)
    try:
        memoryview(model)
    except TypeError:
        raise BadInput(_no_model(model)) from None
    name = name or "model.onnx"
    return Graph(_core.Graph.load_bytes(model, name, options), name)


def from_exported(program, *, input_names=None, input_dims=None, **options):
    """A Graph of a torch.export.ExportedProgram, or of a .pt2 file that torch.export.save() wrote.

    input_names: what the inputs are called, in their order; None: as in the exported module's forward.
    input_dims: a list of names for each input, for its dims that were exported as dynamic; None, or None for
        a dim: as torch.export calls them. They stay symbolic.
    options: load()'s.

    Outputs are named by the keys of what the module returns (output_0 ... where there are none). Parameters
    and buffers are not copied and must not change. Raises Unsupported, a BadInput, with the node, its module
    and the reason where an op cannot be imported; Lacking without torch.
    """
    try:
        from . import _exported
    except ImportError as problem:
        raise Lacking(f"from_exported needs the package torch: {problem}") from None
    return _exported.from_exported(program, input_names, input_dims, options)


@with_options
def explain(model, what="mlir", **options):
    """What fuses in a model and what does not, without a GPU: Graph.explain() of a Graph, or of anything that
    load() takes.

        explanation = fusion.explain("model.onnx")
        for miss in explanation.report.misses: print(miss.location, miss.reason)
    """
    graph = model if isinstance(model, Graph) else load(model)
    return graph.explain(what, **options)


def _serialized(model):
    try:
        return model.SerializeToString()
    except Exception as problem:  # protobuf's, of 2 GiB and more
        raise BadInput(
            f"the onnx.ModelProto cannot be written as bytes ({problem}): save it with external data, "
            "or give its large initializers as weights="
        ) from None


def _no_model(model):
    torch = sys.modules.get("torch")
    what = f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}"
    if torch is not None and isinstance(model, torch.nn.Module):
        return f"{what}: use torch.compile(model, backend='fusion'), or torch.export.export() it first"
    return what
