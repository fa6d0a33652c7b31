"""torch.export's programs as graphs."""

import os

import torch

from . import _aten_complex, _aten_indices, _aten_layers, _aten_linalg  # noqa: F401: they register
from . import _aten_ops, _aten_shapes, _aten_wide  # noqa: F401
from ._aten import HANDLERS, Importer
from ._errors import BadInput, Unsupported
from ._exported_sizes import Conditions
from ._graph import load


def decompositions(table):
    """Without those of ops that are imported as they are."""
    for op in list(table):
        name = op._schema.name.split("::")[-1] if isinstance(op, torch._ops.OpOverload) else None
        if name and op.namespace == "aten" and (name in HANDLERS or f"{name}.{op._overloadname}" in HANDLERS):
            table.pop(op)
    return table


def from_exported(program, input_names, input_dims, options):
    """As fusion.from_exported() says."""
    if isinstance(program, (str, os.PathLike)):
        program = torch.export.load(os.fspath(program))
    names = dict(zip(program.graph_signature.user_inputs, input_names or []))
    conditions = Conditions(program, [names.get(each, each) for each in program.graph_signature.user_inputs])
    program = program.run_decompositions(decompositions(torch.export.default_decompositions()))
    signature = program.graph_signature
    if signature.buffers_to_mutate or getattr(signature, "user_inputs_to_mutate", None):
        changed = [
            *signature.buffers_to_mutate.values(),
            *getattr(signature, "user_inputs_to_mutate", {}).values(),
        ]
        raise Unsupported(
            f"the module changes {', '.join(changed[:3])}: a graph has no state; return it instead"
        )
    weights = {}
    for name, target in {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }.items():
        tensor = program.state_dict.get(target)
        weights[name] = (target, program.constants[target] if tensor is None else tensor)
    if input_names is not None and len(input_names) != len(signature.user_inputs):
        raise BadInput(f"{len(input_names)} names for {len(signature.user_inputs)} inputs")
    importer = Importer(
        program.graph_module,
        weights,
        dict(zip(signature.user_inputs, input_names or [])),
        dict(zip(signature.user_inputs, input_dims or [])),
    )
    model = importer.run(lambda count: _output_names(program, count))
    weights = weight_tensors(importer.given)
    graph = load(model, weights=weights, **{"name": "exported program", **options})
    graph._conditions = conditions or None
    return graph


def weight_tensors(tensors):
    """As load() takes them: on the host or a GPU, without gaps, and what fills them done."""
    dense = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    for device in {tensor.device for tensor in dense.values() if tensor.is_cuda}:
        torch.cuda.synchronize(device)
    return dense


def _output_names(program, count):
    names = []
    try:
        _walk(program.call_spec.out_spec, "", names)
    except (AttributeError, TypeError):
        names = []
    if len(names) != count or len(set(names)) != count:
        names = [f"output_{i}" for i in range(count)]
    return names


def _walk(spec, prefix, names):
    """The names of a tree's leaves: keys of dicts, positions in lists."""
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    if spec.is_leaf():
        names.append(prefix or "output_0")
        return
    keys = spec.context
    if keys and isinstance(keys, (list, tuple)) and isinstance(keys[0], (list, tuple)):
        keys = keys[0]
    if not (
        isinstance(keys, (list, tuple))
        and len(keys) == len(children)
        and all(isinstance(key, str) for key in keys)
    ):
        keys = [f"output_{i}" if not prefix else str(i) for i in range(len(children))]
    for key, child in zip(keys, children):
        _walk(child, f"{prefix}.{key}" if prefix else key, names)
