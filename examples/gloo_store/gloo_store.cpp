// Gloo under muster: a context whose ranks find each other through muster's store, and after a loss a new one in the next epoch.
//
//   gloo_store [--steps N] [--lose RANK connect|step]
//
// With --lose this rank kills itself, in its first life: once it is connected, or in the middle of the steps. `muster run
// --max_restarts 1` with recovery starts it again.
#include "../read_number.h"
#include "muster_store.hpp"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <type_traits>

namespace {

constexpr std::size_t kCount = 1000;
constexpr std::chrono::seconds kTimeout(60);
// While it connects Gloo does not notice that a peer has given up, and it waits for five times its time-out. Then the rank goes
// into muster_recover, as the others do, and all connect anew.
constexpr std::chrono::seconds kConnectTimeout(4);
// After Gloo failed, for muster's word that a rank is lost: more than the heartbeat time-out.
constexpr std::chrono::seconds kVerdict(15);

struct Options {
    long steps = 20;
    long lose = -1;  // none
    bool lose_connecting = false;
};

Options read_options(int argc, char **argv) {
    Options options;
    bool right = true;
    for (int i = 1; i < argc && right; i++) {
        if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
            right = read_number(argv[++i], 1, INT_MAX, &options.steps) != 0;
        } else if (std::strcmp(argv[i], "--lose") == 0 && i + 2 < argc) {
            right = read_number(argv[++i], 0, INT_MAX, &options.lose) != 0;
            options.lose_connecting = std::strcmp(argv[++i], "connect") == 0;
            right = right && (options.lose_connecting || std::strcmp(argv[i], "step") == 0);
        } else {
            right = false;
        }
    }
    if (!right) {
        std::fprintf(stderr, "usage: gloo_store [--steps N] [--lose RANK connect|step]\n");
        std::exit(2);
    }
    return options;
}

// Ends this process as if something else had killed it.
void die_if(muster_cluster_t *cluster, const Options &options, bool connecting) {
    if (muster_rank(cluster) == options.lose && connecting == options.lose_connecting && muster_restarts(cluster) == 0) {
        std::raise(SIGKILL);
    }
}

// Gloo took a reference to the store, and takes a shared pointer to it since April 2025.
template <typename Context>
void connect_full_mesh(Context &context, const std::shared_ptr<MusterStore> &store,
                       std::shared_ptr<gloo::transport::Device> &device) {
    if constexpr (std::is_invocable_v<decltype(&Context::connectFullMesh), Context &, decltype(store), decltype(device)>) {
        context.connectFullMesh(store, device);
    } else {
        context.connectFullMesh(*store, device);
    }
}

std::shared_ptr<gloo::Context> connect(muster_cluster_t *cluster, const Options &options,
                                       const std::shared_ptr<MusterStore> &store) {
    gloo::transport::tcp::attr place;
    place.hostname = address_of(cluster);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(place);
    auto context = std::make_shared<gloo::rendezvous::Context>(muster_rank(cluster), muster_size(cluster));
    context->setTimeout(kConnectTimeout);
    connect_full_mesh(*context, store, device);
    context->setTimeout(kTimeout);
    die_if(cluster, options, true);
    gloo::BarrierOptions barrier(context);
    gloo::barrier(barrier);
    store->forget();
    std::printf("rank %d: epoch %lld: connected at %s\n", context->rank, static_cast<long long>(muster_epoch(cluster)),
                place.hostname.c_str());
    return context;
}

void add(void *out, const void *left, const void *right, std::size_t count) {
    gloo::sum<float>(out, left, right, count);
}

void reduce(const std::shared_ptr<gloo::Context> &context, int step) {
    // So small that floats hold the sums exactly, of up to 2,364 ranks.
    const auto small = [step](std::size_t i) { return static_cast<int>((i + static_cast<std::size_t>(step)) % 7); };
    std::vector<float> numbers(kCount);
    for (std::size_t i = 0; i < kCount; i++) {
        numbers[i] = static_cast<float>((context->rank + 1) * small(i));
    }
    gloo::AllreduceOptions options(context);
    options.setOutput(numbers.data(), numbers.size());
    options.setReduceFunction(add);
    gloo::allreduce(options);
    for (std::size_t i = 0; i < kCount; i++) {
        const auto right = static_cast<float>(context->size * (context->size + 1) / 2 * small(i));
        if (numbers[i] != right) {
            throw std::logic_error("step " + std::to_string(step) + ": element " + std::to_string(i) + " is " +
                                   std::to_string(numbers[i]) + ", not " + std::to_string(right));
        }
    }
}

