#include "team.hpp"

#include <chrono>

void Team::start(Place place, std::function<void()> work) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        running_++;
    }
    threads_.emplace_back([this, place, work = std::move(work)] {
        own_place = place;
        try {
            work();
        } catch (const CallFailed &) {
            life_.broken = true;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        running_--;
        ended_.notify_all();
    });
}

bool Team::wait(double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return running_ == 0; });
}

void Team::join() {
    for (std::thread &thread : threads_) {
        thread.join();
    }
    threads_.clear();
}
