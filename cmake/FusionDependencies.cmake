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

if(FUSION_STATIC_MLIR)
  # The exported `LLVM` target is the 150 MB shared library; point it at the few static ones MLIR needs.
  set_target_properties(LLVM PROPERTIES
    IMPORTED_LOCATION_${CMAKE_BUILD_TYPE} "${LLVM_LIBRARY_DIR}/libLLVMSupport.a"
    IMPORTED_LOCATION "${LLVM_LIBRARY_DIR}/libLLVMSupport.a")
  foreach(config RELWITHDEBINFO RELEASE NOCONFIG)
    set_target_properties(LLVM PROPERTIES IMPORTED_LOCATION_${config} "${LLVM_LIBRARY_DIR}/libLLVMSupport.a")
  endforeach()
  set_property(TARGET LLVM PROPERTY INTERFACE_LINK_LIBRARIES
    LLVMRemarks LLVMBitstreamReader LLVMDemangle LLVMTargetParser LLVMSupport LLVMDemangle)
endif()

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(fmt REQUIRED)
