# Whether the target that is linked is to be copied to other machines: it has the property FUSION_PORTABLE
# (cmake/FusionWheelParts.cmake).
set(FUSION_PORTABLE "$<BOOL:$<TARGET_PROPERTY:FUSION_PORTABLE>>")

# fusion_library(NAME SOURCES … LINKS … [MLIR mlir-libraries…]): a static library of one room, installed and
# exported (FusionBase as Fusion::Base; FusionApi, which applications link, as Fusion::Fusion).
#   MLIR: include MLIR's headers, use the shared precompiled header, link the named libraries.
function(fusion_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;MLIR;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>
    $<INSTALL_INTERFACE:include> $<INSTALL_INTERFACE:include/fusion>)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS})
  if(ARG_MLIR)
    fusion_use_mlir(${name} ${ARG_MLIR})
  else()
    fusion_precompiled(${name} standard)
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  if(name MATCHES "^Fusion(.+)")
    set(exported ${CMAKE_MATCH_1})
    if(exported STREQUAL "Api")
      set(exported Fusion)
    endif()
    set_target_properties(${name} PROPERTIES EXPORT_NAME ${exported})
    install(TARGETS ${name} EXPORT FusionTargets ARCHIVE DESTINATION lib COMPONENT dev)
    add_dependencies(installed ${name})
  endif()
endfunction()

# fusion_precompiled(TARGET standard|mlir|test|mlir_test): TARGET uses the precompiled header
# cmake/pch/<name>.h, which is compiled once. Sources still name what they include:
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
function(fusion_precompiled name header)
  set(owner FusionPch_${header})
  if(NOT TARGET ${owner})
    add_library(${owner} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch/empty.cpp)
    target_include_directories(${owner} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    target_link_libraries(${owner} PRIVATE fmt::fmt)
    if(header MATCHES mlir)
      fusion_mlir_headers(${owner})
      add_dependencies(${owner} FusionTablegen)
    endif()
    if(header MATCHES test)
      target_link_libraries(${owner} PRIVATE GTest::gmock)
    endif()
    target_precompile_headers(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch/${header}.h)
  endif()
  target_precompile_headers(${name} REUSE_FROM ${owner})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang) # which forgets the pragmas by which libstdc++ silences its own use of them
    target_compile_options(${name} PRIVATE -Wno-deprecated-declarations)
  endif()
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE") # the header is compiled with -fPIC, and clang wants the same of its users
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
endfunction()

# MLIR's headers; users of the installed libraries see none.
function(fusion_mlir_headers name)
  target_include_directories(${name} SYSTEM PUBLIC "$<BUILD_INTERFACE:${MLIR_INCLUDE_DIRS};${LLVM_INCLUDE_DIRS}>")
  target_compile_definitions(${name} PUBLIC ${LLVM_DEFINITIONS_LIST})
endfunction()

# Gives a target MLIR's headers and libraries: the shared ones, or the named static ones.
function(fusion_use_mlir name)
  fusion_mlir_headers(${name})
  if(FUSION_STATIC_MLIR)
    target_link_libraries(${name} PUBLIC ${ARGN})
  else()
    target_link_libraries(${name} PUBLIC "$<IF:${FUSION_PORTABLE},${ARGN},MLIR;LLVM>")
  endif()
  get_target_property(header ${name} PRECOMPILE_HEADERS_REUSE_FROM)
  if(header STREQUAL "FusionPch_test")
    fusion_precompiled(${name} mlir_test)
  else()
    fusion_precompiled(${name} mlir)
  endif()
endfunction()

# fusion_embed(TARGET HEADER NAMESPACE FILES…): each file becomes a string constant
# `fusion::NAMESPACE::<file name with dots as underscores>` in a generated header.
function(fusion_embed target header namespace)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${header}")
  set(inputs "")
  foreach(file ${ARGN})
    list(APPEND inputs "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
  add_custom_command(OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${output}" "-DNAMESPACE=${namespace}" "-DINPUTS=${inputs}"
            -P "${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake"
    DEPENDS ${inputs} "${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake" VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()

# Where tests share what they compile: cubins, emulated kernels, what spills. Named by contents; any number
# may use it.
set(FUSION_TEST_CACHE ${PROJECT_BINARY_DIR}/test-cache)

# fusion_unit_test(NAME SOURCES … LINKS … [SHARDS n] [LONG]): a GoogleTest program registered with ctest; a
# long one as n tests NAME-0 …, so that they run side by side. Long ones start first, so that no core waits
# for them at the end.
function(fusion_unit_test name)
  cmake_parse_arguments(ARG "LONG" "SHARDS" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE FUSION_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             FUSION_BINARY_DIR="${PROJECT_BINARY_DIR}")
  fusion_precompiled(${name} test)
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "FUSION_CACHE_DIR=${FUSION_TEST_CACHE}")
    if(ARG_LONG)
      set_tests_properties(${name} PROPERTIES COST 1000)
    endif()
    return()
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}-${shard} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name}-${shard} PROPERTIES COST 1000
      ENVIRONMENT "FUSION_CACHE_DIR=${FUSION_TEST_CACHE};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
