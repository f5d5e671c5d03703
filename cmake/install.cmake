# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Library, public headers, tools, pkg-config file and CMake package. Everything installed finds the
# rest relative to itself, so the tree may be installed to one place and moved to another.

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/sluice")
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(TARGETS sluice sluice_archive EXPORT sluice-targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# The name by which the static library is found where the shared one is, too.
file(CREATE_LINK libsluice.a "${PROJECT_BINARY_DIR}/libsluice_static.a" SYMBOLIC)
install(FILES "${PROJECT_BINARY_DIR}/libsluice_static.a" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/sluice DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")

# The linker marks only what all of its objects are marked as, those of the C library too, and distributions build
# these without. They return from nothing but calls; that ours are marked a test sees to.
if(SLUICE_SHADOW_STACKS)
  foreach(target IN LISTS tool_targets dropin_targets ITEMS sluice)
    target_link_options(${target} PRIVATE "LINKER:-z,shstk")
  endforeach()
endif()

if(tool_targets)
  file(RELATIVE_PATH bin_to_lib "/p/${CMAKE_INSTALL_BINDIR}" "/p/${CMAKE_INSTALL_LIBDIR}")
  # The build's own layout is one of them: a path that is changed when it is installed leaves room for it, and
  # that is an empty entry, which is the current folder.
  set(tool_paths "$ORIGIN/../lib" "$ORIGIN/${bin_to_lib}")
  list(REMOVE_DUPLICATES tool_paths)
  set_target_properties(${tool_targets} PROPERTIES INSTALL_RPATH "${tool_paths}"
                                                   BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${tool_targets} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

file(RELATIVE_PATH pc_to_prefix "/p/${pkgconfig_dir}" "/p")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
string(CONCAT pc_prefix "\${pcfiledir}/" "${pc_to_prefix}")
configure_file(src/sluice.pc.in sluice.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sluice.pc" DESTINATION "${pkgconfig_dir}")

# The drop-in: nobody links with it.
install(TARGETS sluice-soft-preload LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET dropin-ibverbs)
  install(TARGETS dropin-ibverbs dropin-rdmacm
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/sluice-soft" NAMELINK_SKIP)
endif()
install(FILES docs/man/sluice-soft.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
# The page that a message of the library names.
install(FILES docs/two-hosts.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT sluice-targets NAMESPACE sluice:: DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES cmake/sluice-config.cmake "${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
        DESTINATION "${package_dir}")
