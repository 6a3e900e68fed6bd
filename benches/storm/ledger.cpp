#include "ledger.hpp"

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

Ledger &open_ledger(const std::string &folder) {
    const std::string path = folder + "/ledger";
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void *memory = MAP_FAILED;
    if (file >= 0) {
        memory = ::mmap(nullptr, kLedgerBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        ::close(file);
    }
    if (memory == MAP_FAILED) {
        std::perror(path.c_str());
        std::exit(2);
    }
    return *static_cast<Ledger *>(memory);
}

std::int64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
