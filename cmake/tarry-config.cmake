# find_package(tarry) brings tarry::timing: deadlines, without the broker.
#
#   find_package(tarry 0.1 REQUIRED)
#   target_link_libraries(my_program PRIVATE tarry::timing)

include(CMakeFindDependencyMacro)
find_dependency(Threads)

include(${CMAKE_CURRENT_LIST_DIR}/tarry-targets.cmake)
