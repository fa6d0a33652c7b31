#!/usr/bin/env bash
# Set-up (quick when it is done already), then all tests.
#   scripts/test.sh [--nvrtc=VERSION] [ctest arguments]
# The tests compile kernels with the newest NVRTC wheel, also where a CUDA toolkit is installed; FUSION_NVRTC,
# a path to libnvrtc.so, chooses another. --nvrtc=12.8 installs and uses the oldest that is supported
# (runtime/cuda/Nvrtc.h). scripts/test.sh -R codegen runs the tests whose names match.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/nvrtc.sh
version=
case ${1:-} in
  --nvrtc=*) version=${1#--nvrtc=}; shift ;;
esac
scripts/setup.sh
if [ -n "$version" ]; then
  folder=.venv/nvrtc-$version
  [ -n "$(nvrtcOfWheel "$PWD/$folder")" ] ||
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target "$folder" "$(nvrtcPackage "$version")"
  export FUSION_NVRTC
  FUSION_NVRTC=$(nvrtcOfWheel "$PWD/$folder")
  [ -n "$FUSION_NVRTC" ] || { echo "test: no NVRTC wheel of version $version" >&2; exit 3; }
elif [ -z "${FUSION_NVRTC:-}" ] && [ -n "$(nvrtcOfVenv)" ]; then
  export FUSION_NVRTC
  FUSION_NVRTC=$(nvrtcOfVenv)
fi
[ -z "${FUSION_NVRTC:-}" ] || echo "test: kernels are compiled by $FUSION_NVRTC"
exec ctest --preset dev --parallel "$(nproc)" "$@"
