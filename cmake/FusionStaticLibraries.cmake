# The libraries that come both shared and static. Expects MLIR to be found.

# MLIR's static libraries name the 150 MB shared LLVM; point them at the few static ones that they need.
foreach(library ${MLIR_EXPORTED_TARGETS})
  get_target_property(type ${library} TYPE)
  get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
  if(type STREQUAL "STATIC_LIBRARY" AND links)
    list(TRANSFORM links REPLACE "^LLVM$"
      "LLVMRemarks;LLVMBitstreamReader;LLVMDemangle;LLVMTargetParser;LLVMSupport;LLVMDemangle")
    set_property(TARGET ${library} PROPERTY INTERFACE_LINK_LIBRARIES ${links})
  endif()
endforeach()

if(NOT FUSION_STATIC_MLIR)
  find_package(fmt REQUIRED)
elseif(NOT TARGET fmt::fmt) # Debian has no static one
  add_library(fmt::fmt INTERFACE IMPORTED)
  set_property(TARGET fmt::fmt PROPERTY INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endif()
