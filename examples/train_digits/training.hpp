// Data-parallel training: in every step each rank takes its part of one global batch, and the gradients of all are
// averaged. Whatever the number of ranks, the batches are the same, and so is the loss curve.
#pragma once

#include "cluster.hpp"
#include "data.hpp"
#include "model.hpp"
#include "options.hpp"

#include <cstddef>
#include <vector>

class Trainer {
public:
    Trainer(Cluster &cluster, const Images &images, const Options &options);

    // One pass over all images; prints the loss of every tenth step: that of the global batch, or, without sync, that
    // of this rank's part.
    void train_epoch(std::size_t epoch);

    Model &model() { return model_; }

    // How many images this rank has trained on, repetitions counted.
    std::size_t samples_used() const { return samples_used_; }

private:
    // Trains on order_[begin, end), the global batch, and returns its mean loss (without sync: its part's).
    float step(std::size_t begin, std::size_t end);
    void shuffle(std::size_t epoch);

    Cluster &cluster_;
    const Images &images_;
    const Options &options_;
    Model model_;
    std::vector<std::size_t> order_;  // of the images, in this epoch; the same on all ranks
    std::vector<float> gradient_;     // one value per weight, then the loss and the number of images
    std::vector<float> velocity_;
    std::size_t samples_used_ = 0;
};
