# Language, warnings, optimisation and the compiler cache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON) # MLIR lies outside the loader's path

find_program(CCACHE ccache)
if(CCACHE)
  # By the contents of headers (CCACHE_DEPEND): what the preprocessor leaves of them is the same after a
  # change of comments, but the compiler does not take a precompiled header of a file of another size.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_DEPEND=1 ${CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter -ffunction-sections -fdata-sections)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-Wno-missing-field-initializers "SHELL:-Xclang -fno-pch-timestamp")
endif()
if(FUSION_WERROR)
  add_compile_options(-Werror)
endif()
# Host code alone: MLIR, LLVM and the kernels that emulation compiles are not instrumented. docs/testing.md
# says what that means.
set(FUSION_SANITIZE "" CACHE STRING "Sanitizers of host code: address, undefined, thread or a list of them with commas")
if(FUSION_SANITIZE)
  # MLIR is built without RTTI, which the checks of virtual tables want.
  add_compile_options(-fsanitize=${FUSION_SANITIZE} -fno-sanitize=vptr,function -fno-sanitize-recover=all -fno-omit-frame-pointer
                      -gline-tables-only)
  add_link_options(-fsanitize=${FUSION_SANITIZE})
endif()
if(FUSION_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
add_link_options(-Wl,--gc-sections,--as-needed)
find_program(LLD NAMES ld.lld-22 ld.lld)
if(LLD AND CMAKE_CXX_COMPILER_ID MATCHES Clang) # g++ 12 has no --ld-path
  add_link_options(--ld-path=${LLD})
endif()
if(FUSION_STATIC_MLIR)
  # Programs to be copied to other machines.
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--strip-all)
endif()
