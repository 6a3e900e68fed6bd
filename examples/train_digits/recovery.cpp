#include "recovery.hpp"

#include "data.hpp"
#include "model.hpp"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace {

constexpr std::int64_t kNone = -1;
constexpr unsigned kChildSeconds = 300;

// A number that tells a training by so many ranks from others: everything that its result depends on is in it.
std::uint64_t training_of(const Options &options, int ranks) {
    char numbers[200];
    std::snprintf(numbers, sizeof numbers,
                  "%d ranks, %zu epochs, batch %zu in %zu parts%s, hidden %zu, rate %a, momentum %a, data ", ranks, options.epochs,
                  options.batch, options.micro_batches, options.exact ? ", exact" : "", options.hidden,
                  static_cast<double>(options.learning_rate), static_cast<double>(options.momentum));
    const std::string text = numbers + (options.data.empty() ? default_data_path() : options.data);
    return hash_of(text.data(), text.size());
}

std::int64_t step_of(const std::optional<TrainingState> &state) {
    return state ? static_cast<std::int64_t>(state->step) : kNone;
}

// A child process that shares all open files with this one, and lives on when this one is killed. It must not hide that.
void leave_child_behind(const Trace &trace) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::setsid();
        ::sleep(kChildSeconds);
        ::_exit(0);
    }
    trace.line("child", child);
}

std::optional<int> number(const muster::config &config, const char *key) {
    const std::string digits = config.get(key).value_or("");
    if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) {
        return std::nullopt;
    }
    return std::stoi(digits);
}

// Somebody was lost, or a connection was: recover() makes the cluster whole again.
bool is_interruption(const muster::error &error) {
    return error.code() == muster::status::peer_lost || error.code() == muster::status::revoked ||
           error.code() == muster::status::link || error.code() == muster::status::corrupt ||
           error.code() == muster::status::timeout;
}

}  // namespace

std::optional<Place> announced_place() {
    const muster::config environment = muster::config::from_environment();
    std::optional<int> rank = number(environment, "rank_id");
    rank = rank ? rank : number(environment, "node_id");
    const std::optional<int> size = number(environment, "worker_num");
    return rank && size ? std::optional<Place>({*rank, *size}) : std::nullopt;
}

bool is_too_late(const muster::error &error) {
    return error.code() == muster::status::peer_left || error.code() == muster::status::rejected ||
           error.code() == muster::status::timeout || error.code() == muster::status::unreachable;
}

Recovery::Recovery(muster::cluster &cluster, Trainer &trainer, const Options &options, Trace &trace)
    : cluster_(cluster),
      trainer_(trainer),
      options_(options),
      trace_(trace),
      checkpoints_(options.checkpoint, cluster.rank(), training_of(options, cluster.size()), options.keep) {}

bool Recovery::had_finished(const Options &options) {
    const std::optional<Place> place = announced_place();
    if (options.checkpoint.empty() || !place) {
        return false;
    }
    Checkpoints own(options.checkpoint, place->rank, training_of(options, place->size), options.keep);
    const std::optional<TrainingState> newest = own.newest();
    return newest && newest->finished;
}

void Recovery::run(const std::function<void()> &conclude) {
    while (true) {
        try {
            go_back();
            train();
            finish(conclude);
            return;
        } catch (const muster::error &error) {
            std::fprintf(stderr, "train_digits: rank %d, step %zu: %s\n", cluster_.rank(), trainer_.steps_done(), error.what());
            trace_.line("lost", static_cast<std::int64_t>(error.code()));
            if (finished_ && is_too_late(error)) {
                return;
            }
            if (!is_interruption(error)) {
                throw;
            }
        }
        try {
            cluster_.recover(finished_ ? kLastPatience : muster::usual_timeout);
            trace_.line("recovered", cluster_.epoch());
        } catch (const muster::error &error) {
            if (finished_ && is_too_late(error)) {
                return;  // a rank that had finished was lost while leaving, or has left
            }
            throw;
        }
    }
}

// All ranks go to the newest step of which each has a sound checkpoint; where nobody has any, to the beginning.
void Recovery::go_back() {
    std::optional<TrainingState> own = checkpoints_.newest();
    const std::int64_t newest = step_of(own);
    std::int64_t agreed = cluster_.world().allreduce(newest, muster::op::min);
    while (agreed != kNone) {
        own = checkpoints_.newest(agreed);
        const std::int64_t common = cluster_.world().allreduce(step_of(own), muster::op::min);
        if (common == agreed) {
            break;
        }
        agreed = common;  // somebody's checkpoint of that step is damaged: all look for one before it
    }
    trace_.line("agreed", agreed);
    if (agreed == kNone) {
        if (newest > 0) {
            throw std::runtime_error("rank " + std::to_string(cluster_.rank()) + " has a checkpoint of step " +
                                     std::to_string(newest) + " in " + options_.checkpoint +
                                     ", but the ranks have none in common: files were lost. Remove all to begin anew");
        }
        trainer_.begin();
        save(false);
        return;
    }
    if (newest > agreed + static_cast<std::int64_t>(options_.checkpoint_interval)) {
        std::fprintf(stderr, "train_digits: rank %d goes back from step %" PRId64 " to %" PRId64
                     ", by more than one interval: others have no newer checkpoint that is sound\n",
                     cluster_.rank(), newest, agreed);
    }
    trainer_.go_to(*own);
    finished_ = own->finished;
    std::printf("rank %d goes on from step %" PRId64 "\n", cluster_.rank(), agreed);
}

void Recovery::train() {
    while (!trainer_.is_done()) {
        trainer_.step();
        trace_.line("step", static_cast<std::int64_t>(trainer_.steps_done()));
        if (options_.fork_child == cluster_.rank() && !has_child_) {
            leave_child_behind(trace_);
            has_child_ = true;
        }
        if (trainer_.steps_done() % options_.checkpoint_interval == 0 || trainer_.is_done()) {
            save(false);
        }
    }
}

// Nobody leaves before all know that all have finished. A process that is lost before that finds the others waiting when it is
// started again. One that is lost later is told then that it was the end.
void Recovery::finish(const std::function<void()> &conclude) {
    trace_.line("finishing");
    conclude();  // so all have saved their last step
    save(true);
    finished_ = true;
    trace_.line("finished");
    cluster_.world().barrier();
}

void Recovery::save(bool finished) {
    TrainingState state = trainer_.state();
    state.finished = finished;
    trace_.line("saving", static_cast<std::int64_t>(state.step));
    checkpoints_.save(state);
    trace_.line("saved", static_cast<std::int64_t>(state.step));
}
