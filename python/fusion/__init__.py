"""Compiles transformer graphs for NVIDIA GPUs by fusing neighbouring operators into one kernel, and runs
them.

    import fusion, numpy
    program = fusion.compile("model.onnx")
    outputs = program(input_ids=numpy.zeros((1, 16), "int64"))
    print(program.report)

What a function cannot do is an exception with one line: BadInput (an argument, file or tensor that cannot be
used), Lacking (the machine has not what is needed, and the line names it), AnswerIsNo (a check failed).
"""

from ._errors import AnswerIsNo, BadInput, Error, Lacking
from ._graph import Explanation, Graph, Port, load
from ._program import Caches, Profile, Program, Rank, compile
from ._report import Report
from ._tensor import Tensor
from . import _core

__version__ = _core.version
__all__ = [
    "AnswerIsNo",
    "BadInput",
    "Caches",
    "Error",
    "Explanation",
    "Graph",
    "Lacking",
    "Port",
    "Profile",
    "Program",
    "Rank",
    "Report",
    "Tensor",
    "TorchReport",
    "Unsupported",
    "compile",
    "from_exported",
    "from_pretrained",
    "load",
    "torch_reports",
]


def __getattr__(name):  # those need torch, which the rest does not
    if name == "from_exported":
        from ._exported import from_exported

        return from_exported
    if name in ("TorchReport", "torch_reports"):
        from . import _dynamo

        return getattr(_dynamo, name)
    if name == "Unsupported":
        from ._aten import Unsupported

        return Unsupported
    if name == "from_pretrained":
        from ._pretrained import from_pretrained

        return from_pretrained
    raise AttributeError(f"module 'fusion' has no attribute {name!r}")
