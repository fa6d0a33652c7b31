"""ATen graphs (torch.fx, functional) as ONNX graphs without weights. One handler an op, in _aten_ops.py."""

import operator

import torch

from . import _onnx
from ._aten_sizes import Sizes
from ._errors import Unsupported

HANDLERS = {}
COMPLEX = {}  # of ops that take or make complex tensors


def handler(*names, tables=(HANDLERS,)):
    """Registers a function (importer, node, *args, **kwargs) -> name of the value, or a list of names, for
    ops by name."""

    def register(function):
        for table in tables:
            table.update(dict.fromkeys(names, function))
        return function

    return register


def op_name(node):
    """'add.Tensor' of torch.ops.aten.add.Tensor; None for what is no ATen op."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    space = target.namespace
    name = target._schema.name.split("::")[-1] + "." + target._overloadname
    return name if space == "aten" else f"{space}::{name}"


def find(node):
    """The handler of a node: of its overload, or of all overloads."""
    name = op_name(node)
    table = COMPLEX if any(is_complex(each) for each in _tensors(node)) else HANDLERS
    return None if name is None else table.get(name) or table.get(name.rsplit(".", 1)[0])


def is_complex(value):
    return isinstance(value, torch.Tensor) and value.is_complex()


def real_type(dtype):
    """The name of the type in which elements are held: of complex ones that of their parts."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype_name(dtype), dtype_name(dtype))


def _tensors(node):
    """The tensors, as values of a trace, that a node makes and takes."""
    values = [node.meta.get("val")] + [arg.meta.get("val") for arg in node.all_input_nodes]
    return [
        tensor
        for value in values
        for tensor in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(tensor, torch.Tensor)
    ]


def is_symbolic(node):
    """Whether a node computes sizes: those follow from the sizes of inputs."""
    value = node.meta.get("val")
    return isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat, int, bool))


_SKIPPED = (
    "_assert_async",
    "_assert_tensor_metadata",
    "_assert_scalar",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)


