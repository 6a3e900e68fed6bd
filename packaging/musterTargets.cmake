# Makes the targets muster::muster (the shared library) and muster::static. The file that includes this has set MUSTER_SHARED and
# MUSTER_ARCHIVE, the two libraries, MUSTER_SONAME, and MUSTER_HEADERS, the folders of muster.h and muster.hpp.
add_library(muster::muster SHARED IMPORTED)
set_target_properties(muster::muster PROPERTIES
    IMPORTED_LOCATION "${MUSTER_SHARED}"
    IMPORTED_SONAME "${MUSTER_SONAME}"
    INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_HEADERS}")
add_library(muster::static STATIC IMPORTED)
set_target_properties(muster::static PROPERTIES
    IMPORTED_LOCATION "${MUSTER_ARCHIVE}"
    INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_HEADERS}"
    INTERFACE_LINK_LIBRARIES "-lpthread;-ldl;-lm")
