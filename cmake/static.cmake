# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# libsluice.a for programs of others: all objects as one, in which every name is local that libsluice.so does not export
# either. Without that a program's own pool_take(), say, would be taken for the library's, or be refused by the linker.
# The libraries that it needs are not in it: sluice.pc and the CMake package name them to the linker.

# Objects of a build with link-time optimisation hold no machine code: one that is to be kept has to.
set(link_as_one -r -nostdlib)
separate_arguments(c_flags UNIX_COMMAND "${CMAKE_C_FLAGS}")
if(CMAKE_INTERPROCEDURAL_OPTIMIZATION)
  list(APPEND c_flags ${CMAKE_C_COMPILE_OPTIONS_IPO})
endif()
if("${c_flags}" MATCHES "-flto" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND link_as_one -flinker-output=nolto-rel)
endif()

set(static_object "${PROJECT_BINARY_DIR}/static/sluice.o")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/static")
add_custom_command(
  OUTPUT "${static_object}"
  COMMAND "${CMAKE_C_COMPILER}" ${c_flags} ${link_as_one} -o "${static_object}" "${library_objects}"
  COMMAND "${CMAKE_OBJCOPY}" --localize-hidden --wildcard "--keep-global-symbol=sluice_*" "${static_object}"
  DEPENDS "${library_objects}"
  COMMENT "Joining the objects of libsluice.a"
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties("${static_object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(sluice_archive STATIC "${static_object}")
set_target_properties(sluice_archive PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME sluice EXPORT_NAME sluice_static)
target_include_directories(sluice_archive INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# What a program names behind it, as these libraries' own files say.
set(static_libraries ${rdmacm_LIBRARIES} ${ibverbs_LIBRARIES} ${urcu_LIBRARIES} ${hwloc_LIBRARIES} ${sodium_LIBRARIES}
    ${CMAKE_DL_LIBS} pthread)
list(REMOVE_DUPLICATES static_libraries)
target_link_libraries(sluice_archive INTERFACE ${static_libraries})
set(static_directories ${rdmacm_LIBRARY_DIRS} ${ibverbs_LIBRARY_DIRS} ${urcu_LIBRARY_DIRS} ${hwloc_LIBRARY_DIRS}
    ${sodium_LIBRARY_DIRS})
list(REMOVE_DUPLICATES static_directories)
# A root to build in that lies in this folder, as for another processor, is not where programs find them.
string(REGEX REPLACE "([][+.*()^$?|\\])" "\\\\\\1" inside "${PROJECT_SOURCE_DIR}")
list(FILTER static_directories EXCLUDE REGEX "^${inside}/")
target_link_directories(sluice_archive INTERFACE ${static_directories})
set(pc_libs_private ${static_directories})
list(TRANSFORM pc_libs_private PREPEND "-L")
list(TRANSFORM static_libraries PREPEND "-l")
list(APPEND pc_libs_private ${static_libraries})
list(JOIN pc_libs_private " " pc_libs_private)
