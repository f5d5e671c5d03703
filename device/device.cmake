# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The software RDMA device, a library of its own (device/README.md): include/ is what others may include, src/ the device.
# The library takes its objects; device_static is for what needs nothing of Sluice: the tests in device/tests, and
# those of the contract.

set(device_roots "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/device/include") # the first for common/

file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS device/src/*.c)
add_library(device_objects OBJECT ${device_sources})
set_target_properties(device_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
target_include_directories(device_objects PUBLIC ${device_roots} device/src)
target_link_libraries(device_objects PUBLIC sluice_dependencies)

add_library(device_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:device_objects> $<TARGET_OBJECTS:common_objects>)
set_target_properties(device_static PROPERTIES LINKER_LANGUAGE C)
target_include_directories(device_static PUBLIC ${device_roots} device/src)
target_link_libraries(device_static PUBLIC sluice_dependencies)
