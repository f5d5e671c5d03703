# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# How a program chooses its library: the shared one, as a user's program would, unless one of the
# first 30 lines of its source says "links: static", for those that need internals.

function(sluice_link_marked target source)
  file(STRINGS "${source}" lines LIMIT_COUNT 30)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  if(lines MATCHES "links: static")
    target_link_libraries(${target} PRIVATE sluice_static)
  else()
    target_link_libraries(${target} PRIVATE sluice Threads::Threads)
  endif()
endfunction()