def why_not(node):
    """Why a call cannot be imported; None if it can, as far as op and types say."""
    if node.op != "call_function" or node.target is operator.getitem or is_symbolic(node):
        return None
    name = op_name(node)
    if name is None:
        return f"{node.target} is no ATen op"
    if name.split(".")[0] in _SKIPPED:
        return None
    for tensor in _tensors(node):
        if real_type(tensor.dtype) not in _onnx.TYPES or (tensor.is_complex() and find(node) is None):
            return f"aten.{name} with elements of type {tensor.dtype}"
    return f"aten.{name} is not known" if find(node) is None else None


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def widened(dtype):
    """The type in which PyTorch computes an op on 16-bit floats, before it rounds the result once."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


class Importer:
    """Walks one fx graph. `weights`: placeholders whose tensors are known, as {placeholder's name: (weight's
    name, tensor)}. `names` and `dims`: what to call other placeholders and their dims. `within_torch`: the
    graph is PyTorch's, which looks at what was asked of sizes meanwhile; its complex inputs and results are
    real ones, with a last dim for the two parts."""

    def __init__(self, graph_module, weights=None, names=None, dims=None, within_torch=False):
        self.gm, self.weights, self.names, self.dims = graph_module, weights or {}, names or {}, dims or {}
        self.within_torch = within_torch
        self._dim_names = {}  # symbol -> symbol of the name that it is given
        self.b = _onnx.Builder()
        self.values = {}  # node -> name, or list of names
        self.given = {}  # weight's name -> tensor
        self.inputs = []  # (name, placeholder) of the model's inputs, in order
        self._known_sizes = Sizes(self.b, self.op, self.inputs)
        self._path = ""

    def run(self, output_names):
        """The model's bytes; `output_names(count)` names its outputs."""
        for node in self.gm.graph.nodes:
            if node.op == "output":
                self._output(node, output_names)
            else:
                self.visit(node)
        return self.b.model()

    # Nodes.
    def visit(self, node):
        """Adds one; raises Unsupported with its name and the reason."""
        self._path = module_path(node)
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "get_attr":
            self._attribute(node)
        elif node.op == "call_function":
            self._call(node)
        elif node.op != "output":
            raise Unsupported(f"{node.op} {node.target} is no ATen op")

    def assume(self, node):
        """Takes a node that cannot be added for an input, or several."""
        value = node.meta.get("val")
        if isinstance(value, (list, tuple)):
            self.values[node] = [None] * len(value)  # see _call()
            return
        try:
            self._placeholder(node)
        except Unsupported:  # its type
            self.values[node] = self.b.fresh(node.name)

    def _placeholder(self, node):
        value = node.meta.get("val")
        if node.name in self.weights:
            self._weight(node, *self.weights[node.name])
        elif isinstance(value, torch.Tensor):
            name = self.names.get(node.name, node.name)
            for dim, given in zip(value.shape, self.dims.get(node.name, ())):
                if given and isinstance(dim, torch.SymInt) and dim.node.expr.is_symbol:
                    self._dim_names.setdefault(dim.node.expr, type(dim.node.expr)(given))
            dims = self._dims(value)
            self.b.input(name, self._type(node, value), dims)
            for axis, dim in enumerate(value.shape):
                if isinstance(dim, torch.SymInt):
                    self._known_sizes.learn_dim(dim.node.expr, name, axis)
            self.inputs.append((name, node))
            self.values[node] = name
        elif isinstance(value, torch.SymInt):
            self._known_sizes.learn_number(value.node.expr, node)

    def _attribute(self, node):
        tensor = self.gm
        for part in node.target.split("."):
            tensor = getattr(tensor, part)
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported(f"the attribute {node.target} is no tensor")
        self._weight(node, node.target, tensor)

    def _weight(self, node, name, tensor):
        tensor = tensor.detach()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        dtype = self._type(node, tensor)
        if name not in self.given:
            if tensor.dim() == 0 or tensor.numel() <= 16:
                self.values[node] = self.tensor(tensor)
                return
            self.given[name] = tensor
            self.b.weight(name, dtype, list(tensor.shape))
        self.values[node] = name

    def _call(self, node):
        if is_symbolic(node):
            return  # see size()
        if node.target is operator.getitem:
            whole = self.values.get(node.args[0])
            if isinstance(whole, list) and node.args[1] < len(whole) and whole[node.args[1]] is not None:
                self.values[node] = whole[node.args[1]]
            elif node.users:
                raise Unsupported(
                    f"{self.where(node)}: result {node.args[1]} of {op_name(node.args[0])} is not computed"
                )
            return
        reason = why_not(node)
        if reason:
            raise Unsupported(f"{self.where(node)}: {reason}")
        if op_name(node).split(".")[0] in _SKIPPED:
            return
        try:
            self.values[node] = find(node)(self, node, *node.args, **node.kwargs)
        except Unsupported as problem:
            raise Unsupported(f"{self.where(node)}: aten.{op_name(node)}: {problem}") from None

    def _output(self, node, output_names):
        results = [node.args[0]] if isinstance(node.args[0], torch.fx.Node) else list(node.args[0])
        tensors = [
            each
            for each in results
            if isinstance(each, torch.fx.Node) and isinstance(each.meta.get("val"), torch.Tensor)
        ]
        if len(tensors) != len(results):
            raise Unsupported("a result is no tensor")
        for name, each in zip(output_names(len(results)), tensors):
            value = each.meta["val"]
            self.b.output(name, self.value(each), self._type(each, value), self._dims(value))

    def _dims(self, tensor):
        """A fake tensor's dims: numbers, and expressions as text."""
        exprs = [dim if isinstance(dim, int) else dim.node.expr for dim in tensor.shape]
        dims = [
            int(e) if isinstance(e, int) or e.is_number else str(e.xreplace(self._dim_names)) for e in exprs
        ]
        return [*dims, 2] if is_complex(tensor) else dims

    def _type(self, node, tensor):
        name = real_type(tensor.dtype)
        if name not in _onnx.TYPES or (tensor.is_complex() and not self.within_torch):
            raise Unsupported(f"{node.name}: elements of type {tensor.dtype}")
        return name

    @staticmethod
    def where(node):
        path = module_path(node)
        return f"{node.name} in {path}" if path else node.name

    # For handlers.
    def op(self, name, inputs, outputs=1, **attributes):
        """Adds an ONNX node on values or names."""
        return self.b.node(
            name,
            [each if isinstance(each, str) else self.value(each) for each in inputs],
            outputs,
            self._path,
            **attributes,
        )

    def value(self, node):
        """The name of a node's value."""
        found = self.values.get(node)
        if not isinstance(found, str):
            raise Unsupported(f"{node} is no tensor")
        return found

    @staticmethod
    def meta(node):
        return node.meta["val"]

    def dtype(self, node):
        return dtype_name(node.meta["val"].dtype)

    def shape(self, node):
        return node.meta["val"].shape

    def held(self, node):
        """The shape in which a tensor is held: of a complex one with a last dim for its two parts."""
        shape = list(self.shape(node))
        return [*shape, 2] if is_complex(self.meta(node)) else shape

    def tensor(self, tensor):
        """A small tensor as a constant."""
        tensor = tensor.detach().cpu().contiguous()
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        return self.b.constant(dtype_name(tensor.dtype), list(tensor.shape), data)

    def scalar(self, value, dtype):
        """A number as a constant of no dims."""
        return self.tensor(torch.tensor(value, dtype=getattr(torch, dtype)))

    def cast(self, name, source, target):
        return name if source == target else self.op("Cast", [name], to=_onnx.TYPES[target])

    def known(self, arg):
        """A number, or the contents of a constant without dims; None of what is not known at import."""
        if isinstance(arg, torch.fx.Node) and arg.name in self.weights:
            tensor = self.weights[arg.name][1]
            return tensor.item() if tensor.dim() == 0 else None
        return arg if isinstance(arg, (int, float)) else None

    def operand(self, arg, dtype):
        """A tensor or number as a value of that type."""
        if self.known(arg) is not None:
            return self.scalar(self.known(arg), dtype)
        if isinstance(arg, torch.fx.Node) and isinstance(arg.meta["val"], torch.Tensor):
            return self.cast(self.value(arg), self.dtype(arg), dtype)
        if isinstance(arg, torch.fx.Node) or isinstance(arg, torch.SymInt):
            return self.cast(self.op("Squeeze", [self.size(arg), self.b.ints([0])]), "int64", dtype)
        return self.scalar(arg, dtype)

    def sizes(self, args):
        """Sizes, numbers or nodes, as one int64 vector."""
        if all(isinstance(self._number(arg), int) for arg in args):
            return self.b.ints([self._number(arg) for arg in args])
        return self.op("Concat", [self.size(arg) for arg in args], axis=0)

    @property
    def lengths(self):
        """Of `inputs` those whose length makes a number that is given: {name: (factor, sum)}, where it is
        factor * length + sum."""
        return self._known_sizes.lengths

    def fixed(self, size, what):
        """A size as a number: where it is none, and the graph is compiled for the sizes of a call, that of this
        call, which then are the only ones that it is for."""
        if self.within_torch and isinstance(size, torch.SymInt):
            return int(size)
        return number(size, what)

    @staticmethod
    def _number(arg):
        value = arg.meta.get("val") if isinstance(arg, torch.fx.Node) else arg
        if isinstance(value, torch.SymInt) and value.node.expr.is_number:
            return int(value)
        return value

    def size(self, arg):
        """One size as an int64 vector of one element."""
        value = self._number(arg)
        if isinstance(value, (int, bool)):
            return self.b.ints([int(value)])
        if not isinstance(value, torch.SymInt):
            raise Unsupported(f"{arg} is no size")
        return self._known_sizes.value(value.node.expr, value.node.shape_env)

    def reshape(self, value, sizes):
        """To sizes of which -1 is one at most; one of 0 is that."""
        return self.op("Reshape", [value, sizes if isinstance(sizes, str) else self.sizes(sizes)], allowzero=1)


def module_path(node):
    """The innermost module that a node comes from: 'model.layers.0.mlp'."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = list(stack.values())[-1]
    path = path[0] if isinstance(path, tuple) else str(path)
    path = (
        path.replace("L['self'].", "")
        .replace("L['self']", "")
        .replace("['", ".")
        .replace("']", "")
        .replace("[", ".")
        .replace("]", "")
    )
    return "" if not all(c.isalnum() or c in "._" for c in path) else path.strip(".").replace("_modules.", "")


def number(arg, what):
    """A number that is known at import."""
    if isinstance(arg, torch.fx.Node):
        arg = arg.meta.get("val")
    if isinstance(arg, (int, float, bool)):
        return arg
    if isinstance(arg, (torch.SymInt, torch.SymFloat)) and arg.node.expr.is_number:
        return float(arg) if isinstance(arg, torch.SymFloat) else int(arg)
    raise Unsupported(f"{what} is not known at import")
