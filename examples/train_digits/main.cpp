// Trains a small network on handwritten digits, data-parallel: start it once with MS_ROLE=MS_SCHED and N times with
// MS_ROLE=MS_WORKER, or let `muster run` do that. Rank 0 broadcasts the first weights, gradients are averaged by
// allreduce, and in the end all ranks hold the same weights, bit for bit. With --checkpoint it goes on when processes are
// killed and started again: recovery.cpp.
#include "data.hpp"
#include "options.hpp"
#include "recovery.hpp"
#include "trace.hpp"
#include "training.hpp"

#include <muster.hpp>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace {

constexpr int kExitUsage = 2;

// What became of the training. Every rank speaks for itself, and rank 0 compares.
void report(const muster::cluster &cluster, Trainer &trainer, const Images &held_back) {
    const std::uint64_t hash = hash_of(trainer.model().weights);
    std::printf("rank %d of %d: samples used: %zu, accuracy on %zu held-back images: %.2f %%, weights hash: %016" PRIx64
                "\n",
                cluster.rank(), cluster.size(), trainer.samples_used(), held_back.count(),
                100.0 * trainer.model().accuracy(held_back), hash);
    const std::vector<std::uint64_t> hashes = cluster.world().allgather(hash);
    const bool equal = std::count(hashes.begin(), hashes.end(), hashes[0]) == cluster.size();
    if (cluster.rank() == 0) {
        std::printf("the weights of the %d ranks are %s\n", cluster.size(), equal ? "equal, bit for bit" : "not equal");
    }
}

void train(muster::cluster &cluster, const Options &options, Trace &trace) {
    const Dataset dataset = load_dataset(options.data.empty() ? default_data_path() : options.data);
    Trainer trainer(cluster, dataset.training, options);
    const auto conclude = [&] {
        if (cluster.rank() == 0 && !options.save.empty()) {
            const std::vector<float> &weights = trainer.model().weights;
            write_whole(options.save,
                        std::string(reinterpret_cast<const char *>(weights.data()), weights.size() * sizeof(float)));
        }
        report(cluster, trainer, dataset.held_back);
    };
    if (!options.checkpoint.empty()) {
        return Recovery(cluster, trainer, options, trace).run(conclude);
    }
    trainer.begin();
    while (!trainer.is_done()) {
        trainer.step();
    }
    conclude();
}

// The outcome; nothing if the others have left long ago, and this process comes back to a training that is over.
std::optional<muster::cluster> join(const Options &options, const Trace &trace) {
    const bool had_finished = Recovery::had_finished(options);
    muster::config config = muster::config::from_environment();
    if (had_finished) {
        config.set("cluster_timeout", std::to_string(std::chrono::duration<double>(Recovery::kLastPatience).count()));
    }
    try {
        return muster::init(config);
    } catch (const muster::error &error) {
        if (!had_finished || !is_too_late(error)) {
            throw;
        }
        trace.line("late");
        std::printf("%s\nthis rank's last checkpoint says that all ranks have finished: there is nothing left to do\n",
                    error.what());
        return std::nullopt;
    }
}

int run(const Options &options) {
    Trace trace(options.trace);
    if (const std::optional<Place> place = announced_place()) {
        trace.set_rank(place->rank);
    }
    trace.line("start");
    std::optional<muster::cluster> cluster = join(options, trace);
    if (!cluster || !*cluster) {
        return EXIT_SUCCESS;  // nothing is left to do, or this process was the scheduler
    }
    trace.set_rank(cluster->rank());
    trace.line("joined", cluster->restarts());
    try {
        train(*cluster, options, trace);
        trace.line("leaving");
        cluster->finalize();
        return EXIT_SUCCESS;
    } catch (const muster::error &) {
        throw;  // the others know already
    } catch (const std::exception &error) {
        muster_abort(cluster->get(), 1, error.what());  // should that fail, too, the others see this rank go
        throw;
    }
}

}  // namespace

int main(int argc, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // progress is there to be watched, in a log file too
    Options options;
    try {
        options = parse_options(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "train_digits: %s\n", error.what());
        return kExitUsage;
    }
    if (options.help) {
        std::fputs(kUsage, stdout);
        return EXIT_SUCCESS;
    }
    try {
        return run(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "train_digits: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
