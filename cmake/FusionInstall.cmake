# `cmake --install BUILD --prefix X`: bin/ tools, lib/ libraries, include/fusion/ headers, and what makes
# `find_package(Fusion)` work. The libraries and tools add themselves where they are defined. The components
# tools, library and dev are packages of Debian (FusionPackage.cmake).
include(CMakePackageConfigHelpers)

# The headers that users include; none names an MLIR type.
install(FILES api/Compare.h api/Decode.h api/Fusion.h api/Generate.h DESTINATION include/fusion/api COMPONENT dev)
install(FILES runtime/Results.h runtime/RunStatistics.h DESTINATION include/fusion/runtime COMPONENT dev)
foreach(room ir/base codegen/plan)
  install(DIRECTORY ${room}/ DESTINATION include/fusion/${room} COMPONENT dev FILES_MATCHING PATTERN "*.h")
endforeach()
file(WRITE "${PROJECT_BINARY_DIR}/Fusion.h" "#pragma once\n#include \"fusion/api/Fusion.h\"\n")
install(FILES "${PROJECT_BINARY_DIR}/Fusion.h" DESTINATION include/fusion COMPONENT dev)

install(FILES LICENSE DESTINATION share/doc/fusion COMPONENT license)

# The C interface: find_package(FusionC) gives Fusion::C, pkg-config `fusion`; both need nothing else.
install(FILES api/c/fusion.h DESTINATION include COMPONENT dev)
install(TARGETS FusionC EXPORT FusionCTargets LIBRARY DESTINATION lib COMPONENT library NAMELINK_COMPONENT dev)
add_dependencies(installed FusionC)
set(FUSION_C_PACKAGE_FOLDER lib/cmake/FusionC)
install(EXPORT FusionCTargets NAMESPACE Fusion:: DESTINATION ${FUSION_C_PACKAGE_FOLDER} FILE FusionCConfig.cmake
  COMPONENT dev)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/FusionCConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FusionCConfigVersion.cmake" DESTINATION ${FUSION_C_PACKAGE_FOLDER} COMPONENT dev)
configure_file(cmake/fusion.pc.in "${PROJECT_BINARY_DIR}/fusion.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/fusion.pc" DESTINATION lib/pkgconfig COMPONENT dev)

set(FUSION_PACKAGE_FOLDER lib/cmake/Fusion)
install(EXPORT FusionTargets NAMESPACE Fusion:: DESTINATION ${FUSION_PACKAGE_FOLDER} COMPONENT dev)
configure_package_config_file(cmake/FusionConfig.cmake.in "${PROJECT_BINARY_DIR}/FusionConfig.cmake"
  INSTALL_DESTINATION ${FUSION_PACKAGE_FOLDER})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/FusionConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FusionConfig.cmake" "${PROJECT_BINARY_DIR}/FusionConfigVersion.cmake"
  cmake/FusionStaticLibraries.cmake DESTINATION ${FUSION_PACKAGE_FOLDER} COMPONENT dev)
