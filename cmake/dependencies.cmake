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
