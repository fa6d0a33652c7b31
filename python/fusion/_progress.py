"""How long work shows how far it has come."""

from . import _core


def set_progress(show):
    """Where the steps of long work are shown, such as kernels that are compiled; for the whole process.

    show: True, as at first: stderr, where a line is drawn again on a terminal, else some lines; False:
        nowhere, nor other notes; or a function (title, step, done, total) that is called instead, with
        total 0 where the number of steps is not known. It is called by any thread; what it raises is printed
        and the work goes on.
    """
    if not isinstance(show, bool) and not callable(show):
        raise TypeError(f"True, False or a function is wanted, not {type(show).__name__}")
    _core.set_progress(show)
