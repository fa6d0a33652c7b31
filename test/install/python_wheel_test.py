"""The wheel: made with what this build has compiled (FUSION_BUILT), its files, and a virtual environment of
its own that has numpy besides."""

import email
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

try:
    import nanobind  # noqa: F401
    import scikit_build_core  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import numpy

SOURCE = Path(os.environ["FUSION_SOURCE"])
BUILD = Path(os.environ["FUSION_BUILD"])
READELF = os.environ["FUSION_READELF"]
EXAMPLE = SOURCE / "examples/llama"
TOOLS = ("opt", "run", "compile", "cache")
COMPILER = "fusion/bin/fusion-nvrtc"  # which the library starts
# glibc, and what libraries of Debian need besides, which lie beside ours.
GLIBC = r"ld-linux-[\w-]+\.so\.\d|lib(c|m|pthread|dl|rt)\.so\.\d"
RUNTIME = r"lib(gcc_s|stdc\+\+)\.so\.\d"

USE = """
import importlib.metadata, importlib.util, sys
import numpy, fusion

def tensor(path, name, dtype, shape):
    import json, struct
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return numpy.frombuffer(data[8 + size :][begin:end], dtype).reshape(shape)

folder = sys.argv[1]
assert fusion.__file__.startswith(sys.prefix), fusion.__file__
fusion.set_progress(False)
ids = tensor(folder + "/inputs.safetensors", "input_ids", "int64", (2, 16))
want = tensor(folder + "/outputs.safetensors", "reference_fp32", "float32", (2, 16, 256))
program = fusion.compile(folder + "/model.onnx", device="emulate")
got = program(input_ids=ids)["logits"].astype("float32")
error = numpy.linalg.norm(got - want) / numpy.linalg.norm(want)
assert 0 < error < 5e-3, error
(entry,) = importlib.metadata.entry_points(group="torch_dynamo_backends")
module, _, function = entry.value.partition(":")
assert entry.name == "fusion" and importlib.util.find_spec(module), entry
assert f"def {function}(" in open(importlib.util.find_spec(module).origin).read(), entry
print(fusion.__version__, program.report.kernels)
"""


