"""What torch.export found out about sizes while it traced: a graph is what the module does where that holds."""

import math
import re

import torch

_SIZE = re.compile(r"(L(?:\[[^\[\]]+\])+)\.size\(\)\[(\d+)\]")


class Conditions:
    """`program`: a torch.export.ExportedProgram; `names`: what its inputs are called here, in their order."""

    def __init__(self, program, names):
        texts = getattr(program, "_guards_code", None) or []  # newer releases have it
        places = _places(program, names) if texts else {}
        self._checks = []  # (as a user reads it, code, the inputs whose shapes it needs)
        self._held = set()  # shapes for which all of them do
        for text in texts:
            used = [places.get(place) for place, _ in _SIZE.findall(text)]
            code = _SIZE.sub(lambda found: f"shapes[{places.get(found[1])!r}][{found[2]}]", text)
            if None not in used and "L[" not in code:
                read = _SIZE.sub(lambda found: f"{places[found[1]]}.shape[{found[2]}]", text)
                self._checks.append((read, compile(code, "<guard>", "eval"), used))

    def __bool__(self):
        return bool(self._checks)

    def broken(self, inputs):
        """The first that does not hold for these tensors, {name: tensor}; None if all do, as far as the tensors
        have shapes."""
        shapes = {name: tuple(each.shape) for name, each in inputs.items() if hasattr(each, "shape")}
        key = tuple(sorted(shapes.items()))
        if key in self._held:
            return None
        for text, code, used in self._checks:
            if all(name in shapes for name in used) and not eval(
                code, {"torch": torch, "math": math, "shapes": shapes}
            ):
                return text
        if len(self._held) < 4096:
            self._held.add(key)
        return None


def _places(program, names):
    """{how a guard calls an input, as "L['past'][0]": its name}"""
    signature = program.module_call_graph[0].signature
    arguments = getattr(signature, "forward_arg_names", None)
    positional, by_name = torch.utils._pytree.tree_unflatten(list(names), program.call_spec.in_spec)
    places = {}
    for key, value in [*zip(arguments or [], positional), *by_name.items()]:
        _note(places, f"L[{key!r}]", value)
    return places


def _note(places, path, value):
    if isinstance(value, str):
        places[path] = value
    elif isinstance(value, (dict, list, tuple)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            _note(places, f"{path}[{key!r}]", each)
