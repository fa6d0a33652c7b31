#!/usr/bin/env bash
# From a fresh clone to PyTorch's numbers: sets up, fuses the Llama graph in examples/llama, says what fused,
# compiles the emitted CUDA source and runs the graph: on the GPU if there is one, else on the CPU reference.
#   scripts/demo.sh [--device=auto|cpu|cuda|emulate]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
device=--device=auto
case $#:${1:-} in
  0:) ;;
  1:--device=*) device=$1 ;;
  *) echo "usage: scripts/demo.sh [--device=auto|cpu|cuda|emulate]" >&2; exit 2 ;;
esac

if ! [ -x build/bin/fusion-run ]; then
  # Five and a quarter minutes were measured on two cores, packages and all.
  cores=$(nproc)
  echo "demo: the first time takes about $((9 / cores + 1)) minutes on $cores cores, later times take seconds" >&2
fi
scripts/setup.sh --tools

model=examples/llama/model.onnx out=build/demo
mkdir -p $out
say() { printf '\n$ %s\n' "$*"; "$@"; }

say build/bin/fusion-opt $model --fuse --emit=cuda -o $out/llama.cu --report=$out/report.json
.venv/bin/python - $out/report.json <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
print("What fused:")
for name, pattern in report["patterns"].items():
    if pattern["fired"]:
        saved = sum(site.get("bytes_saved") or 0 for site in pattern["sites"])
        print(f"  {name}: fired at {pattern['fired']} site{'s' * (pattern['fired'] != 1)}" + (f", {saved} bytes of traffic saved" if saved else ""))
kernels = report["kernels"]
print(f"Kernels: {kernels['before']} before, {kernels['after']} after")
PYTHON
echo "CUDA source: $out/llama.cu; full report: $out/report.json"

# NVRTC needs no GPU. Without a GPU the target is the default, sm_90a.
target=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ') || true
[ "$target" != 90 ] || target=90a
say build/bin/fusion-compile $model -o $out/llama.bundle "--target=sm_${target:-90a}"

say build/bin/fusion-run $model --inputs=examples/llama/inputs.safetensors \
  --expect=examples/llama/outputs.safetensors "$device"
