#include "life.hpp"

#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

thread_local int own_place = kMain;

Life::Life(const Options &options, int rank)
    : options(options), ledger(open_ledger(options.folder)), slot(ledger.slots[rank]), rank(rank) {}

bool Life::all_have_finished() const {
    for (int other = 0; other < options.ranks; other++) {
        if (ledger.slots[other].finished == 0) {
            return false;
        }
    }
    return true;
}

// Halfway, in a life that has time for it.
bool Life::plants(const char *fault) const {
    return options.plant == fault && rank == options.ranks - 1 && step >= options.steps / 2;
}

muster_status_t Life::attempt(const std::string &what, const std::function<muster_status_t()> &call, double limit_s) {
    if (broken) {
        throw CallFailed{MUSTER_ERR_STATE};
    }
    return insist(what, call, limit_s);
}

void Life::settle(const std::string &what, const std::function<void()> &call) {
    const auto ended = [&] {
        call();
        return MUSTER_OK;
    };
    insist(what, ended);
}

muster_status_t Life::insist(const std::string &what, const std::function<muster_status_t()> &call, double limit_s) {
    CallNote &note = slot.calls[own_place];
    const double limit = limit_s > 0 ? limit_s : options.limit_s;
    const std::int64_t since = now_ns();
    std::snprintf(note.what, sizeof note.what, "%s", what.c_str());
    note.limit_ns = static_cast<std::int64_t>(limit * 1e9);
    note.since_ns = since;
    const muster_status_t status = call();
    note.since_ns = 0;
    const double took = static_cast<double>(now_ns() - since) / 1e9;
    if (took > limit) {
        violate(what + " took " + std::to_string(took) + " s, which is more than " + std::to_string(limit));
    }
    return status;
}

void Life::make(const std::string &what, const std::function<muster_status_t()> &call, muster_group_t *group) {
    const muster_status_t status = attempt(what, call);
    if (status != MUSTER_OK) {
        judge(what, status, group);
        throw CallFailed{status};
    }
}

void Life::violate(const std::string &words) const {
    const std::string line = "rank " + std::to_string(rank) + " (pid " + std::to_string(::getpid()) + "), epoch " +
                             std::to_string(epoch) + ", step " + std::to_string(step) + ": " + words;
    note("violations", line);
    std::fprintf(stderr, "violation: %s\n", line.c_str());
    ::_exit(kViolation);
}

void Life::note(const char *file, const std::string &line) const {
    const std::string path = options.folder + "/" + file, whole = line + "\n";
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0 || ::write(descriptor, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) {
        std::perror(path.c_str());
    }
    ::close(descriptor);
}
