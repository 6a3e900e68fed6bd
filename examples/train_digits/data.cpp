#include "data.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kCsvPixels = 64;
constexpr int kCsvMaximum = 16;
constexpr std::size_t kHoldBackEvery = 5;  // every fifth image where the data has no test part of its own
constexpr std::uint32_t kIdxImages = 0x0803;
constexpr std::uint32_t kIdxLabels = 0x0801;

[[noreturn]] void fail(const std::string &path, const std::string &what) {
    throw std::runtime_error(path + ": " + what);
}

std::ifstream open_file(const std::string &path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        fail(path, errno != 0 ? std::strerror(errno) : "cannot be opened");
    }
    return file;
}

std::string read_file(const std::string &path) {
    std::ifstream file = open_file(path);
    std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (file.bad()) {
        fail(path, "cannot be read");
    }
    return bytes;
}

// Reads one whole number of at most `maximum` and moves `at` behind it.
bool parse_number(const char *&at, int maximum, int &number) {
    if (*at < '0' || *at > '9') {
        return false;
    }
    number = 0;
    while (*at >= '0' && *at <= '9') {
        number = number * 10 + (*at++ - '0');
        if (number > maximum) {
            return false;
        }
    }
    return true;
}

// 64 grey values and the digit, parted by commas.
bool parse_csv_line(const std::string &line, float *image, int &digit) {
    const char *at = line.c_str();
    for (std::size_t pixel = 0; pixel < kCsvPixels; pixel++) {
        int grey = 0;
        if (!parse_number(at, kCsvMaximum, grey) || *at++ != ',') {
            return false;
        }
        image[pixel] = static_cast<float>(grey) / kCsvMaximum;
    }
    return parse_number(at, 9, digit) && *at == '\0';
}

std::uint32_t big_endian(const std::string &bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; i++) {
        value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    }
    return value;
}

// A whole idx file of unsigned bytes: the magic number, one length per dimension, then the bytes.
struct Idx {
    std::string bytes;
    std::vector<std::size_t> lengths;
    std::size_t start = 0;  // of the elements

    unsigned char element(std::size_t at) const { return static_cast<unsigned char>(bytes[start + at]); }
};

Idx read_idx_file(const std::string &path, std::uint32_t magic) {
    Idx idx;
    idx.bytes = read_file(path);
    const std::size_t dimensions = magic & 0xff;
    idx.start = 4 + 4 * dimensions;
    if (idx.bytes.size() < idx.start) {
        fail(path, "is " + std::to_string(idx.bytes.size()) + " bytes long; the idx header alone is " +
                       std::to_string(idx.start));
    }
    const std::uint32_t found = big_endian(idx.bytes, 0);
    if (found != magic) {
        fail(path, "begins with the number " + std::to_string(found) + "; an idx file of " +
                       (magic == kIdxImages ? "images" : "labels") + " begins with " + std::to_string(magic) +
                       (found >> 16 == 0x1f8b ? " (it is compressed: gunzip it)" : ""));
    }
    std::size_t expected = 1;
    for (std::size_t i = 0; i < dimensions; i++) {
        idx.lengths.push_back(big_endian(idx.bytes, 4 + 4 * i));
        if (idx.lengths[i] == 0 || idx.lengths[i] > 1000000 || expected > (std::size_t{1} << 32) / idx.lengths[i]) {
            fail(path, "claims " + std::to_string(idx.lengths[i]) + " as length of dimension " + std::to_string(i));
        }
        expected *= idx.lengths[i];
    }
    const std::size_t there = idx.bytes.size() - idx.start;
    if (there != expected) {
        fail(path, "holds " + std::to_string(there) + " bytes after its header, which announces " +
                       std::to_string(expected));
    }
    return idx;
}

Dataset hold_back(const Images &all) {
    Dataset dataset;
    for (std::size_t i = 0; i < all.count(); i++) {
        Images &part = i % kHoldBackEvery == kHoldBackEvery - 1 ? dataset.held_back : dataset.training;
        part.append(all.image(i), all.pixels, all.digits[i]);
    }
    return dataset;
}

