// Memory that all ranks, all their lives and the driver share: a file that is mapped. What is written here outlives a
// SIGKILL. So it tells afterwards what a process had begun, and what it had been promised. scripts/storming/ledger.py reads
// it, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

constexpr int kRanksMost = 8;
constexpr int kCalls = 8;      // threads of one process that call the library
constexpr int kSums = 4;       // keys to which all add
constexpr int kSwaps = 2;      // keys that all compare and set
constexpr int kRegisters = 6;  // keys of each rank, which it alone writes

using Number = std::atomic<std::int64_t>;

enum class Phase : std::int64_t { kJoining, kWorking, kRecovering, kFinishing, kLeaving, kLeft };

// A call that goes on: since when, and how long it may take. `since_ns` is 0 if there is none.
struct CallNote {
    Number since_ns;
    Number limit_ns;
    char what[176];
};

// One rank, through all its lives.
struct alignas(4096) Slot {
    Number pid;
    Number lives;   // that were started
    Number joined;  // of these, in how many muster_init returned
    Number epoch;   // the newest that it was in
    Number done;    // steps that it has completed
    Number finished;  // it knows that all ranks have completed all steps
    Number phase;
    Number collectives, messages, writes, errors, recoveries;  // that were checked
    char unused[512 - 12 * sizeof(Number)];
    CallNote calls[kCalls];
};

// A count of what may have happened, and a count of what certainly did.
struct Account {
    Number intended;
    Number acknowledged;
};

struct Ledger {
    alignas(4096) Slot slots[kRanksMost];
    Account sums[kSums][kRanksMost];
    Account swaps[kSwaps][kRanksMost];
    Account registers[kRanksMost][kRegisters];  // versions
};

constexpr std::size_t kLedgerBytes = 1 << 20;  // of the file
static_assert(sizeof(CallNote) == 192 && sizeof(Slot) == 4096, "scripts/storming/ledger.py knows the layout");
static_assert(sizeof(Ledger) <= kLedgerBytes && Number::is_always_lock_free, "it fits, and works between processes");

// Maps the ledger in this folder, which the driver has made.
Ledger &open_ledger(const std::string &folder);

std::int64_t now_ns();
