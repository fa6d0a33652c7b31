"""python -m fusion TOOL ...: the tool fusion-TOOL."""

import sys

from . import __version__
from ._options import did_you_mean
from ._tools import NAMES, start

USAGE = """usage: python -m fusion TOOL [arguments]

  opt      import, rewrite, explain and print a graph
  run      run a graph, compare and time it
  compile  write a folder that runs without a compiler
  cache    list, check or clear compiled kernels

python -m fusion TOOL --help says what each takes; --version says the version."""


def main(arguments):
    if arguments in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    if arguments == ["--version"]:
        print(f"fusion {__version__}")
        return 0
    name = arguments[0].removeprefix("fusion-") if arguments else ""
    if name not in NAMES:
        said = f"there is no tool '{arguments[0]}'{did_you_mean(name, NAMES)}\n" if arguments else ""
        print(f"fusion: {said}{USAGE}" if said else USAGE, file=sys.stderr)
        return 2
    return start(name, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
