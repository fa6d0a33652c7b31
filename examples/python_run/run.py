"""Compiles a graph, runs it and compares: run.py MODEL.onnx INPUTS.safetensors EXPECTED.safetensors

On the GPU if there is one, else on the CPU. Exits with 1 if an output is further from the expected one than
1 %.
"""

import sys

import numpy
from safetensors.numpy import load_file

import fusion


def main(model, inputs, expected):
    program = fusion.compile(model)
    outputs = program(load_file(inputs))
    print(f"ran on {program.device}")
    print(program.report)

    close = True
    for name, wanted in load_file(expected).items():
        if name not in outputs:
            continue
        wanted = wanted.astype("float64")
        error = numpy.linalg.norm(outputs[name] - wanted) / numpy.linalg.norm(wanted)
        print(f"{name}: relative L2 error {error:.2e}")
        close = close and error <= 0.01
    return 0 if close else 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except fusion.Error as error:
        print(f"run.py: {error}", file=sys.stderr)
        sys.exit({fusion.AnswerIsNo: 1, fusion.Lacking: 3}.get(type(error), 2))
