// Checkpoints of one rank: a file per step in a folder, of which the newest few are kept.
//
// A file that is there under its name is whole: it is written under another name, synced, and renamed, and then the folder
// is synced. It has a checksum all the same, and says which training it belongs to. A file that is damaged, or belongs to
// another rank, another training or another version, is reported and never loaded, nor removed.
//
// How many must be kept: a rank that has the checkpoint of step N * interval took part in the allreduce of that step. So
// did all ranks, and they save the checkpoint before it first. So the newest checkpoints of two ranks are one interval
// apart at most, and with two files each all have the older of the two. A third one is there for the day on which one of
// these is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

// All that the steps to come depend on. The order of the data does not stand here: it follows from the step.
struct TrainingState {
    std::uint64_t step = 0;          // steps done
    std::uint64_t samples_used = 0;  // by this rank
    bool finished = false;           // every rank has done, and saved, the last step
    std::vector<float> weights;
    std::vector<float> velocity;
};

class Checkpoints {
public:
    static constexpr std::size_t kKeptAtLeast = 2;

    // The checkpoints of `rank` in this folder, which is made if it is missing. `training` is a number that tells this
    // training from others. Warnings go to standard error.
    Checkpoints(const std::string &folder, int rank, std::uint64_t training, std::size_t kept);

    // The newest sound checkpoint; with a limit, the newest of that step or an earlier one.
    std::optional<TrainingState> newest(std::optional<std::uint64_t> limit = std::nullopt);

    // Returns when the checkpoint is on the disk, then removes checkpoints that are older than the newest few. Throws
    // std::runtime_error with the path if that fails.
    void save(const TrainingState &state);

    // The file's path, such as rank-0-step-1200.ckpt in the folder.
    std::string path_of(std::uint64_t step) const;

private:
    std::optional<TrainingState> load(std::uint64_t step) const;
    void look();

    std::string folder_;
    int rank_;
    std::uint64_t training_;
    std::size_t kept_;
    std::set<std::uint64_t> steps_;  // of the sound ones
};

// Replaces the file, or makes it: whole or not at all, whatever happens meanwhile, and on the disk when this returns.
// Throws std::runtime_error with the path and what is wrong.
void write_whole(const std::string &path, const std::string &bytes);
