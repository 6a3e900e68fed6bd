#include "worker.hpp"

#include "../../ctests/arithmetic.h"
#include "messages.hpp"
#include "own.hpp"
#include "store.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <unistd.h>

namespace {

constexpr double kTogether = 1.0;          // that threads have to find out by themselves that something has failed
constexpr std::int64_t kLastPatienceMs = 1500;  // for others, where all have finished
constexpr double kRecoverLimit = 100.0;    // beyond the forming time-out, which the driver sets
constexpr int kMoreDescriptors = 2, kMoreThreads = 1;  // that come and go
constexpr int kLateUs = 20'000;             // longer than a wait polls
constexpr int kDelisted = 50;              // so many hundredths of a second a joined thread may be listed yet
constexpr double kSettled = 10.0;          // after which descriptors and threads that are over must be gone

void combine_commutative(const void *in, void *inout, std::size_t count, std::int32_t dtype, void *) {
    const std::size_t width = types[dtype].width;
    for (std::size_t at = 0; at < count; at++) {
        put(inout, at, width, combine(COMMUTATIVE, dtype, get(in, at, width), get(inout, at, width)));
    }
}

void combine_ordered(const void *in, void *inout, std::size_t count, std::int32_t dtype, void *) {
    const std::size_t width = types[dtype].width;
    for (std::size_t at = 0; at < count; at++) {
        put(inout, at, width, combine(ORDERED, dtype, get(in, at, width), get(inout, at, width)));
    }
}

}  // namespace

Worker::Worker(const Options &options, int rank) : life_(options, rank), groups_(life_), team_(life_) {}

int Worker::run() {
    if (!join()) {
        return exit_;
    }
    while (true) {
        try {
            agree();
            while (life_.step < life_.options.steps) {
                do_step();
            }
            finish();
            break;
        } catch (const CallFailed &) {
            life_.broken = true;
        }
        if (!recover()) {
            break;
        }
    }
    return leave();
}

bool Worker::join() {
    Slot &slot = life_.slot;
    threads_before_ = own_threads();
    descriptors_before_ = own_descriptors();
    slot.pid = ::getpid();
    const std::int64_t lives = ++slot.lives, last_epoch = slot.epoch;
    life_.enter(Phase::kJoining);
    muster_config_t *config = nullptr;
    muster_config_new(MUSTER_ABI_VERSION, &config);
    muster_config_load_env(config);
    const bool too_late = slot.finished != 0 && life_.all_have_finished();
    if (too_late) {
        muster_config_set(config, "cluster_timeout", "1.5");
    }
    const muster_status_t status = life_.attempt("muster_init", [&] { return muster_init(config, &life_.cluster); });
    muster_config_free(config);
    if (status != MUSTER_OK) {
        life_.note("errors", std::to_string(now_ns()) + " " + std::to_string(life_.rank) + " " + std::to_string(::getpid()) +
                                 " 0 " + std::to_string(status) + " 0 muster_init gave " + muster_last_error());
        if (too_late && (status == MUSTER_ERR_PEER_LEFT || status == MUSTER_ERR_UNREACHABLE ||
                         status == MUSTER_ERR_TIMEOUT || status == MUSTER_ERR_REJECTED)) {
            return false;
        }
        life_.violate(std::string("muster_init gave ") + muster_last_error());
    }
    if (muster_rank(life_.cluster) != life_.rank || std::to_string(life_.rank) != muster_node_id(life_.cluster) ||
        muster_size(life_.cluster) != life_.options.ranks) {
        life_.violate("this life is rank " + std::to_string(muster_rank(life_.cluster)) + " of " +
                      std::to_string(muster_size(life_.cluster)) + ", node id " + muster_node_id(life_.cluster));
    }
    const int restarts = muster_restarts(life_.cluster);
    if (restarts < slot.joined || restarts > lives - 1) {
        life_.violate("muster_restarts gives " + std::to_string(restarts) + " in life " + std::to_string(lives) + ", of which " +
                      std::to_string(slot.joined) + " had joined before");
    }
    slot.joined++;
    if (muster_epoch(life_.cluster) <= last_epoch) {
        life_.violate("a life has joined in epoch " + std::to_string(muster_epoch(life_.cluster)) + ", the one before was in " +
                      std::to_string(last_epoch));
    }
    set_epoch();
    if (muster_op_create(life_.cluster, combine_commutative, nullptr, 1, &ops_.commutative) != MUSTER_OK ||
        muster_op_create(life_.cluster, combine_ordered, nullptr, 0, &ops_.ordered) != MUSTER_OK) {
        life_.violate(std::string("muster_op_create: ") + muster_last_error());
    }
    return true;
}

