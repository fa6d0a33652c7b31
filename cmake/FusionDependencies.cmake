# Libraries that are not our purpose.
find_program(LLVM_CONFIG NAMES llvm-config-22)
if(LLVM_CONFIG AND NOT MLIR_DIR)
  execute_process(COMMAND ${LLVM_CONFIG} --prefix OUTPUT_VARIABLE FUSION_LLVM_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(MLIR_DIR "${FUSION_LLVM_PREFIX}/lib/cmake/mlir")
  set(LLVM_DIR "${FUSION_LLVM_PREFIX}/lib/cmake/llvm")
endif()
find_package(MLIR 22.1 REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(LLVM_DEFINITIONS_LIST NATIVE_COMMAND "${LLVM_DEFINITIONS}")

# Installed with the libraries: their users need the same choice.
include(FusionStaticLibraries)

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
