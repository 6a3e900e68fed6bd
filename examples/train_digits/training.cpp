#include "training.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

constexpr std::uint64_t kSeed = 1998;
constexpr std::size_t kStepsBetweenLines = 10;

// Where the part of `rank` begins when `count` things are divided among `size` ranks as evenly as can be.
std::size_t part_begin(std::size_t count, int rank, int size) {
    return count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size);
}

}  // namespace

Trainer::Trainer(const muster::cluster &cluster, const Images &images, const Options &options)
    : cluster_(cluster),
      images_(images),
      options_(options),
      steps_per_epoch_((images.count() + options.batch - 1) / options.batch),
      model_(images.pixels, options.hidden),
      order_(images.count()),
      gradient_(model_.weights.size() + 2),
      velocity_(model_.weights.size()) {}

void Trainer::begin() {
    if (cluster_.rank() == 0) {
        model_.draw_weights(kSeed);
    }
    cluster_.world().broadcast(model_.weights);
    std::fill(velocity_.begin(), velocity_.end(), 0.0F);
    steps_done_ = 0;
    samples_used_ = 0;
    shuffle(0);
}

void Trainer::go_to(const TrainingState &state) {
    if (state.weights.size() != model_.weights.size()) {
        throw std::runtime_error("the checkpoint of step " + std::to_string(state.step) + " has " +
                                 std::to_string(state.weights.size()) + " weights, this model " +
                                 std::to_string(model_.weights.size()));
    }
    model_.weights = state.weights;
    velocity_ = state.velocity;
    steps_done_ = state.step;
    samples_used_ = state.samples_used;
    shuffle(steps_done_ / steps_per_epoch_);
}

void Trainer::step() {
    const std::size_t epoch = steps_done_ / steps_per_epoch_;
    const std::size_t number = steps_done_ % steps_per_epoch_;
    if (number == 0) {
        shuffle(epoch);
    }
    const std::size_t begin = number * options_.batch;
    const float loss = train(begin, std::min(begin + options_.batch, order_.size()));
    steps_done_++;
    if (number % kStepsBetweenLines == 0) {
        std::printf("epoch: %zu, step: %zu, loss is %.4f\n", epoch, number, static_cast<double>(loss));
    }
}

void Trainer::add_gradients(std::size_t begin, std::size_t end, float *sums) {
    float &loss = sums[model_.weights.size()], &images = sums[model_.weights.size() + 1];
    for (std::size_t at = begin; at < end; at++) {
        const std::size_t image = order_[at];
        loss += model_.add_gradient(images_.image(image), images_.digits[image], sums);
    }
    images += static_cast<float>(end - begin);
    samples_used_ += end - begin;
}

float Trainer::train(std::size_t begin, std::size_t end) {
    const int rank = cluster_.rank(), size = cluster_.size();
    const int parts = options_.micro_batches == 0 ? size : static_cast<int>(options_.micro_batches);
    const std::size_t all = static_cast<std::size_t>(parts);
    const std::size_t first = part_begin(all, rank, size), next = part_begin(all, rank + 1, size);
    const std::size_t length = gradient_.size(), count = model_.weights.size();

    addends_.assign(length * (options_.exact ? next - first : 1), 0.0F);
    for (std::size_t part = first; part < next; part++) {
        const int number = static_cast<int>(part);
        add_gradients(begin + part_begin(end - begin, number, parts), begin + part_begin(end - begin, number + 1, parts),
                      &addends_[options_.exact ? length * (part - first) : 0]);
    }

    // The parts may differ in size, so sums travel, and the mean is taken over the images of all ranks.
    if (options_.exact) {
        cluster_.world().allreduce_addends(addends_, gradient_);
    } else if (options_.sync) {
        cluster_.world().allreduce(addends_, gradient_);
    } else {
        gradient_ = addends_;
    }
    const float images = gradient_[count + 1];
    if (images == 0.0F) {
        return 0.0F;  // a batch smaller than the ranks are many has left this one, which trains alone, with nothing
    }
    for (std::size_t i = 0; i < count; i++) {
        velocity_[i] = options_.momentum * velocity_[i] - options_.learning_rate * gradient_[i] / images;
        model_.weights[i] += velocity_[i];
    }
    return gradient_[count] / images;
}

void Trainer::shuffle(std::size_t epoch) {
    // Fisher and Yates from a fixed seed: the order depends on nothing but the epoch.
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::mt19937_64 random(kSeed + 1 + epoch);
    for (std::size_t i = order_.size(); i > 1; i--) {
        std::swap(order_[i - 1], order_[random() % i]);
    }
}
