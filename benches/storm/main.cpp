// A rank of a storm: random work whose every result is checked, while processes are killed and stopped. scripts/storm.py starts it,
// strikes, and says what is to be done:
//
//   storm --folder DIRECTORY --seed N --steps N --ranks N [--limit SECONDS] [--plain] [--plant FAULT]
//
// The environment says which rank it is (MS_NODE_ID), and gives all settings of the cluster. --plain: there is no recovery.
#include "worker.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

[[noreturn]] void usage() {
    std::fprintf(stderr, "usage: storm --folder DIRECTORY --seed N --steps N --ranks N [--limit SECONDS] [--plain] [--plant FAULT]\n");
    std::exit(kUsage);
}

Options parsed(int argc, char **argv) {
    Options options;
    for (int at = 1; at < argc; at++) {
        const std::string name = argv[at];
        if (name == "--plain") {
            options.recovery = false;
            continue;
        }
        if (++at == argc) {
            usage();
        }
        const std::string value = argv[at];
        if (name == "--folder") {
            options.folder = value;
        } else if (name == "--seed") {
            options.seed = std::strtoull(value.c_str(), nullptr, 10);
        } else if (name == "--steps") {
            options.steps = std::atoi(value.c_str());
        } else if (name == "--ranks") {
            options.ranks = std::atoi(value.c_str());
        } else if (name == "--limit") {
            options.limit_s = std::atof(value.c_str());
        } else if (name == "--plant") {
            options.plant = value;
        } else {
            usage();
        }
    }
    if (options.folder.empty() || options.steps < 1 || options.ranks < 1 || options.ranks > kRanksMost) {
        usage();
    }
    return options;
}

}  // namespace

int main(int argc, char **argv) {
    const Options options = parsed(argc, argv);
    const char *node_id = std::getenv("MS_NODE_ID");
    if (node_id == nullptr || std::atoi(node_id) < 0 || std::atoi(node_id) >= options.ranks) {
        std::fprintf(stderr, "storm: MS_NODE_ID must be a rank, 0 to %d\n", options.ranks - 1);
        return kUsage;
    }
    Worker worker(options, std::atoi(node_id));
    return worker.run();
}
