"""The backend of torch.compile: torch.compile(model, backend="fusion")."""

import operator
import warnings

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._python_dispatch import _disable_current_modes

from ._aten import Importer, is_complex, is_symbolic
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
        keep_inference_input_mutations=True,
    )
    return compiler(graph_module, example_inputs)


def _refusals(graph_module):
    """Why ops of a graph cannot be imported, as {node: reason}. What an op gives that cannot be is an input
    to those behind it, as in the pieces that the graph is cut into."""
    importer, refused = Importer(graph_module, within_torch=True), {}
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


def _take_mutations(graph_module):
    """Inputs that the graph changes, [(placeholder's index, name)]: their new values become its last results."""
    graph = graph_module.graph
    order = {node: index for index, node in enumerate(graph.find_nodes(op="placeholder"))}
    output = next(node for node in graph.nodes if node.op == "output")
    changed, values = [], []
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        target, value = node.args[:2]
        if target in order and isinstance(value, torch.fx.Node) and node.users.keys() <= {output}:
            node.replace_all_uses_with(target)
            changed.append((order[target], target.name))
            values.append(value)
            graph.erase_node(node)
    output.args = ((*output.args[0], *values),)
    graph_module.recompile()
    return changed


def _writing_back(call, changed):
    """`call`, whose last results are new values of its inputs, as a function that changes these."""

    def run(*given):
        results = call(*given)
        kept = len(results) - len(changed)
        pairs = [(given[index], value) for (index, _), value in zip(changed, results[kept:])]
        for target, value in pairs:
            if target is not value:  # else written where it lies
                target.copy_(value)
        return results[:kept]

    return run if changed else call


def _compile(graph_module, options):
    report = TorchReport()
    reports.append(report)
    for node in graph_module.graph.find_nodes(op="get_attr"):
        value = getattr(graph_module, node.target, None)
        if isinstance(value, torch.Tensor):  # a constant, of which PyTorch 2.6 says no more
            node.meta.setdefault("val", value)
    changed = _take_mutations(graph_module)
    refused = _refusals(graph_module)
    report.left += [(Importer.where(node), reason) for node, reason in refused.items()]
    split = CapabilityBasedPartitioner(
        graph_module, _Supported(refused), allows_single_node_partition=False
    ).partition_and_fuse()
    for name, piece in list(split.named_children()):
        if name.startswith("fused_"):
            written = _written_in_place(split.graph, name, changed)
            delattr(split, name)
            setattr(split, name, _Piece(name, piece, options, report, written))
    return _boxed(_writing_back(split, changed))


def _written_in_place(graph, name, changed):
    """Of a piece, {result's index: argument's index} where the result is an input's new value and nothing
    else reads the old one."""
    call = next(node for node in graph.nodes if node.op == "call_module" and node.target == name)
    placeholders = graph.find_nodes(op="placeholder")
    results = next(node for node in graph.nodes if node.op == "output").args[0]
    written = {}
    for (index, _), value in zip(changed, results[len(results) - len(changed) :]):
        place = placeholders[index]
        if set(place.users) == {call} and call.args.count(place) == 1:
            if value is call:
                written[0] = call.args.index(place)
            elif value.target is operator.getitem and value.args[0] is call:
                written[value.args[1]] = call.args.index(place)
    return written


def _boxed(call):
    """As AOT calls it: with one list, which is emptied."""

    def run(args):
        given = list(args)
        args.clear()
        return call(*given)

    run._boxed_call = True
    return run


