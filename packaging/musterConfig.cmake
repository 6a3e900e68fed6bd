# The targets muster::muster (the shared library) and muster::static, wherever the folders were moved.
get_filename_component(_muster_here "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(_muster_libraries "${_muster_here}/../.." ABSOLUTE)
get_filename_component(_muster_headers "${_muster_here}/@INCLUDEDIR@" ABSOLUTE)

if(NOT TARGET muster::muster)
    add_library(muster::muster SHARED IMPORTED)
    set_target_properties(muster::muster PROPERTIES
        IMPORTED_LOCATION "${_muster_libraries}/libmuster.so.@VERSION@"
        IMPORTED_SONAME "libmuster.so.@ABI@"
        INTERFACE_INCLUDE_DIRECTORIES "${_muster_headers}")
    add_library(muster::static STATIC IMPORTED)
    set_target_properties(muster::static PROPERTIES
        IMPORTED_LOCATION "${_muster_libraries}/libmuster.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_muster_headers}"
        INTERFACE_LINK_LIBRARIES "-lpthread;-ldl;-lm")
endif()
unset(_muster_here)
unset(_muster_libraries)
unset(_muster_headers)
