// muster.hpp: what becomes of requests that are waited for, moved, and given up, and of clusters that are left by an exception.
// None of it takes anywhere near the group's time-out, which here is the usual half hour.
#include "nodes.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <future>
#include <stdexcept>
#include <vector>

#include <poll.h>

namespace {

constexpr int kSize = 2;
constexpr std::size_t kBig = 4 << 20;
// A limit for what takes a fraction of a second where processors are free.
const std::chrono::seconds kSoon(60 * patience());

class Watch {
public:
    ~Watch() { CHECK(std::chrono::steady_clock::now() - begin_ < kSoon); }

private:
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

template <class Call> void aborts(const char *words, Call call) {
    try {
        call();
    } catch (const muster::error &error) {
        CHECK(error.code() == muster::status::aborted);
        CHECK_CONTAINS(error.what(), words);
        return;
    }
    check_failed(__FILE__, __LINE__, "it must fail");
}

template <class Call> void interrupts(Call call) {
    try {
        call();
    } catch (const muster::error &error) {
        CHECK(error.code() == muster::status::interrupted);
        return;
    }
    check_failed(__FILE__, __LINE__, "it must be interrupted");
}

// Waiting ends the wait only; then the operation ends.
void waited_for(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    const muster::store store = cluster.store();
    if (rank == 0) {
        muster::request request = world.ibarrier();
        CHECK(!request.test());
        CHECK(!request.wait_for(std::chrono::milliseconds(20)));
        // What remains of some time may be less than nothing: -1 ms is not the operation's own time here.
        CHECK(!request.wait_for(-std::chrono::milliseconds(1)) && !request.wait_for(std::chrono::seconds::min()));
        store.set("go", "");
        request.wait();
        CHECK(request.test() && request.wait_for(muster::no_limit) && request.wait_for(std::chrono::hours::max()));
    } else {
        store.get("go");
        world.ibarrier().wait();
    }
}

// A request whose operation has ended is freed, and nothing is cancelled, however it is destroyed.
void ended(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    std::vector<float> values(kBig, static_cast<float>(rank));
    std::vector<muster::request> many;
    many.push_back(world.iallreduce(values));
    for (int i = 0; i < 20; i++) {
        many.push_back(world.ibarrier());  // the vector grows, and moves them
    }
    many.back().wait();  // so all before it have ended
    many.clear();
    CHECK(values[0] == 1 && values[kBig - 1] == 1);
    muster::request request = world.ibarrier();
    request.wait();
    request = world.ibarrier();  // the one before has ended
    request.wait();
    request = muster::request();
    CHECK(!request);
    world.barrier();  // nothing was revoked
}

// The destructor of a collective that goes on cancels it: the buffer is free, and the other rank learns of it.
void given_up(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    if (rank == 1) {
        cluster.store().get("given up");
        aborts("rank 0", [&] { world.barrier(); });
        return;
    }
    const Watch watch;
    {
        std::vector<float> values(kBig, 1);
        const muster::request request = world.iallreduce(values);
        // The other rank does not call it. Here its buffer goes, and before that the request.
    }
    cluster.store().set("given up", "");
    aborts("rank 0", [&] { world.barrier(); });
}

// The same happens if another request takes its place, and if an exception goes by.
void replaced(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    if (rank == 1) {
        cluster.store().get("replaced");
        aborts("rank 0", [&] { world.barrier(); });
        return;
    }
    const Watch watch;
    muster::request request = world.ibarrier();
    request = muster::request();
    cluster.store().set("replaced", "");
    aborts("rank 0", [&] { world.barrier(); });
}

void thrown(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    if (rank == 1) {
        cluster.store().get("thrown");
        aborts("rank 0", [&] { world.barrier(); });
        return;
    }
    const Watch watch;
    try {
        int number = 0;
        const muster::request received = world.irecv(muster::one(number), 1, 5);
        std::vector<double> values(1000);
        const muster::request first = world.iallreduce(values), second = world.ibarrier();
        throw std::runtime_error("the program's own");
    } catch (const std::runtime_error &error) {
        CHECK_CONTAINS(error.what(), "own");
    }
    cluster.store().set("thrown", "");
    aborts("rank 0", [&] { world.barrier(); });
}

// A message ends alone: the group goes on, and the next receive gets what comes. One that has met its other half ends as it
// would.
void messages(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    std::vector<std::int32_t> values(kBig, rank);
    if (rank == 0) {
        const Watch watch;
        { const muster::request nobody_sends = world.irecv(values, 1, 9); }
        { const muster::request nobody_receives = world.isend(values, 1, 9); }
        CHECK(values[0] == 0);
        world.barrier();
        muster::request coming = world.irecv(values, 1, 3);
        CHECK(coming.wait_for(kSoon) && values[kBig - 1] == 1);
    } else {
        world.barrier();
        const muster::request going = world.isend(values, 0, 3);
        std::int32_t other = 0;
        world.recv(muster::one(other), 0, 4);  // by then it has arrived, or is on its way
    }
    if (rank == 0) {
        world.send(muster::one(rank), 1, 4);
    }
    world.barrier();
}

void cancelled(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    if (rank == 1) {
        cluster.store().get("cancelled");  // a barrier in which both are may end before it is cancelled
        aborts("rank 0", [&] { world.barrier(); });
        return;
    }
    muster::request request = world.ibarrier();
    request.cancel();
    cluster.store().set("cancelled", "");
    aborts("cancelled", [&] { request.wait(); });
    aborts("cancelled", [&] { static_cast<void>(request.test()); });
}

// Makes a call that waits for good, while another thread interrupts what waits at that moment.
template <class Call> void interrupted_call(const muster::cluster &cluster, Call call) {
    std::atomic<bool> is_enough = false;
    std::thread other([&] {
        while (!is_enough) {
            cluster.interrupt();
            std::this_thread::yield();
        }
    });
    interrupts(call);
    is_enough = true;
    other.join();
}

// Several at a time, and word of the end for programs with a loop of their own.
void several(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    std::int32_t here = -1, there = -1;
    std::vector<muster::request> requests;
    requests.push_back(world.irecv(muster::one(here), 1 - rank, 1));
    requests.emplace_back();  // empty ones are passed over
    requests.push_back(world.irecv(muster::one(there), 1 - rank, 2));
    CHECK(!muster::wait_any(requests, std::chrono::milliseconds(1)) && !muster::wait_all(requests, std::chrono::milliseconds(1)));
    const std::chrono::nanoseconds over(-1);
    CHECK(!muster::wait_any(requests, over) && !muster::wait_all(requests, over));
    std::promise<muster::status> told;
    requests[2].notify([&told](muster::status code) { told.set_value(code); });
    pollfd watched{requests[2].descriptor(), POLLIN, 0};
    CHECK(poll(&watched, 1, 0) == 0);
    world.barrier();  // now the other rank may send
    world.send(muster::one(rank), 1 - rank, 2);
    CHECK(muster::wait_any(requests) == 2 && told.get_future().get() == muster::status::ok && there == 1 - rank);
    CHECK(poll(&watched, 1, -1) == 1);
    world.barrier();
    world.send(muster::one(rank), 1 - rank, 1);
    CHECK(muster::wait_all(requests) && here == 1 - rank);
    requests.clear();
    {
        muster::request given_up = world.irecv(muster::one(here), 1 - rank, 3);
        given_up.notify([&here](muster::status code) { here = code == muster::status::aborted ? 77 : 0; });
    }
    CHECK(here == 77);  // the destructor has waited for it
    world.barrier();    // neither leaves before that: then the other's would have ended by it
}

// An interrupted wait leaves its request as it is; an interrupted collective is cancelled.
void interrupted(muster::cluster &cluster, int rank) {
    const muster::group world = cluster.world();
    const muster::store store = cluster.store();
    if (rank == 1) {
        store.get("first");
        world.barrier();
        store.set("returned", "");  // or the interruption might end this barrier, too
        store.get("second");
        aborts("rank 0", [&] { world.barrier(); });
        return;
    }
    muster::request request = world.ibarrier();
    interrupted_call(cluster, [&] { request.wait(); });
    CHECK(!request.test());
    store.set("first", "");
    request.wait();
    store.get("returned");
    interrupted_call(cluster, [&] { world.barrier(); });
    store.set("second", "");
    aborts("rank 0", [&] { world.barrier(); });
}

// How long a wait is to take, as the library has it.
void durations() {
    using namespace std::chrono;
    const auto waiting = [](auto timeout) { return muster::detail::waiting(timeout); };
    CHECK(waiting(milliseconds(-1)) == 0 && waiting(nanoseconds(-1)) == 0 && waiting(hours::min()) == 0);
    CHECK(waiting(duration<float>(-1)) == 0 && waiting(duration<double>(NAN)) == 0 && waiting(seconds(0)) == 0);
    CHECK(waiting(nanoseconds(1)) == 1 && waiting(microseconds(2001)) == 3 && waiting(minutes(1)) == 60000);
    CHECK(waiting(duration<double>(0.0015)) == 2 && waiting(nanoseconds::max()) == 9223372036855);
    CHECK(waiting(muster::no_limit) == INT64_MAX && waiting(milliseconds::max() - milliseconds(1)) == INT64_MAX - 1);
    CHECK(waiting(hours::max()) == INT64_MAX && waiting(duration<double>(1e300)) == INT64_MAX);
}

std::atomic<bool> must_end = false;

// The hook ends init, which here waits for somebody that does not come.
void ended_by_a_hook() {
    const Watch watch;
    muster::scheduler scheduler = muster::scheduler::start(settings(2));
    muster::config config = settings(2);
    config.set("role", "MS_WORKER");
    config.set("sched_port", port_of(scheduler));
    config.set_interrupt([]() noexcept { return must_end.load(); });
    std::thread other([] { must_end = true; });
    interrupts([&] { static_cast<void>(muster::init(config)); });
    other.join();
    config.set_interrupt(nullptr);
    scheduler.stop();
}

// Requests and groups may outlive their cluster.
void outliving() {
    const Watch watch;
    muster::scheduler scheduler = muster::scheduler::start(settings(2));
    const std::string port = port_of(scheduler);
    std::thread other([&] {
        muster::cluster cluster = join(2, port, 1);
        const muster::owned_group half = cluster.world().split(0, 0);
        cluster.store().get("begun");
    });
    muster::owned_group kept;
    muster::request request;
    {
        muster::cluster cluster = join(2, port, 0);
        kept = cluster.world().split(0, 0);
        request = kept.ibarrier();
        cluster.store().set("begun", "");
    }
    other.join();
    try {
        request.wait();
        check_failed(__FILE__, __LINE__, "nobody else was in the barrier");
    } catch (const muster::error &error) {
        CHECK(error.code() == muster::status::peer_left || error.code() == muster::status::state);
    }
    scheduler.wait();
}

// If an exception leaves the cluster's scope, the others see this node as lost. An exception that is caught inside means
// nothing to them.
void left_by_an_exception() {
    const Watch watch;
    muster::scheduler scheduler = muster::scheduler::start(settings(2));
    const std::string port = port_of(scheduler);
    std::thread other([&] {
        muster::cluster cluster = join(2, port, 1);
        try {
            cluster.world().barrier();
            check_failed(__FILE__, __LINE__, "it was not called by the other");
        } catch (const muster::error &error) {
            CHECK(error.code() == muster::status::peer_lost);
            CHECK_CONTAINS(error.what(), "rank 0");
        }
    });
    try {
        const muster::cluster cluster = join(2, port, 0);
        try {
            throw std::runtime_error("caught inside");
        } catch (const std::runtime_error &) {
        }
        throw std::runtime_error("the program's own");
    } catch (const std::runtime_error &error) {
        CHECK_CONTAINS(error.what(), "own");
    }
    other.join();
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_scheduler_wait(scheduler.get(), 20000 * patience()));
}

// A cluster that is made while an exception is on its way is left in order all the same.
class WorksWhenItGoes {
public:
    ~WorksWhenItGoes() {
        muster::scheduler scheduler = muster::scheduler::start(settings(2));
        const std::string port = port_of(scheduler);
        std::thread other([&] { CHECK(join(2, port, 1).world().allreduce(1) == 1); });
        {
            const muster::cluster cluster = join(2, port, 0);
            CHECK(std::uncaught_exceptions() == 1 && cluster.world().allreduce(0) == 1);
        }
        other.join();
        scheduler.wait();
    }
};

void within_an_unwinding() {
    try {
        const WorksWhenItGoes guard;
        throw std::runtime_error("on its way");
    } catch (const std::runtime_error &) {
    }
}

}  // namespace

int main() {
    static_assert(std::is_nothrow_move_constructible_v<muster::request> && !std::is_copy_constructible_v<muster::request>);
    static_assert(std::is_nothrow_move_assignable_v<muster::owned_group> && !std::is_copy_constructible_v<muster::owned_group>);
    static_assert(!std::is_copy_constructible_v<muster::cluster> && !std::is_copy_constructible_v<muster::config>);
    static_assert(std::is_trivially_copyable_v<muster::group>);
    durations();
    run_workers(kSize, waited_for);
    run_workers(kSize, ended);
    run_workers(kSize, given_up);
    run_workers(kSize, replaced);
    run_workers(kSize, thrown);
    run_workers(kSize, messages);
    run_workers(kSize, cancelled);
    run_workers(kSize, several);
    run_workers(kSize, interrupted);
    ended_by_a_hook();
    outliving();
    left_by_an_exception();
    within_an_unwinding();
    return 0;
}
