// muster.hpp without exceptions: every call gives a result. The program's other half (cpp_results_thrown.cpp) is compiled with
// exceptions, and the two talk by muster::result.
#include "nodes.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#if defined(__has_include)
#if __has_include(<expected>)
#include <expected>
#endif
#endif

#ifndef MUSTER_NO_EXCEPTIONS
#error "the compiler has no exceptions: muster.hpp sees that"
#endif

muster::result<std::int32_t> sum_with_exceptions(muster_group_t *world, std::int32_t value);
muster::result<std::int32_t> sum_without(muster_group_t *world, std::int32_t value);

muster::result<std::int32_t> sum_without(muster_group_t *world, std::int32_t value) {
    return muster::group(world).allreduce(value);
}

namespace {

static_assert(std::is_same_v<decltype(std::declval<muster::group>().barrier()), muster::result<void>>);
static_assert(std::is_same_v<decltype(muster::init()), muster::result<muster::cluster>>);

// ---------------------------------------------------------------------------------------------------- The class itself

// Made like std::expected, as far as a conversion needs it; there are such classes for C++17.
template <class E> struct lookalike_unexpected {
    explicit lookalike_unexpected(E given) : error(std::move(given)) {}
    E error;
};
template <class T, class E> struct lookalike {
    using value_type = T;
    using error_type = E;
    using unexpected_type = lookalike_unexpected<E>;
    explicit lookalike(T given) : value(std::make_unique<T>(std::move(given))) {}
    lookalike(unexpected_type given) : error(std::make_unique<E>(std::move(given.error))) {}
    std::unique_ptr<T> value;
    std::unique_ptr<E> error;
};

template <template <class, class> class Expected> void converts() {
    muster::result<int> good = 5;
    const muster::result<int> bad = muster::error(muster::status::limit, "too much");
    const Expected<int, muster::error> five = good, none = bad;
    CHECK(*five.value == 5 && !five.error && !none.value && none.error->code() == muster::status::limit);
}

void results() {
    muster::result<std::string> good("text");
    CHECK(good && good.has_value() && *good == "text" && good->size() == 4 && good.value_or("other") == "text");
    *good += "s";
    const std::string taken = std::move(good).value();
    CHECK(taken == "texts");
    const muster::result<std::string> bad = muster::error(muster::status::state, "not now");
    CHECK(!bad && bad.error().code() == muster::status::state && bad.value_or("other") == "other");
    CHECK(std::string(bad.error().what()) == "not now");
    muster::result<std::unique_ptr<int>> moved = std::make_unique<int>(3);
    const std::unique_ptr<int> owned = *std::move(moved);
    CHECK(*owned == 3);
    const muster::result<void> done, failed = muster::error(muster::status::state, "not now");
    CHECK(done && !failed && failed.error().code() == muster::status::state);
    static_assert(std::is_constructible_v<bool, muster::result<int>> && !std::is_convertible_v<muster::result<int>, bool>);
    static_assert(!std::is_constructible_v<bool, muster::result<bool>>, "its value would be taken for it");
    static_assert(!std::is_convertible_v<muster::result<int>, int>);
    converts<lookalike>();
}

#ifdef __cpp_lib_expected
void expected() {
    using muster::error;
    muster::result<std::vector<int>> good(std::vector<int>{1, 2});
    const muster::result<void> done, failed = error(muster::status::state, "not now");
    const std::expected<std::vector<int>, error> copied = good;
    std::expected<std::vector<int>, error> moved(std::move(good));
    CHECK(copied.has_value() && moved->size() == 2);
    const std::expected<void, error> fine = done, lost = failed;
    CHECK(fine.has_value() && lost.error().code() == muster::status::state);
    // A value of false is a value.
    const muster::result<bool> no(false), neither = error(muster::status::limit, "too much");
    const std::expected<bool, error> is_no = no, is_no_too(no), is_neither(neither);
    CHECK(is_no.has_value() && !*is_no && is_no_too.has_value() && !*is_no_too && !is_neither.has_value());
    const std::expected<muster::cluster, error> joined = muster::init();
    CHECK(joined->size().value() == 1);
}
#else
void expected() {}
#endif

// ------------------------------------------------------------------------------------------------------------ The calls

void calls(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    std::vector<float> values(3, static_cast<float>(rank));
    CHECK(world.allreduce(values).has_value() && values[2] == 1);
    CHECK(world.allreduce(rank).value() == 1 && cluster.size().value() == 2);
    CHECK(world.allgather(rank)->size() == 2);
    const muster::result<void> misfit = world.allgather(values, values);
    CHECK(!misfit && misfit.error().code() == muster::status::invalid);
    CHECK_CONTAINS(misfit.error().what(), "allgather: `in` has 3 elements and `out` 3");

    muster::result<muster::request> request = world.iallreduce(values);
    CHECK(request && request->wait().has_value() && request->test().value() && values[0] == 2);
    CHECK(request->received().error().code() == muster::status::state);
    muster::request coming = world.irecv(values, 1 - rank, 4).value();
    CHECK(world.send(values, 1 - rank, 4).has_value() && coming.wait().has_value() && coming.received()->count == 3);
    CHECK(world.send(values, 1 - rank, 5).has_value());
    const muster::result<muster::received> too_long = world.recv(muster::one(values[0]), 1 - rank, 5);
    CHECK(!too_long && too_long.error().code() == muster::status::mismatch && too_long.error().misfit()->count == 3);

    const muster::store store = cluster.store();
    CHECK(store.set("k", "v").has_value() && store.get("k").value() == "v" && !store.try_get("none").value());
    CHECK(store.get("none", std::chrono::milliseconds(1)).error().code() == muster::status::timeout);
    muster::owned_group half = world.split(rank, 0).value();
    CHECK(half.size().value() == 1 && half.rank().value() == 0 && !cluster.failure().value());

    // Half of a program with exceptions, and half without: each calls its own.
    CHECK(sum_with_exceptions(world.get(), rank).value() == 1 && sum_without(world.get(), rank).value() == 1);
    CHECK(sum_with_exceptions(nullptr, 1).error().code() == muster::status::invalid);
    CHECK(sum_without(nullptr, 1).error().code() == muster::status::invalid);
    CHECK(cluster.finalize().has_value());
    CHECK(world.barrier().error().code() == muster::status::state);
}

}  // namespace

int main() {
    results();
    expected();
    run_workers(2, calls);
    CHECK(muster::config::create()->set("worker_num", "many").error().code() == muster::status::config);
    return 0;
}
