"""A graph of an 8B-parameter model's shape: fusing it needs the memory of the graph, not that of the
weights."""
import os
import subprocess
import sys
import time
import unittest

from harness import ToolTest

megabytes = 400
layers = 32


class Large(ToolTest):
    def make(self):
        script = os.path.join(os.environ["FUSION_SOURCE"], "scripts", "make_llama.py")
        subprocess.run([sys.executable, script, self.path("llama.onnx")], check=True)

    def test_fuse(self):
        self.make()
        self.assertGreater(os.path.getsize(self.path("llama.onnx") + ".data"), 10 << 30)
        process = self.start(
            *("fusion-opt", "llama.onnx", "--fuse", f"--require=matmul_epilogue={2 * layers - 1}", "-o",
              "fused.mlir")
        )
        begin = time.monotonic()
        with process.stdout, process.stderr:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0, process.stderr.read())
        print(f"{time.monotonic() - begin:.2f} s, {usage.ru_utime + usage.ru_stime:.2f} s of CPU,",
              f"{usage.ru_maxrss >> 10} MB", file=sys.stderr)
        self.assertLess(usage.ru_maxrss >> 10, megabytes)
        self.assertLess(usage.ru_utime + usage.ru_stime, 8)


if __name__ == "__main__":
    try:
        import onnx  # noqa: F401 (the script needs it)
    except ImportError:
        print("skipped: the onnx package is not installed")
        sys.exit(77)
    unittest.main()
