"""Keyword arguments of compile() and Graph.explain() as options of the C interface."""

import difflib
import os

from . import _core
from ._errors import BadInput

# Argument: option of fusion.h.
_NAMES = {
    "device": "device",
    "target": "target",
    "fuse": "fuse",
    "disable": "fuse-disable",
    "patterns": "patterns",
    "kernels": "kernel",
    "profit": "profit",
    "tensor_parallel": "tp",
    "vocabulary_parallel": "tp-vocabulary",
    "launcher": "launcher",
    "kv_capacity": "kv-capacity",
    "assume_finite": "assume-finite",
    "batch_invariant": "batch-invariant",
    "cache": "cache",
}


def options_of(**arguments):
    options = _core.Options()
    rank = arguments.pop("rank", None)
    for name, value in arguments.items():
        if name not in _NAMES:
            near = difflib.get_close_matches(name, [*_NAMES, "rank"], 1)
            raise BadInput(f"there is no option '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        if value is None:
            continue
        if name == "kernels":
            value = [f"{kernel}={os.fspath(path)}" for kernel, path in dict(value).items()]
        for each in value if isinstance(value, (list, tuple, set)) else [value]:
            text = (
                "1"
                if each is True
                else "0" if each is False else os.fspath(each) if isinstance(each, os.PathLike) else str(each)
            )
            options.set(_NAMES[name], text)
    if rank is not None:
        options.rank(rank.rank, rank.ranks, rank.gpu, rank.host, rank.all_gather)
    return options
