# turbogr/plan/machines/*.json inside the program, so that an installed one has them.
file(GLOB machine_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/turbogr/plan/machines/*.json)
set(TGR_MACHINES "")
foreach(file ${machine_files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND TGR_MACHINES "    {\"${name}\", R\"json(${text})json\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/turbogr/plan/built_in_machines.cc.in
               ${PROJECT_BINARY_DIR}/generated/turbogr/plan/built_in_machines.cc @ONLY)
