// Chance by seed: the same numbers on every rank that asks for the same thing.
#pragma once

#include <cstddef>
#include <cstdint>

inline std::uint64_t mix(std::uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

// One number of several: a seed and what it is for.
template <typename... Parts>
std::uint64_t key_of(Parts... parts) {
    std::uint64_t key = 0x9e3779b97f4a7c15u;
    ((key = mix(key + static_cast<std::uint64_t>(parts)) + 0x9e3779b97f4a7c15u), ...);
    return key;
}

class Chance {
public:
    explicit Chance(std::uint64_t key) : state_(key) {}

    std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }
    int whole(int limit) { return static_cast<int>(below(static_cast<std::size_t>(limit))); }
    bool one_in(std::size_t times) { return below(times) == 0; }

private:
    std::uint64_t state_;
};
