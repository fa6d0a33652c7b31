"""The examples in Python do what their pages say. Those in C++ and C: test/install."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["FUSION_SOURCE"])
EXAMPLES = SOURCE / "examples"
LLAMA = [EXAMPLES / "llama" / name for name in ("model.onnx", "inputs.safetensors", "outputs.safetensors")]
DECODER = SOURCE / "test/data/graphs/llama-fp16-decode/model.onnx"


class Examples(unittest.TestCase):
    def run_example(self, path, *arguments, exit=0, also=""):
        """`also`: one more folder that modules are looked for in."""
        command = [sys.executable, EXAMPLES / path, *arguments]
        environment = dict(os.environ, PYTHONPATH=f"{os.environ['PYTHONPATH']}:{also}")
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=240, env=environment
        )
        self.assertEqual(done.returncode, exit, done.stdout + done.stderr)
        return done.stdout

    def test_python_run(self):
        self.assertRegex(
            self.run_example("python_run/run.py", *LLAMA), r"logits: relative L2 error \d\.\d+e-0[3-9]"
        )
        self.run_example("python_run/run.py", EXAMPLES / "none.onnx", *LLAMA[1:], exit=2)

    def test_python_generate(self):
        """A token depends on those before it: the tokens of a longer prompt are those that follow."""
        first = (
            self.run_example("python_generate/generate.py", DECODER, "6", "1", "15", "7")
            .split(":")[1]
            .split()
        )
        self.assertEqual(len(first), 6)
        rest = self.run_example("python_generate/generate.py", DECODER, "3", "1", "15", "7", *first[:3])
        self.assertEqual(rest.split(":")[1].split(), first[3:])

    def test_patterns(self):
        out = self.run_example("patterns/gated_norm.py")
        self.assertIn("2 kernels without it, 1 with it", out)

    def test_contract(self):
        contract = EXAMPLES / "contract/contract.json"
        self.assertIn("rope: 2", self.run_example("contract/contract.py", LLAMA[0], contract))
        other = SOURCE / "test/data/graphs/bert-fp32-op18/model.onnx"
        broken = self.run_example("contract/contract.py", other, contract, exit=1)
        self.assertRegex(broken, r"rope fired 0 times, 2 are required")

    def test_torch_compile(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.assertIn("torch is not installed", self.run_example("torch_compile/compile.py", exit=77))
            self.skipTest("torch is not installed")
        # What an installed wheel says about itself: the name of the backend.
        project = (SOURCE / "pyproject.toml").read_text()
        entry = re.search(r'torch_dynamo_backends"\]\n(\w+) = "([\w.:]+)"', project)
        with tempfile.TemporaryDirectory(prefix="fusion-installed-") as folder:
            facts = pathlib.Path(folder, "fusion_compiler-0.dist-info")
            facts.mkdir()
            (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: fusion-compiler\nVersion: 0\n")
            (facts / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{entry[1]} = {entry[2]}\n")
            out = self.run_example("torch_compile/compile.py", also=folder)
        self.assertIn("1 pieces compiled, 0 ops", out)

    def test_blocks_of_pages(self):
        """The first block of Python on these pages, with the Llama graph as the model that they name."""
        with tempfile.TemporaryDirectory(prefix="fusion-pages-") as folder:
            pathlib.Path(folder, "model.onnx").symlink_to(LLAMA[0])
            pathlib.Path(folder, "examples").symlink_to(EXAMPLES)
            for page in ("index", "python"):
                text = (SOURCE / f"docs/{page}.md").read_text()
                code = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
                done = subprocess.run(
                    [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
                )
                self.assertEqual(done.returncode, 0, code + done.stderr)
                self.assertIn("| rope |", done.stdout)  # the report

    def test_every_example_has_a_page_and_a_test(self):
        files = [
            pathlib.Path(__file__),
            SOURCE / "test/install/InstallTree.cmake",
            *SOURCE.glob("test/python/*.py"),
        ]
        tests = "".join(file.read_text() for file in files)
        listed = (SOURCE / "docs/examples.md").read_text()
        for folder in sorted(each for each in EXAMPLES.iterdir() if each.is_dir()):
            self.assertTrue((folder / "README.md").exists(), f"examples/{folder.name} has no README.md")
            self.assertTrue(re.search(rf"\b{folder.name}\b", tests), f"{folder.name} is in no test")
            self.assertIn(f"](../examples/{folder.name}/", listed, "docs/examples.md has no line on it")


if __name__ == "__main__":
    unittest.main()
