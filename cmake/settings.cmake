# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Language, warnings, optimisation and sanitizers: for the library, tools, tests and benchmarks
# alike. Nothing here is machine dependent: no -march. No link-time optimisation unless the user asks for it.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# -g1 keeps function names and line numbers for profiles and back traces at little size.
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG -g1")

# What a user wants; tests/, bench/ and examples/ of the build have the other programs.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

add_compile_options(-Wall -Wextra)
if(SLUICE_WERROR)
  add_compile_options(-Werror)
endif()

# What a mistake must not become. Sanitizers find it themselves, and fortified calls would hide it from them.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT SLUICE_SANITIZE AND NOT SLUICE_FUZZ)
  include(CheckCCompilerFlag)
  include(CheckCSourceCompiles)
  add_compile_options(-fstack-protector-strong)
  # x86-64: shadow stacks, which cost nothing; Linux tracks no indirect branches of programs, and what marks
  # their targets is one per cent of the instructions of a message. aarch64: both are one.
  foreach(flag -fcf-protection=return -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "HAVE${flag}" have)
    check_c_compiler_flag(${flag} ${have})
    if(${have})
      add_compile_options(${flag})
    endif()
  endforeach()
  set(SLUICE_SHADOW_STACKS "${HAVE_fcf_protection_return}")
  # Some compilers define it themselves; where they know no 3 the headers warn of it.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" HAVE_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  if(HAVE_FORTIFY_3)
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  else()
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
endif()
add_link_options("LINKER:-z,relro,-z,now")

# Distributions build with link-time optimisation, which does not see symbols that assembler at the top of a file defines;
# and nm does not list the symbols of such objects everywhere. Files with such assembler, and objects that nm reads, are
# compiled without it.
include(CheckCCompilerFlag)
check_c_compiler_flag(-fno-lto HAVE_FNO_LTO)
set(SLUICE_NO_LTO $<$<BOOL:${HAVE_FNO_LTO}>:-fno-lto>)

# For everything: tests see inside of structs that have more in them then.
if(SLUICE_ASSERTIONS)
  add_compile_definitions(SLUICE_ASSERTIONS)
endif()
if(SLUICE_POOL_DEBUG)
  add_compile_definitions(SLUICE_POOL_DEBUG)
endif()

if(SLUICE_SANITIZE)
  # Not recovering turns a finding of the undefined behaviour sanitizer into a failed test.
  set(sanitize_flags "-fsanitize=${SLUICE_SANITIZE}" -fno-sanitize-recover=all)
  add_compile_options(${sanitize_flags} -fno-omit-frame-pointer)
  add_link_options(${sanitize_flags})
  if(SLUICE_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc warns about every stand-alone fence, which its thread sanitizer does not model.
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(SLUICE_FUZZ)
  # The library tells the fuzzer which branches an input reached.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
