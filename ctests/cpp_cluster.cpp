// muster.hpp: the store, groups and queries, what a broken cluster says, and what there is without a cluster.
#include "fails.hpp"
#include "nodes.hpp"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

constexpr int kSize = 4;

// What a key or a value of the store may be, and what it may not.
struct Named {
    operator std::string_view() { return "named"; }  // not const
};
template <class T> constexpr bool is_text = std::is_convertible_v<T, muster::store_bytes>;
static_assert(is_text<const char *> && is_text<const char (&)[4]> && is_text<std::string> && is_text<const std::string &>);
static_assert(is_text<std::string_view> && is_text<Named &> && is_text<Named> && is_text<muster::store_bytes &>);
static_assert(!is_text<int> && !is_text<std::nullptr_t> && !is_text<double> && !is_text<std::vector<char>>);

// ------------------------------------------------------------------------------------------------------------ Store

void stored(const muster::cluster &cluster, std::int32_t rank) {
    const muster::store store = cluster.store();
    const std::string mine = "key" + std::to_string(rank);
    store.set(mine, "a\0b");  // text that is C's ends at its zero byte
    CHECK(store.get(mine) == "a");
    store.set(mine, std::string("a\0b", 3));
    CHECK(store.get(mine).size() == 3);
    const std::string_view seen = "seen";
    char plain[] = "plain";
    const char *pointer = plain;
    store.set(seen, plain);
    CHECK(store.get("seen") == "plain" && store.append(mine, pointer) == 8 && store.compare_set({"seen", 4}, {}, {}) == "plain");
    store.set(mine, muster::span<const char>(plain, 2));
    CHECK(store.get(mine.c_str()) == "pl");
    static_assert(!std::is_convertible_v<int, muster::store_bytes> && !std::is_convertible_v<std::nullptr_t, muster::store_bytes>);
    store.set(mine, std::vector<std::int32_t>{1, rank});
    CHECK(store.get(mine, std::chrono::seconds(60)).size() == 8);
    store.wait(std::vector<std::string>{"key0", "key1", "key2", "key3"});
    CHECK(!store.try_get("nobody's"));
    CHECK(store.try_get(mine)->size() == 8);
    store.add("sum", rank);
    cluster.world().barrier();
    CHECK(store.add("sum", 0) == 6);
    CHECK(store.compare_set(mine + "x", "", "first") == "first");
    CHECK(store.compare_set(mine + "x", "other", "second") == "first");
    CHECK(store.remove(mine + "x") && !store.remove(mine + "x"));
    CHECK(store.compare_set(mine + "y", "other", "second").empty());
    CHECK(store.compare_set(mine + "y", "other", "second", MUSTER_STORE_C10D) == "other");
    const std::vector<std::string> zeros = {mine + std::string("\0l", 2), mine + std::string("\0m", 2)}; // two keys
    store.multi_set(zeros, std::vector<std::string>{"one", ""});
    CHECK(store.append(zeros[1], "two") == 3);
    CHECK((store.multi_get(zeros) == std::vector<std::string>{"one", "two"}));
    CHECK((store.list(zeros[0].substr(0, 5)) == zeros));
    CHECK((store.check(std::vector<std::string>{zeros[0], "nobody's"}) == std::vector<bool>{true, false}));
    CHECK(store.count() >= 4);
    FAILS(invalid, "2 keys have 1 values", store.multi_set(zeros, std::vector<std::string>{"one"}));
    FAILS(invalid, "key", store.set("", "v"));
    FAILS(timeout, "nobody's", store.wait(std::vector<std::string>{"nobody's"}, std::chrono::milliseconds(1)));
    FAILS(timeout, "nobody's", store.get("nobody's", std::chrono::milliseconds(1)));
}

// ----------------------------------------------------------------------------------------------- Groups and queries

void groups(const muster::cluster &cluster, std::int32_t rank) {
    const muster::group world = cluster.world();
    muster::owned_group pair = world.split(rank % 2, -rank);
    CHECK(pair && pair.size() == 2 && pair.rank() == (rank < 2 ? 1 : 0));
    CHECK(pair.to_world(0) == 2 + rank % 2 && pair.from_world(rank) == pair.rank());
    CHECK(pair.allreduce(rank) == 2 + 2 * (rank % 2));
    muster::owned_group moved(std::move(pair));
    CHECK(!pair && moved.size() == 2);
    FAILS(invalid, "group", pair.barrier());
    const std::vector<std::int32_t> ranks{3, 0};
    moved = world.create(ranks);  // frees the pair
    CHECK(static_cast<bool>(moved) == (rank == 0 || rank == 3));
    if (moved) {
        const muster::group view = moved;  // the owner goes on owning it
        view.set_timeout(std::chrono::minutes(1));
        CHECK(view.allreduce(rank) == 3 && !view.failure());
        CHECK(view.member(0).rank == 3 && view.member(0).pid == getpid());
        CHECK(std::string(view.member(1).node_id) == "0");
    }
    CHECK(!world.split(-1, 0));
    if (rank >= 2) {
        const muster::owned_group upper = cluster.create_group(std::vector<std::int32_t>{2, 3}, "upper");
        CHECK(upper.size() == 2 && upper.allreduce(rank) == 5);
    }
    FAILS(invalid, "rank", world.member(kSize));
    FAILS(not_found, "", cluster.servers().rank());
    CHECK(cluster.servers().size() == 0 && cluster.universe().size() == kSize);
}

