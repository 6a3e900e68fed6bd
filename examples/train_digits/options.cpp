#include "options.hpp"

#include "checkpoint.hpp"

#include <cmath>
#include <set>
#include <stdexcept>

const char *const kUsage =
    "usage: train_digits [options]\n"
    "  --epochs N   passes over the training images (20)\n"
    "  --batch N    images per step, of all ranks together (64)\n"
    "  --lr X       learning rate (0.05)\n"
    "  --hidden N   hidden units (64)\n"
    "  --data PATH  a .csv file of digits, or a folder with MNIST's idx files;\n"
    "               default: $DATA_PATH (a folder of idx files), else digits.csv beside this program\n"
    "  --micro-batches N  parts into which a batch is cut, whatever the number of ranks; they share them out (one for each)\n"
    "  --exact      the parts' gradients are summed exactly: the same --micro-batches give the same weights, bit for bit, on any\n"
    "               number of ranks\n"
    "  --no-sync    no allreduce: every rank trains alone, and the weights drift apart\n"
    "  --save FILE  rank 0 writes the final weights there, as float32 values\n"
    "\n"
    "  --checkpoint DIR         each rank saves checkpoints there, goes on from them when it is started again, and, under\n"
    "                           recovery (MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH), when others are\n"
    "  --checkpoint_interval N  steps from one checkpoint to the next (50)\n"
    "  --keep N                 how many each rank keeps, 2 or more (3)\n"
    "\n"
    "  For scripts/chaos.py:\n"
    "  --trace FILE             appends a line per event\n"
    "  --fork_child RANK        that rank (1 or more) leaves a child process behind, which sleeps for 5 minutes\n";

namespace {

const std::set<std::string> kValued = {"--epochs", "--batch", "--lr", "--hidden", "--micro-batches", "--data", "--save",
                                      "--checkpoint", "--checkpoint_interval", "--keep", "--trace", "--fork_child"};

[[noreturn]] void reject(const std::string &name, const std::string &value, const char *expected) {
    throw std::invalid_argument("--" + name + " is '" + value + "'; it must be " + expected);
}

std::size_t positive_integer(const std::string &name, const std::string &value) {
    const char *expected = "a whole number from 1 to 1000000";
    if (value.empty() || value.size() > 7 || value.find_first_not_of("0123456789") != std::string::npos) {
        reject(name, value, expected);
    }
    unsigned long number = std::stoul(value);
    if (number < 1 || number > 1000000) {
        reject(name, value, expected);
    }
    return number;
}

float positive_number(const std::string &name, const std::string &value) {
    try {
        std::size_t used = 0;
        float number = std::stof(value, &used);
        if (used == value.size() && std::isfinite(number) && number > 0) {
            return number;
        }
    } catch (const std::logic_error &) {
        // not a number at all, or one that no float can hold
    }
    reject(name, value, "a number above 0");
}

std::string &path_named(Options &options, const std::string &name) {
    return name == "data"         ? options.data
           : name == "save"       ? options.save
           : name == "checkpoint" ? options.checkpoint
                                  : options.trace;
}

// Options that do not go together.
void check(const Options &options) {
    if (options.keep < Checkpoints::kKeptAtLeast) {
        reject("keep", std::to_string(options.keep), "2 or more: of one checkpoint each the ranks may have none in common");
    }
    if (options.exact && options.micro_batches == 0) {
        throw std::invalid_argument("--exact needs --micro-batches: what is summed must not depend on the number of ranks");
    }
    if (options.exact && !options.sync) {
        throw std::invalid_argument("--exact and --no-sync exclude each other: ranks that train alone sum nothing");
    }
    if (!options.checkpoint.empty() && !options.sync) {
        throw std::invalid_argument("--checkpoint and --no-sync exclude each other: ranks that train alone are nowhere together");
    }
}

}  // namespace

Options parse_options(int argc, char **argv) {
    Options options;
    for (int at = 1; at < argc; at++) {
        std::string argument = argv[at];
        if (argument == "--help" || argument == "-h") {
            options.help = true;
            continue;
        }
        if (argument == "--no-sync") {
            options.sync = false;
            continue;
        }
        if (argument == "--exact") {
            options.exact = true;
            continue;
        }
        std::size_t equals = argument.find('=');
        std::string name = argument.substr(0, equals);
        if (kValued.count(name) == 0) {
            throw std::invalid_argument("unknown option '" + argument + "'; --help lists those there are");
        }
        if (equals == std::string::npos && at + 1 == argc) {
            throw std::invalid_argument(name + " needs a value");
        }
        std::string value = equals == std::string::npos ? argv[++at] : argument.substr(equals + 1);
        name.erase(0, 2);
        if (name == "epochs") {
            options.epochs = positive_integer(name, value);
        } else if (name == "batch") {
            options.batch = positive_integer(name, value);
        } else if (name == "hidden") {
            options.hidden = positive_integer(name, value);
        } else if (name == "micro-batches") {
            options.micro_batches = positive_integer(name, value);
        } else if (name == "lr") {
            options.learning_rate = positive_number(name, value);
        } else if (name == "checkpoint_interval") {
            options.checkpoint_interval = positive_integer(name, value);
        } else if (name == "keep") {
            options.keep = positive_integer(name, value);
        } else if (name == "fork_child") {
            options.fork_child = static_cast<long>(positive_integer(name, value));
        } else {
            path_named(options, name) = value;
        }
    }
    check(options);
    return options;
}
