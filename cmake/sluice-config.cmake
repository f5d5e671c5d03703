# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# find_package(sluice) defines sluice::sluice. The library's own dependencies stay private to it.
include("${CMAKE_CURRENT_LIST_DIR}/sluice-targets.cmake")
