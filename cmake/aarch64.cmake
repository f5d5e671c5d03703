# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Toolchain of the preset aarch64: the distribution's cross compiler over a folder with the libraries of an
# aarch64 system, which tools/run-aarch64-tests makes. ctest runs what it builds in QEMU's user mode.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# By hand: "tools/run-aarch64-tests --prepare" makes it.
set(aarch64_root "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root")
cmake_path(NORMAL_PATH aarch64_root)
if(NOT EXISTS "${aarch64_root}/usr/include/infiniband/verbs.h")
  message(FATAL_ERROR "no libraries for aarch64 in ${aarch64_root}: \"tools/run-aarch64-tests --prepare\" fetches them")
endif()
set(CMAKE_SYSROOT "${aarch64_root}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${aarch64_root}")

# Programs are this machine's, everything else is the root's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${aarch64_root}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${aarch64_root}/usr/lib/aarch64-linux-gnu/pkgconfig:${aarch64_root}/usr/share/pkgconfig")
