#!/usr/bin/env bash
# compute-sanitizer over the kernels of the tests, on a machine with a GPU: memcheck, racecheck, initcheck, synccheck.
#   scripts/run-sanitizer.sh [--tool=NAME] [GoogleTest filter]
# Known exceptions, which are left out here and nothing else:
#   - racecheck follows neither shared memory of other blocks of a cluster nor copies by TMA that mbarriers wait for: kernels
#     that use them (gemm_sm90*, *prefill_tma*, *tma_*) are not given to it. Emulation checks those rules instead.
#   - collectives between GPUs wait for each other with a time limit, which the tools exceed.
# Exit codes: 0 clean, 1 a tool found something, 2 bad usage, 3 something lacks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=(memcheck racecheck initcheck synccheck) filter='*'
for argument in "$@"; do
  case $argument in
    --tool=*) tools=("${argument#--tool=}") ;;
    -*)
      echo "usage: scripts/run-sanitizer.sh [--tool=memcheck|racecheck|initcheck|synccheck] [FILTER]" >&2
      exit 2 ;;
    *) filter=$argument ;;
  esac
done
lacking() { echo "run-sanitizer: $*" >&2; exit 3; }
command -v compute-sanitizer >/dev/null || lacking "no compute-sanitizer: it comes with the CUDA toolkit"
[ -x build/bin/kernels-tests ] || lacking "no build/bin/kernels-tests: run scripts/setup.sh"

export FUSION_TEST_DEVICE=cuda
failed=0
for tool in "${tools[@]}"; do
  options=(--tool "$tool" --error-exitcode 99 --kernel-regex-exclude kns=all_reduce)
  case $tool in
    memcheck) options+=(--leak-check full) ;;
    racecheck)
      for name in gemm_sm90 prefill_tma tma_; do options+=(--kernel-regex-exclude "kns=$name"); done ;;
    initcheck | synccheck) ;;
    *) echo "run-sanitizer: no tool $tool" >&2; exit 2 ;;
  esac
  for program in kernels-tests graphs-tests kv-cache-tests experts-tests linear-attention-tests; do
    echo "run-sanitizer: $tool $program"
    compute-sanitizer "${options[@]}" "build/bin/$program" --gtest_filter="$filter" --gtest_brief=1 |
      tail -n 20 || failed=1
  done
done
exit $failed