class _Piece(torch.nn.Module):
    """Part of a graph, compiled when it first runs: parameters are its weights then, and Python's floats, which
    dynamic=True makes tensors, its constants. Parameters that are replaced or changed in place compile it
    again; so does a float that changes, which is an input from then on. `written`: results that may take their
    argument's memory."""

    def __init__(self, name, graph_module, options, report, written):
        super().__init__()
        self.name, self.graph_module, self.options, self.report = name, graph_module, options, report
        self.placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self.written = written
        self.changing = set()  # indices of floats
        self.program = None
        self.failed = False

    def forward(self, *args):
        if self.failed:
            return self.graph_module(*args)
        if self.program is None or self._changed_since(args):
            try:
                self._build(args)
            except Lacking:
                raise
            except BadInput as problem:
                self.failed = True
                self.report.left.append((self.name, str(problem)))
                return self.graph_module(*args)
        named = {name: _real(args[index]) for name, index in self.inputs}
        for name, (factor, rest) in self.lengths.items():
            named[name] = torch.empty((named[name] - rest) // factor, dtype=torch.bool)
        outputs = self._run(named)
        results = [outputs[name] for name in self.outputs]
        for result, index in self.in_place:
            if results[result]._facts()[0] == args[index].data_ptr():
                results[result] = _changed(args[index])
        results = [each if isinstance(each, torch.Tensor) else each.torch() for each in results]
        for index in self.complex:
            results[index] = torch.view_as_complex(results[index])
        return results[0] if self.single else tuple(results)

    def _changed_since(self, args):
        """Whether the program is that of other weights or numbers."""
        changed = {index for index, value in self.floats if args[index].item() != value}
        self.changing |= changed
        return changed or any(
            args[index].data_ptr() != address or _version(args[index]) != version
            for index, address, version in self.state
        )

    def _run(self, named):
        if self.device is None:
            return self.program(named)
        # No input says the device and that the results are PyTorch's.
        on_gpu = self.device.type == "cuda"
        return self.program._core.run(
            named, torch.cuda.current_stream(self.device).cuda_stream if on_gpu else None
        )

    def _build(self, args):
        self.floats = [
            (index, arg.item())
            for index, arg in enumerate(args)
            if _is_float(arg) and index not in self.changing
        ]
        constant = {index for index, _ in self.floats}
        weights = {
            node.name: (f"{node.name}.weight", arg)
            for index, (node, arg) in enumerate(zip(self.placeholders, args))
            if isinstance(arg, torch.nn.Parameter) or index in constant
        }
        result = next(node for node in self.graph_module.graph.nodes if node.op == "output")
        self.single = isinstance(result.args[0], torch.fx.Node)
        importer = Importer(self.graph_module, weights, within_torch=True)
        self.outputs = []

        def names(count):
            self.outputs = [f"output_{i}" for i in range(count)]
            return self.outputs

        model = importer.run(names)
        made = [result.args[0]] if self.single else result.args[0]
        self.complex = [index for index, node in enumerate(made) if is_complex(node.meta["val"])]
        order = {node: index for index, node in enumerate(self.placeholders)}
        self.inputs = [(name, order[node]) for name, node in importer.inputs]
        graph = load(
            model,
            weights=weight_tensors(importer.given),
            name=self.name,
        )
        self.lengths = importer.lengths
        given = [args[index].device for name, index in self.inputs if name not in self.lengths]
        device = _device_of(given, result)
        self.device = None if device in given else device
        on_gpu = device.type == "cuda"
        if not on_gpu and "device" not in self.options:
            _warn_once(
                "tensors on the CPU are computed by the reference, which checks numbers and is slow: move "
                "the model and its inputs to a GPU, or say options={'device': 'cpu'} if that is meant"
            )
        self._make(graph, {"device": "cuda" if on_gpu else "cpu", **self.options})
        self.report.programs.append(self.program)
        self.state = [
            (index, arg.data_ptr(), _version(arg))
            for index, arg in enumerate(args)
            if isinstance(arg, torch.nn.Parameter)
        ]

    def _make(self, graph, options):
        """Compiles with caches in place if they all are arguments that may change."""
        names = {index: name for name, index in self.inputs}
        free = {(names[i], self.outputs[r]): (r, i) for r, i in self.written.items() if i in names}
        self.program, self.in_place = None, []
        if free and "kv_capacity" not in options:
            try:
                program = compile(graph, **{"kv_capacity": 1, "donate_caches": True, **options})
            except BadInput:  # none of them is a cache
                program = None
            if program and free.keys() >= set(program._core.caches):
                self.program = program
                self.in_place = [free[pair] for pair in program._core.caches]
        if self.program is None:
            self.program = compile(graph, **options)


def _real(arg):
    """A complex tensor as a real one."""
    return torch.view_as_real(arg.resolve_conj()) if is_complex(arg) else arg


def _changed(tensor):
    """A tensor that a program has written, as autograd is told."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
    return tensor


def _device_of(given, result):
    """A GPU, if one of the inputs or results is there."""
    made = [node.meta["val"].device for node in result.all_input_nodes]
    return next((each for each in [*given, *made] if each.type == "cuda"), torch.device("cpu"))


def _is_float(arg):
    """What Dynamo makes of a number of Python's."""
    return (
        isinstance(arg, torch.Tensor)
        and not isinstance(arg, torch.nn.Parameter)
        and arg.dtype == torch.float64
        and arg.dim() == 0
        and arg.device.type == "cpu"
    )


def _version(tensor):
    """Changes with the contents; what was made in inference mode has none."""
    return None if tensor.is_inference() else tensor._version


__all__ = ["TorchReport", "backend", "torch_reports"]
