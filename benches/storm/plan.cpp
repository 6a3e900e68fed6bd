#include "plan.hpp"

#include <muster.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace {

constexpr int kBareEvery = 8;
constexpr int kFreedBefore = 2;  // steps, for a group is freed one step after its last
constexpr int kAliveMost = 5;
constexpr int kLivesMost = 5;  // steps
constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::size_t kEagerMost = 64 * kKiB;
constexpr std::int32_t kTagsOfStep = 1000;

// The members of one parent group that choose the same colour, by key and then by rank in the parent.
std::vector<std::vector<int>> divided(const std::vector<int> &parent, const Making &making) {
    std::vector<std::vector<int>> parts;
    for (int colour = 0; colour < 2; colour++) {
        std::vector<int> part;
        for (const int rank : parent) {
            if (making.colour[rank] == colour) {
                part.push_back(rank);
            }
        }
        std::stable_sort(part.begin(), part.end(), [&](int one, int other) { return making.key[one] < making.key[other]; });
        if (!part.empty()) {
            parts.push_back(part);
        }
    }
    return parts;
}

Making draw_making(Chance &chance, int step, int size, const std::vector<Making> &before) {
    Making making;
    const int last_with_any = step - step % kBareEvery + kBareEvery - kFreedBefore - 1;
    making.born = step;
    making.dies = std::min(step + chance.whole(kLivesMost), last_with_any);
    making.splits = chance.one_in(2);
    std::vector<std::vector<int>> parents(1, std::vector<int>(size));
    std::iota(parents[0].begin(), parents[0].end(), 0);
    for (int place = static_cast<int>(before.size()) - 1; place >= 0 && chance.one_in(2); place--) {
        if (before[place].born < step && before[place].dies >= step && before[place].parent == kWorldGroup) {
            making.parent = place;
            making.splits = true;  // of a parent in several parts each has its own ranks
            making.dies = std::min(making.dies, before[place].dies);
            parents = before[place].parts;
            break;
        }
    }
    if (!making.splits) {
        making.ranks = parents[0];
        for (std::size_t at = making.ranks.size(); at > 1; at--) {
            std::swap(making.ranks[at - 1], making.ranks[chance.below(at)]);
        }
        making.ranks.resize(1 + chance.below(making.ranks.size()));
        making.parts.push_back(making.ranks);
        return making;
    }
    for (int rank = 0; rank < size; rank++) {
        making.colour.push_back(chance.one_in(6) ? -1 : chance.whole(2));
        making.key.push_back(chance.whole(3));
    }
    for (const std::vector<int> &parent : parents) {
        for (std::vector<int> &part : divided(parent, making)) {
            making.parts.push_back(std::move(part));
        }
    }
    return making;
}

std::size_t message_bytes(Chance &chance) {
    switch (chance.below(16)) {
    case 0: return 0;
    case 1: return kEagerMost - 8 + chance.below(17);
    case 2: return kEagerMost + chance.below(512 * kKiB);
    case 3: return chance.one_in(8) ? chance.below(3 * kMiB) : chance.below(256 * kKiB);
    case 4: case 5: case 6: return chance.below(20 * kKiB);
    default: return chance.below(200);
    }
}

}  // namespace

const MessageType message_types[4] = {{MUSTER_UINT8, 1}, {MUSTER_BFLOAT16, 2}, {MUSTER_FLOAT32, 4}, {MUSTER_INT64, 8}};

bool is_bare(int step) { return step % kBareEvery == kBareEvery - 1; }

const std::vector<int> *Making::part_of(int rank) const {
    for (const std::vector<int> &part : parts) {
        if (std::find(part.begin(), part.end(), rank) != part.end()) {
            return &part;
        }
    }
    return nullptr;
}

std::vector<Making> plan_makings(std::uint64_t seed, int steps, int size) {
    std::vector<Making> makings;
    for (int step = 0; step < steps; step++) {
        Chance chance(key_of(seed, 1, step, size));
        const auto alive = std::count_if(makings.begin(), makings.end(), [&](const Making &made) { return made.dies >= step; });
        if (step % kBareEvery < kBareEvery - kFreedBefore && alive < kAliveMost && !chance.one_in(3)) {
            makings.push_back(draw_making(chance, step, size, makings));
        }
    }
    return makings;
}

std::vector<Message> plan_messages(std::uint64_t seed, int step, std::int64_t epoch, const std::vector<Making> &makings, int size) {
    Chance chance(key_of(seed, 2, step, size));
    std::vector<std::pair<int, const std::vector<int> *>> groups;
    for (std::size_t place = 0; place < makings.size(); place++) {
        for (const std::vector<int> &part : makings[place].parts) {
            if (makings[place].born <= step && makings[place].dies >= step && part.size() > 1) {
                groups.emplace_back(static_cast<int>(place), &part);
            }
        }
    }
    std::vector<int> all(size);
    std::iota(all.begin(), all.end(), 0);
    std::vector<Message> messages(static_cast<std::size_t>(size) * (2 + chance.below(8)));
    for (std::size_t at = 0; at < messages.size(); at++) {
        Message &message = messages[at];
        const std::vector<int> *members = &all;
        message.taken = static_cast<Taken>(chance.below(3));
        message.group = message.taken == Taken::kAnyTag ? kUniverseGroup : kWorldGroup;
        if (message.taken == Taken::kBySenderAndTag && !groups.empty() && chance.one_in(2)) {
            std::tie(message.group, members) = groups[chance.below(groups.size())];
        }
        message.from = (*members)[chance.below(members->size())];
        message.to = (*members)[chance.below(members->size())];
        const std::int32_t in_step = message.taken == Taken::kAnySource ? kTagsOfStep - 1 : static_cast<std::int32_t>(at);
        message.tag = step * kTagsOfStep + in_step;
        message.type = message.taken == Taken::kAnySource ? 0 : chance.whole(4);
        const std::size_t bytes = message_bytes(chance), most = message.from == message.to ? kEagerMost / 4 : 4 * kMiB;
        message.count = std::min(bytes, most) / message_types[message.type].width;
        message.key = mix(chance.next() + static_cast<std::uint64_t>(epoch));
    }
    return messages;
}
