"""The stand-alone benchmarks of the templates compile: nothing else uses them, so that a template that asks for more
would leave them behind. Skipped where there is no nvcc."""
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")  # the toolkit leaves PATH as it is


def number(benchmark):
    return "100" if "sm100" in benchmark.stem else "90"


class Benchmarks(unittest.TestCase):
    def test_each_compiles(self):
        known = subprocess.run([NVCC, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout.split()
        benchmarks = [file for file in sorted((ROOT / "benchmarks/templates").glob("*.cu"))
                      if "sm_" + number(file) in known]
        self.assertTrue(benchmarks)
        for benchmark in benchmarks:
            target = f"compute_{number(benchmark)}a"
            with self.subTest(benchmark.name):
                compiled = subprocess.run(
                    [NVCC, "-std=c++17", "-ptx", "--fmad=false", "-gencode", f"arch={target},code={target}",
                     f"-I{ROOT}/codegen/device", f"-I{ROOT}/test/codegen/device", "-o", "/dev/null", str(benchmark)],
                    capture_output=True, text=True)
                self.assertEqual(compiled.returncode, 0, compiled.stdout + compiled.stderr)


if __name__ == "__main__":
    if not NVCC:
        print("skipped: there is no nvcc")
        sys.exit(77)
    unittest.main()
