// The half of cpp_results.cpp that is compiled with exceptions.
#include "check.h"

#include <muster.hpp>

#include <type_traits>

#ifdef MUSTER_NO_EXCEPTIONS
#error "this half has exceptions"
#endif

static_assert(std::is_same_v<decltype(std::declval<muster::group>().barrier()), void>);

muster::result<std::int32_t> sum_with_exceptions(muster_group_t *world, std::int32_t value);

muster::result<std::int32_t> sum_with_exceptions(muster_group_t *world, std::int32_t value) {
    try {
        return muster::group(world).allreduce(value);
    } catch (const muster::error &error) {
        return error;
    }
}
