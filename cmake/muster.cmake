# The targets `muster::muster` and `muster::static` of this source tree: its header, and the libraries that cargo has built.
# Included by examples/CMakeLists.txt, and by ctests/CMakeLists.txt where the library is built for a sanitizer.

get_filename_component(MUSTER_TREE "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(MUSTER_TARGET_DIR "${MUSTER_TREE}/target" CACHE PATH "where cargo builds")
set(MUSTER_BUILT_DIR "${MUSTER_TARGET_DIR}/release" CACHE PATH "where cargo has put the library")

add_library(muster::muster SHARED IMPORTED)
set_target_properties(muster::muster PROPERTIES
    IMPORTED_LOCATION "${MUSTER_BUILT_DIR}/libmuster.so"
    IMPORTED_SONAME "libmuster.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_TREE}/include")
add_library(muster::static STATIC IMPORTED)
set_target_properties(muster::static PROPERTIES
    IMPORTED_LOCATION "${MUSTER_BUILT_DIR}/libmuster.a"
    INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_TREE}/include"
    INTERFACE_LINK_LIBRARIES "-lpthread;-ldl;-lm")

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