void Worker::set_epoch() {
    life_.epoch = muster_epoch(life_.cluster);
    life_.slot.epoch = life_.epoch;
}

// All ranks go on with the first step that somebody has not completed. All are in the same epoch, and nobody is ahead by
// more than one step.
void Worker::agree() {
    life_.enter(Phase::kWorking);
    const std::int64_t done = life_.slot.done, own[] = {done, -done, life_.epoch, -life_.epoch};
    std::int64_t least[4] = {};
    life_.make("to agree on a step", [&] {
        return muster_allreduce(life_.world(), own, least, 4, MUSTER_INT64, MUSTER_MIN);
    });
    if (least[2] != -least[3]) {
        life_.violate("ranks from epoch " + std::to_string(least[2]) + " to " + std::to_string(-least[3]) + " are together");
    }
    if (-least[1] - least[0] > 1) {
        life_.violate("ranks have come to step " + std::to_string(least[0]) + " to " + std::to_string(-least[1]));
    }
    life_.step = static_cast<int>(least[0]);
}

void Worker::do_step() {
    plant();
    groups_.prepare(life_.step);
    const int step = life_.step;
    const std::uint64_t seed = life_.options.seed;
    const auto own = [&](int what) { return Chance(key_of(seed, 3, step, life_.rank, life_.epoch, what)); };
    messages_ = plan_messages(seed, step, life_.epoch, groups_.plan(), life_.options.ranks);
    std::vector<int> first{kWorldGroup}, second;
    for (const int group : groups_.alive(step)) {
        (group % 2 == 0 ? first : second).push_back(group);
    }
    team_.start(kSecond, [this, second, chance = own(1)] { collectives(second, chance); });
    team_.start(kSender, [this, chance = own(2)] { send_all(life_, groups_, messages_, chance); });
    team_.start(kNamed, [this, chance = own(3)] { receive_named(life_, groups_, messages_, chance); });
    team_.start(kTaker, [this, chance = own(4)] { take_what_comes(life_, groups_, messages_, chance); });
    team_.start(kStore, [this, chance = own(5)] { use_store(life_, chance); });
    try {
        Chance chance = own(6);
        collectives(first, chance);
        if (chance.one_in(3)) {
            receive_never(life_, chance);
        }
        shift(life_, step, key_of(seed, 4, step, life_.epoch), chance);
    } catch (const CallFailed &) {
        life_.broken = true;
    }
    // If something has failed, the threads may wait for other ranks that have given up: muster_recover ends that.
    while (!team_.wait(kTogether) && !life_.broken) {
    }
    if (life_.broken) {
        throw CallFailed{MUSTER_ERR_STATE};
    }
    team_.join();
    life_.make("the barrier after step " + std::to_string(step), [&] { return muster_barrier(life_.world()); }, life_.world());
    if (is_bare(step)) {
        census();
    }
    life_.slot.done = step + 1;
    life_.step++;
}

void Worker::collectives(const std::vector<int> &groups, Chance own) {
    for (const int group : groups) {
        collectives_of(group, Chance(own.next()));
    }
}