void queries(const muster::cluster &cluster, std::int32_t rank) {
    CHECK(cluster.role() == muster::role::worker && cluster.rank() == rank && cluster.size() == kSize);
    CHECK(cluster.local_rank() == rank && cluster.local_size() == kSize && cluster.restarts() == 0 && cluster.epoch() == 1);
    CHECK(cluster.node_id() == std::to_string(rank) && cluster.failed_ranks().empty());
    CHECK(!cluster.failure() && !cluster.failure_sentence());
    CHECK(cluster.hccl_cm().worker_size == kSize);
    CHECK(cluster.rank_table().find("\"server_list\"") != std::string::npos);
}

void everything(muster::cluster &cluster, std::int32_t rank) {
    stored(cluster, rank);
    groups(cluster, rank);
    queries(cluster, rank);
}

// What broke the cluster, in three forms; then what its calls say.
void broken(muster::cluster &cluster, std::int32_t rank) {
    if (rank == 1) {
        cluster.abort(7, "the disk is full");
    }
    FAILS(aborted, "the disk is full", cluster.world().barrier());
    CHECK(cluster.failure()->rank == 1 && cluster.world().failure()->status == MUSTER_ERR_ABORTED);
    CHECK(cluster.failure_sentence()->find("the disk is full") != std::string::npos);
    FAILS(aborted, "the disk is full", cluster.recover(std::chrono::milliseconds(100)));
}

// ------------------------------------------------------------------------------------------------ Without a cluster

void configs() {
    muster::config config = muster::config::create();
    config.set("worker_num", 3);
    config.set("node_id", "me");
    CHECK(config.get("worker_num") == "3" && config.get("node_id") == "me" && !config.get("config_file_path"));
    config.load_environment();
    CHECK(config.get("worker_num") == "3");
    FAILS(config, "no_such_key", config.set("no_such_key", 1));
    FAILS(config, "worker_num", config.set("worker_num", "many"));
    FAILS(invalid, "zero byte", config.set("node_id", std::string("a\0b", 3)));
    muster::config moved(std::move(config));
    CHECK(moved.get("worker_num") == "3");
    FAILS(invalid, "moved from", muster::init(config));
    FAILS(invalid, "moved from", muster::scheduler::start(config));
    FAILS(invalid, "config", config.set("worker_num", 1));
    CHECK(muster::config::from_environment().get("log").value_or("") != "nothing");
    CHECK(muster::version().size() >= 5 && muster::abi_version() == MUSTER_ABI_VERSION);
    CHECK(muster::status_string(muster::status::timeout).find("ERR_TIMEOUT") == 0);
}

void empty_handles() {
    muster::cluster cluster;
    CHECK(!cluster && !cluster.world());
    FAILS(invalid, "", cluster.rank());
    FAILS(invalid, "cluster", cluster.node_id());
    FAILS(invalid, "", cluster.world().allgather(1));
    FAILS(invalid, "", cluster.store().get("k"));
    muster::request request;
    CHECK(!request);
    FAILS(invalid, "request", request.wait());
    FAILS(invalid, "request", request.test());
}

// A cluster of one, and the log's lines to a function.
void alone_with_a_log() {
    std::promise<std::string> told;
    bool is_told = false;  // by one thread, one line at a time
    muster::set_log_callback(muster::log_level::debug, [&](muster::log_level level, const char *target, const char *message) {
        CHECK(level >= muster::log_level::error && level <= muster::log_level::debug && target != nullptr);
        if (!is_told) {
            is_told = true;
            told.set_value(message);
        }
    });
    {
        muster::cluster cluster = muster::init();
        CHECK(cluster.world().allreduce(2.5F) == 2.5F);
        cluster.finalize();
        cluster.finalize();
        FAILS(state, "", cluster.world().barrier());
        CHECK(cluster.size() == 1);
        muster::cluster moved;
        moved = std::move(cluster);
        CHECK(moved.rank() == 0 && !cluster);
    }
    CHECK(!told.get_future().get().empty());
    muster::set_log_callback(muster::log_level::warning, nullptr);
}

void schedulers() {
    muster::scheduler scheduler = muster::scheduler::start(settings(2));
    CHECK(!scheduler.wait_for(std::chrono::milliseconds(1)) && !scheduler.wait_for(-std::chrono::milliseconds(1)));
    muster::scheduler moved(std::move(scheduler));
    CHECK(port_of(moved) != "0");
    FAILS(invalid, "", scheduler.address());
    moved.stop();
}

}  // namespace

int main() {
    configs();
    empty_handles();
    schedulers();
    alone_with_a_log();
    run_workers(kSize, everything);
    run_workers(kSize, broken, muster::status::aborted);
    return 0;
}