// The folder may be the one that holds everything, or the `train` folder with `test` beside it.
std::string find_idx(const fs::path &folder, const char *part, const std::string &name) {
    for (const fs::path &place : {folder, folder / part, folder / ".." / part}) {
        if (fs::exists(place / name)) {
            return (place / name).string();
        }
    }
    return "";
}

Dataset load_idx_folder(const fs::path &folder) {
    const std::string images = find_idx(folder, "train", "train-images-idx3-ubyte");
    const std::string labels = find_idx(folder, "train", "train-labels-idx1-ubyte");
    if (images.empty() || labels.empty()) {
        fail(folder.string(), std::string("holds no train-") + (images.empty() ? "images-idx3" : "labels-idx1") +
                                  "-ubyte (MNIST's file, decompressed)");
    }
    Images training = read_idx(images, labels);
    const std::string test_images = find_idx(folder, "test", "t10k-images-idx3-ubyte");
    const std::string test_labels = find_idx(folder, "test", "t10k-labels-idx1-ubyte");
    if (test_images.empty() || test_labels.empty()) {
        return hold_back(training);
    }
    Images held_back = read_idx(test_images, test_labels);
    if (held_back.pixels != training.pixels) {
        fail(test_images, "has images of " + std::to_string(held_back.pixels) + " pixels; those to train on have " +
                              std::to_string(training.pixels));
    }
    return {std::move(training), std::move(held_back)};
}

}  // namespace

void Images::append(const float *image, std::size_t image_pixels, std::uint8_t digit) {
    pixels = image_pixels;
    values.insert(values.end(), image, image + image_pixels);
    digits.push_back(digit);
}

std::string default_data_path() {
    const char *folder = std::getenv("DATA_PATH");
    if (folder != nullptr && *folder != '\0') {
        if (!fs::is_directory(folder)) {
            throw std::runtime_error(std::string("DATA_PATH is '") + folder +
                                     "'; it must be a folder with MNIST's idx files");
        }
        return folder;
    }
    return (fs::read_symlink("/proc/self/exe").parent_path() / "digits.csv").string();
}

Dataset load_dataset(const std::string &path) {
    Dataset dataset = fs::is_directory(path) ? load_idx_folder(path) : hold_back(read_csv(path));
    if (dataset.training.count() == 0 || dataset.held_back.count() == 0) {
        fail(path, "holds too few images: some to train on and some to hold back are needed");
    }
    return dataset;
}

Images read_csv(const std::string &path) {
    std::ifstream file = open_file(path);
    Images images;
    std::string line;
    float image[kCsvPixels];
    for (std::size_t number = 1; std::getline(file, line); number++) {
        int digit = 0;
        if (!parse_csv_line(line, image, digit)) {
            fail(path, "line " + std::to_string(number) +
                           " is not 64 numbers from 0 to 16 and a digit, parted by commas");
        }
        images.append(image, kCsvPixels, static_cast<std::uint8_t>(digit));
    }
    if (file.bad()) {
        fail(path, "cannot be read");
    }
    return images;
}

Images read_idx(const std::string &images_path, const std::string &labels_path) {
    const Idx pictures = read_idx_file(images_path, kIdxImages);
    const Idx labels = read_idx_file(labels_path, kIdxLabels);
    const std::size_t count = pictures.lengths[0];
    if (labels.lengths[0] != count) {
        fail(labels_path, "has " + std::to_string(labels.lengths[0]) + " labels for " + std::to_string(count) +
                              " images");
    }
    Images images;
    images.pixels = pictures.lengths[1] * pictures.lengths[2];
    images.values.resize(count * images.pixels);
    for (std::size_t i = 0; i < images.values.size(); i++) {
        images.values[i] = static_cast<float>(pictures.element(i)) / 255.0F;
    }
    for (std::size_t i = 0; i < count; i++) {
        if (labels.element(i) > 9) {
            fail(labels_path, "label " + std::to_string(i) + " is " + std::to_string(labels.element(i)) +
                                  "; it must be a digit from 0 to 9");
        }
        images.digits.push_back(labels.element(i));
    }
    return images;
}
