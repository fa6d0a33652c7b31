"""Says whether a model still fuses as a contract demands: contract.py MODEL.onnx CONTRACT.json

Needs no GPU: nothing is compiled or run. Exits with 1 if a fusion fired another number of times than it has
to, and prints for each op at which it could have started why it did not."""

import json
import sys

import fusion


def main(model, contract):
    with open(contract) as file:
        wanted = json.load(file)
    report = fusion.load(model).explain("plan", target="sm_90a", profit="model").report
    broken = 0
    for name, times in wanted.items():
        try:
            report.require(name, times)
            print(f"{name}: {times}")
        except fusion.AnswerIsNo as error:
            print(error)
            broken += 1
    return 1 if broken else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
