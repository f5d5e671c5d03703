# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# One program, sluice-bench: the C files of bench/ over Google Benchmark through the shim, which is
# the only C++ in it. Not installed.

if(EXISTS "${PROJECT_SOURCE_DIR}/bench/shim.cc")
  enable_language(CXX)
  find_package(benchmark REQUIRED)

  file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c)
  add_executable(sluice-bench bench/shim.cc ${bench_sources})
  target_include_directories(sluice-bench PRIVATE bench)
  target_link_libraries(sluice-bench PRIVATE sluice_static benchmark::benchmark)
endif()

# The software device through plain verbs: two processes, no library in between. Not installed.
add_executable(raw-verbs bench/raw/raw_verbs.c bench/floor.c)
target_include_directories(raw-verbs PRIVATE bench)
target_link_libraries(raw-verbs PRIVATE sluice_static)

# Connections of the software device's rdma_cm: how many a second, and where the time goes.
add_executable(raw-connect bench/raw/raw_connect.c)
target_link_libraries(raw-connect PRIVATE sluice_static)

# The same through the library.
add_executable(lib-connect bench/raw/lib_connect.c)
target_link_libraries(lib-connect PRIVATE sluice_static)
