"""The exceptions; the number of each is the exit code that the tools have for it."""

from . import _core


class Error(Exception):
    """Something that could not be done; str() is one line for a person."""


class AnswerIsNo(Error):
    """A comparison failed or a requirement was not met."""


class BadInput(Error, ValueError):
    """An argument, file or tensor that cannot be used."""


class Unsupported(BadInput):
    """An op or value of a PyTorch graph that cannot be imported; the message says which and why."""


class Lacking(Error, RuntimeError):
    """The machine lacks something; the message names what to install or set."""


_core.set_errors(AnswerIsNo, BadInput, Lacking)
