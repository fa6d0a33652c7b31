#!/usr/bin/env bash
# Builds the libFuzzer targets of test/fuzz/targets and runs each for some time, with AddressSanitizer and
# UndefinedBehaviorSanitizer. Corpora grow in build-fuzz/corpus; what fails is written beside them.
#   scripts/fuzz.sh [--seconds=N] [TARGET...]      # 60 seconds each; all targets: scripts/fuzz.sh --list
# Exit codes: 0 nothing was found, 1 something was, 2 bad usage, 3 something lacks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(dims safetensors plan bundle cache frames options graph patterns)
seconds=60 targets=()
for argument in "$@"; do
  case $argument in
    --seconds=*) seconds=${argument#--seconds=} ;;
    --list) printf '%s\n' "${all[@]}"; exit 0 ;;
    -*) echo "usage: scripts/fuzz.sh [--seconds=N] [TARGET...]" >&2; exit 2 ;;
    *) targets+=("$argument") ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
  [ -f "test/fuzz/targets/$target.cpp" ] ||
    { echo "fuzz: no target $target; there are ${all[*]}" >&2; exit 2; }
done
ls /usr/lib/llvm-22/lib/clang/22/lib/*/libclang_rt.fuzzer* >/dev/null 2>&1 ||
  { echo "fuzz: no sanitizer runtime: apt-get install libclang-rt-22-dev" >&2; exit 3; }

[ -f build-fuzz/build.ninja ] || cmake --preset fuzz
cmake --build build-fuzz --target "${targets[@]/#/fuzz-}"

# Where the tests have files of a kind, they are the first of the corpus.
seed() {
  local folder=$1 file
  case $(basename "$folder") in
    dims) printf 'batch*seq + 1' >"$folder/sum"; printf 'ceildiv(n, 128) mod 4' >"$folder/quotient" ;;
    options)
      printf 'temperature=0.8,top-k=50,top-p=0.9' >"$folder/sampling"
      printf 'add_norm=2' >"$folder/require" ;;
    safetensors) cp examples/llama/inputs.safetensors "$folder/" ;;
    graph)
      for file in test/data/graphs/*/model.onnx; do
        { printf o; cat "$file"; } >"$folder/$(basename "$(dirname "$file")").onnx"
      done
      for file in test/passes/*.mlir; do { printf t; cat "$file"; } >"$folder/$(basename "$file")"; done ;;
    patterns) cp test/patterns/*.mlir "$folder/" ;;
    plan) if [ -x build/bin/fusion-compile ]; then seedPlan "$folder"; fi ;;
    frames) printf '\x10FUSN\x01\x05\x00\x00\x00hello' >"$folder/hello" ;;
  esac
}
seedPlan() {
  local made
  made=$(mktemp -d)
  if build/bin/fusion-compile examples/llama/model.onnx -o "$made/bundle" --target=sm_90a >/dev/null 2>&1; then
    cp "$made/bundle/plan.json" "$1/"
  fi
  rm -rf "$made"
}

# MLIR's allocators are not instrumented, and poison what is inlined here only.
export ASAN_OPTIONS=allow_user_poisoning=0:detect_leaks=0:${ASAN_OPTIONS:-}
found=0
for target in "${targets[@]}"; do
  corpus=build-fuzz/corpus/$target
  mkdir -p "$corpus"
  [ -n "$(ls -A "$corpus")" ] || seed "$corpus"
  echo "fuzz: $target"
  build-fuzz/bin/"fuzz-$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/$target-" "$corpus" 2>&1 | tail -n 12 || found=1
done
exit $found
