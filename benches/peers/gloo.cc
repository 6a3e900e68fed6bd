/* gloo: times Gloo's collectives as `muster bench` times ours.
 *
 *   gloo RANKS allreduce:8 allreduce/ring:65536 allgather:65536 broadcast:128 barrier:0
 *
 * Starts the ranks itself; they meet through files in a folder of their own and talk over TCP on 127.0.0.1. A collective
 * without an algorithm is timed with each that Gloo has; names that end in _sync are those on connections that the calling
 * thread reads and writes itself, without a hand-over to Gloo's thread: quicker, but ranks that send to each other more than
 * the kernel buffers wait for each other for ever, so they are timed up to 64 KiB. Float32; allreduce is a sum in place, broadcast has each rank as root in turn. The first
 * result of each case is checked. Prints a line per case and algorithm: collective/algorithm, ranks, bytes per rank,
 * iterations, median on rank 0 and on the slowest rank, mean on rank 0 and on the slowest rank.
 */
#include "case.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Call = std::function<void(size_t nth)>;
using ContextPtr = std::shared_ptr<gloo::Context>;

const std::chrono::seconds kTimeout(120);
const std::string kDirect = "_sync";
const size_t kMostDirectBytes = 64 << 10;
/* Some algorithms fall into stalls of tens of milliseconds after a while: after so many iterations the guess is made anew. */
const size_t kTrustedIterations = 100;
/* An algorithm whose first call takes this long, and so many times the best of the others, is left out. */
const double kLongUs = 0.2e6, kFarLonger = 4;
const double kNone = std::numeric_limits<double>::infinity();

/* A rank: its connections and its buffers. */
struct Rank {
    int rank, ranks;
    ContextPtr control; /* for what is not timed */
    ContextPtr context; /* new connections for each algorithm and case: old ones may have fallen into stalls */
    std::vector<float> input, output;
};

/* Runs an algorithm of the old kind, which is an object. */
template <class Algorithm, class... Arguments>
Call old_style(Arguments... arguments) {
    auto algorithm = std::make_shared<Algorithm>(arguments...);
    return [algorithm](size_t) { algorithm->run(); };
}

Call new_allreduce(Rank &me, size_t count, gloo::AllreduceOptions::Algorithm algorithm) {
    auto options = std::make_shared<gloo::AllreduceOptions>(me.context);
    using Function = void (*)(void *, const void *, const void *, size_t);
    options->setAlgorithm(algorithm);
    options->setReduceFunction(static_cast<Function>(&gloo::sum<float>));
    options->setOutput(me.output.data(), count);
    return [options](size_t) { gloo::allreduce(*options); };
}

Call new_allgather(Rank &me, size_t count) {
    auto options = std::make_shared<gloo::AllgatherOptions>(me.context);
    options->setInput(me.input.data(), count);
    options->setOutput(me.output.data(), count * static_cast<size_t>(me.ranks));
    return [options](size_t) { gloo::allgather(*options); };
}

Call new_broadcast(Rank &me, size_t count) {
    auto options = std::make_shared<gloo::BroadcastOptions>(me.context);
    options->setOutput(me.output.data(), count);
    int ranks = me.ranks;
    return [options, ranks](size_t nth) {
        options->setRoot(static_cast<int>(nth % static_cast<size_t>(ranks)));
        gloo::broadcast(*options);
    };
}

Call new_barrier(Rank &me, size_t) {
    auto options = std::make_shared<gloo::BarrierOptions>(me.context);
    return [options](size_t) { gloo::barrier(*options); };
}

using Make = std::function<Call(Rank &, size_t count)>;
using Connect = std::function<ContextPtr(const std::string &name, bool direct)>;

template <class Algorithm>
Call in_place(Rank &me, size_t count) {
    return old_style<Algorithm>(me.context, std::vector<float *>{me.output.data()}, static_cast<int>(count));
}

template <class Algorithm>
Call gathering(Rank &me, size_t count) {
    std::vector<const float *> from{me.input.data()};
    return old_style<Algorithm>(me.context, from, me.output.data(), static_cast<int>(count));
}

template <class Algorithm>
Call meeting(Rank &me, size_t) {
    return old_style<Algorithm>(me.context);
}

