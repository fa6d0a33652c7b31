#!/usr/bin/env bash
# Debian packages (fusion-tools, libfusion1, libfusion-dev) and a Python wheel, into build/package. The packages
# depend on the MLIR of Debian 12 (bookworm-security); the wheel holds its own. DEBFULLNAME and DEBEMAIL are the
# packages' maintainer.
#   scripts/package.sh [deb] [wheel]      both, if neither is named
# Exit codes: 1 a build failed, 2 bad usage, 3 something is missing that this script cannot install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for kind in "$@"; do
  case $kind in
    deb | wheel) ;;
    *) echo "usage: scripts/package.sh [deb] [wheel]" >&2; exit 2 ;;
  esac
done
[ $# -gt 0 ] || set -- deb wheel

out=$PWD/build/package
for kind in "$@"; do
  if [ "$kind" = deb ]; then
    for program in dpkg-shlibdeps file gzip; do
      command -v $program >/dev/null ||
        { echo "package: no $program: apt-get install dpkg-dev file gzip" >&2; exit 3; }
    done
    scripts/setup.sh --installed
    (cd build && cpack -G DEB) >&2 || exit 1
  else
    scripts/setup.sh --wheel-parts
    .venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps -w "$out" \
      --config-settings "cmake.define.FUSION_BUILT=$PWD/build" . || exit 1
  fi
done
ls -l "$out"/*.deb "$out"/*.whl 2>/dev/null
