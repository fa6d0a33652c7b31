"""Adds a fusion, demands that it fires, and checks its kernel against the ops: gated_norm.py

The pattern is gated_norm.pdll, the graph mamba_gate.mlir, both beside this file. Needs no GPU: without one
the kernel's own source runs on the host."""

import pathlib

import fusion

HERE = pathlib.Path(__file__).parent


def main():
    graph = fusion.load(HERE / "mamba_gate.mlir")
    patterns = [HERE / "gated_norm.pdll"]
    # norm_epilogue, a family that is built in, takes this gate too; a pattern of one's own goes first.
    before = graph.explain("plan", profit="model", disable=["norm_epilogue"]).report
    after = graph.explain("plan", profit="model", patterns=patterns).report
    after.require("gated_norm", 1)
    graph.verify(profit="model", patterns=patterns)
    without, taken = before.kernels.after, after.kernels.after
    print("gated_norm fired once and agrees with its ops")
    print(f"{without} kernels without it, {taken} with it")


if __name__ == "__main__":
    main()
