# What a wheel has besides the Python module and files: libfusion and the tools, of the objects that this
# build has of them, but linked with MLIR statically and with no folder of this machine; beside them the
# libraries that they need and that a bare machine has not. The target wheel-parts makes them in BUILD/wheel,
# as they lie in the package, and the tools' documents in BUILD/share.
set(FUSION_WHEEL_FOLDER "${PROJECT_BINARY_DIR}/wheel")

# fusion_wheel_part(NAME FOLDER RPATH): NAME-wheel, the portable twin of NAME.
function(fusion_wheel_part name folder rpath)
  set(part ${name}-wheel)
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    add_library(${part} SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
    set_target_properties(${part} PROPERTIES SUFFIX .so.1)
  else()
    add_executable(${part} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
  endif()
  foreach(property LINK_LIBRARIES LINK_OPTIONS INTERFACE_INCLUDE_DIRECTORIES)
    get_target_property(value ${name} ${property})
    if(value)
      set_property(TARGET ${part} PROPERTY ${property} ${value})
    endif()
  endforeach()
  get_target_property(output ${name} OUTPUT_NAME)
  if(NOT output)
    set(output ${name})
  endif()
  target_link_options(${part} PRIVATE -static-libstdc++ -static-libgcc -Wl,--strip-all)
  set_target_properties(${part} PROPERTIES FUSION_PORTABLE ON LINKER_LANGUAGE CXX OUTPUT_NAME ${output}
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${rpath}" INSTALL_RPATH_USE_LINK_PATH OFF
    LIBRARY_OUTPUT_DIRECTORY "${folder}" RUNTIME_OUTPUT_DIRECTORY "${folder}")
  add_dependencies(wheel-parts ${part})
endfunction()

if(FUSION_BUILD_TESTS AND TARGET FusionPython) # test/install makes a wheel
  set(all ALL)
endif()
add_custom_target(wheel-parts ${all})
fusion_wheel_part(FusionC "${FUSION_WHEEL_FOLDER}" $ORIGIN)
foreach(tool fusion-opt fusion-run fusion-compile fusion-cache)
  fusion_wheel_part(${tool} "${FUSION_WHEEL_FOLDER}/bin" $ORIGIN/..)
  add_dependencies(wheel-parts ${tool}-documents)
endforeach()
fusion_wheel_part(fusion-nvrtc "${FUSION_WHEEL_FOLDER}/bin" $ORIGIN/..)
get_target_property(fmt fmt::fmt LOCATION)
foreach(library "${fmt}" "${Protobuf_LITE_LIBRARY_RELEASE}")
  file(REAL_PATH "${library}" library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p "${library}" OUTPUT_VARIABLE facts)
  if(facts MATCHES "SONAME +([^ \n]+)")
    configure_file("${library}" "${FUSION_WHEEL_FOLDER}/${CMAKE_MATCH_1}" COPYONLY)
  endif()
endforeach()
