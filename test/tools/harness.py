"""What the tests of the command-line tools share: running them, reading and writing tensor files."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

BINARIES = os.environ["FUSION_BINARIES"]
GRAPHS = os.environ["FUSION_GRAPHS"]


def graph(name, file="model.onnx"):
    return os.path.join(GRAPHS, name, file)


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    return {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


class ToolTest(unittest.TestCase):
    """Every test has a folder of its own, and a kernel cache that lasts as long as the test program."""

    @classmethod
    def setUpClass(cls):
        cls.cache = os.environ.get("FUSION_TEST_CACHE") or os.path.join(tempfile.gettempdir(),
                                                                        "fusion-tools-test")

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fusion-tools-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w" if isinstance(text, str) else "wb") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def start(self, tool, *arguments, env=None, cwd=None, **options):
        environment = {**os.environ, "FUSION_CACHE_DIR": self.cache, **(env or {})}
        return subprocess.Popen(
            [os.path.join(BINARIES, tool), *arguments],
            env=environment,
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
        )

    def run_tool(self, tool, *arguments, exit=0, **options):
        """Runs a tool, checks its exit code, returns (stdout, stderr)."""
        process = self.start(tool, *arguments, **options)
        try:
            out, err = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"{tool} {' '.join(arguments)} hangs")
        self.assertEqual(process.returncode, exit, f"{tool} {' '.join(arguments)}\n{out}{err}")
        return out, err

    def refuse(self, tool, *arguments, exit=2, says=(), **options):
        """The tool ends with this exit code, one line that contains `says`, no result and no new file."""
        before = sorted(os.listdir(self.folder))
        out, err = self.run_tool(tool, *arguments, exit=exit, **options)
        self.assertEqual(out, "")
        lines = err.splitlines()
        self.assertEqual(len(lines), 1, err)
        self.assertTrue(lines[0].startswith(f"{tool}: "), err)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, lines[0])
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        return lines[0]


def named(folder, **extra):
    """The options that give a graph of the test data its own inputs."""
    options = [graph(folder), f"--inputs={graph(folder, 'inputs.safetensors')}"]
    return options + [f"--{key}={value}" for key, value in extra.items()]
