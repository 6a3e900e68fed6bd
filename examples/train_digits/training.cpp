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

float Trainer::train(std::size_t begin, std::size_t end) {
    const std::size_t mine = begin + part_begin(end - begin, cluster_.rank(), cluster_.size());
    const std::size_t next = begin + part_begin(end - begin, cluster_.rank() + 1, cluster_.size());
    const std::size_t count = model_.weights.size();
    float &loss = gradient_[count];
    float &images = gradient_[count + 1];

    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    for (std::size_t at = mine; at < next; at++) {
        const std::size_t image = order_[at];
        loss += model_.add_gradient(images_.image(image), images_.digits[image], gradient_.data());
    }
    images = static_cast<float>(next - mine);
    samples_used_ += next - mine;

    // The parts may differ in size, so sums travel, and the mean is taken over the images of all ranks.
    if (options_.sync) {
        cluster_.world().allreduce(gradient_);
    }
    if (images == 0.0F) {
        return 0.0F;  // a batch smaller than the ranks are many has left this one, which trains alone, with nothing
    }
    for (std::size_t i = 0; i < count; i++) {
        velocity_[i] = options_.momentum * velocity_[i] - options_.learning_rate * gradient_[i] / images;
        model_.weights[i] += velocity_[i];
    }
    return loss / images;
}

void Trainer::shuffle(std::size_t epoch) {
    // Fisher and Yates from a fixed seed: the order depends on nothing but the epoch.
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::mt19937_64 random(kSeed + 1 + epoch);
    for (std::size_t i = order_.size(); i > 1; i--) {
        std::swap(order_[i - 1], order_[random() % i]);
    }
}
