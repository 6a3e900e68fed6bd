// Gloo's rendezvous on muster's store: the ranks of a cluster need neither Redis nor a shared folder to build a Gloo context.
//
// Four things to know:
// - Keys begin with a prefix that names the epoch: what a rank wrote before a loss does not hold after it.
// - A store takes its keys away when it ends. While a rank is lost it cannot: let it live until muster_recover has returned.
//   What the lost rank itself wrote stays.
// - The others reach this node at address_of(cluster). Gloo's own guess is what the host's name resolves to: often 127.0.1.1.
// - A wait ends when a rank is lost: muster's store returns the loss, and so a rank that connects never waits for the dead.
#ifndef MUSTER_STORE_HPP
#define MUSTER_STORE_HPP

#include <gloo/common/error.h>
#include <gloo/rendezvous/store.h>
#include <muster.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

class MusterStore : public gloo::rendezvous::Store {
public:
    // `name` tells several contexts of one cluster apart. The cluster must outlive the store.
    MusterStore(muster_cluster_t *cluster, const std::string &name)
        : cluster_(cluster), prefix_("gloo/" + name + "/" + std::to_string(muster_epoch(cluster)) + "/") {}
    MusterStore(const MusterStore &) = delete;
    MusterStore &operator=(const MusterStore &) = delete;
    ~MusterStore() override { delete_own(); }

    void set(const std::string &key, const std::vector<char> &data) override {
        own_.push_back(full(key));
        check(muster_store_set(cluster_, own_.back().c_str(), data.data(), data.size()));
    }

    std::vector<char> get(const std::string &key) override {
        void *value = nullptr;
        std::size_t length = 0;
        check(muster_store_get(cluster_, full(key).c_str(), milliseconds(kDefaultTimeout), &value, &length));
        const std::unique_ptr<void, decltype(&muster_free)> owner(value, muster_free);
        const char *bytes = static_cast<const char *>(value);
        return std::vector<char>(bytes, bytes + length);
    }

    void wait(const std::vector<std::string> &keys) override { wait(keys, kDefaultTimeout); }

    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override {
        std::vector<std::string> names;
        std::vector<const char *> pointers;
        for (const std::string &key : keys) {
            names.push_back(full(key));
        }
        for (const std::string &name : names) {
            pointers.push_back(name.c_str());
        }
        check(muster_store_wait(cluster_, pointers.data(), pointers.size(), milliseconds(timeout)));
    }

    // Takes this rank's keys away again; to be called once all ranks are connected, as after a barrier.
    void forget() { check(delete_own()); }

private:
    // Up to the first error: where one key cannot be deleted, none can.
    muster_status_t delete_own() {
        for (; !own_.empty(); own_.pop_back()) {
            const muster_status_t status = muster_store_delete(cluster_, own_.back().c_str(), nullptr);
            if (status != MUSTER_OK) {
                return status;
            }
        }
        return MUSTER_OK;
    }

    // A caller of Gloo's catches Gloo's exceptions, so this throws those.
    static void check(muster_status_t status) {
        if (status != MUSTER_OK) {
            throw gloo::IoException(muster_last_error());
        }
    }

    // Gloo's 0 is "no time-out", muster's is "try once".
    static int64_t milliseconds(const std::chrono::milliseconds &timeout) {
        return timeout == gloo::kNoTimeout ? INT64_MAX : timeout.count();
    }

    std::string full(const std::string &key) const { return prefix_ + key; }

    muster_cluster_t *cluster_;
    std::string prefix_;
    std::vector<std::string> own_;
};

// This node's address as the others know it, for gloo::transport::tcp::attr::hostname: without the port, which is muster's own.
inline std::string address_of(muster_cluster_t *cluster) {
    muster_member_t self;
    if (muster_group_member(muster_world(cluster), muster_rank(cluster), &self, sizeof self) != MUSTER_OK) {
        throw gloo::IoException(muster_last_error());
    }
    std::string address = self.address;
    address.resize(address.rfind(':'));
    return address.front() == '[' ? address.substr(1, address.size() - 2) : address;
}

#endif
