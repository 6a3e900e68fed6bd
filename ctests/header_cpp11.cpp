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
    muster_cluster_t *cluster = nullptr;
    float value = 2.5f;
    if (muster_abi_version() != MUSTER_ABI_VERSION || muster_world(nullptr) != nullptr ||
        muster_init(nullptr, &cluster) != MUSTER_OK ||
        muster_allreduce(muster_world(cluster), &value, &value, 1, MUSTER_FLOAT32, MUSTER_SUM) != MUSTER_OK ||
        value != 2.5f || muster_finalize(cluster) != MUSTER_OK) {
        return 1;
    }
    muster_cluster_free(cluster);
    return 0;
}
