// The cluster as this trainer sees it: muster.h with errors as exceptions and an owner for the handle.
#pragma once

#include <muster.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// A call of the library failed; the text is the library's own sentence.
class ClusterError : public std::runtime_error {
public:
    explicit ClusterError(const char *call) : std::runtime_error(std::string(call) + ": " + muster_last_error()) {}
};

class Cluster {
public:
    // Joins the cluster that the environment describes. In the scheduler's process this returns when the job is over,
    // and is_scheduler() says so.
    Cluster() {
        const muster_status_t status = muster_init(nullptr, &handle_);
        if (status != MUSTER_SCHEDULER_DONE) {
            check(status, "muster_init");
        }
    }
    ~Cluster() { muster_cluster_free(handle_); }
    Cluster(const Cluster &) = delete;
    Cluster &operator=(const Cluster &) = delete;

    bool is_scheduler() const { return handle_ == nullptr; }
    int rank() const { return muster_rank(handle_); }
    int size() const { return muster_size(handle_); }

    // Everyone gets rank 0's values.
    void broadcast(std::vector<float> &values) {
        check(muster_broadcast(world(), values.data(), values.size(), MUSTER_FLOAT32, 0), "muster_broadcast");
    }

    // Everyone gets the sum of all ranks' values.
    void sum(std::vector<float> &values) {
        check(muster_allreduce(world(), values.data(), values.data(), values.size(), MUSTER_FLOAT32, MUSTER_SUM),
              "muster_allreduce");
    }

    // Everyone gets the values of all ranks, in order of rank.
    std::vector<std::int64_t> gather(std::int64_t value) {
        std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
        check(muster_allgather(world(), &value, all.data(), 1, MUSTER_INT64), "muster_allgather");
        return all;
    }

    // Leaves in order. A program that ends without it counts as lost.
    void leave() { check(muster_finalize(handle_), "muster_finalize"); }

    // Ends the job for everyone, with the reason. Should that fail too, the others see this rank go all the same.
    void abort(const char *reason) { muster_abort(handle_, 1, reason); }

private:
    static void check(muster_status_t status, const char *call) {
        if (status != MUSTER_OK) {
            throw ClusterError(call);
        }
    }
    muster_group_t *world() { return muster_world(handle_); }

    muster_cluster_t *handle_ = nullptr;
};
