# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# find_package(sluice) defines sluice::sluice, whose dependencies stay private to it, and sluice::sluice_static, which
# names them: their development packages have to be installed where that is used.
include("${CMAKE_CURRENT_LIST_DIR}/sluice-targets.cmake")
