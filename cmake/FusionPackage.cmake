# Debian packages by `cpack -G DEB` in the build folder (scripts/package.sh builds what they hold):
# fusion-tools, libfusion1 and libfusion-dev. They depend on Debian's own MLIR, of bookworm-security.
set(folder "${PROJECT_BINARY_DIR}/package")
if(NOT GZIP)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fusion)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
# Who builds a package answers for it: by the variables of Debian's tools, else the account.
set(name "$ENV{DEBFULLNAME}")
set(mail "$ENV{DEBEMAIL}")
if(NOT name OR NOT mail)
  execute_process(COMMAND id -un OUTPUT_VARIABLE account OUTPUT_STRIP_TRAILING_WHITESPACE)
  cmake_host_system_information(RESULT host QUERY HOSTNAME)
endif()
if(NOT name)
  set(name "${account}")
endif()
if(NOT mail)
  set(mail "${account}@${host}")
endif()
set(CPACK_PACKAGE_CONTACT "${name} <${mail}>" CACHE STRING "The maintainer that packages name")
set(CPACK_PACKAGE_DIRECTORY "${folder}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL tools library dev)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME fusion-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "g++ | clang-22")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "graph-level fusion compiler for transformer inference: tools
Imports ONNX graphs, fuses neighbouring operators into CUDA kernels, compiles
them with NVRTC and runs them. Says of every fusion that did not happen why.

NVRTC is not part of Debian: install a CUDA toolkit or, by pip, the package
nvidia-cuda-nvrtc. Without a GPU graphs run on a reference or, with a C++
compiler, as emitted kernels on the host.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libfusion1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
file(WRITE "${folder}/triggers" "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${folder}/triggers")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "graph-level fusion compiler for transformer inference: library
Compiles and runs ONNX graphs on NVIDIA GPUs, by a C interface.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libfusion-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS
  "libmlir-22-dev, mlir-22-tools, nlohmann-json3-dev, libfmt-dev, libprotobuf-dev")
set(CPACK_COMPONENT_DEV_DEPENDS library)
set(CPACK_COMPONENT_DEV_DESCRIPTION "graph-level fusion compiler for transformer inference: development files
Headers of the C and C++ interfaces, static libraries for C++, CMake packages
(Fusion::C, Fusion::Fusion) and the pkg-config file.

The C interface needs nothing else. The static libraries need what is
recommended.")

# copyright, changelog and lintian's overrides of each, by the rules of Debian.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, if that is set
string(TIMESTAMP year "%Y" UTC)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(WRITE "${folder}/${package}/copyright"
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: fusion\n\n"
    "Files: *\nCopyright: ${year} the fusion authors\nLicense: Apache-2.0\n"
    " On Debian systems, the Apache License, Version 2.0, is in\n /usr/share/common-licenses/Apache-2.0.\n")
  file(WRITE "${folder}/${package}/changelog"
    "fusion (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * Version ${PROJECT_VERSION}.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  execute_process(COMMAND ${GZIP} -9nf "${folder}/${package}/changelog")
  install(FILES "${folder}/${package}/copyright" "${folder}/${package}/changelog.gz"
    DESTINATION share/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
  if(NOT component STREQUAL "dev")
    set(overrides "# Debian's libMLIR.so lies in a folder of its own\n")
    string(APPEND overrides "${package}: custom-library-search-path\n")
    if(component STREQUAL "library")
      string(APPEND overrides "# CPack's, beside the trigger\n${package}: maintscript-calls-ldconfig\n")
    endif()
    file(WRITE "${folder}/${package}/${package}" "${overrides}")
    install(FILES "${folder}/${package}/${package}" DESTINATION share/lintian/overrides
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endforeach()

include(CPack)