// All go on at the step of the rank that is furthest. A step leaves nothing behind here; a training would load what belongs
// to it.
int agree_on_step(muster_cluster_t *cluster, int step) {
    int32_t own = step;
    int32_t agreed = 0;
    if (muster_allreduce(muster_world(cluster), &own, &agreed, 1, MUSTER_INT32, MUSTER_MAX) != MUSTER_OK) {
        throw gloo::IoException(muster_last_error());
    }
    return agreed;
}

// The steps with one context. Only Gloo's exceptions, and ours in the form of Gloo's, leave this function.
void train(muster_cluster_t *cluster, const Options &options, const std::shared_ptr<MusterStore> &store, int &step) {
    const std::shared_ptr<gloo::Context> context = connect(cluster, options, store);
    for (step = agree_on_step(cluster, step); step < options.steps; step++) {
        if (step == options.steps / 2) {
            die_if(cluster, options, false);
        }
        reduce(context, step);
    }
    if (muster_barrier(muster_world(cluster)) != MUSTER_OK) {  // nobody closes its connections before all have come to the end
        throw gloo::IoException(muster_last_error());
    }
}

// Gloo may see a broken connection before anybody knows whose fault it is. muster decides: is a rank lost, or is Gloo wrong?
bool a_rank_is_lost(muster_cluster_t *cluster) {
    const auto end = std::chrono::steady_clock::now() + kVerdict;
    muster_failure_t failure;
    while (muster_group_failure(muster_world(cluster), &failure, sizeof failure) == MUSTER_ERR_NOT_FOUND) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // no call of muster is waiting that could tell it
    }
    return true;
}

void run(muster_cluster_t *cluster, const Options &options) {
    if (options.lose >= muster_size(cluster)) {  // nobody would be lost, and all would seem to be well
        throw std::runtime_error("--lose " + std::to_string(options.lose) + ": the ranks are 0 to " +
                                 std::to_string(muster_size(cluster) - 1));
    }
    for (int step = 0, contexts = 1;; contexts++) {
        const auto store = std::make_shared<MusterStore>(cluster, "world");  // it takes its keys away after muster_recover
        try {
            train(cluster, options, store, step);
            std::printf("rank %d: %d steps, contexts: %d, all sums right\n", muster_rank(cluster), step, contexts);
            return;
        } catch (const gloo::Exception &error) {
            std::printf("rank %d: step %d: %s\n", muster_rank(cluster), step, error.what());
            std::fflush(stdout);
            if (!a_rank_is_lost(cluster)) {
                throw std::runtime_error(std::string("Gloo failed, though no rank is lost: ") + error.what());
            }
        }
        if (muster_recover(cluster, -1) != MUSTER_OK) {
            throw std::runtime_error(muster_last_error());
        }
    }
}

}  // namespace

int main(int argc, char **argv) {
    const Options options = read_options(argc, argv);
    std::signal(SIGPIPE, SIG_IGN);  // Gloo writes to connections whose other end may be gone
    muster_cluster_t *cluster = nullptr;
    const muster_status_t status = muster_init(nullptr, &cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    const std::unique_ptr<muster_cluster_t, decltype(&muster_cluster_free)> owner(cluster, muster_cluster_free);
    try {
        if (status != MUSTER_OK) {
            throw std::runtime_error(muster_last_error());
        }
        run(cluster, options);
        if (muster_finalize(cluster) != MUSTER_OK) {
            throw std::runtime_error(muster_last_error());
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gloo_store: %s\n", error.what());
        if (cluster != nullptr) {
            muster_abort(cluster, 1, error.what());
        }
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