const std::map<std::string, std::vector<std::pair<std::string, Make>>> &algorithms() {
    using gloo::AllreduceOptions;
    using HalvingDoubling = gloo::AllreduceHalvingDoubling<float>;
    using Ring = gloo::AllreduceRing<float>;
    using RingChunked = gloo::AllreduceRingChunked<float>;
    static const std::map<std::string, std::vector<std::pair<std::string, Make>>> all = {
        {"allreduce",
         {{"halving_doubling", in_place<HalvingDoubling>},
          {"new_ring", [](Rank &me, size_t n) { return new_allreduce(me, n, AllreduceOptions::Algorithm::RING); }},
          {"new_bcube", [](Rank &me, size_t n) { return new_allreduce(me, n, AllreduceOptions::Algorithm::BCUBE); }},
          {"ring", in_place<Ring>},
          {"ring_chunked", in_place<RingChunked>},
          {"halving_doubling_sync", in_place<HalvingDoubling>},
          {"ring_chunked_sync", in_place<RingChunked>}}},
        {"allgather",
         {{"new", new_allgather},
          {"ring", gathering<gloo::AllgatherRing<float>>},
          {"ring_sync", gathering<gloo::AllgatherRing<float>>}}},
        {"broadcast", {{"new", new_broadcast}}},
        {"barrier",
         {{"new", new_barrier},
          {"all_to_all", meeting<gloo::BarrierAllToAll>},
          {"all_to_one", meeting<gloo::BarrierAllToOne>},
          {"all_to_all_sync", meeting<gloo::BarrierAllToAll>}}},
    };
    return all;
}

size_t output_count(const bench_case &what, int ranks) {
    size_t count = what.bytes / sizeof(float);
    return what.name == std::string("allgather") ? count * static_cast<size_t>(ranks) : count;
}

/* Everybody's number, in order of rank. */
std::vector<double> gather(Rank &me, double mine) {
    std::vector<double> all(static_cast<size_t>(me.ranks));
    gloo::AllgatherOptions options(me.control);
    options.setInput(&mine, 1);
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
    return all;
}

void fill(Rank &me, const bench_case &what) {
    std::string name = what.name;
    bool is_input = name == "allreduce" || (name == "broadcast" && me.rank == 0);
    for (size_t i = 0; i < what.bytes / sizeof(float); i++) me.input[i] = case_value(me.rank, i);
    for (size_t i = 0; i < output_count(what, me.ranks); i++) me.output[i] = is_input ? case_value(me.rank, i) : 99;
}

void check(const Rank &me, const bench_case &what, const std::string &label) {
    std::string name = what.name;
    size_t count = what.bytes / sizeof(float);
    for (size_t i = 0; i < output_count(what, me.ranks); i++) {
        float expected = name == "allreduce"   ? case_sum(me.ranks, i)
                         : name == "allgather" ? case_value(static_cast<int>(i / count), i % count)
                                               : case_value(0, i);
        if (me.output[i] == expected) continue;
        std::cerr << label << " of " << what.bytes << " bytes: element " << i << " is " << me.output[i] << " on rank "
                  << me.rank << "\n";
        _exit(1);
    }
}

bool is_direct(const std::string &algorithm) {
    return algorithm.size() > kDirect.size() &&
           algorithm.compare(algorithm.size() - kDirect.size(), kDirect.size(), kDirect) == 0;
}

bool is_chosen(const bench_case &what, const std::string &algorithm) {
    if (is_direct(algorithm) && what.bytes > kMostDirectBytes) return false;
    return what.algorithm[0] == 0 || algorithm == what.algorithm;
}

/* The median in microseconds on rank 0; none where the first call takes far longer than `best`. */
double measure(Rank &me, const bench_case &what, const std::string &label, const Make &make, double best) {
    fill(me, what);
    Call call = make(me, what.bytes / sizeof(float));
    gather(me, 0); /* nobody begins before all are here */
    double begun = case_now_us();
    call(0);
    double first = gather(me, case_now_us() - begun)[0];
    check(me, what, label);
    if (first > kLongUs && first > kFarLonger * best) return kNone;
    gather(me, 0);
    begun = case_now_us();
    for (size_t nth = 0; nth < CASE_WARM_UP; nth++) call(nth);
    auto iterations = static_cast<size_t>(gather(me, case_iterations((case_now_us() - begun) / CASE_WARM_UP))[0]);
    std::vector<double> took;
    for (size_t nth = 0; nth < iterations; nth++) {
        begun = case_now_us();
        call(nth);
        took.push_back(case_now_us() - begun);
        if (nth + 1 != kTrustedIterations) continue;
        double total = std::accumulate(took.begin(), took.end(), 0.0);
        auto guess = static_cast<size_t>(gather(me, case_iterations(total / kTrustedIterations))[0]);
        iterations = std::min(iterations, std::max(guess, kTrustedIterations));
    }
    case_times mine = case_times_of(took.data(), iterations);
    std::vector<double> medians = gather(me, mine.p50), means = gather(me, mine.mean);
    std::vector<case_times> all;
    for (size_t rank = 0; rank < medians.size(); rank++) all.push_back({medians[rank], means[rank]});
    if (me.rank == 0) case_print(label.c_str(), me.ranks, what.bytes, iterations, all.data());
    return medians[0];
}

