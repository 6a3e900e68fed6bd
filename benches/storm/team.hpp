// The threads of a step. An error in one ends all: none begins a further call, and their present calls end with the
// cluster's first cause, or when the others call muster_recover.
#pragma once

#include "life.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

class Team {
public:
    explicit Team(Life &life) : life_(life) {}

    // Runs this in a thread of its own, which has this place in the ledger.
    void start(Place place, std::function<void()> work);
    // Waits until all have ended, at most so long. Returns whether they have.
    bool wait(double seconds);
    // Waits until all have ended, and is ready for the next step.
    void join();

private:
    Life &life_;
    std::mutex mutex_;
    std::condition_variable ended_;
    int running_ = 0;
    std::vector<std::thread> threads_;
};
