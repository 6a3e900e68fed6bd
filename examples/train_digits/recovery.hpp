// Training that goes on when processes are lost. Each rank saves checkpoints. After a loss all go back to the newest step
// of which everyone has one. The weights depend on nothing that is lost with a process (the order of the data and of the
// sums follows from the step). So in the end they are bit for bit those of a training in which nothing died.
#pragma once

#include "checkpoint.hpp"
#include "options.hpp"
#include "trace.hpp"
#include "training.hpp"

#include <muster.hpp>

#include <chrono>
#include <functional>
#include <optional>

// One rank of so many.
struct Place {
    int rank;
    int size;
};

// The place that the environment gives this process, if it does: known before joining.
std::optional<Place> announced_place();

// Whether the others have left, or do not come.
bool is_too_late(const muster::error &error);

class Recovery {
public:
    // A rank that knows that all have finished waits so long for the others, which may have left. If a rank needs it after
    // all, that one has come by then, or has it started again.
    static constexpr std::chrono::milliseconds kLastPatience{1500};

    Recovery(muster::cluster &cluster, Trainer &trainer, const Options &options, Trace &trace);

    // Trains to the last step, and concludes: all ranks together, in a function that returns on none before it has been
    // called on all. After an interruption what was not done is done again, the conclusion included. Returns when every
    // rank has finished.
    void run(const std::function<void()> &conclude);

    // Whether this process, which has not joined its cluster yet, is one more life of a rank that knew that all ranks had
    // finished. If the others are not there any more, nothing is left to be done.
    static bool had_finished(const Options &options);

private:
    void go_back();
    void train();
    void finish(const std::function<void()> &conclude);
    void save(bool finished);

    muster::cluster &cluster_;
    Trainer &trainer_;
    const Options &options_;
    Trace &trace_;
    Checkpoints checkpoints_;
    bool finished_ = false;
    bool has_child_ = false;
};
