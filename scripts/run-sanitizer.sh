#!/usr/bin/env bash
# compute-sanitizer over the kernels of the tests, on a machine with a GPU: memcheck, racecheck, initcheck,
# synccheck.
#   scripts/run-sanitizer.sh [--tool=NAME] [GoogleTest filter]
# Every finding counts. Known exception: racecheck leaves out the suites in `arriveByLane` below. A warp writes
# scales or rows there, meets, and one lane arrives at an mbarrier for all of it; racecheck (13.0) does not
# follow that (docs/testing.md).
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
arriveByLane='MatmulSwapBytes.*:MatmulSwapCodes.*:MatmulChain.*:MatmulSm90Bytes.ScalesOfBlocks*'
failed=0
for tool in "${tools[@]}"; do
  options=(--tool "$tool" --error-exitcode 99) tests=$filter
  case $tool in
    memcheck) options+=(--leak-check full) ;;
    racecheck) [[ $filter == *-* ]] && tests+=":$arriveByLane" || tests+="-$arriveByLane" ;;
    initcheck | synccheck) ;;
    *) echo "run-sanitizer: no tool $tool" >&2; exit 2 ;;
  esac
  for program in schedule-tests codegen-tests kernels-tests graphs-tests kv-cache-tests experts-tests \
                 linear-attention-tests; do
    echo "run-sanitizer: $tool $program"
    compute-sanitizer "${options[@]}" "build/bin/$program" --gtest_filter="$tests" --gtest_brief=1 |
      tail -n 20 || failed=1
  done
done
exit $failed
