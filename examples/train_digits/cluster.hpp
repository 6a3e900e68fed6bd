// The cluster as this trainer sees it: muster.h with errors as exceptions and an owner for the handle.
#pragma once

#include <muster.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// A call of the library failed; the text is the library's own sentence.
class ClusterError : public std::runtime_error {
public:
    ClusterError(muster_status_t status, const char *call)
        : std::runtime_error(std::string(call) + ": " + muster_last_error()), status(status) {}

    // Somebody was lost, or a connection was: Cluster::recover() makes the cluster whole again.
    bool is_interruption() const {
        return status == MUSTER_ERR_PEER_LOST || status == MUSTER_ERR_REVOKED || status == MUSTER_ERR_LINK ||
               status == MUSTER_ERR_CORRUPT || status == MUSTER_ERR_TIMEOUT;
    }

    // The others have left, or do not come.
    bool is_too_late() const {
        return status == MUSTER_ERR_PEER_LEFT || status == MUSTER_ERR_REJECTED || status == MUSTER_ERR_TIMEOUT ||
               status == MUSTER_ERR_UNREACHABLE;
    }

    const muster_status_t status;
};

// One rank of so many.
struct Place {
    int rank;
    int size;
};

class Cluster {
public:
    // No limit of one's own: the forming time-out counts.
    static constexpr std::chrono::milliseconds kUsualPatience{-1};

    // Joins the cluster that the environment describes. In the scheduler's process this returns when the job is over,
    // and is_scheduler() says so. A process that was started again in place of a lost one returns when all others are
    // in recover().
    explicit Cluster(std::chrono::milliseconds patience = kUsualPatience) {
        const Config config = environment();
        if (patience != kUsualPatience) {
            const std::string seconds = std::to_string(static_cast<double>(patience.count()) / 1000);
            check(muster_config_set(config.get(), "cluster_timeout", seconds.c_str()), "muster_config_set");
        }
        const muster_status_t status = muster_init(config.get(), &handle_);
        if (status != MUSTER_SCHEDULER_DONE) {
            check(status, "muster_init");
        }
    }
    ~Cluster() { muster_cluster_free(handle_); }
    Cluster(const Cluster &) = delete;
    Cluster &operator=(const Cluster &) = delete;

    // The place that the environment gives this process, if it does: known before joining.
    static std::optional<Place> announced_place() {
        const Config config = environment();
        std::optional<int> rank = number(config.get(), "rank_id");
        rank = rank ? rank : number(config.get(), "node_id");
        const std::optional<int> size = number(config.get(), "worker_num");
        return rank && size ? std::optional<Place>({*rank, *size}) : std::nullopt;
    }

    bool is_scheduler() const { return handle_ == nullptr; }
    int rank() const { return muster_rank(handle_); }
    int size() const { return muster_size(handle_); }
    int restarts() const { return muster_restarts(handle_); }
    std::int64_t epoch() const { return muster_epoch(handle_); }

    // Everyone gets rank 0's values.
    void broadcast(std::vector<float> &values) {
        check(muster_broadcast(world(), values.data(), values.size(), MUSTER_FLOAT32, 0), "muster_broadcast");
    }

    // Everyone gets the sum of all ranks' values.
    void sum(std::vector<float> &values) {
        check(muster_allreduce(world(), values.data(), values.data(), values.size(), MUSTER_FLOAT32, MUSTER_SUM),
              "muster_allreduce");
    }

    // Everyone gets the least of all ranks' values.
    std::int64_t minimum(std::int64_t value) {
        check(muster_allreduce(world(), &value, &value, 1, MUSTER_INT64, MUSTER_MIN), "muster_allreduce");
        return value;
    }

    // Everyone gets the values of all ranks, in order of rank.
    std::vector<std::int64_t> gather(std::int64_t value) {
        std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
        check(muster_allgather(world(), &value, all.data(), 1, MUSTER_INT64), "muster_allgather");
        return all;
    }

    // Returns when all ranks have called it.
    void barrier() { check(muster_barrier(world()), "muster_barrier"); }

    // After an interruption: waits until all are here again, those included that were lost and have been started again.
    void recover(std::chrono::milliseconds patience = kUsualPatience) {
        check(muster_recover(handle_, patience.count()), "muster_recover");
    }

    // Leaves in order. A program that ends without it counts as lost.
    void leave() { check(muster_finalize(handle_), "muster_finalize"); }

    // Ends the job for everyone, with the reason. Should that fail too, the others see this rank go all the same.
    void abort(const char *reason) { muster_abort(handle_, 1, reason); }

private:
    struct FreeConfig {
        void operator()(muster_config_t *config) const { muster_config_free(config); }
    };
    using Config = std::unique_ptr<muster_config_t, FreeConfig>;

    static void check(muster_status_t status, const char *call) {
        if (status != MUSTER_OK) {
            throw ClusterError(status, call);
        }
    }

    static Config environment() {
        muster_config_t *config = nullptr;
        check(muster_config_new(MUSTER_ABI_VERSION, &config), "muster_config_new");
        Config owned(config);
        check(muster_config_load_env(config), "muster_config_load_env");
        return owned;
    }

    static std::optional<int> number(const muster_config_t *config, const char *key) {
        char text[16];
        if (muster_config_get(config, key, text, sizeof text, nullptr) != MUSTER_OK) {
            return std::nullopt;
        }
        const std::string digits = text;
        if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) {
            return std::nullopt;
        }
        return std::stoi(digits);
    }

    muster_group_t *world() { return muster_world(handle_); }

    muster_cluster_t *handle_ = nullptr;
};
