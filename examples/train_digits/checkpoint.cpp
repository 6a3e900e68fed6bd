#include "checkpoint.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'m', 'u', 's', 't', 'c', 'k', 'p', 't'};
constexpr std::uint32_t kVersion = 1;

// What a file begins with; then come the weights, the velocities, and the checksum of all that.
struct Header {
    char magic[8];
    std::uint32_t version;
    std::uint32_t rank;
    std::uint64_t training;
    std::uint64_t step;
    std::uint64_t samples_used;
    std::uint64_t finished;
    std::uint64_t weights;  // how many, and how many velocities
};
static_assert(sizeof(Header) == 56, "there is no gap in it");

// CRC-32, as zip files have it.
std::uint32_t checksum(const char *bytes, std::size_t count) {
    static const std::array<std::uint32_t, 256> table = [] {
        std::array<std::uint32_t, 256> entries{};
        for (std::uint32_t byte = 0; byte < 256; byte++) {
            std::uint32_t rest = byte;
            for (int bit = 0; bit < 8; bit++) {
                rest = rest >> 1 ^ ((rest & 1) != 0 ? 0xedb88320 : 0);
            }
            entries[byte] = rest;
        }
        return entries;
    }();
    std::uint32_t sum = 0xffffffff;
    for (std::size_t i = 0; i < count; i++) {
        sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(bytes[i])) & 0xff];
    }
    return ~sum;
}

void append(std::string &bytes, const void *what, std::size_t count) {
    bytes.append(static_cast<const char *>(what), count);
}

[[noreturn]] void fail(const std::string &path, const char *doing) {
    throw std::runtime_error(path + ": cannot be " + doing + ": " + std::strerror(errno));
}

// A descriptor that is closed in the end.
class File {
public:
    File(const std::string &path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
        if (descriptor_ < 0) {
            fail(path_, "opened");
        }
    }
    ~File() { ::close(descriptor_); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    void write(const std::string &bytes) {
        for (std::size_t written = 0; written < bytes.size();) {
            const ssize_t count = ::write(descriptor_, bytes.data() + written, bytes.size() - written);
            if (count < 0 && errno != EINTR) {
                fail(path_, "written");
            }
            written += count < 0 ? 0 : static_cast<std::size_t>(count);
        }
    }

    void sync() {
        if (::fsync(descriptor_) != 0) {
            fail(path_, "synced");
        }
    }

private:
    const std::string path_;
    const int descriptor_;
};

// What is wrong with a file that has this beginning; empty if it is one of this training.
std::string misfit(const Header &header, int rank, std::uint64_t training, std::uint64_t step) {
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
        return "is no checkpoint";
    }
    if (header.version != kVersion) {
        return "is of version " + std::to_string(header.version) + ", this program's is " + std::to_string(kVersion);
    }
    if (header.rank != static_cast<std::uint32_t>(rank) || header.step != step) {
        return "is that of rank " + std::to_string(header.rank) + " and step " + std::to_string(header.step);
    }
    if (header.training != training) {
        return "belongs to another training: other options, other data, or another number of ranks";
    }
    return "";
}

}  // namespace

void write_whole(const std::string &path, const std::string &bytes) {
    const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
    const std::string unfinished = path + "." + std::to_string(::getpid()) + ".tmp";
    {
        File file(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
        file.write(bytes);
        file.sync();
    }
    if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
        fail(path, "put in its place");
    }
    File(folder.string(), O_RDONLY | O_DIRECTORY).sync();  // the name, too
}

Checkpoints::Checkpoints(const std::string &folder, int rank, std::uint64_t training, std::size_t kept)
    : folder_(folder), rank_(rank), training_(training), kept_(kept) {
    if (kept < kKeptAtLeast) {
        throw std::invalid_argument("of " + std::to_string(kept) + " checkpoints the ranks may have none in common");
    }
    fs::create_directories(folder_);
    look();
}

// Finds out what is there, and removes what an earlier life left unfinished.
void Checkpoints::look() {
    const std::string prefix = "rank-" + std::to_string(rank_) + "-step-";
    for (const fs::directory_entry &entry : fs::directory_iterator(folder_)) {
        const std::string name = entry.path().filename().string();
        if (name.rfind(prefix, 0) != 0) {
            continue;
        }
        if (entry.path().extension() == ".tmp") {
            std::error_code ignored;
            fs::remove(entry.path(), ignored);
            continue;
        }
        const std::uint64_t step = std::strtoull(name.c_str() + prefix.size(), nullptr, 10);
        if (path_of(step) == entry.path().string() && load(step)) {
            steps_.insert(step);
        }
    }
}

std::string Checkpoints::path_of(std::uint64_t step) const {
    return (fs::path(folder_) / ("rank-" + std::to_string(rank_) + "-step-" + std::to_string(step) + ".ckpt")).string();
}

std::optional<TrainingState> Checkpoints::newest(std::optional<std::uint64_t> limit) {
    while (true) {
        auto after = limit ? steps_.upper_bound(*limit) : steps_.end();
        if (after == steps_.begin()) {
            return std::nullopt;
        }
        const auto step = std::prev(after);
        if (std::optional<TrainingState> state = load(*step)) {
            return state;
        }
        steps_.erase(step);  // it was sound when it was written or found
    }
}

std::optional<TrainingState> Checkpoints::load(std::uint64_t step) const {
    const std::string path = path_of(step);
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto leave_out = [&](const std::string &why) {
        std::fprintf(stderr, "train_digits: %s %s: it is left out\n", path.c_str(), why.c_str());
        return std::nullopt;
    };
    Header header{};
    std::uint32_t sum = 0;
    if (!file || bytes.size() < sizeof header + sizeof sum) {
        return leave_out("is no checkpoint");
    }
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::string why = misfit(header, rank_, training_, step);
    if (!why.empty()) {
        return leave_out(why);
    }
    const std::size_t covered = bytes.size() - sizeof sum;
    std::memcpy(&sum, bytes.data() + covered, sizeof sum);
    const std::size_t each = (covered - sizeof header) / 2;
    if (sum != checksum(bytes.data(), covered) || each % sizeof(float) != 0 || header.weights != each / sizeof(float)) {
        return leave_out("is damaged");
    }
    TrainingState state{header.step, header.samples_used, header.finished != 0, {}, {}};
    state.weights.resize(header.weights);
    state.velocity.resize(header.weights);
    std::memcpy(state.weights.data(), bytes.data() + sizeof header, each);
    std::memcpy(state.velocity.data(), bytes.data() + sizeof header + each, each);
    return state;
}

void Checkpoints::save(const TrainingState &state) {
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.rank = static_cast<std::uint32_t>(rank_);
    header.training = training_;
    header.step = state.step;
    header.samples_used = state.samples_used;
    header.finished = state.finished ? 1 : 0;
    header.weights = state.weights.size();
    std::string bytes;
    append(bytes, &header, sizeof header);
    append(bytes, state.weights.data(), state.weights.size() * sizeof(float));
    append(bytes, state.velocity.data(), state.velocity.size() * sizeof(float));
    const std::uint32_t sum = checksum(bytes.data(), bytes.size());
    append(bytes, &sum, sizeof sum);
    write_whole(path_of(state.step), bytes);
    steps_.insert(state.step);
    while (steps_.size() > kept_) {
        std::error_code ignored;  // an old file that stays is in nobody's way
        fs::remove(path_of(*steps_.begin()), ignored);
        steps_.erase(steps_.begin());
    }
}
