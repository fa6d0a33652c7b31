"""Adds a fusion, demands that it fires, and checks its kernel against the ops: gated_norm.py

The pattern is gated_norm.pdll, the graph mamba_gate.mlir, both beside this file. Needs no GPU: without one
the kernel's own source runs on the host."""

import pathlib

import fusion

HERE = pathlib.Path(__file__).parent


def main():
    graph = fusion.load(HERE / "mamba_gate.mlir")
    options = {"patterns": [HERE / "gated_norm.pdll"], "profit": "model"}
    before, after = (graph.explain("plan", **given) for given in ({"profit": "model"}, options))
    after.report.require("gated_norm", 1)
    graph.verify(**options)
    without, taken = (each.report.json()["kernels"]["after"] for each in (before, after))
    print("gated_norm fired once and agrees with its ops")
    print(f"{without} kernels without it, {taken} with it")


if __name__ == "__main__":
    main()
