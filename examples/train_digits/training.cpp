#include "training.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <utility>

namespace {

constexpr std::uint64_t kSeed = 1998;
constexpr std::size_t kStepsBetweenLines = 10;

// Where the part of `rank` begins when `count` things are divided among `size` ranks as evenly as can be.
std::size_t part_begin(std::size_t count, int rank, int size) {
    return count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size);
}

}  // namespace

Trainer::Trainer(Cluster &cluster, const Images &images, const Options &options)
    : cluster_(cluster),
      images_(images),
      options_(options),
      model_(images.pixels, options.hidden),
      order_(images.count()),
      gradient_(model_.weights.size() + 2),
      velocity_(model_.weights.size()) {
    if (cluster_.rank() == 0) {
        model_.draw_weights(kSeed);
    }
    cluster_.broadcast(model_.weights);
}

void Trainer::train_epoch(std::size_t epoch) {
    shuffle(epoch);
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < order_.size(); begin += options_.batch, number++) {
        const std::size_t end = std::min(begin + options_.batch, order_.size());
        const float loss = step(begin, end);
        if (number % kStepsBetweenLines == 0) {
            std::printf("epoch: %zu, step: %zu, loss is %.4f\n", epoch, number, static_cast<double>(loss));
        }
    }
}

float Trainer::step(std::size_t begin, std::size_t end) {
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
        cluster_.sum(gradient_);
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
