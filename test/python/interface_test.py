"""What people expect of the module: plain values, reports as objects, help, progress, tools."""

import copy
import inspect
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import fusion
from module_test import EXAMPLE, addition


class InterfaceTest(unittest.TestCase):
    def test_inputs_by_place_and_plain_values(self):
        program = fusion.compile(addition(), device="cpu")
        x = np.ones((1, 32), "float32")
        want = program(x=x)["y"]
        for given in (x, {"x": x}, [[1] * 32], [[1.0] * 32], tuple([[True] * 32])):
            got = program(given)["y"]
            self.assertEqual(got.dtype, want.dtype)
            np.testing.assert_array_equal(got, want)
        for wrong, reason in (
            (lambda: program(x, x), "2 tensors for 1 inputs: x"),
            (lambda: program(x, x=x), "input x is given by its place and by its name"),
            (lambda: program(X=x), "unknown input X: expected x; did you mean 'x'"),
            (lambda: program(x=[[1], [2, 3]]), "input x: .*inhomogeneous"),
            (lambda: program(x=["a"]), "input x: could not convert"),
            (lambda: program(), "missing input x"),
        ):
            with self.assertRaisesRegex(fusion.BadInput, reason):
                wrong()
        ids = fusion.compile(EXAMPLE / "model.onnx", device="cpu")
        with self.assertRaisesRegex(fusion.BadInput, "input input_ids"):
            ids(input_ids=[[2**70]])

    def test_a_report_is_an_object(self):
        explanation = fusion.explain(EXAMPLE / "model.onnx", "plan")
        report = explanation.report
        self.assertIn("kernel", str(explanation))
        self.assertIn("srcdoc", explanation._repr_html_())
        self.assertLess(report.kernels.after, report.kernels.before)
        self.assertEqual(len([site for site in report.sites if site.fusion == "rope"]), report.fired("rope"))
        first = report.sites[0]
        found = (first.fusion, first.location, first.ops[0])
        self.assertEqual(found, ("pointwise", "m.model.rotary_emb", "nn.iota"))
        saves = [miss.bytes for miss in report.misses]
        self.assertEqual(saves, sorted(saves, reverse=True))
        self.assertGreater(saves[0], 0)
        self.assertTrue(all(miss.reason for miss in report.misses))
        facts = report.json()
        missed = sum(len(each["missed"]) for each in facts["patterns"].values() if each["applies"])
        self.assertEqual(len(saves), missed)
        self.assertRegex(repr(report), r"<fusion.Report of .*model.onnx for sm_90a: kernels 45 -> \d+, ")
        same = pickle.loads(pickle.dumps(report))
        self.assertEqual((same.sites, same.html()), (report.sites, report.html()))
        self.assertEqual(report.fired("rms_norm"), 5)  # a named op
        with self.assertRaisesRegex(fusion.BadInput, "no fusion 'ropes'; did you mean 'rope'"):
            report.require("ropes", 2)
        with self.assertRaisesRegex(fusion.AnswerIsNo, "fired 1 times, 5 are required; missed at m.model"):
            report.require("add_norm", 5)

    def test_programs_are_shared_by_copies_and_not_pickled(self):
        program = fusion.compile(addition(), device="cpu")
        self.assertIs(copy.deepcopy({"a": [program]})["a"][0], program)
        graph = fusion.load(addition())
        self.assertIs(copy.copy(graph), graph)
        for each, reason in ((program, "write_bundle"), (graph, "pickle what load")):
            with self.assertRaisesRegex(TypeError, reason):
                pickle.dumps(each)

    def test_progress(self):
        steps = []
        graph = fusion.load(EXAMPLE / "model.onnx")
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, FUSION_CACHE_DIR=cache):
            fusion.set_progress(lambda *step: steps.append(step))
            try:
                fusion.compile(graph, device="emulate")(input_ids=np.ones((1, 4), "int64"))
            finally:
                fusion.set_progress(True)
        title, step, done, total = steps[0]
        self.assertEqual((title, done), ("compile kernels for emulation", 1))
        self.assertGreaterEqual(total, 1)
        with self.assertRaisesRegex(TypeError, "True, False or a function"):
            fusion.set_progress(3)

    def test_signatures_name_the_options(self):
        for function in (fusion.compile, fusion.explain, fusion.Graph.explain, fusion.Graph.write_bundle):
            parameters = inspect.signature(function).parameters
            self.assertEqual(parameters["device"].default, "auto", function)
            self.assertNotIn("options", parameters)
        for option in inspect.signature(fusion.compile).parameters:
            self.assertRegex(fusion.compile.__doc__, rf"(?m)^    {option}: ", "has no line")

    def test_everything_public_says_what_it_does(self):
        for name in fusion.__all__:
            thing = getattr(fusion, name)
            self.assertTrue(inspect.getdoc(thing), name)
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    self.assertTrue(inspect.getdoc(value), f"{name}.{member}")

    def test_tools_by_the_module(self):
        def module(*arguments):
            command = [sys.executable, "-m", "fusion", *arguments]
            return subprocess.run(command, capture_output=True, text=True)

        self.assertIn("usage: python -m fusion TOOL", module("--help").stdout)
        self.assertEqual(module("--version").stdout, f"fusion {fusion.__version__}\n")
        wrong = module("compil")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("no tool 'compil'; did you mean 'compile'?", wrong.stderr)
        here = module("opt", "--version")  # of a build folder, which has no tools in the package
        self.assertEqual((here.returncode, here.stderr[:36]), (3, "fusion: this package has no fusion-o"))


if __name__ == "__main__":
    unittest.main()
