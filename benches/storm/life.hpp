// One life of one rank: its cluster, what it was told to do, and every call of the library that it makes. A call is noted
// in the ledger while it goes on, its time is compared with its limit, and its error is judged at once (judge.cpp).
#pragma once

#include "ledger.hpp"

#include <muster.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

struct Options {
    std::string folder;
    std::uint64_t seed = 1;
    int steps = 0;
    int ranks = 0;
    bool recovery = true;
    double limit_s = 60;  // of a call that waits for nobody who may not come
    std::string plant;    // a fault of the storm's own, which a check must find
};

// The exit codes of a storm's processes. The driver knows these numbers.
enum Exit : int { kDone = 0, kUsage = 2, kTold = 3, kViolation = 70, kFenced = 75 };

// The threads of a rank that call the library, by their place in its notes.
enum Place : int { kMain, kSecond, kSender, kNamed, kTaker, kStore, kPlaces };

extern thread_local int own_place;

// A call has failed, as it may after a blow: what was under way is given up.
struct CallFailed {
    muster_status_t status;
};

class Life {
public:
    Life(const Options &options, int rank);

    const Options &options;
    Ledger &ledger;
    Slot &slot;
    const int rank;
    muster_cluster_t *cluster = nullptr;
    std::int64_t epoch = 0;
    int step = 0;
    std::atomic<bool> broken{false};   // something has failed: no further call is begun
    std::atomic<bool> abandoned{false};  // its scheduler is gone, and there is no other
    std::atomic<bool> mending{false};  // muster_recover was called since: what had failed may be mended already

    muster_group_t *world() const { return muster_world(cluster); }
    Phase phase() const { return static_cast<Phase>(slot.phase.load()); }
    void enter(Phase phase) { slot.phase = static_cast<std::int64_t>(phase); }
    // Whether everybody knows that all has been done: a process that is missing now may have left.
    bool all_have_finished() const;
    // Whether this fault is to be planted here.
    bool plants(const char *fault) const;

    // Makes a call, and returns its status as it is. Throws CallFailed if something has failed already.
    muster_status_t attempt(const std::string &what, const std::function<muster_status_t()> &call, double limit_s = 0);
    // Makes a call, and returns its status as it is, even if something has failed already.
    muster_status_t insist(const std::string &what, const std::function<muster_status_t()> &call, double limit_s = 0);
    // Makes a call that ends something, even if everything has been given up: it is noted, and limited.
    void settle(const std::string &what, const std::function<void()> &call);
    // Makes a call, on this group if any, that must succeed, unless a blow was struck: then it throws CallFailed.
    void make(const std::string &what, const std::function<muster_status_t()> &call, muster_group_t *group = nullptr);
    // The call has ended so. Returns if that is right after the blows so far, and is a violation otherwise.
    void judge(const std::string &what, muster_status_t status, muster_group_t *group = nullptr);

    // Ends the process and the storm.
    [[noreturn]] void violate(const std::string &words) const;
    // A line in the file of this name in the storm's folder, written in one piece.
    void note(const char *file, const std::string &line) const;
};
