// A whole cluster in one process, as nodes.h makes it, by the C++ interface: a scheduler, and a thread for each worker.
#ifndef NODES_HPP
#define NODES_HPP

#include "check.h"

#include <muster.hpp>

#include <string>
#include <thread>
#include <vector>

// A call that must succeed, in files of both kinds.
#ifdef MUSTER_NO_EXCEPTIONS
#define MUST(call) ((call).value())
#else
#define MUST(call) (call)
#endif

inline muster::config settings(int workers) {
    muster::config config = MUST(muster::config::create());
    MUST(config.set("worker_num", workers));
    MUST(config.set("cluster_timeout", 60 * patience()));
    MUST(config.set("node_timeout", 5 * patience()));
    MUST(config.set("sched_host", "127.0.0.1"));
    return config;
}

inline std::string port_of(const muster::scheduler &scheduler) {
    const std::string address = MUST(scheduler.address());
    return address.substr(address.rfind(':') + 1);
}

inline muster::cluster join(int workers, const std::string &port, int rank) {
    muster::config config = settings(workers);
    MUST(config.set("role", "MS_WORKER"));
    MUST(config.set("sched_port", port));
    MUST(config.set("node_id", rank));
    muster::cluster cluster = MUST(muster::init(config));
    CHECK(static_cast<bool>(cluster));
    return cluster;
}

// Runs `body(cluster, rank)` in each worker. The scheduler must see the job end well, unless the body breaks it.
template <class Body> void run_workers(int workers, Body body, muster::status ends = muster::status::ok) {
    muster::scheduler scheduler = MUST(muster::scheduler::start(settings(workers)));
    const std::string port = port_of(scheduler);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; rank++) {
        threads.emplace_back([&, rank] {
            muster::cluster cluster = join(workers, port, rank);
            body(cluster, rank);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK_IS(ends, muster_scheduler_wait(scheduler.get(), 20000 * patience()));
}

#endif
