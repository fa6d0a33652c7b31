"""Generates tokens, the most likely one each time: generate.py MODEL.onnx COUNT TOKEN...

The graph takes one position a step: input_ids and position_ids [batch, 1], an attention_mask over all
positions, and caches (past… that become present…), which are extended where they lie."""

import sys

import numpy

import fusion


def main(model, count, prompt):
    capacity = len(prompt) + count
    program = fusion.compile(model, kv_capacity=capacity)
    caches = program.caches(batch=1)  # empty; every call extends them by a position
    taken = {port.name for port in program.inputs}

    tokens, given = list(prompt), []
    for position in range(capacity - 1):
        inputs = {
            "input_ids": numpy.array([[tokens[position]]], "int64"),
            "position_ids": numpy.array([[position]], "int64"),
            "attention_mask": numpy.ones((1, position + 1), "int64"),
        }
        logits = caches({name: value for name, value in inputs.items() if name in taken})["logits"]
        if position + 1 == len(tokens):  # behind the prompt
            tokens.append(int(logits[0, -1].argmax()))
            given.append(tokens[-1])
    print(f"{len(given)} tokens on {program.device}:", *given)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), [int(token) for token in sys.argv[3:]])
