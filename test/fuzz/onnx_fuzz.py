"""Random ONNX graphs, run by fusion-run on the CPU and by onnxruntime.

  test/fuzz/onnx_fuzz.py --seed=1 --count=1000 [-o FOLDER]

What is wrong is written as FOLDER/onnx-SEED.onnx with its inputs, cut down to the first node that differs.
Two runs agree if types and shapes do, and
  - integers and truth values are the same;
  - each element is of the same kind (NaN, an infinity, finite); zeros of both signs are equal;
  - of the finite ones the L2 distance is at most 1e-4 (f32) or 2e-2 (f16) of the length, and 8 times what
    onnxruntime's own results move where the inputs move by one step of their type. An element whose kind that
    changes is not compared.
Exit codes: 0 all agree, 1 some do not, 3 there is no onnxruntime, 77 the same under ctest.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx.utils import Extractor
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import onnx_shape_ops  # noqa: F401, E402: registers its ops
from onnx_graphs import random_graph  # noqa: E402

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

BINARIES = pathlib.Path(os.environ.get("FUSION_BINARIES", pathlib.Path(__file__).parents[2] / "build/bin"))
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 2e-2}


class Refused(Exception):
    pass


def by_onnxruntime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs)))
    except Exception as error:
        raise Refused(f"onnxruntime: {str(error).splitlines()[0][:150]}") from None


def by_fusion(model, inputs, folder):
    path, given, results = folder / "model.onnx", folder / "in.safetensors", folder / "out.safetensors"
    onnx.save(model, path)
    save_file({name: np.array(array, order="C") for name, array in inputs.items()}, given)
    command = [
        BINARIES / "fusion-run",
        path,
        f"--inputs={given}",
        f"--outputs={results}",
        "--device=cpu",
        "--quiet",
        f"--cache={folder}/cache",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = run.stderr.strip().splitlines()
    if run.returncode == 2 and len(lines) == 1:
        raise Refused(lines[0].replace(str(path), "model"))
    if run.returncode != 0:
        return {"": " / ".join(lines) or f"exit code {run.returncode}"}
    return load_file(results)


def shaken(inputs, numbers):
    """Each float moved to a neighbour; those that are whole eighths too."""
    return {
        name: (
            np.nextafter(array, numbers.choice([-1, 1], array.shape).astype(array.dtype) * np.inf)
            if array.dtype.kind == "f"
            else array
        )
        for name, array in inputs.items()
    }


def kinds(array):
    return np.where(np.isnan(array), 2, np.where(np.isinf(array), np.sign(array), 0))


def difference(actual, expected, moved=()):
    """What is wrong, or nothing."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind != "f":
        steady = np.logical_and.reduce([m == expected for m in moved] or [np.ones(expected.shape, bool)])
        wrong = np.argwhere((actual != expected) & steady)
        return (
            f"element {wrong[0]} is {actual[tuple(wrong[0])]}, not {expected[tuple(wrong[0])]}"
            if len(wrong)
            else ""
        )
    kind = kinds(expected)
    steady = np.logical_and.reduce([kinds(m) == kind for m in moved] or [np.ones(expected.shape, bool)])
    wrong = np.argwhere((kinds(actual) != kind) & steady)
    if len(wrong):
        return f"element {wrong[0]} is {actual[tuple(wrong[0])]}, not {expected[tuple(wrong[0])]}"
    finite = (kind == 0) & steady & (kinds(actual) == 0)
    a, e = actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    distance = max([np.linalg.norm(m[finite].astype(np.float64) - e) for m in moved], default=0)
    error, length = np.linalg.norm(a - e), np.linalg.norm(e)
    smallest = float(np.finfo(expected.dtype).smallest_subnormal) * 4 * max(1, a.size)
    if error <= TOLERANCE[expected.dtype] * length + 8 * distance + smallest:
        return ""
    return f"relative L2 distance {error / max(length, 1e-300):.3g}"


def check(model, inputs, folder):
    """What is wrong, or nothing. Refused, if one of the two does not take the graph."""
    expected = by_onnxruntime(model, inputs)
    actual = by_fusion(model, inputs, folder)
    if "" in actual:
        return actual[""]
    moved = None
    for name, array in expected.items():
        array = np.asarray(array)
        if difference(actual[name], array) and moved is None:
            numbers = np.random.default_rng(1)
            moved = [by_onnxruntime(model, shaken(inputs, numbers)) for _ in range(4)]
        if moved and (problem := difference(actual[name], array, [np.asarray(m[name]) for m in moved])):
            return f"{name}: {problem}"
    return ""


def reduced(model, inputs, folder):
    """The part up to the first node that differs."""
    shapes = onnx.shape_inference.infer_shapes(model)
    for node in model.graph.node:
        try:
            part = Extractor(shapes).extract_model([i.name for i in model.graph.input], list(node.output))
            read = {name for n in part.graph.node for name in n.input} | set(node.output)
            kept = [i for i in part.graph.input if i.name in read]
            del part.graph.input[:]
            part.graph.input.extend(kept)
            if problem := check(part, {i.name: inputs[i.name] for i in kept}, folder):
                return part, problem
        except (Refused, ValueError, KeyError):
            continue
    return model, ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("-o", type=pathlib.Path, default=pathlib.Path("."), help="folder for what differs")
    options = parser.parse_args()
    if onnxruntime is None:
        print("onnx_fuzz: no onnxruntime: pip install onnxruntime", file=sys.stderr)
        return 77 if "FUSION_BINARIES" in os.environ else 3
    refusals, failures = collections.Counter(), 0
    with tempfile.TemporaryDirectory(prefix="fusion-onnx-fuzz-") as name:
        folder = pathlib.Path(name)
        for seed in range(options.seed, options.seed + options.count):
            model, inputs = random_graph(seed)
            try:
                problem = check(model, inputs, folder)
            except Refused as reason:
                refusals[str(reason)] += 1
                continue
            if not problem:
                continue
            failures += 1
            part, why = reduced(model, inputs, folder)
            options.o.mkdir(parents=True, exist_ok=True)
            onnx.save(part, options.o / f"onnx-{seed}.onnx")
            names = {i.name for i in part.graph.input}
            save_file(
                {n: np.array(a, order="C") for n, a in inputs.items() if n in names},
                options.o / f"onnx-{seed}.safetensors",
            )
            ops = ", ".join(node.op_type for node in part.graph.node)
            print(f"{options.o}/onnx-{seed}.onnx: {why or problem} ({ops})", file=sys.stderr, flush=True)
    refused = sum(refusals.values())
    for reason, count in refusals.most_common(40):
        print(f"refused {count}: {reason}")
    agree, last = options.count - failures - refused, options.seed + options.count - 1
    print(f"{options.count} graphs, seeds {options.seed} to {last}:", end=" ")
    print(f"{failures} differ, {agree} agree, {refused} refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
