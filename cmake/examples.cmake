# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The programs of the README, built as a user would build them: the public header, the shared
# library, nothing else.

file(GLOB example_sources CONFIGURE_DEPENDS examples/*.c)
foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  add_executable(example-${name} ${source})
  set_target_properties(example-${name} PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(example-${name} PRIVATE sluice::sluice)
endforeach()
