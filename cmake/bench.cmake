# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# One program, sluice-bench: the C files of bench/ over Google Benchmark through the shim, which is
# the only C++ in it. Not installed.

set(bin "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")

if(EXISTS "${PROJECT_SOURCE_DIR}/bench/shim.cc")
  enable_language(CXX)
  find_package(benchmark REQUIRED)

  file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c device/bench/*.c)
  set_property(SOURCE device/bench/ring_bench.c PROPERTY INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/device/src")
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

add_executable(raw-tcp bench/raw/raw_tcp.c)
add_executable(raw-datagram bench/raw/raw_datagram.c)
target_link_libraries(raw-datagram PRIVATE sluice_static)

# The same through the library.
add_executable(lib-connect bench/raw/lib_connect.c)
target_link_libraries(lib-connect PRIVATE sluice_static)

# Instructions of the software device per operation: bench/raw/cost runs it under valgrind.
add_executable(raw-cost bench/raw/raw_cost.c)
target_link_libraries(raw-cost PRIVATE sluice_static)
# Messages in one thread, for callgrind: bench/cost counts instructions with it.
add_executable(lib-cost bench/raw/lib_cost.c)
target_link_libraries(lib-cost PRIVATE sluice_static)

# Many sessions on one worker: their rate together, and what they cost while nothing happens.
add_executable(lib-many bench/raw/lib_many.c)
target_link_libraries(lib-many PRIVATE sluice_static)

# Many connections of a plain server of sockets.
add_executable(epoll-tcp bench/raw/epoll_tcp.c)

# Two processes that sleep between messages, beside programs that spin; and the same over plain TCP.
add_executable(lib-busy bench/raw/lib_busy.c)
target_link_libraries(lib-busy PRIVATE sluice_static)

# Other libraries that bench/compare runs beside Sluice, where they are installed.
pkg_check_modules(zmq IMPORTED_TARGET libzmq)
if(zmq_FOUND)
  add_executable(peer-zmq bench/peers/zmq.c)
  target_link_libraries(peer-zmq PRIVATE PkgConfig::zmq)
endif()
find_library(nng_library nng)
find_path(nng_headers nng/nng.h)
if(nng_library AND nng_headers)
  add_executable(peer-nng bench/peers/nng.c)
  target_include_directories(peer-nng SYSTEM PRIVATE ${nng_headers})
  target_link_libraries(peer-nng PRIVATE ${nng_library} Threads::Threads)
endif()
pkg_check_modules(ucx IMPORTED_TARGET ucx)
if(ucx_FOUND)
  add_executable(peer-ucx bench/peers/ucx.c)
  target_link_libraries(peer-ucx PRIVATE PkgConfig::ucx)
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${bin}")
