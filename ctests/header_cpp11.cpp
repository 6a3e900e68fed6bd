// The header is C++11, and enough by itself.
#include <muster.h>

#include <cstdint>
#include <type_traits>

static_assert(std::is_same<muster_status_t, std::int32_t>::value, "a status is an int32_t");
static_assert(std::is_standard_layout<muster_failure_t>::value, "structs have C's layout");
static_assert(std::is_standard_layout<muster_member_t>::value, "structs have C's layout");
static_assert(std::is_standard_layout<muster_hccl_cm_t>::value, "structs have C's layout");

int main() {
    // extern "C": the names are found.
    const char *version = muster_version();
    muster_group_t *none = muster_world(nullptr);
    return version != nullptr && none == nullptr && muster_abi_version() == MUSTER_ABI_VERSION ? 0 : 1;
}
