// A network of one hidden layer (ReLU), softmax and cross-entropy. All weights lie in one vector, so that they can be
// broadcast, summed and hashed as one.
#pragma once

#include "data.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

class Model {
public:
    Model(std::size_t inputs, std::size_t hidden);

    // Draws the first weights; the same seed draws the same.
    void draw_weights(std::uint64_t seed);

    // Adds the gradient of one image's loss to `gradient`, which is as long as the weights, and returns that loss.
    float add_gradient(const float *image, std::uint8_t digit, float *gradient);

    std::uint8_t predict(const float *image);

    // The share of images, from 0 to 1, whose digit is predicted.
    double accuracy(const Images &images);

    std::vector<float> weights;

private:
    void forward(const float *image);

    std::size_t inputs_;
    std::size_t hidden_;
    // Where each part begins in `weights`: w1[hidden][inputs], b1[hidden], w2[10][hidden], b2[10].
    std::size_t b1_, w2_, b2_;
    // What the last forward pass left.
    std::vector<float> activations_;
    std::vector<float> probabilities_;
};

// FNV-1a over bytes, or over those of the weights.
std::uint64_t hash_of(const char *bytes, std::size_t count);
std::uint64_t hash_of(const std::vector<float> &weights);
