# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# The software device for programs that know nothing of it (device/docs/drop-in.md): libsluice-soft.so to be
# preloaded, and in sluice-soft/ libibverbs.so.1 and librdmacm.so.1 for the library path. The latter
# have the symbol versions of the libraries found here.

set(dropin "${PROJECT_SOURCE_DIR}/device/dropin")
set(dropin_verbs "${dropin}/verbs.c" "${dropin}/gid_table.c" "${dropin}/address.c" "${dropin}/names.c"
                 "${dropin}/unsupported.c")
set(dropin_cm "${dropin}/cm.c" "${dropin}/rsocket.c")

foreach(part verbs cm)
  add_library(dropin_${part} OBJECT ${dropin_${part}})
  set_target_properties(dropin_${part} PROPERTIES POSITION_INDEPENDENT_CODE ON
                                                  C_VISIBILITY_PRESET hidden)
  target_compile_options(dropin_${part} PRIVATE ${SLUICE_NO_LTO}) # versions.sh reads their names
  target_include_directories(dropin_${part} PRIVATE ${device_roots} device device/src)
  target_link_libraries(dropin_${part} PRIVATE sluice_dependencies)
endforeach()

set(dropin_link_options "LINKER:--as-needed")
if(NOT SLUICE_SANITIZE)
  list(APPEND dropin_link_options "LINKER:-z,defs")
endif()

# ---- preloaded: both interfaces, no versions -------------------------------------------------------

add_library(sluice-soft-preload SHARED "${dropin}/export.c" "${dropin}/load.c" $<TARGET_OBJECTS:device_objects>
            $<TARGET_OBJECTS:common_objects>
            $<TARGET_OBJECTS:dropin_verbs> $<TARGET_OBJECTS:dropin_cm>)
set_target_properties(sluice-soft-preload PROPERTIES OUTPUT_NAME sluice-soft
                                                     C_VISIBILITY_PRESET hidden LINKER_LANGUAGE C)
target_include_directories(sluice-soft-preload PRIVATE ${device_roots} device device/src)
target_link_libraries(sluice-soft-preload PRIVATE Threads::Threads)
# Everything it calls of its own it calls for good: nobody else's symbol of that name takes its place.
target_link_options(sluice-soft-preload PRIVATE ${dropin_link_options} "LINKER:-Bsymbolic"
                                                "LINKER:-z,nodelete")
set(dropin_targets sluice-soft-preload)

# ---- for the library path: the names and versions of the system's ----------------------------------

function(dropin_library name part library)
  set(out "${PROJECT_BINARY_DIR}/dropin/${name}")
  add_custom_command(OUTPUT "${out}.c" "${out}.map"
                     COMMAND bash "${dropin}/versions.sh" "${CMAKE_NM}"
                             "$<TARGET_OBJECTS:dropin_${part}>" -- "${library}" "${out}"
                     DEPENDS "${dropin}/versions.sh" "$<TARGET_OBJECTS:dropin_${part}>" "${library}"
                     COMMAND_EXPAND_LISTS VERBATIM)
  add_library(dropin-${name} SHARED "${out}.c" $<TARGET_OBJECTS:dropin_${part}>)
  set_target_properties(dropin-${name} PROPERTIES
                        OUTPUT_NAME ${name} SOVERSION 1 LINK_DEPENDS "${out}.map"
                        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/sluice-soft"
                        INSTALL_RPATH "$ORIGIN/.." BUILD_WITH_INSTALL_RPATH ON LINKER_LANGUAGE C)
  # The stubs have no prototypes; the names of the versions are defined by assembler.
  target_compile_options(dropin-${name} PRIVATE -w ${SLUICE_NO_LTO})
  target_link_libraries(dropin-${name} PRIVATE sluice-soft-preload)
  target_link_options(dropin-${name} PRIVATE ${dropin_link_options}
                      "LINKER:--version-script=${out}.map")
endfunction()

file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/dropin")
find_library(dropin_ibverbs NAMES libibverbs.so.1)
find_library(dropin_rdmacm NAMES librdmacm.so.1)
if(dropin_ibverbs AND dropin_rdmacm)
  dropin_library(ibverbs verbs "${dropin_ibverbs}")
  dropin_library(rdmacm cm "${dropin_rdmacm}")
  list(APPEND dropin_targets dropin-ibverbs dropin-rdmacm)
else()
  message(STATUS "libibverbs.so.1 and librdmacm.so.1 not found: the drop-in can be preloaded only")
endif()
