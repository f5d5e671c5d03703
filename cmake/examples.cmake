# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The programs of the README, built as a user would build them: the public header, the shared
# library, nothing else.

set(example_targets "")
file(GLOB example_sources CONFIGURE_DEPENDS examples/*.c)
foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  add_executable(example-${name} ${source})
  set_target_properties(example-${name} PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
  target_link_libraries(example-${name} PRIVATE sluice::sluice)
  list(APPEND example_targets example-${name})
endforeach()
