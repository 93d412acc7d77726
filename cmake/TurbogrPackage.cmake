# Read by cpack for each kind of package. A .deb names the Debian packages it needs; the tarball brings its
# libraries along.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL bundled)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
else()
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${build} turbogr bundled /)
endif()
