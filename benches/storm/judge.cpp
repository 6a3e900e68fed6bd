// The errors with which a call may fail, after the blows that the driver has struck so far.
#include "life.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace {

// Whether the driver had begun to strike this process, or the scheduler. It writes that down before it strikes.
bool is_struck(const std::string &folder, std::int64_t pid, const std::string &whom = "") {
    std::ifstream blows(folder + "/blows");
    std::string line;
    while (std::getline(blows, line)) {
        std::istringstream words(line);
        std::int64_t ns = 0, struck = 0;
        std::string kind, target;
        if (words >> ns >> kind >> target >> struck && (struck == pid || target == whom)) {
            return true;
        }
    }
    return false;
}

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// The process that a sentence names first; 0 if it names none.
std::int64_t pid_in(const std::string &sentence) {
    const std::size_t at = sentence.find(", pid ");
    return at == std::string::npos ? 0 : std::atoll(sentence.c_str() + at + 6);
}

std::string told(const muster_failure_t &failure) {
    std::ostringstream words;
    words << muster_status_string(failure.status) << ", rank " << failure.rank << ", pid " << failure.pid << ", epoch "
          << failure.epoch << ", group " << failure.group << ", #" << failure.sequence << ": " << failure.cause;
    return words.str();
}

}  // namespace

void Life::judge(const std::string &what, muster_status_t status, muster_group_t *group) {
    const std::int64_t ns = now_ns();
    const std::string sentence = muster_last_error();
    muster_failure_t failure{};
    failure.rank = -1;
    const muster_status_t found = group == nullptr ? muster_failure(cluster, &failure, sizeof failure)
                                                   : muster_group_failure(group, &failure, sizeof failure);
    const bool known = found == MUSTER_OK;
    slot.errors++;
    const std::string all = what + " gave " + muster_status_string(status) + ", \"" + sentence + "\"; " +
                            (group == nullptr ? "muster_failure: " : "muster_group_failure: ") +
                            (known ? told(failure) : "nothing");
    note("errors", std::to_string(ns) + " " + std::to_string(rank) + " " + std::to_string(::getpid()) + " " +
                       std::to_string(epoch) + " " + std::to_string(status) + " " + std::to_string(pid_in(sentence)) + " " +
                       all);
    switch (status) {
    case MUSTER_ERR_PEER_LOST:
        if (!is_struck(options.folder, pid_in(sentence))) {
            violate("somebody is called lost whom nobody struck: " + all);
        }
        if (!mending && (!known || failure.status != status || failure.pid != pid_in(sentence) ||
                         !contains(sentence, failure.cause))) {
            violate("the sentence and the struct tell different causes: " + all);
        }
        return;
    case MUSTER_ERR_REVOKED:
        if (!contains(sentence, "called muster_recover")) {
            violate("a revocation tells no cause: " + all);
        }
        return;
    case MUSTER_ERR_FENCED:
        if (!is_struck(options.folder, ::getpid())) {
            violate("this process was given up, and nobody had struck it: " + all);
        }
        return;
    case MUSTER_ERR_PEER_LEFT:
        if (slot.finished != 0) {
            return;
        }
        break;
    case MUSTER_ERR_UNREACHABLE:
        if (!options.recovery && contains(sentence, "without recovery") && is_struck(options.folder, 0, "scheduler")) {
            abandoned = true;
            return;
        }
        if (slot.finished != 0) {
            return;
        }
        break;
    case MUSTER_ERR_ABORTED:  // by one that has found out that there is no scheduler any more
        if (!options.recovery && is_struck(options.folder, 0, "scheduler")) {
            return;
        }
        break;
    default:
        break;
    }
    violate("a call failed with what no blow explains: " + all);
}
