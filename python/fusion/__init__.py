"""Compiles transformer graphs for NVIDIA GPUs by fusing neighbouring operators into one kernel, and runs
them.

    import fusion, numpy
    program = fusion.compile("model.onnx")
    outputs = program(input_ids=numpy.zeros((1, 16), "int64"))
    print(program.report)

What a function cannot do is an exception with one line: BadInput (an argument, file or tensor that cannot be
used), Lacking (the machine has not what is needed, and the line names it), AnswerIsNo (a check failed).
"""

from ._errors import AnswerIsNo, BadInput, Error, Lacking, Unsupported
from ._graph import Explanation, Graph, Port, explain, from_exported, load
from ._pretrained import from_pretrained
from ._program import Caches, Profile, Program, Rank, compile
from ._progress import set_progress
from ._report import Change, Miss, Report, Site
from ._tensor import Tensor
from ._torch_report import TorchReport, torch_reports
from . import _core

__version__ = _core.version
__all__ = [
    "AnswerIsNo",
    "BadInput",
    "Caches",
    "Change",
    "Error",
    "Explanation",
    "Graph",
    "Lacking",
    "Miss",
    "Port",
    "Profile",
    "Program",
    "Rank",
    "Report",
    "Site",
    "Tensor",
    "TorchReport",
    "Unsupported",
    "compile",
    "explain",
    "from_exported",
    "from_pretrained",
    "load",
    "set_progress",
    "torch_reports",
]

