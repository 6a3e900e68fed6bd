# The imported target `muster`: the header of this source tree and the library that cargo has built.
# Included by examples/CMakeLists.txt and ctests/CMakeLists.txt.

get_filename_component(MUSTER_TREE "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(MUSTER_TARGET_DIR "${MUSTER_TREE}/target" CACHE PATH "where cargo builds")
set(MUSTER_BUILT_DIR "${MUSTER_TARGET_DIR}/release" CACHE PATH "where cargo has put the library")

add_library(muster SHARED IMPORTED)
set_target_properties(muster PROPERTIES
    IMPORTED_LOCATION "${MUSTER_BUILT_DIR}/libmuster.so"
    IMPORTED_SONAME "libmuster.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_TREE}/include")

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
