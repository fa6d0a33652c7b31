# The libraries that come both shared and static, chosen by FUSION_STATIC_MLIR. Expects MLIR to be found.
if(NOT FUSION_STATIC_MLIR)
  find_package(fmt REQUIRED)
  return()
endif()

# The exported `LLVM` target is the 150 MB shared library; point it at the few static ones MLIR needs.
set_target_properties(LLVM PROPERTIES IMPORTED_LOCATION "${LLVM_LIBRARY_DIR}/libLLVMSupport.a")
get_target_property(configurations LLVM IMPORTED_CONFIGURATIONS)
foreach(configuration ${configurations} RELEASE RELWITHDEBINFO DEBUG NOCONFIG)
  set_target_properties(LLVM PROPERTIES
    IMPORTED_LOCATION_${configuration} "${LLVM_LIBRARY_DIR}/libLLVMSupport.a"
    IMPORTED_SONAME_${configuration} "")
endforeach()
set_property(TARGET LLVM PROPERTY INTERFACE_LINK_LIBRARIES
  LLVMRemarks LLVMBitstreamReader LLVMDemangle LLVMTargetParser LLVMSupport LLVMDemangle)

# Debian has no static fmt.
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED)
  set_property(TARGET fmt::fmt PROPERTY INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endif()