// The call is the same on all members, except for its form: one rank may wait where another does not.
void Worker::collectives_of(int group, Chance own) {
    muster_group_t *const handle = groups_.handle(group);
    const std::string where = Groups::name(group);
    // The parts of a split have the same plan, for as many ranks as each has.
    Chance common(key_of(life_.options.seed, 5, life_.step, group, muster_group_size(handle)));
    std::vector<std::unique_ptr<Collective>> going;
    for (std::size_t left = 1 + common.below(5); left > 0; left--) {
        Spec spec = draw_spec(common, muster_group_size(handle), static_cast<std::uint64_t>(life_.epoch));
        going.push_back(std::make_unique<Collective>(life_, handle, where, std::move(spec), ops_, own));
        if (own.one_in(2)) {
            going.back()->block();
            going.pop_back();
            continue;
        }
        going.back()->start();
        while (!going.empty() && own.one_in(2)) {
            const std::size_t place = own.below(going.size());
            if (own.one_in(2)) {
                going[place]->wait();
            } else if (!going[place]->test(1 + own.whole(50))) {
                break;
            }
            going.erase(going.begin() + static_cast<std::ptrdiff_t>(place));
        }
    }
    for (const std::unique_ptr<Collective> &last : going) {
        last->wait();
    }
}

// After this, every thread and every link exists that a process keeps.
void Worker::touch_all() {
    Chance chance(1);
    for (muster_group_t *group : {muster_world(life_.cluster), muster_universe(life_.cluster)}) {
        for (const Kind kind : {Kind::kAlltoall, Kind::kAllreduce}) {
            const Spec spec{kind, MUSTER_INT32, MUSTER_SUM, 0, 5, std::vector<std::size_t>(life_.options.ranks, 5), true, 1};
            Collective collective(life_, group, "a built-in group", spec, ops_, chance);
            collective.start();
            collective.wait();
        }
        for (int by = 1; by < life_.options.ranks; by++) {
            const int to = (life_.rank + by) % life_.options.ranks, from = (life_.rank + life_.options.ranks - by) % life_.options.ranks;
            life_.make("sendrecv with all", [&] {
                return muster_sendrecv(group, nullptr, 0, MUSTER_UINT8, to, 0, nullptr, 0, MUSTER_UINT8, from, 0, nullptr, 0);
            }, group);
        }
        // In memory a rank opens a link to a peer when it first sleeps for it. So each rank is late once.
        for (int late = 0; late < life_.options.ranks; late++) {
            if (late == life_.rank) {
                ::usleep(kLateUs);
            }
            const std::int32_t one = 1;
            std::int32_t sum = 0;
            life_.make("allreduce for which one is late", [&] {
                return muster_allreduce(group, &one, &sum, 1, MUSTER_INT32, MUSTER_SUM);
            }, group);
        }
    }
}

