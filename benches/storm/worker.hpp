// One life of a rank from its beginning to its end. It joins, agrees with the others on the step to go on with, does step
// after step, and after an error recovers and agrees again.
#pragma once

#include "collective.hpp"
#include "groups.hpp"
#include "life.hpp"
#include "team.hpp"

class Worker {
public:
    Worker(const Options &options, int rank);

    // The exit code of the process.
    int run();

private:
    bool join();
    void agree();
    void do_step();
    void finish();
    // Whether the cluster is whole again. If not, it is over for this life, and `exit_` says how.
    bool recover();
    bool is_explained(muster_status_t status, bool last) const;
    int leave();

    void collectives(const std::vector<int> &groups, Chance own);
    void collectives_of(int group, Chance own);
    void set_epoch();
    // What this process holds in a bare step must not grow from one bare step to the next.
    void census();
    void touch_all();
    void plant();

    Life life_;
    Groups groups_;
    UserOps ops_;
    std::vector<Message> messages_;  // of this step
    Team team_;
    int exit_ = kDone;
    int threads_before_ = 0, descriptors_before_ = 0;  // muster_init
    int descriptors_bare_ = 0, threads_bare_ = 0;      // in its first bare step
};
