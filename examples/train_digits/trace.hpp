// Records what happens when, for measuring a run: a line per event in a file that all processes share.
//
//     <nanoseconds of CLOCK_MONOTONIC> <pid> <rank> <event> <number>
//
// That clock is the same for all processes of a host.
#pragma once

#include <cstdint>
#include <string>

class Trace {
public:
    // Empty: nothing is written.
    explicit Trace(const std::string &path);
    ~Trace();
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    // The rank, from now on; -1 before it is known.
    void set_rank(int rank) { rank_ = rank; }

    void line(const char *event, std::int64_t number = 0) const;

private:
    int descriptor_ = -1;
    int rank_ = -1;
};
