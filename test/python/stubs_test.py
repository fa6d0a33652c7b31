"""The stub of the module fusion says what there is: mypy's stubtest, which is installed on first use."""

import os
import pathlib
import subprocess
import sys
import tempfile

# torch is followed by nobody: what the stub says of it is Any.
CONFIG = """[mypy]
ignore_missing_imports = True
ignore_errors = True
follow_imports = silent
[mypy-torch.*,transformers.*,numpy.*,onnx.*]
follow_imports = skip
follow_imports_for_stubs = True
"""


def installed(folder):
    """mypy in a folder of its own, beside those of the package under test; False where it is not to be had."""
    if (folder / "mypy" / "stubtest.py").exists() or list(folder.glob("mypy/stubtest.*")):
        return True
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    command += ["--target", str(folder), "mypy>=1.14,<3"]
    try:
        return subprocess.run(command, capture_output=True, timeout=300).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main():
    package = pathlib.Path(os.environ["PYTHONPATH"].split(":")[0])
    folder = package.parent / "mypy"
    if not installed(folder):
        print("mypy is not installed and pip cannot install it")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        config = pathlib.Path(scratch, "mypy.ini")
        config.write_text(CONFIG)
        private = pathlib.Path(scratch, "private")  # modules that need torch, which need not be there
        private.write_text("fusion\\._(aten|dynamo|exported).*\n")
        done = subprocess.run(
            [sys.executable, "-m", "mypy.stubtest", "fusion", "--concise"]
            + ["--mypy-config-file", str(config), "--allowlist", str(private), "--ignore-unused-allowlist"],
            env=os.environ | {"PYTHONPATH": f"{package}:{folder}"},
            cwd=scratch,
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
