// Data-parallel training: in every step each rank takes its part of one global batch, and the gradients of all are
// averaged. Whatever the number of ranks, the batches are the same, and so is the loss curve. With options.exact the
// weights are the same, too, to the last bit. Then the sum is one of micro-batches, which do not depend on the number of
// ranks, and rounding does not depend on the order of the sum.
#pragma once

#include "checkpoint.hpp"
#include "data.hpp"
#include "model.hpp"
#include "options.hpp"

#include <muster.hpp>

#include <cstddef>
#include <vector>

class Trainer {
public:
    Trainer(const muster::cluster &cluster, const Images &images, const Options &options);

    // All ranks go to the beginning, with rank 0's first weights.
    void begin();

    // This rank goes to where it was; the caller must see to it that the others do so, too. Throws std::runtime_error if
    // the state is that of another model.
    void go_to(const TrainingState &state);

    // Trains on the next global batch; prints the loss of every tenth one of an epoch: that of the whole batch, or, without
    // sync, that of this rank's part.
    void step();

    std::size_t steps_done() const { return steps_done_; }
    bool is_done() const { return steps_done_ == options_.epochs * steps_per_epoch_; }

    // Where this rank is.
    TrainingState state() const { return {steps_done_, samples_used_, false, model_.weights, velocity_}; }

    Model &model() { return model_; }

    // How many images this rank has trained on, repetitions counted.
    std::size_t samples_used() const { return samples_used_; }

private:
    // Trains on order_[begin, end), the global batch, and returns its mean loss (without sync: its part's).
    float train(std::size_t begin, std::size_t end);
    // Adds the gradient of order_[begin, end), its loss and its number of images to `sums`.
    void add_gradients(std::size_t begin, std::size_t end, float *sums);
    void shuffle(std::size_t epoch);

    const muster::cluster &cluster_;
    const Images &images_;
    const Options &options_;
    const std::size_t steps_per_epoch_;
    Model model_;
    std::vector<std::size_t> order_;  // of the images, in this epoch; the same on all ranks
    std::vector<float> addends_;      // this rank's, each like gradient_: one, or, where sums are exact, one per micro-batch
    std::vector<float> gradient_;     // one value per weight, then the loss and the number of images
    std::vector<float> velocity_;
    std::size_t steps_done_ = 0;
    std::size_t samples_used_ = 0;
};
