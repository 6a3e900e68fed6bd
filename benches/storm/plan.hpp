// What is done in which step, by the seed: all ranks and all lives compute the same plan.
#pragma once

#include "chance.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

constexpr int kWorldGroup = -1;
constexpr int kUniverseGroup = -2;

// A group that is made in one step and freed after another: by a list of ranks, or by a split, of the world or of a group that was
// made before.
struct Making {
    int born = 0, dies = 0;  // the first step with it, and the last
    int parent = kWorldGroup;
    bool splits = false;
    std::vector<int> ranks;         // of the world: where it does not split
    std::vector<int> colour, key;   // by rank in the world: where it does
    std::vector<std::vector<int>> parts;  // ranks in the world, in order, of each group that comes of it

    // The part that this rank is in; none if it is in none.
    const std::vector<int> *part_of(int rank) const;
};

// Groups of a whole storm, in the order in which they are made.
std::vector<Making> plan_makings(std::uint64_t seed, int steps, int size);

// Whether no made group lives in such a step: a process then holds only what it always holds.
bool is_bare(int step);

enum class Taken { kBySenderAndTag, kAnyTag, kAnySource };

struct Message {
    int group;  // kWorldGroup, kUniverseGroup, or the place of its making
    int from, to;  // ranks in the world
    std::int32_t tag;
    Taken taken;
    int type;  // its place in message_types
    std::size_t count;
    std::uint64_t key;
};

struct MessageType {
    std::int32_t dtype;
    std::size_t width;
};
extern const MessageType message_types[4];

std::vector<Message> plan_messages(std::uint64_t seed, int step, std::int64_t epoch, const std::vector<Making> &makings, int size);
