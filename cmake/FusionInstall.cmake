# `cmake --install BUILD --prefix X`: bin/ tools, lib/ libraries, include/fusion/ headers, and what makes
# `find_package(Fusion)` work. The libraries and tools add themselves where they are defined.
include(CMakePackageConfigHelpers)

# The headers that users include; none names an MLIR type.
install(FILES api/Compare.h api/Decode.h api/Fusion.h api/Generate.h DESTINATION include/fusion/api)
install(FILES runtime/Results.h runtime/RunStatistics.h DESTINATION include/fusion/runtime)
foreach(room ir/base codegen/plan)
  install(DIRECTORY ${room}/ DESTINATION include/fusion/${room} FILES_MATCHING PATTERN "*.h")
endforeach()
file(WRITE "${PROJECT_BINARY_DIR}/Fusion.h" "#pragma once\n#include \"fusion/api/Fusion.h\"\n")
install(FILES "${PROJECT_BINARY_DIR}/Fusion.h" DESTINATION include/fusion)

install(FILES LICENSE DESTINATION share/doc/fusion)

# The C interface: find_package(FusionC) gives Fusion::C, pkg-config `fusion`; both need nothing else.
install(FILES api/c/fusion.h DESTINATION include)
install(TARGETS FusionC EXPORT FusionCTargets LIBRARY DESTINATION lib)
set(FUSION_C_PACKAGE_FOLDER lib/cmake/FusionC)
install(EXPORT FusionCTargets NAMESPACE Fusion:: DESTINATION ${FUSION_C_PACKAGE_FOLDER} FILE FusionCConfig.cmake)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/FusionCConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FusionCConfigVersion.cmake" DESTINATION ${FUSION_C_PACKAGE_FOLDER})
configure_file(cmake/fusion.pc.in "${PROJECT_BINARY_DIR}/fusion.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/fusion.pc" DESTINATION lib/pkgconfig)

set(FUSION_PACKAGE_FOLDER lib/cmake/Fusion)
install(EXPORT FusionTargets NAMESPACE Fusion:: DESTINATION ${FUSION_PACKAGE_FOLDER})
configure_package_config_file(cmake/FusionConfig.cmake.in "${PROJECT_BINARY_DIR}/FusionConfig.cmake"
  INSTALL_DESTINATION ${FUSION_PACKAGE_FOLDER})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/FusionConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FusionConfig.cmake" "${PROJECT_BINARY_DIR}/FusionConfigVersion.cmake"
  cmake/FusionStaticLibraries.cmake DESTINATION ${FUSION_PACKAGE_FOLDER})
