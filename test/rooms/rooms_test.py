"""Which room may include which: the table of the design, checked file by file."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ.get("FUSION_SOURCE", pathlib.Path(__file__).parents[2]))

# A folder, and the folders that its files may include; "mlir" stands for MLIR and LLVM. The longest folder that a file
# lies in counts.
ROOMS = {
    "ir/base": {"ir/base"},
    "ir/scalar": {"ir/scalar", "ir/base"},
    "ir": {"ir", "mlir"},
    "patterns": {"patterns", "ir", "mlir"},
    "passes": {"passes", "patterns", "ir", "mlir"},
    "codegen/device": {"codegen/device", "codegen/plan", "ir/base"},
    "codegen/target": {"codegen/target", "ir/base"},
    "codegen/plan": {"codegen/plan", "codegen/target", "ir/base"},
    "codegen": {"codegen", "ir", "mlir"},
    "runtime": {"runtime", "codegen/plan", "codegen/target", "codegen/device", "ir/base"},
    "api": {"api", "runtime", "codegen", "passes", "patterns", "ir", "mlir"},
    "tools": {"tools", "api", "ir/base", "mlir"},
    "tools/fusion-fuzz": {"tools", "api", "ir", "mlir"},  # compares the parts that others only use
    "python": {"python"},
    "examples": {"fusion"},
}
TOP = {room.split("/")[0] for room in ROOMS}
INSTALLED = ("api/Compare.h", "api/Decode.h", "api/Fusion.h", "api/Generate.h", "runtime/Results.h",
             "runtime/RunStatistics.h", "ir/base/", "codegen/plan/")


def included(text):
    """The files of this project, of MLIR or of the installed library that `text` includes."""
    for path in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.MULTILINE):
        first = path.split("/")[0]
        if "/" in path and (first in TOP or first in ("mlir", "llvm", "fusion")):
            yield path


def room_of(path):
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len)


def wrong_includes(path, text):
    """Those that point out of what the file's room may use."""
    allowed = ROOMS[room_of(path)]
    for include in included(text):
        target = re.sub(r"^llvm/", "mlir/", include)
        if not any(target.startswith(room + "/") for room in allowed):
            yield f"{path} includes {include}; {room_of(path)} may use {', '.join(sorted(allowed))}"


def sources():
    for top in TOP:
        for file in sorted((SOURCE / top).rglob("*")):
            if file.suffix in (".h", ".cpp", ".cuh", ".cu"):
                yield file.relative_to(SOURCE).as_posix(), file.read_text()


class RoomsTest(unittest.TestCase):
    def test_includes_point_the_right_way(self):
        files = list(sources())
        self.assertGreater(len(files), 300)
        for room in ROOMS:
            if (SOURCE / room).is_dir():
                self.assertTrue(any(room_of(path) == room for path, _ in files), room)
        self.assertEqual([], [line for path, text in files for line in wrong_includes(path, text)])

    def test_a_wrong_include_is_seen(self):
        for path, include in (
            ("runtime/Executor.cpp", '#include "passes/fuse/FusionReport.h"'),
            ("runtime/Executor.cpp", '#include "codegen/Schedule.h"'),
            ("runtime/cuda/Driver.h", '  # include "mlir/IR/Value.h"'),
            ("codegen/plan/Json.cpp", "#include <llvm/ADT/StringRef.h>"),
            ("ir/dialect/Dialect.h", '#include "passes/Passes.h"'),
            ("ir/base/Dim.h", '#include "ir/dialect/Dialect.h"'),
            ("codegen/Region.cpp", '#include "runtime/Executor.h"'),
            ("tools/Tool.cpp", '#include "codegen/BuildPlan.h"'),
            ("examples/streams/main.cpp", '#include "api/Fusion.h"'),
        ):
            self.assertEqual(1, len(list(wrong_includes(path, f"// a comment\n{include}\n"))),
                             (path, include))
        self.assertEqual([], list(wrong_includes("runtime/Executor.cpp", '#include "codegen/plan/Print.h"\n')))

    def test_public_headers_reach_only_what_is_installed(self):
        seen, left = set(), ["api/Compare.h", "api/Decode.h", "api/Fusion.h"]
        while left:
            path = left.pop()
            self.assertTrue(path.startswith(INSTALLED), f"{path} is not installed")
            seen.add(path)
            left += [include for include in included((SOURCE / path).read_text()) if include not in seen]
        self.assertGreater(len(seen), 3)


if __name__ == "__main__":
    unittest.main()
