# `make install` and `make package`. Programs find what belongs to them relative to where they lie, so the
# folder can be moved: bin/turbogr, libexec/turbogr/turbogr-bench, lib/turbogr/ (libturbogr_mpi.so; in the
# tarball also the shared libraries it was built with).
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(helpers libexec/turbogr)
set(private_libraries lib/turbogr)

set_target_properties(turbogr PROPERTIES INSTALL_RPATH "$ORIGIN/../${private_libraries}")
set_target_properties(turbogr-bench PROPERTIES INSTALL_RPATH "$ORIGIN/../../${private_libraries}")
set_target_properties(turbogr_c PROPERTIES INSTALL_RPATH "$ORIGIN/turbogr")
# A path that holds for the libraries of the libraries, too: oneDNN looks for OpenCL beside itself.
foreach(target turbogr turbogr-bench turbogr_c)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS turbogr RUNTIME DESTINATION bin COMPONENT program)
install(TARGETS turbogr-bench RUNTIME DESTINATION ${helpers} COMPONENT program)
if(TARGET turbogr_mpi)
  install(TARGETS turbogr_mpi LIBRARY DESTINATION ${private_libraries} COMPONENT mpi)
endif()

# The C library, for C, CMake and pkg-config.
install(TARGETS turbogr_c EXPORT turbogr LIBRARY DESTINATION lib COMPONENT program)
install(FILES turbogr/c_api/c_api.h DESTINATION include/turbogr COMPONENT program)
install(EXPORT turbogr NAMESPACE turbogr:: FILE turbogrTargets.cmake DESTINATION lib/cmake/turbogr
        COMPONENT program)
configure_package_config_file(cmake/turbogrConfig.cmake.in generated/turbogrConfig.cmake
                              INSTALL_DESTINATION lib/cmake/turbogr)
write_basic_package_version_file(generated/turbogrConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/turbogrConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/turbogrConfigVersion.cmake
        DESTINATION lib/cmake/turbogr COMPONENT program)
configure_file(cmake/turbogr.pc.in generated/turbogr.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/turbogr.pc DESTINATION lib/pkgconfig COMPONENT program)

# Completion and the manual, by the program itself; configs and what to read.
set(made ${PROJECT_BINARY_DIR}/made)
add_custom_command(
  OUTPUT ${made}/turbogr.1
  COMMAND ${CMAKE_COMMAND} -E make_directory ${made}
  COMMAND turbogr completion bash > ${made}/turbogr
  COMMAND turbogr completion zsh > ${made}/_turbogr
  COMMAND turbogr completion man > ${made}/turbogr.1
  DEPENDS turbogr)
add_custom_target(manual ALL DEPENDS ${made}/turbogr.1)
install(FILES ${made}/turbogr DESTINATION share/bash-completion/completions COMPONENT program)
install(FILES ${made}/_turbogr DESTINATION share/zsh/site-functions COMPONENT program)
install(FILES ${made}/turbogr.1 DESTINATION share/man/man1 COMPONENT program)
install(DIRECTORY configs DESTINATION share/turbogr COMPONENT program)
install(FILES README.md CHANGELOG.md DESTINATION share/doc/turbogr COMPONENT program)
install(FILES LICENSE DESTINATION share/doc/turbogr RENAME copyright COMPONENT program)

# Everything these files need at install time.
add_custom_target(distribution DEPENDS turbogr turbogr-bench turbogr_c manual)
if(TARGET turbogr_mpi)
  add_dependencies(distribution turbogr_mpi)
endif()

# The tarball's shared libraries, all but the C library's and the driver's, with their licences.
configure_file(cmake/bundle.cmake.in generated/bundle.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/generated/bundle.cmake COMPONENT bundled EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME turbogr)
set(CPACK_PACKAGE_VENDOR "turbogr")
set(CPACK_PACKAGE_CONTACT "the turbogr developers <turbogr@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(flavour cpu)
if(TGR_CUDA)
  set(flavour cuda)
  set(CPACK_PACKAGE_NAME turbogr-cuda)
endif()
set(CPACK_PACKAGE_FILE_NAME turbogr-${PROJECT_VERSION}-${flavour}-linux-x86_64)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_COMPONENTS_ALL program mpi bundled)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/TurbogrPackage.cmake)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(TGR_CUDA)
  # Not every toolkit is known to the dynamic linker of the machine that makes the package.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDAToolkit_LIBRARY_DIR})
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONFLICTS turbogr)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_PROVIDES turbogr)
endif()
# Needs an MPI, so it is a package of its own: turbogr alone asks for none.
set(CPACK_DEBIAN_MPI_PACKAGE_NAME ${CPACK_PACKAGE_NAME}-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${CPACK_PACKAGE_NAME} (= ${PROJECT_VERSION}), openmpi-bin")
set(CPACK_DEBIAN_MPI_FILE_NAME turbogr-mpi-${PROJECT_VERSION}-${flavour}-linux-x86_64.deb)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ${CPACK_PACKAGE_NAME})
set(CPACK_DEBIAN_PROGRAM_FILE_NAME ${CPACK_PACKAGE_FILE_NAME}.deb)
include(CPack)
