# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# What the library links, in one interface target. docs/dependencies.md has the reason of each.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(rdmacm REQUIRED IMPORTED_TARGET librdmacm)
pkg_check_modules(ibverbs REQUIRED IMPORTED_TARGET libibverbs)
# wfcqueue lives in liburcu-common, which has no .pc file of its own; --as-needed drops the rest of cds.
pkg_check_modules(urcu REQUIRED IMPORTED_TARGET liburcu-cds liburcu-bp)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium)

add_library(sluice_dependencies INTERFACE)
target_link_libraries(sluice_dependencies INTERFACE PkgConfig::rdmacm PkgConfig::ibverbs
                      PkgConfig::urcu PkgConfig::hwloc PkgConfig::sodium Threads::Threads
                      ${CMAKE_DL_LIBS})

# Values that newer headers have: a switch lists them where they exist, and so stays complete everywhere.
include(CheckSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::ibverbs)
foreach(value IBV_WR_FLUSH IBV_EVENT_DEVICE_SPEED_CHANGE)
  check_source_compiles(C "#include <infiniband/verbs.h>
    int main(void) { return ${value}; }" HAVE_${value})
  if(HAVE_${value})
    target_compile_definitions(sluice_dependencies INTERFACE HAVE_${value})
  endif()
endforeach()
unset(CMAKE_REQUIRED_LIBRARIES)
