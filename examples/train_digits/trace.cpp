#include "trace.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

Trace::Trace(const std::string &path) {
    if (path.empty()) {
        return;
    }
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
        throw std::runtime_error(path + ": " + std::strerror(errno));
    }
}

Trace::~Trace() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

void Trace::line(const char *event, std::int64_t number) const {
    if (descriptor_ < 0) {
        return;
    }
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    char text[128];
    const int length = std::snprintf(text, sizeof text, "%" PRId64 "%09ld %d %d %s %" PRId64 "\n",
                                     static_cast<std::int64_t>(now.tv_sec), now.tv_nsec, ::getpid(), rank_, event, number);
    // One write each, so that lines of several processes do not mix. A line that is lost is no reason to end.
    const ssize_t ignored = ::write(descriptor_, text, static_cast<std::size_t>(length));
    static_cast<void>(ignored);
}
