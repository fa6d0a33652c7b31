"""The pages that scripts/docs.sh makes, but for what needs its own installation."""

import os
import pathlib
import re
import shutil
import unittest

from docs_test import BINARIES, SOURCE, TOOLS, help_of  # which knows where scripts/docs is

import drawings, headers, reference  # noqa: E401, E402


class Generated(unittest.TestCase):
    def test_options(self):
        page = reference.flags(BINARIES)
        for tool in TOOLS:
            section = re.search(rf"^## {tool}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]
            rows = set(re.findall(r"^\| `(-{1,2}[a-z0-9-]+)", section, re.MULTILINE))
            self.assertGreaterEqual(rows, {"--help", "--version"})
            self.assertEqual(set(), rows - help_of(tool))
            self.assertEqual(len(rows), len(re.findall(r"^\| `-", section, re.MULTILINE)))
        self.assertRegex(
            page, r"\| `--profit=\S+` \| What decides between fusions \(default auto\); `auto`: \w"
        )

    def test_ops(self):
        if not shutil.which("mlir-tblgen-22") or not shutil.which("llvm-tblgen-22"):
            self.skipTest("no mlir-tblgen-22 here")
        include = os.environ.get("FUSION_MLIR_INCLUDE", "/usr/lib/llvm-22/include")
        page = reference.ops(SOURCE, pathlib.Path(include))
        found = re.findall(r"^### ([\w.]+)$", page, re.MULTILINE)
        self.assertEqual(len(found), len(set(found)))
        self.assertGreater(len(found), 70)
        self.assertGreaterEqual(
            set(found), {"nn.add", "nn.sample", "nn.attention", "fusion.group", "fusion.yield"}
        )
        self.assertIn("\n### nn.add\n\na + b\n", page)
        self.assertNotIn("::fusion::nn", page)
        self.assertIn("Row rows\\[i] of the result", page)  # an index, not a link

    def test_python(self):
        page = reference.python(SOURCE / "python/fusion")
        names = re.search(
            r"__all__ = \[(.*?)\]", (SOURCE / "python/fusion/__init__.py").read_text(), re.DOTALL
        )[1]
        shown = re.findall(r"^::: fusion\.(\w+)$", page, re.MULTILINE)
        self.assertEqual(sorted(shown), sorted(re.findall(r'"(\w+)"', names)))

    def test_headers(self):
        if not shutil.which("doxygen"):
            self.skipTest("no doxygen here")
        page = headers.reference("C", "", SOURCE, ["api/c/fusion.h"], "c")
        self.assertIn("- `FUSION_BAD_INPUT = 2`: an argument, file or tensor that cannot be used", page)
        self.assertIn("kv-capacity", page)
        page = headers.reference("C++", "", SOURCE, headers.public_headers(SOURCE), "cpp")
        self.assertIn("- `int64_t topK = 0`: draws among this many most likely tokens; 0: among all", page)
        self.assertIn("static Result<Graph> load(const ModelBytes &model,", page)
        self.assertNotIn("private", re.sub(r"```.*?```", "", page, flags=re.DOTALL))

    def test_drawings(self):
        if not shutil.which("dot"):
            self.skipTest("no graphviz here")
        before, after = drawings.before_and_after(
            BINARIES / "fusion-opt", SOURCE / "docs/fusions/add_norm.mlir"
        )
        texts = [re.findall(r"<text[^>]*>([^<]*)</text>", each) for each in (before, after)]
        self.assertIn("nn.rms_norm", texts[0])
        self.assertNotIn("add_norm", texts[0])
        self.assertIn("add_norm", texts[1])
        for each in texts:
            self.assertEqual(
                each.count("bf16 [rows, 4096]"), 4 + (each is texts[0])
            )  # four ports, one op to the next


if __name__ == "__main__":
    unittest.main()
