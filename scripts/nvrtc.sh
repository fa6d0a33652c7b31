# Sourced: NVRTC from PyPI's wheels, as a file that FUSION_NVRTC takes. The tools use a CUDA toolkit's where
# there is one; the tests use the newest wheel everywhere, so that they fail where a bare machine's would.

# A driver of CUDA 12 does not load what the compiler of CUDA 13 makes.
hasDriverOfCuda12() { nvidia-smi 2>/dev/null | grep -q 'CUDA Version: 12'; }

# nvrtcPackage [VERSION]: the wheel's name and version for pip; without one the newest that the driver takes.
nvrtcPackage() {
  case ${1:-} in
    '') if hasDriverOfCuda12; then echo nvidia-cuda-nvrtc-cu12; else echo 'nvidia-cuda-nvrtc>=13,<14'; fi ;;
    12.*) echo "nvidia-cuda-nvrtc-cu12==$1.*" ;;
    *) echo "nvidia-cuda-nvrtc==$1.*" ;;
  esac
}

# nvrtcOfWheel FOLDER: the library of a wheel that was installed there; nothing without one.
nvrtcOfWheel() {
  local file places=(cu13 cuda_nvrtc)
  ! hasDriverOfCuda12 || places=(cuda_nvrtc)
  for place in "${places[@]}"; do
    for file in "$1/nvidia/$place"/lib/libnvrtc.so.1[2-9]; do
      if [ -e "$file" ]; then
        echo "$file"
        return
      fi
    done
  done
}

# The one in .venv.
nvrtcOfVenv() {
  local folder file
  for folder in "$PWD"/.venv/lib/python3*/site-packages; do
    file=$(nvrtcOfWheel "$folder")
    if [ -n "$file" ]; then
      echo "$file"
      return
    fi
  done
}
