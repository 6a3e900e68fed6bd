#include "groups.hpp"

#include <algorithm>
#include <numeric>

Groups::Groups(Life &life) : life_(life), plan_(plan_makings(life.options.seed, life.options.steps, life.options.ranks)) {}

Groups::~Groups() { clear(); }

void Groups::prepare(int step) {
    while (handles_.size() < plan_.size() && plan_[handles_.size()].born <= step) {
        make(plan_[handles_.size()]);
    }
    for (std::size_t place = 0; place < handles_.size(); place++) {
        if (plan_[place].dies < step - 1 && handles_[place] != nullptr) {
            muster_group_free(handles_[place]);
            handles_[place] = nullptr;
        }
    }
}

void Groups::make(const Making &making) {
    muster_group_t *made = nullptr, *parent = handle(making.parent);
    const std::string what = "making " + std::to_string(handles_.size()) + " of " + name(making.parent);
    if (parent != nullptr && making.splits) {
        life_.make(what + ", a split", [&] {
            return muster_group_split(parent, making.colour[life_.rank], making.key[life_.rank], &made);
        });
    } else if (parent != nullptr) {
        life_.make(what + ", of ranks", [&] {
            return muster_group_create(parent, making.ranks.data(), making.ranks.size(), &made);
        });
    }
    const std::vector<int> *part = making.part_of(life_.rank);
    handles_.push_back(made);
    if ((part != nullptr) != (made != nullptr)) {
        life_.violate(what + (made == nullptr ? " gave nothing to a member" : " gave a group to one that is in none"));
    }
    if (part == nullptr) {
        return;
    }
    for (std::size_t rank = 0; rank < part->size(); rank++) {
        if (muster_group_to_world(made, static_cast<int>(rank)) != (*part)[rank]) {
            life_.violate(what + ": its rank " + std::to_string(rank) + " is another than it must be");
        }
    }
    if (muster_group_size(made) != static_cast<int>(part->size())) {
        life_.violate(what + " has " + std::to_string(muster_group_size(made)) + " members");
    }
}

void Groups::clear() {
    for (muster_group_t *group : handles_) {
        muster_group_free(group);
    }
    std::fill(handles_.begin(), handles_.end(), nullptr);
}

muster_group_t *Groups::handle(int group) const {
    switch (group) {
    case kWorldGroup: return muster_world(life_.cluster);
    case kUniverseGroup: return muster_universe(life_.cluster);
    default: return handles_[group];
    }
}

std::vector<int> Groups::members(int group) const {
    if (group >= 0) {
        const std::vector<int> *part = plan_[group].part_of(life_.rank);
        return part == nullptr ? std::vector<int>{} : *part;
    }
    std::vector<int> all(life_.options.ranks);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

std::vector<int> Groups::alive(int step) const {
    std::vector<int> alive;
    for (std::size_t place = 0; place < handles_.size(); place++) {
        if (plan_[place].born <= step && plan_[place].dies >= step && handles_[place] != nullptr) {
            alive.push_back(static_cast<int>(place));
        }
    }
    return alive;
}

std::string Groups::name(int group) {
    return group == kWorldGroup ? "world" : group == kUniverseGroup ? "universe" : "making " + std::to_string(group);
}
