"""Keyword arguments of compile() and of Graph's methods as options of the C interface."""

import difflib
import inspect
import os

from . import _core
from ._errors import BadInput

# Argument: option of fusion.h, and what holds where it is not given.
_OPTIONS = {
    "device": ("device", "auto"),
    "target": ("target", None),
    "fuse": ("fuse", True),
    "disable": ("fuse-disable", ()),
    "patterns": ("patterns", ()),
    "kernels": ("kernel", None),
    "profit": ("profit", "auto"),
    "kv_capacity": ("kv-capacity", None),
    "donate_caches": ("donate-caches", False),
    "tensor_parallel": ("tp", 1),
    "vocabulary_parallel": ("tp-vocabulary", False),
    "rank": (None, None),
    "launcher": ("launcher", False),
    "assume_finite": ("assume-finite", True),
    "batch_invariant": ("batch-invariant", False),
    "cache": ("cache", None),
}


def did_you_mean(word, known):
    """'; did you mean ...?', or nothing if none of the known words is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def with_options(function):
    """Shows the options in the signature of a function that takes them as **options: they are listed once."""
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    named += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, (_, default) in _OPTIONS.items()
    ]
    function.__signature__ = signature.replace(parameters=named)
    return function


def _text(value):
    if isinstance(value, bool):
        return "1" if value else "0"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def options_of(**arguments):
    options = _core.Options()
    rank = arguments.pop("rank", None)
    for name, value in arguments.items():
        if name not in _OPTIONS:
            raise BadInput(f"there is no option '{name}'" + did_you_mean(name, _OPTIONS))
        if value is None:
            continue
        if name == "kernels":
            value = [f"{kernel}={os.fspath(path)}" for kernel, path in dict(value).items()]
        for each in value if isinstance(value, (list, tuple, set)) else [value]:
            options.set(_OPTIONS[name][0], _text(each))
    if rank is not None:
        options.rank(rank.rank, rank.ranks, rank.gpu, rank.host, rank.all_gather)
    return options
