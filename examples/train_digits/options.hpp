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
    bool help = false;
};

extern const char *const kUsage;

// Throws std::invalid_argument with a sentence that names the option.
Options parse_options(int argc, char **argv);