void Worker::census() {
    touch_all();
    const std::int64_t until = now_ns() + static_cast<std::int64_t>(kSettled * 1e9);
    if (life_.plants("leak")) {
        for (int time = 0; time < 8; time++) {
            static_cast<void>(::dup(0));
        }
    }
    if (descriptors_bare_ == 0) {
        descriptors_bare_ = own_descriptors() + kMoreDescriptors;
        threads_bare_ = own_threads() + kMoreThreads;
    }
    while (own_descriptors() > descriptors_bare_ || own_threads() > threads_bare_) {
        if (now_ns() > until) {
            life_.violate("with no group but the built-in ones there are " + std::to_string(own_descriptors()) +
                          " descriptors and " + std::to_string(own_threads()) + " threads; " +
                          std::to_string(descriptors_bare_) + " and " + std::to_string(threads_bare_) +
                          " are what its first such step had, and some more");
        }
        ::usleep(20'000);
    }
}

// Faults of the storm's own, which test its checks.
void Worker::plant() {
    if (life_.plants("hang")) {
        life_.attempt("a planted call", [&] {
            ::sleep(static_cast<unsigned>(life_.options.limit_s) + 30);
            return MUSTER_OK;
        });
    }
    if (life_.plants("log")) {
        std::fprintf(stderr, "a thread panicked, as planted\n");
    }
    if (life_.plants("orphan") && ::fork() == 0) {
        ::setsid();
        ::sleep(120);
        ::_exit(0);
    }
}

// Nobody leaves before all know that all have finished. A process that is lost before that finds the others waiting.
void Worker::finish() {
    life_.enter(Phase::kFinishing);
    life_.make("the barrier before the last check", [&] { return muster_barrier(life_.world()); }, life_.world());
    check_store(life_);
    life_.make("the barrier after the last check", [&] { return muster_barrier(life_.world()); }, life_.world());
    life_.slot.finished = 1;
    life_.make("the last barrier", [&] { return muster_barrier(life_.world()); }, life_.world());
}

bool Worker::recover() {
    Chance chance(key_of(life_.options.seed, 6, life_.rank, life_.slot.recoveries.load()));
    life_.enter(Phase::kRecovering);
    if (life_.abandoned) {  // nothing mends that: all are to know
        life_.settle("muster_abort", [this] { muster_abort(life_.cluster, kTold, "there is no scheduler any more"); });
        team_.join();
        exit_ = kTold;
        return false;
    }
    life_.mending = true;
    while (true) {
        const bool last = life_.slot.finished != 0 && life_.all_have_finished();
        const std::int64_t patience_ms = last ? kLastPatienceMs : chance.one_in(4) ? chance.whole(100) : -1;
        const muster_status_t status =
            life_.insist("muster_recover", [&] { return muster_recover(life_.cluster, patience_ms); }, kRecoverLimit);
        if (status == MUSTER_ERR_TIMEOUT && patience_ms >= 0 && !last) {
            continue;
        }
        if (status != MUSTER_OK && !is_explained(status, last)) {
            life_.judge("muster_recover", status);
        }
        team_.join();
        if (status != MUSTER_OK) {
            const bool is_told = status == MUSTER_ERR_PEER_LOST || status == MUSTER_ERR_ABORTED;
            exit_ = status == MUSTER_ERR_FENCED ? kFenced : is_told ? kTold : kDone;
            return false;
        }
        break;
    }
    if (muster_epoch(life_.cluster) <= life_.epoch) {
        life_.violate("muster_recover has led from epoch " + std::to_string(life_.epoch) + " to " +
                      std::to_string(muster_epoch(life_.cluster)));
    }
    set_epoch();
    life_.slot.recoveries++;
    life_.broken = false;
    life_.mending = false;
    return true;
}

// If all have finished, the others may have left.
bool Worker::is_explained(muster_status_t status, bool last) const {
    return last && (status == MUSTER_ERR_TIMEOUT || status == MUSTER_ERR_PEER_LEFT || status == MUSTER_ERR_UNREACHABLE);
}

int Worker::leave() {
    life_.enter(Phase::kLeaving);
    groups_.clear();
    if (exit_ != kFenced) {
        const muster_status_t status =
            life_.insist("muster_finalize", [&] { return muster_finalize(life_.cluster); });
        if (status != MUSTER_OK) {
            life_.violate(std::string("muster_finalize: ") + muster_last_error());
        }
    }
    life_.settle("muster_cluster_free", [&] { muster_cluster_free(life_.cluster); });
    // The kernel says that a thread has ended just before it takes it out of the list.
    for (int time = 0; time < kDelisted && own_threads() != threads_before_; time++) {
        ::usleep(10'000);
    }
    if (own_threads() != threads_before_ || own_descriptors() != descriptors_before_) {
        life_.violate("after the last handle there are " + std::to_string(own_threads()) + " threads and " +
                      std::to_string(own_descriptors()) + " descriptors; before muster_init there were " +
                      std::to_string(threads_before_) + " and " + std::to_string(descriptors_before_));
    }
    life_.enter(Phase::kLeft);
    return life_.plants("exit") ? 9 : exit_;
}