/* With each algorithm that is asked for. */
void measure_all(Rank &me, const bench_case &what, const Connect &connect) {
    double best = kNone;
    for (const auto &[name, make] : algorithms().at(what.name)) {
        if (!is_chosen(what, name)) continue;
        std::string label = std::string(what.name) + "/" + name;
        me.context = connect(label + std::to_string(what.bytes), is_direct(name));
        best = std::min(best, measure(me, what, label, make, best));
        gather(me, 0); /* nobody closes before all are done */
        me.context.reset();
    }
}

ContextPtr connect(int rank, int ranks, gloo::rendezvous::Store &store, const std::string &prefix, bool direct) {
    gloo::transport::tcp::attr at("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(at);
    gloo::rendezvous::PrefixStore own(prefix, store);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->setTimeout(kTimeout);
    context->connectFullMesh(own, device);
    for (int peer = 0; direct && peer < ranks; peer++)
        if (peer != rank) context->getPair(peer)->setSync(true, false);
    return context;
}

void take_part(int rank, int ranks, const std::string &folder, const std::vector<bench_case> &cases) {
    gloo::rendezvous::FileStore store(folder);
    Connect connections = [&](const std::string &name, bool direct) { return connect(rank, ranks, store, name, direct); };
    Rank me{rank, ranks, connections("control", false), nullptr, {}, {}};
    size_t in = 0, out = 0;
    for (const bench_case &what : cases) {
        in = std::max(in, what.bytes / sizeof(float));
        out = std::max(out, output_count(what, ranks));
    }
    me.input.resize(in);
    me.output.resize(out);
    if (rank == 0) case_print_head();
    for (const bench_case &what : cases) measure_all(me, what, connections);
    gather(me, 0);
}

bool known(const bench_case &what) {
    auto found = algorithms().find(what.name);
    if (found == algorithms().end()) return false;
    for (const auto &[name, make] : found->second)
        if (name == what.algorithm) return true;
    return what.algorithm[0] == 0;
}

/* Waits for all; the first that fails ends the others. */
int wait_for(std::set<pid_t> children) {
    int code = 0, status = 0;
    while (!children.empty()) {
        pid_t ended = wait(&status);
        if (ended < 0) return 1;
        children.erase(ended);
        if (status == 0 || code != 0) continue;
        code = 1;
        for (pid_t child : children) kill(child, SIGKILL);
    }
    return code;
}

} // namespace

int main(int argc, char **argv) {
    int ranks = argc > 2 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > 64) {
        std::cerr << "usage: " << argv[0] << " RANKS(2..64) collective[/algorithm]:bytes ...\n";
        return 2;
    }
    std::vector<bench_case> cases(static_cast<size_t>(argc - 2));
    for (int i = 2; i < argc; i++) {
        bench_case &what = cases[static_cast<size_t>(i - 2)];
        if (case_of(argv[i], &what) && known(what)) continue;
        std::cerr << argv[i] << " is no case: expected collective:bytes or collective/algorithm:bytes, as allreduce:8\n";
        return 2;
    }
    std::string folder = (std::filesystem::temp_directory_path() / "bench-gloo-XXXXXX").string();
    if (!mkdtemp(folder.data())) return perror("mkdtemp"), 1;
    pid_t parent = getpid();
    std::set<pid_t> children;
    for (int rank = 0; rank < ranks; rank++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
            try {
                take_part(rank, ranks, folder, cases);
            } catch (const std::exception &error) {
                std::cerr << "rank " << rank << ": " << error.what() << "\n";
                _exit(1);
            }
            _exit(0); /* Gloo's threads and connections need no farewell */
        }
        children.insert(child);
    }
    int code = wait_for(children);
    std::filesystem::remove_all(folder);
    return code;
}