def checked(command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return checked(command, env=environment, cwd=SOURCE)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="fusion-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        settings = [f"build-dir={cls.folder}/build", f"cmake.define.FUSION_BUILT={BUILD}"]
        # CMake as it is here, which before 3.26 makes no wheel for all Pythons.
        settings.append("cmake.version=")
        if tuple(map(int, os.environ["FUSION_CMAKE"].split(".")[:2])) < (3, 26):
            settings.append("wheel.py-api=")
        options = ["--no-build-isolation", "--no-deps", "--no-index"]
        options += [word for setting in settings for word in ("--config-settings", setting)]
        pip("wheel", *options, "-w", cls.folder, SOURCE)
        (cls.file,) = cls.folder.glob("*.whl")
        with zipfile.ZipFile(cls.file) as wheel:
            wheel.extractall(cls.folder / "files")
            cls.names = set(wheel.namelist())
            cls.executable = {each.filename for each in wheel.infolist() if each.external_attr >> 16 & 0o111}
        cls.venv = cls.folder / "venv"
        checked([sys.executable, "-m", "venv", "--without-pip", cls.venv])
        cls.python = cls.venv / "bin/python"
        pip("--python", cls.python, "install", "--no-deps", "--no-index", cls.file)
        (packages,) = cls.venv.glob("lib/python3*/site-packages")
        for part in Path(numpy.__file__).parents[1].glob("numpy*"):
            (packages / part.name).symlink_to(part)

    def run_there(self, *command):
        """In an environment that has nothing but a cache of emulated kernels to gain time by."""
        environment = {"PATH": f"{self.venv}/bin:/usr/bin:/bin", "HOME": str(self.folder)}
        environment["FUSION_CACHE_DIR"] = os.environ["FUSION_CACHE_DIR"]
        return checked(command, env=environment, cwd=self.folder)

    def test_files(self):
        facts = next(name for name in self.names if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
        data = facts.replace(".dist-info", ".data") + "/data/share"
        want = {f"fusion/{path.name}" for path in (SOURCE / "python/fusion").glob("*.py*") if path.is_file()}
        want |= {"fusion/py.typed", "fusion/libfusion.so.1", COMPILER, f"{facts}/licenses/LICENSE"}
        self.assertIn(COMPILER, self.executable)
        for tool in (f"fusion-{name}" for name in TOOLS):
            want |= {f"fusion/bin/{tool}", f"{data}/man/man1/{tool}.1.gz"}
            want |= {f"{data}/bash-completion/completions/{tool}", f"{data}/zsh/vendor-completions/_{tool}"}
            want.add(f"{data}/fish/vendor_completions.d/{tool}.fish")
            self.assertIn(f"fusion/bin/{tool}", self.executable)
        for name in ("libmlir-22", "llvm-22", "libprotobuf", "libfmt", "nlohmann-json3"):
            want.add(f"{facts}/licenses/linked/{name}-dev")
        want.add(f"{facts}/licenses/linked/nanobind")
        self.assertEqual(want - self.names, set())
        also = rf"fusion/(_core\.[\w.-]+\.so|lib[\w-]+\.so\.\d+)|{facts}/([A-Za-z_.]+|licenses/linked/[\w-]+)"
        self.assertEqual([name for name in self.names - want if not re.fullmatch(also, name)], [])

    def test_metadata(self):
        facts = next((self.folder / "files").glob("*.dist-info"))
        metadata = email.message_from_string((facts / "METADATA").read_text())
        project = (SOURCE / "pyproject.toml").read_text()
        self.assertEqual(metadata["Name"], "fusion-compiler")
        self.assertEqual(metadata["Version"], re.search(r'^version = "(.*)"', project, re.MULTILINE)[1])
        self.assertIn("Apache-2.0", metadata.as_string())
        self.assertTrue(any(line.startswith("numpy") for line in metadata.get_all("Requires-Dist")))
        self.assertIn("graph-level fusion compiler", metadata.get_payload())
        entries = (facts / "entry_points.txt").read_text()
        want = {f"fusion-{name}": f"_tools:{name}" for name in TOOLS} | {"fusion": "_dynamo:backend"}
        for name, value in want.items():
            self.assertRegex(entries, rf"(?m)^{name} *= *fusion\.{value}$")

    def test_what_is_linked(self):
        """Nothing but glibc and what lies beside, so neither MLIR nor LLVM; no folder of this machine."""
        package = self.folder / "files/fusion"
        files = [*package.glob("*.so*"), *package.glob("bin/*")]
        beside = {path.name for path in files if path.parent.name == "fusion"}
        self.assertGreaterEqual(beside, {"libfusion.so.1"})
        self.assertEqual(len(files), len(beside) + len(TOOLS) + 1)
        for path in files:
            theirs = path.parent == package and not re.match(r"_core|libfusion", path.name)
            system = f"{GLIBC}|{RUNTIME}" if theirs else GLIBC
            dynamic = checked([READELF, "-d", path])
            for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                found = library in beside or re.fullmatch(system, library)
                self.assertTrue(found, f"{path.name} needs {library}")
            paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
            self.assertIn(paths, ([], ["$ORIGIN"], ["$ORIGIN/.."]), path.name)
            content = path.read_bytes()
            for folder in (SOURCE, BUILD):
                self.assertNotIn(os.fsencode(folder) + b"/", content, path.name)

    def test_in_an_environment_of_its_own(self):
        version = self.file.name.split("-")[1]
        self.assertEqual(self.run_there(self.python, "-m", "fusion", "--version"), f"fusion {version}\n")
        out = self.run_there(self.python, "-c", USE, EXAMPLE)
        self.assertRegex(out, rf"^{re.escape(version)} Change\(before=45, after=\d\d\)")
        for tool in TOOLS:
            said = self.run_there(self.venv / f"bin/fusion-{tool}", "--version")
            self.assertIn(version, said)
            self.assertEqual(self.run_there(self.python, "-m", "fusion", tool, "--version"), said)
        compared = [f"--inputs={EXAMPLE}/inputs.safetensors", f"--expect={EXAMPLE}/outputs.safetensors"]
        out = self.run_there("fusion-run", EXAMPLE / "model.onnx", *compared, "--device=cpu")
        self.assertIn("PASS", out)
        out = self.run_there("fusion-opt", EXAMPLE / "model.onnx", "--fuse", "--emit=cuda")
        self.assertRegex(out, r"KERNEL\(\d+\) add_rms_norm")


if __name__ == "__main__":
    unittest.main()
