// What the user can ask of train_digits on its command line.
#pragma once

#include <cstddef>
#include <string>

struct Options {
    std::size_t epochs = 20;
    std::size_t batch = 64;    // samples per step, of all ranks together
    std::size_t hidden = 64;
    float learning_rate = 0.05F;
    float momentum = 0.9F;
    std::string data;          // a .csv file or a folder of idx files; empty: see default_data_path()
    bool sync = true;          // false: every rank trains alone
    std::size_t micro_batches = 0;  // parts of a batch, which the ranks share out; 0: one for each rank
    bool exact = false;        // their gradients are summed exactly
    std::string save;          // a file for the weights; empty: they are not kept
    std::string checkpoint;    // a folder for checkpoints; empty: there are none
    std::size_t checkpoint_interval = 50;  // in steps
    std::size_t keep = 3;      // checkpoints per rank
    std::string trace;         // see trace.hpp
    long fork_child = -1;      // the rank that leaves a child process behind
    bool help = false;
};

extern const char *const kUsage;

// Throws std::invalid_argument with a sentence that names the option.
Options parse_options(int argc, char **argv);
