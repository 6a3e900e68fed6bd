/* The header is C99, and enough by itself. */
#include <muster.h>

int main(void) {
    muster_failure_t failure;
    muster_member_t member;
    muster_hccl_cm_t cm;
    muster_log_fn no_function = NULL;
    if (sizeof failure.node_id != MUSTER_NAME_BYTES || sizeof member.address != MUSTER_ADDRESS_BYTES ||
        sizeof cm.chief_ip != MUSTER_ADDRESS_BYTES || sizeof(muster_status_t) != 4 || no_function != NULL) {
        return 1;
    }
    return muster_abi_version() == MUSTER_ABI_VERSION ? 0 : 1;
}
