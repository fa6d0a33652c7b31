"""Leaving a fusion out never makes a graph cheaper: its candidates were weighed with all others.

Cheaper is what fusions are chosen by: fewer bytes, where a kernel's launch counts as 2 MiB of them. A choice
may so move a few bytes more to launch less; with as many kernels or more, it never does.
"""
import json
import os
import tarfile
import unittest

from exporters_test import PACKED, fill
from harness import GRAPHS, ToolTest

LAUNCH = 2 << 20


class Choice(ToolTest):
    def fuse(self, model, *options):
        """Bytes, kernels, and the patterns that fired."""
        self.run_tool(
            "fusion-opt", model, "--fuse", "--profit=model", "--quiet", "--report=r.json", "-o", os.devnull,
            *options)
        report = json.loads(self.read("r.json"))
        fired = [name for name, pattern in report["patterns"].items() if pattern["fired"] and name != "shard"]
        return report["bytes"]["after"], report["kernels"]["after"], fired

    def check(self, model, *options):
        size, kernels, fired = self.fuse(model, *options)
        self.assertTrue(fired)
        for name in fired:
            other_size, other_kernels, _ = self.fuse(model, "--fuse-disable=" + name, *options)
            self.assertGreaterEqual(
                other_size + other_kernels * LAUNCH, size + kernels * LAUNCH,
                f"without {name}: {other_size - size} bytes, {other_kernels - kernels} kernels")

    def test_graphs(self):
        for name in sorted(os.listdir(GRAPHS)):
            model = os.path.join(GRAPHS, name, "model.onnx")
            if os.path.exists(model):
                for options in ([], ["--tp=2"]):
                    with self.subTest(name, options=options):
                        self.check(model, *options)

    def test_other_exporters(self):
        with tarfile.open(PACKED) as packed:
            packed.extractall(self.folder)
        names = sorted(os.listdir(self.path("exporters")))
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name):
                self.check(fill(os.path.join(self.path("exporters"), name)))


if __name__ == "__main__":
    unittest.main()
