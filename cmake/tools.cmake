# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# tools/src/sluice-NAME.c becomes the tool sluice-NAME; tools/src/common/ is shared by all of them,
# and so is the measurement of the floor, which the benchmarks have too.

file(GLOB tool_sources CONFIGURE_DEPENDS tools/src/sluice-*.c)
file(GLOB tool_common CONFIGURE_DEPENDS tools/src/common/*.c)
if(tool_common)
  add_library(tools_common OBJECT ${tool_common} bench/floor.c)
  target_include_directories(tools_common PRIVATE include src tools/src ${device_roots})
  target_link_libraries(tools_common PRIVATE sluice_dependencies)
  file(RELATIVE_PATH bin_to_lib "/p/${CMAKE_INSTALL_BINDIR}" "/p/${CMAKE_INSTALL_LIBDIR}")
  set_property(SOURCE tools/src/common/run.c APPEND PROPERTY
               COMPILE_DEFINITIONS "SLUICE_BIN_TO_LIB=\"${bin_to_lib}\"")
endif()

set(tool_targets "")
foreach(source IN LISTS tool_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE include src tools/src ${device_roots})
  if(tool_common)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:tools_common>)
  endif()
  sluice_link_marked(${name} "${source}")
  list(APPEND tool_targets ${name})
endforeach()
