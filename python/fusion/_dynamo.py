"""The backend of torch.compile: torch.compile(model, backend="fusion")."""

import operator
import warnings

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._python_dispatch import _disable_current_modes

from ._aten import Importer, is_symbolic
from ._errors import BadInput, Lacking, Unsupported
from ._exported import decompositions, weight_tensors
from ._graph import load
from ._options import options_of
from ._program import compile
from ._torch_report import TorchReport, reports, torch_reports

_warned = set()


def _warn_once(text):
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"fusion: {text}", stacklevel=2)



def backend(graph_module, example_inputs, *, options=None, mode=None):
    """Called by torch.compile. `options` are fusion.compile()'s; `mode` changes nothing. Graphs that need
    gradients are left to PyTorch, with a warning. Raises BadInput for an unknown option or value."""
    options_of(**(options or {}))
    from torch._decomp import core_aten_decompositions
    from torch._dynamo.backends.common import aot_autograd

    def leave(graph, inputs):
        report = TorchReport()
        report.left.append(("the graph", "it needs gradients"))
        reports.append(report)
        _warn_once(
            "a graph needs gradients and stays with PyTorch: call the model under torch.inference_mode() or "
            "torch.no_grad() to have it compiled"
        )
        return _boxed(graph)

    compiler = aot_autograd(
        fw_compiler=leave,
        bw_compiler=lambda graph, inputs: _boxed(graph),
        inference_compiler=lambda graph, inputs: _compile(graph, options or {}),
        decompositions=decompositions(dict(core_aten_decompositions())),
    )
    return compiler(graph_module, example_inputs)


def _refusals(graph_module):
    """Why ops of a graph cannot be imported, as {node: reason}. What an op gives that cannot be is an input
    to those behind it, as in the pieces that the graph is cut into."""
    importer, refused = Importer(graph_module), {}
    with _disable_current_modes():  # constants are tensors with contents here too
        for node in graph_module.graph.nodes:
            if node.op == "get_attr" and node.meta.get("val") is not None:
                importer.assume(node)
                continue
            try:
                importer.visit(node)
            except Unsupported as problem:
                op = node.args[0] if node.target is operator.getitem else node
                refused.setdefault(op, str(problem).removeprefix(f"{importer.where(node)}: "))
                importer.assume(node)
    return refused


class _Supported(OperatorSupportBase):
    def __init__(self, refused):
        self.refused = refused

    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and not is_symbolic(node) and node not in self.refused


def _compile(graph_module, options):
    report = TorchReport()
    reports.append(report)
    refused = _refusals(graph_module)
    report.left += [(Importer.where(node), reason) for node, reason in refused.items()]
    split = CapabilityBasedPartitioner(
        graph_module, _Supported(refused), allows_single_node_partition=False
    ).partition_and_fuse()
    for name, piece in list(split.named_children()):
        if name.startswith("fused_"):
            delattr(split, name)
            setattr(split, name, _Piece(name, piece, options, report))
    return _boxed(split)


def _boxed(call):
    """As AOT calls it: with one list, which is emptied."""

    def run(args):
        given = list(args)
        args.clear()
        return call(*given)

    run._boxed_call = True
    return run


class _Piece(torch.nn.Module):
    """Part of a graph, compiled when it first runs: parameters are its weights then. Parameters that are
    replaced or changed in place compile it again."""

    def __init__(self, name, graph_module, options, report):
        super().__init__()
        self.name, self.graph_module, self.options, self.report = name, graph_module, options, report
        self.placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self.program = None
        self.failed = False

    def forward(self, *args):
        if self.failed:
            return self.graph_module(*args)
        if self.program is None or any(
            args[index].data_ptr() != address or _version(args[index]) != version
            for index, address, version in self.state
        ):
            try:
                self._build(args)
            except Lacking:
                raise
            except BadInput as problem:
                self.failed = True
                self.report.left.append((self.name, str(problem)))
                return self.graph_module(*args)
        outputs = self._run({name: _tensor(args[index]) for name, index in self.inputs})
        results = [outputs[name] for name in self.outputs]
        results = [each if isinstance(each, torch.Tensor) else each.torch() for each in results]
        return results[0] if self.single else tuple(results)

    def _run(self, named):
        if self.device is None:
            return self.program(named)
        # No input says the device and that the results are PyTorch's.
        on_gpu = self.device.type == "cuda"
        return self.program._core.run(
            named, torch.cuda.current_stream(self.device).cuda_stream if on_gpu else None
        )

    def _build(self, args):
        weights = {
            node.name: (f"{node.name}.weight", arg)
            for node, arg in zip(self.placeholders, args)
            if isinstance(arg, torch.nn.Parameter)
        }
        result = next(node for node in self.graph_module.graph.nodes if node.op == "output")
        self.single = isinstance(result.args[0], torch.fx.Node)
        importer = Importer(self.graph_module, weights)
        self.outputs = []

        def names(count):
            self.outputs = [f"output_{i}" for i in range(count)]
            return self.outputs

        model = importer.run(names)
        order = {node: index for index, node in enumerate(self.placeholders)}
        self.inputs = [(name, order[node]) for name, node in importer.inputs]
        graph = load(
            model,
            weights=weight_tensors(importer.given),
            name=self.name,
        )
        given = [args[index].device for _, index in self.inputs if isinstance(args[index], torch.Tensor)]
        device = _device_of(given, result)
        self.device = None if device in given else device
        on_gpu = device.type == "cuda"
        if not on_gpu and "device" not in self.options:
            _warn_once(
                "tensors on the CPU are computed by the reference, which checks numbers and is slow: move "
                "the model and its inputs to a GPU, or say options={'device': 'cpu'} if that is meant"
            )
        self.program = compile(graph, **{"device": "cuda" if on_gpu else "cpu", **self.options})
        self.report.programs.append(self.program)
        self.state = [
            (index, arg.data_ptr(), _version(arg))
            for index, arg in enumerate(args)
            if isinstance(arg, torch.nn.Parameter)
        ]


def _device_of(given, result):
    """A GPU, if one of the inputs or results is there."""
    made = [node.meta["val"].device for node in result.all_input_nodes]
    return next((each for each in [*given, *made] if each.type == "cuda"), torch.device("cpu"))


def _version(tensor):
    """Changes with the contents; what was made in inference mode has none."""
    return None if tensor.is_inference() else tensor._version


def _tensor(arg):
    """A number is the length of a tensor."""
    return arg if isinstance(arg, torch.Tensor) else torch.empty(arg, dtype=torch.bool)


__all__ = ["TorchReport", "backend", "torch_reports"]
