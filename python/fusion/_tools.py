"""The tools that lie in the wheel, as commands: fusion-opt, fusion-run, fusion-compile, fusion-cache."""

import os
import sys

NAMES = ("opt", "run", "compile", "cache")


def start(name, arguments):
    """Becomes the tool; returns 3 where the package has been built without it."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", f"fusion-{name}")
    if not os.path.isfile(program):
        said = f"fusion: this package has no fusion-{name}: `pip install .` in a clone builds it"
        print(said, file=sys.stderr)
        return 3
    sys.stdout.flush()
    os.execv(program, [f"fusion-{name}", *arguments])


def opt():
    return start("opt", sys.argv[1:])


def run():
    return start("run", sys.argv[1:])


def compile():
    return start("compile", sys.argv[1:])


def cache():
    return start("cache", sys.argv[1:])
