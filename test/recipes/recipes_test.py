"""An activation is known to three source files: its formula, its device function, its meaning on the CPU."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ.get("FUSION_SOURCE", pathlib.Path(__file__).parents[2]))
ROOMS = ("ir", "patterns", "passes", "codegen", "runtime", "api", "tools")
# Who reads graphs knows ops by their names: the importer, and what raises those that graphs spell out.
# So does the fuzzer, which writes graphs as tests do.
READERS = ("ir/import/", "passes/raise/", "tools/fusion-fuzz/")
MOST = 3


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def names(code, op):
    """Whether the code names the op, by itself or in the name of what is made for it: SiluOp, silu_near."""
    return re.search(rf"(?<![A-Za-z]){op}(?![a-z])|{op.capitalize()}(?![a-z])", code) is not None


def sources():
    for room in ROOMS:
        for file in sorted((SOURCE / room).rglob("*")):
            path = file.relative_to(SOURCE).as_posix()
            if file.suffix in (".h", ".cpp", ".cuh", ".pdll", ".py") and not path.startswith(READERS):
                yield path, without_comments(file.read_text())


def activations():
    """The ops with the Activation trait. tanh and sigmoid are functions as well, which others call."""
    text = (SOURCE / "ir/dialect/NNPointwise.td").read_text()
    found = re.findall(r'NN_\w+<"(\w+)"[^>]*\[[^\]]*NN_Activation', text)
    return [op for op in found if op not in ("tanh", "sigmoid")]


class RecipesTest(unittest.TestCase):
    def test_an_activation_is_named_in_three_files_at_most(self):
        files = list(sources())
        self.assertGreater(len(files), 250)
        self.assertLessEqual({"silu", "relu", "gelu"}, set(activations()))
        for op in activations() + ["softplus"]:
            with self.subTest(op):
                known = [path for path, code in files if names(code, op)]
                self.assertIn("ir/dialect/Formulas.cpp", known)
                self.assertLessEqual(len(known), MOST, f"{op}, in {known}: ask a trait or an interface")

    def test_ops_are_not_listed_with_their_kin(self):
        """A list of several activations is one that the next activation is missing in."""
        kin = ["silu", "relu", "gelu", "tanh", "sigmoid"]
        meanings = ("ir/dialect/Formulas.cpp", "ir/reference/Pointwise.cpp", "codegen/device/math.cuh")
        for path, code in sources():
            if path not in meanings:
                self.assertLess(sum(names(code, op) for op in kin), 2, path)

    def test_names_are_seen(self):
        for text in ("isa<nn::SiluOp>(op)", 'op == "nn.silu"', "silu_near(x)", "Forms siluForms{silu};"):
            self.assertTrue(names(text, "silu"), text)
        for text in ("// silu", "/* silu */", "consilum(x)", "basiluOp"):
            self.assertFalse(names(without_comments(text), "silu"), text)


if __name__ == "__main__":
    unittest.main()
