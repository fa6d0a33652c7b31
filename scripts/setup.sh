#!/usr/bin/env bash
# Installs what the build needs on Debian 12, configures and builds. What is there already is left alone.
#   scripts/setup.sh [--no-build | --tools | --installed | --wheel-parts] [--quiet]
# --tools: fusion-opt, fusion-run and fusion-compile only; --installed: what `cmake --install build` needs;
# --wheel-parts: what a wheel has besides the Python module; none of these has the tests. Exit codes: 1 the
# build failed, 2 bad usage, 3 something is missing that this script may not or cannot install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/nvrtc.sh

build=yes quiet= targets=()
for argument in "$@"; do
  case $argument in
    --no-build) build= ;;
    --tools) targets=(fusion-opt fusion-run fusion-compile) ;;
    --installed) targets=(installed) ;;
    --wheel-parts) targets=(wheel-parts) ;;
    --quiet) quiet=yes ;;
    *) echo "usage: scripts/setup.sh [--no-build | --tools | --installed | --wheel-parts] [--quiet]" >&2; exit 2 ;;
  esac
done

step() { [ -n "$quiet" ] || echo "setup: $*" >&2; }
lacking() { echo "setup: $*" >&2; exit 3; }
# Runs a command whose own output is shown on a terminal, else only if it fails.
watched() {
  local output status=0
  if [ -z "$quiet" ] && [ -t 2 ]; then "$@" >&2; return; fi
  output=$("$@" 2>&1) || status=$?
  [ $status = 0 ] || echo "$output" >&2
  return $status
}

packages=(
  clang-22 lld-22 llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools # the compiler and MLIR
  cmake ninja-build ccache
  libfmt-dev libgtest-dev libgmock-dev nlohmann-json3-dev libprotobuf-dev protobuf-compiler
  zlib1g-dev libzstd-dev                                 # asked for by LLVM's CMake files
  libonnx-testdata graphviz python3-venv ca-certificates dpkg-dev file # the tests
  python3-dev                                            # the Python package
)

missingPackages() {
  local installed package
  installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' "${packages[@]}" 2>/dev/null || true) "
  for package in "${packages[@]}"; do
    [[ $installed == *" $package:installed "* ]] || echo "$package"
  done
}

systemPackages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    lacking "this is not Debian: install the equivalents of ${packages[*]}, then run cmake --preset dev"
  local missing root=()
  mapfile -t missing < <(missingPackages)
  if [ ${#missing[@]} = 0 ]; then
    step "Debian packages: all ${#packages[@]} are installed"
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      lacking "not root and no sudo: ask an administrator for: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  root+=(env DEBIAN_FRONTEND=noninteractive)
  step "Debian packages: installing ${missing[*]}"
  local install=("${root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}")
  # Package lists may be absent or older than the mirror.
  if ! apt-get install -s -q "${missing[@]}" >/dev/null 2>&1 || ! watched "${install[@]}"; then
    step "Debian packages: updating the package lists"
    watched "${root[@]}" apt-get update -q || lacking "apt-get update failed"
    local package
    for package in "${missing[@]}"; do
      apt-cache show "$package" >/dev/null 2>&1 ||
        lacking "no package $package: set-up is for Debian 12 with its security suite (bookworm-security) enabled"
    done
    watched "${install[@]}" || lacking "apt-get install failed"
  fi
}

# have PACKAGE...: whether .venv has these.
have() {
  .venv/bin/python - "$@" 2>/dev/null <<'PYTHON'
import importlib.metadata, sys
for name in sys.argv[1:]:
    importlib.metadata.version(name)
PYTHON
}
pipInstall() { watched .venv/bin/python -m pip install -q --disable-pip-version-check "$@"; }

pythonPackages() {
  if have numpy onnx onnxruntime safetensors nanobind scikit-build-core fastjsonschema; then
    step "Python packages: all are in .venv"
    return
  fi
  local names="numpy, onnx, onnxruntime, safetensors, nanobind, scikit-build-core and fastjsonschema"
  step "Python packages: installing $names into .venv"
  [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    watched python3 -m venv --clear .venv || lacking "python3 -m venv .venv failed"
  pipInstall 'numpy>=1.26,<3' 'onnx>=1.20,<1.23' 'onnxruntime>=1.20,<2' \
    'safetensors>=0.4,<1' 'nanobind>=2.4,<4' 'scikit-build-core>=0.11,<2' 'fastjsonschema>=2.19,<3' ||
    lacking "pip could not install $names into .venv"
}

# The folder with a CUDA toolkit's libnvrtc.so.
toolkitFolder() {
  local nvcc folder file
  nvcc=$(command -v nvcc || true)
  local homes=("${FUSION_CUDA_HOME:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}"
    "${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}" /usr/local/cuda /opt/cuda)
  local folders=("${FUSION_NVRTC_DIR:-}")
  for folder in "${homes[@]}"; do
    [ -z "$folder" ] || folders+=("$folder/lib64" "$folder/lib")
  done
  folders+=("$(ldconfig -p 2>/dev/null | sed -n 's|.*libnvrtc\.so.* => \(.*\)/[^/]*|\1|p' | head -n 1)")
  for folder in "${folders[@]}"; do
    for file in "$folder"/libnvrtc.so*; do
      if [ -n "$folder" ] && [ -e "$file" ]; then
        echo "$folder"
        return
      fi
    done
  done
}

# The tools take a toolkit's NVRTC, else the wheel's; the tests take the wheel's (scripts/test.sh).
nvrtc() {
  local folder wheel
  folder=$(toolkitFolder)
  wheel=$(nvrtcOfVenv)
  if [ -z "$wheel" ]; then
    local packages=("$(nvrtcPackage)")
    if [ -z "$folder" ]; then
      if hasDriverOfCuda12; then packages+=(nvidia-cuda-runtime-cu12); else packages+=('nvidia-cuda-runtime>=13,<14'); fi
    fi
    step "NVRTC: installing ${packages[*]} into .venv"
    if pipInstall "${packages[@]}"; then
      wheel=$(nvrtcOfVenv)
      [ -n "$wheel" ] || lacking "the NVRTC wheel has no libnvrtc.so where it is expected"
    elif [ -n "$folder" ]; then
      step "NVRTC: no wheel to be had, the tests use $folder"
    else
      lacking "pip could not install NVRTC; install a CUDA toolkit, or set FUSION_NVRTC_DIR to the folder of libnvrtc.so"
    fi
  fi
  hint=${folder:-$(dirname "$wheel")}
  step "NVRTC: $hint"
}

build() {
  if ! [ -f build/build.ninja ] || ! grep -qx "FUSION_NVRTC_HINT:PATH=$hint" build/CMakeCache.txt ||
    ! grep -q '^nanobind_DIR' build/CMakeCache.txt; then
    step "configuring build/"
    watched cmake --preset dev "-DFUSION_NVRTC_HINT:PATH=$hint" || exit 1
  fi
  step "building ${targets[*]:-the tools, the libraries and the tests} in build/"
  local command=(cmake --build --preset dev)
  [ ${#targets[@]} = 0 ] || command+=(--target "${targets[@]}")
  if [ -n "$quiet" ]; then watched "${command[@]}" || exit 1
  else "${command[@]}" >&2 || exit 1; fi
}

systemPackages
pythonPackages
nvrtc
[ -z "$build" ] || build
step "done"
