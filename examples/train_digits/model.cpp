#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace {

constexpr std::size_t kDigits = 10;

}  // namespace

Model::Model(std::size_t inputs, std::size_t hidden)
    : weights(hidden * inputs + hidden + kDigits * hidden + kDigits),
      inputs_(inputs),
      hidden_(hidden),
      b1_(hidden * inputs),
      w2_(b1_ + hidden),
      b2_(w2_ + kDigits * hidden),
      activations_(hidden),
      probabilities_(kDigits) {}

void Model::draw_weights(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> first(0.0F, std::sqrt(2.0F / static_cast<float>(inputs_)));
    std::normal_distribution<float> second(0.0F, std::sqrt(2.0F / static_cast<float>(hidden_)));
    std::fill(weights.begin(), weights.end(), 0.0F);
    std::generate_n(weights.begin(), b1_, [&] { return first(random); });
    std::generate_n(weights.begin() + static_cast<std::ptrdiff_t>(w2_), b2_ - w2_, [&] { return second(random); });
}

void Model::forward(const float *image) {
    for (std::size_t unit = 0; unit < hidden_; unit++) {
        const float *row = &weights[unit * inputs_];
        float sum = weights[b1_ + unit];
        for (std::size_t i = 0; i < inputs_; i++) {
            sum += row[i] * image[i];
        }
        activations_[unit] = std::max(sum, 0.0F);
    }
    for (std::size_t digit = 0; digit < kDigits; digit++) {
        const float *row = &weights[w2_ + digit * hidden_];
        float sum = weights[b2_ + digit];
        for (std::size_t unit = 0; unit < hidden_; unit++) {
            sum += row[unit] * activations_[unit];
        }
        probabilities_[digit] = sum;
    }
    // Softmax; taking the largest away first keeps exp() from overflowing.
    const float largest = *std::max_element(probabilities_.begin(), probabilities_.end());
    float total = 0.0F;
    for (float &value : probabilities_) {
        value = std::exp(value - largest);
        total += value;
    }
    for (float &value : probabilities_) {
        value /= total;
    }
}

float Model::add_gradient(const float *image, std::uint8_t digit, float *gradient) {
    forward(image);
    // The loss by each output before softmax is its probability, less 1 for the true digit.
    std::vector<float> &error = probabilities_;
    const float loss = -std::log(std::max(error[digit], 1e-30F));
    error[digit] -= 1.0F;
    for (std::size_t at = 0; at < kDigits; at++) {
        gradient[b2_ + at] += error[at];
    }
    for (std::size_t unit = 0; unit < hidden_; unit++) {
        if (activations_[unit] <= 0.0F) {
            continue;  // ReLU passes nothing back, and a silent unit adds nothing to the rows behind it
        }
        float back = 0.0F;
        for (std::size_t at = 0; at < kDigits; at++) {
            gradient[w2_ + at * hidden_ + unit] += error[at] * activations_[unit];
            back += error[at] * weights[w2_ + at * hidden_ + unit];
        }
        gradient[b1_ + unit] += back;
        float *row = gradient + unit * inputs_;
        for (std::size_t i = 0; i < inputs_; i++) {
            row[i] += back * image[i];
        }
    }
    return loss;
}

std::uint8_t Model::predict(const float *image) {
    forward(image);
    auto largest = std::max_element(probabilities_.begin(), probabilities_.end());
    return static_cast<std::uint8_t>(largest - probabilities_.begin());
}

double Model::accuracy(const Images &images) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < images.count(); i++) {
        right += predict(images.image(i)) == images.digits[i] ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(images.count());
}

std::uint64_t hash_of(const char *bytes, std::size_t count) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < count; i++) {
        hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3;
    }
    return hash;
}

std::uint64_t hash_of(const std::vector<float> &weights) {
    return hash_of(reinterpret_cast<const char *>(weights.data()), weights.size() * sizeof(float));
}
