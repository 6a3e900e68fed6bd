// The images: read from a .csv of 8x8 digits or from MNIST's idx files, scaled to 0..1, and split into those to train
// on and those held back to judge the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct Images {
    std::size_t pixels = 0;             // per image
    std::vector<float> values;          // image after image
    std::vector<std::uint8_t> digits;   // 0 to 9, one per image

    std::size_t count() const { return digits.size(); }
    const float *image(std::size_t at) const { return values.data() + at * pixels; }
    void append(const float *image, std::size_t image_pixels, std::uint8_t digit);
};

struct Dataset {
    Images training;
    Images held_back;
};

// $DATA_PATH, else digits.csv beside the running program.
std::string default_data_path();

// All of these throw std::runtime_error with a sentence that names the file, what is in it and what should be.

// `path` is a .csv file, or a folder of idx files.
Dataset load_dataset(const std::string &path);

// 64 values from 0 to 16 and the digit per line.
Images read_csv(const std::string &path);

// An idx3 file of images with its idx1 file of labels.
Images read_idx(const std::string &images_path, const std::string &labels_path);
