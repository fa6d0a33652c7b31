#!/usr/bin/env bash
# Set-up (quick when it is done already), then all tests. Arguments go to ctest: scripts/test.sh -R codegen
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
exec ctest --preset dev --parallel "$(nproc)" "$@"
