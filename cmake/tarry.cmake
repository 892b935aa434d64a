include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# The options of every target.  They are not installed: users of the package choose their own.
add_library(tarry_build INTERFACE)
target_compile_options(tarry_build INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wnon-virtual-dtor -Wold-style-cast -Werror
  -fno-omit-frame-pointer
  # Clang has these warnings and g++ has not: libstdc++ 12 itself uses what it deprecates, doctest
  # uses __COUNTER__, and signs change in every call of POSIX.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations;-Wno-sign-conversion;-Wno-c2y-extensions>
  # It collects its garbage later: up to 1 GB more memory, and a tenth less time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>
  # In a joined file both would warn of names in unnamed namespaces of its parts.
  $<IF:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>,$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wshadow=local>,-Wshadow>)
target_include_directories(tarry_build INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
if(TARRY_SANITIZE)
  # A target with the property TARRY_WITHOUT_UBSAN is compiled without that sanitizer.
  target_compile_options(tarry_build INTERFACE -fsanitize=${TARRY_SANITIZE} -fno-sanitize-recover=all
    $<$<BOOL:$<TARGET_PROPERTY:TARRY_WITHOUT_UBSAN>>:-fno-sanitize=undefined>)
  # Of UBSan's checks those of each pointer take a quarter of the time to compile: a null one ends
  # the program all the same, the other sanitizer knows what lies outside an object or is gone, and
  # numbers in buffers are read by functions that ask for no alignment.  Fuzzing has them all.
  if(TARRY_SANITIZE MATCHES undefined AND NOT TARRY_SANITIZE MATCHES fuzzer)
    target_compile_options(tarry_build INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_link_options(tarry_build INTERFACE -fsanitize=${TARRY_SANITIZE})
  if(TARRY_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Asio has fences, which ThreadSanitizer does not understand; beside each stands a lock, which it does.
    target_compile_options(tarry_build INTERFACE -Wno-tsan)
  endif()
endif()

# A build from nothing takes about half the time, but a change of one file rebuilds its group.
option(TARRY_JOIN "Compile the sources of a folder in groups" OFF)

# tarry_join(tarry_timing)
#
# With TARRY_JOIN the target's sources are compiled in groups, because its many small files all
# include the same heavy headers: the names in their unnamed namespaces are unique in the folder.
# A target's groups are of one size, because a small group reads the headers as long as a large one.
function(tarry_join target)
  if(TARRY_JOIN)
    set(largest_group 34)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cc$")
    list(LENGTH sources count)
    math(EXPR groups "(${count} + ${largest_group} - 1) / ${largest_group}")
    math(EXPR size "(${count} + ${groups} - 1) / ${groups}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()

# tarry_library(timing SOURCES timing_wheel.cc USES base LINKS Boost::headers PRIVATE_LINKS zlib)
#
# The library of one folder: target tarry_timing, alias tarry::timing.  USES lists the
# folders it may include from, ORDER its own sub-folders from the bottom up, "." for the files
# beside them; scripts/check_layers.py holds the sources to both.  One with many TEMPLATES of others
# is not optimized under sanitizers: tests spend little in it, and it takes as long again.
function(tarry_library name)
  cmake_parse_arguments(ARG "TEMPLATES" "" "SOURCES;USES;LINKS;PRIVATE_LINKS;ORDER" ${ARGN})
  add_library(tarry_${name} STATIC ${ARG_SOURCES})
  tarry_join(tarry_${name})
  if(ARG_TEMPLATES AND TARRY_SANITIZE)
    target_compile_options(tarry_${name} PRIVATE -O0)
  endif()
  add_library(tarry::${name} ALIAS tarry_${name})
  list(TRANSFORM ARG_USES PREPEND tarry::)
  target_compile_features(tarry_${name} PUBLIC cxx_std_${CMAKE_CXX_STANDARD})
  target_link_libraries(tarry_${name}
    PUBLIC $<BUILD_INTERFACE:tarry_build> ${ARG_USES} ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
endfunction()

# tarry_executable(tarry SOURCES main.cc USES server LINKS CLI11::CLI11)
#
# A program, at the top of the build directory.  USES as in tarry_library().
function(tarry_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  tarry_join(${name})
  list(TRANSFORM ARG_USES PREPEND tarry::)
  target_link_libraries(${name} PRIVATE tarry_build ${ARG_USES} ${ARG_LINKS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()

# tarry_install(timing HEADERS timing_wheel.h)
#
# Puts one folder's library and these of its headers into the package `tarry`, where they
# have the same names as here: target tarry::timing, #include "timing/timing_wheel.h".
# cmake/tarry-config.cmake has to find what the library LINKS.
function(tarry_install name)
  cmake_parse_arguments(ARG "" "" "HEADERS" ${ARGN})
  set_target_properties(tarry_${name} PROPERTIES EXPORT_NAME ${name})
  target_sources(tarry_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
    FILES ${ARG_HEADERS} ${PROJECT_SOURCE_DIR}/base/assert.h)
  install(TARGETS tarry_${name} EXPORT tarry-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tarry)
endfunction()

# Makes what was given to tarry_install() findable by find_package(tarry).
function(tarry_install_package)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tarry)
  install(EXPORT tarry-targets NAMESPACE tarry:: DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tarry-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/tarry-config.cmake
    ${PROJECT_BINARY_DIR}/tarry-config-version.cmake DESTINATION ${package})
endfunction()

# tarry_compile_quickly(tarry_cli)
#
# A release with less optimization: for what is mostly templates of others (CLI11, Beast,
# nlohmann/json), which take most of their time to optimize, and has no loop that matters.
function(tarry_compile_quickly target)
  if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()
