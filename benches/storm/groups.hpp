// The groups that this life has made. A life makes all groups of the plan up to its step, in their order, each once. Groups
// that others have made before it came back, muster_group_create and muster_group_split give it again. A group is freed one
// step after its last, for by then nobody has to do that step again.
#pragma once

#include "life.hpp"
#include "plan.hpp"

#include <string>
#include <vector>

class Groups {
public:
    explicit Groups(Life &life);
    ~Groups();
    Groups(const Groups &) = delete;
    Groups &operator=(const Groups &) = delete;

    // Makes all that this step needs, and frees what no step needs any more.
    void prepare(int step);
    // Frees all groups.
    void clear();

    const std::vector<Making> &plan() const { return plan_; }
    // The handle of a group that lives. For a made group it is NULL on a rank that is not in it.
    muster_group_t *handle(int group) const;
    // The members of the part that this rank is in, as ranks in the world.
    std::vector<int> members(int group) const;
    // The made groups that this step uses and this rank is in.
    std::vector<int> alive(int step) const;
    static std::string name(int group);

private:
    void make(const Making &making);

    Life &life_;
    const std::vector<Making> plan_;
    std::vector<muster_group_t *> handles_;
};
