# The targets `muster::muster` and `muster::static` of this source tree: its headers, and the libraries that cargo has built.
# Included by examples/CMakeLists.txt, and by ctests/CMakeLists.txt where the library is built for a sanitizer.

get_filename_component(MUSTER_TREE "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(MUSTER_TARGET_DIR "${MUSTER_TREE}/target" CACHE PATH "where cargo builds")
set(MUSTER_BUILT_DIR "${MUSTER_TARGET_DIR}/release" CACHE PATH "where cargo has put the library")

set(MUSTER_HEADERS "${MUSTER_TREE}/include" "${MUSTER_TREE}/bindings/cpp")
set(MUSTER_SHARED "${MUSTER_BUILT_DIR}/libmuster.so")
set(MUSTER_SONAME "libmuster.so.1")
set(MUSTER_ARCHIVE "${MUSTER_BUILT_DIR}/libmuster.a")
include("${MUSTER_TREE}/packaging/musterTargets.cmake")
