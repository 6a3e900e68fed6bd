#include "store.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

constexpr int kDeletedEvery = 4;  // of the versions of a register each fourth is none
constexpr std::size_t kNumberBytes = 20;

struct Value {
    muster_status_t status;
    std::string bytes;
};

struct Range {
    std::int64_t least = 0, most = 0;
};

std::string sum_key(int key) { return "sums/" + std::to_string(key); }
std::string swap_key(int key) { return "swaps/" + std::to_string(key); }
std::string register_key(int rank, int place) { return "own/" + std::to_string(rank) + "/" + std::to_string(place); }

// The value of a version of a register: its number, and bytes that follow from it.
std::string contents(int rank, int place, std::int64_t version) {
    Chance chance(key_of(rank, place, version));
    char number[kNumberBytes + 1];
    std::snprintf(number, sizeof number, "%019lld:", static_cast<long long>(version));
    std::string all = number;
    all.resize(kNumberBytes + (chance.one_in(30) ? chance.below(300'000) : chance.below(300)));
    for (std::size_t at = kNumberBytes; at < all.size(); at++) {
        all[at] = static_cast<char>(mix(static_cast<std::uint64_t>(version) + at / 64) >> at % 8);
    }
    return all;
}

bool is_deleted(std::int64_t version) { return version % kDeletedEvery == 0; }

Value take(Life &life, const std::string &key) {
    void *bytes = nullptr;
    std::size_t length = 0;
    const muster_status_t status = life.attempt("to get " + key, [&] {
        return muster_store_get(life.cluster, key.c_str(), 0, &bytes, &length);
    });
    if (status == MUSTER_ERR_NOT_FOUND) {
        return {status, ""};
    }
    if (status != MUSTER_OK) {
        life.judge("to get " + key + " from the store", status);
        throw CallFailed{status};
    }
    std::string copy(static_cast<const char *>(bytes), length);
    muster_free(bytes);
    return {status, copy};
}

std::int64_t total(const Account *accounts, int ranks, Number Account::*which) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += (accounts[rank].*which).load();
    }
    return sum;
}

void within(Life &life, const std::string &what, std::int64_t found, Range range) {
    if (found < range.least || found > range.most) {
        life.violate(what + " is " + std::to_string(found) + ", it must be from " + std::to_string(range.least) +
                     " (acknowledged) to " + std::to_string(range.most) + " (intended)");
    }
    life.slot.writes++;
}

std::int64_t number_of(Life &life, const std::string &key, const std::string &text) {
    char *end = nullptr;
    const long long number = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || (*end != '\0' && *end != ' ')) {
        life.violate(key + " holds \"" + text.substr(0, 60) + "\", which nobody wrote");
    }
    return number;
}

// A count that all keep: by adding, or by comparing and setting.
void check_count(Life &life, const std::string &key, const Account *accounts) {
    Range range;
    range.least = total(accounts, life.options.ranks, &Account::acknowledged);
    const Value value = take(life, key);
    range.most = total(accounts, life.options.ranks, &Account::intended);
    within(life, key, value.status == MUSTER_OK ? number_of(life, key, value.bytes) : 0, range);
}

void add(Life &life, int place, Chance &own) {
    const std::string key = sum_key(place);
    Account &account = life.ledger.sums[place][life.rank];
    const std::int64_t delta = 1 + own.whole(9);
    const std::int64_t before = total(life.ledger.sums[place], life.options.ranks, &Account::acknowledged);
    std::int64_t sum = 0;
    account.intended += delta;
    if (!life.plants("add")) {
        life.make("to add to " + key + " in the store", [&] {
            return muster_store_add(life.cluster, key.c_str(), delta, &sum);
        });
        const std::int64_t most = total(life.ledger.sums[place], life.options.ranks, &Account::intended);
        within(life, "the sum that adding to " + key + " gave", sum, {before + delta, most});
    }
    account.acknowledged += delta;
}

// Counts by comparing and setting: a value is a number, and the rank that wrote it.
void swap(Life &life, int place) {
    const std::string key = swap_key(place);
    Account &account = life.ledger.swaps[place][life.rank];
    std::string expected = take(life, key).bytes;
    for (int attempt = 0; attempt < 5; attempt++) {
        const std::int64_t number = expected.empty() ? 0 : number_of(life, key, expected);
        const std::string desired = std::to_string(number + 1) + " rank " + std::to_string(life.rank) + " pid " +
                                    std::to_string(::getpid()) + " #" + std::to_string(account.intended.load());
        void *current = nullptr;
        std::size_t length = 0;
        account.intended++;
        life.make("to compare and set " + key + " in the store", [&] {
            return muster_store_compare_set(life.cluster, key.c_str(), expected.data(), expected.size(), desired.data(),
                                            desired.size(), &current, &length);
        });
        expected.assign(static_cast<const char *>(current), length);
        muster_free(current);
        if (expected == desired) {
            account.acknowledged++;
            return;
        }
        account.intended--;  // for certain it has not happened
    }
}

void write(Life &life, int place) {
    const std::string key = register_key(life.rank, place);
    Account &account = life.ledger.registers[life.rank][place];
    const bool is_certain = account.intended == account.acknowledged;
    const std::int64_t version = ++account.intended, last = version - 1;
    if (is_deleted(version)) {
        std::int32_t existed = -1;
        life.make("to delete " + key + " in the store", [&] {
            return muster_store_delete(life.cluster, key.c_str(), &existed);
        });
        if (is_certain && existed != (is_deleted(last) ? 0 : 1)) {
            life.violate("deleting " + key + " gave existed = " + std::to_string(existed) + " after version " +
                         std::to_string(last));
        }
    } else if (!life.plants("write")) {
        const std::string value = contents(life.rank, place, version);
        life.make("to set " + key + " in the store", [&] {
            return muster_store_set(life.cluster, key.c_str(), value.data(), value.size());
        });
    }
    account.acknowledged = version;
}

void read(Life &life, int rank, int place) {
    const std::string key = register_key(rank, place);
    Account &account = life.ledger.registers[rank][place];
    Range range;
    range.least = account.acknowledged;
    const Value value = take(life, key);
    range.most = account.intended;
    if (value.status == MUSTER_ERR_NOT_FOUND) {
        const std::int64_t newest_deleted = range.most / kDeletedEvery * kDeletedEvery;
        return within(life, key + ", which is not there, so its version", newest_deleted, range);
    }
    const std::int64_t version = std::strtoll(value.bytes.c_str(), nullptr, 10);
    within(life, "the version of " + key, version, range);
    if (is_deleted(version) || value.bytes != contents(rank, place, version)) {
        life.violate(key + " has not the contents of its version " + std::to_string(version));
    }
}

// Each rank waits for the next one's word of this step, which no earlier epoch has given.
void meet(Life &life) {
    const auto key_of_rank = [&](int rank) {
        return "here/" + std::to_string(life.epoch) + "/" + std::to_string(life.step) + "/" + std::to_string(rank);
    };
    const std::string own = key_of_rank(life.rank), next = key_of_rank((life.rank + 1) % life.options.ranks);
    const char *keys[] = {next.c_str(), own.c_str()};
    life.make("to set " + own + " in the store", [&] { return muster_store_set(life.cluster, own.c_str(), nullptr, 0); });
    life.make("to wait for " + next + " in the store", [&] { return muster_store_wait(life.cluster, keys, 2, -1); });
    life.slot.writes++;
}

// A key that nobody writes does not come, and the wait for it is no longer than it was asked to be.
void miss(Life &life) {
    void *value = nullptr;
    std::size_t length = 0;
    const muster_status_t status = life.attempt("to get what nobody sets", [&] {
        return muster_store_get(life.cluster, "nobody sets this", 20, &value, &length);
    });
    if (status == MUSTER_OK) {
        life.violate("a key is there that nobody has set");
    }
    // If the scheduler is away, nobody knows that the key is not there.
    if (status != MUSTER_ERR_TIMEOUT && status != MUSTER_ERR_UNREACHABLE) {
        life.judge("to get what nobody sets from the store", status);
        throw CallFailed{status};
    }
}

}  // namespace

void use_store(Life &life, Chance own) {
    meet(life);
    for (std::size_t left = 3 + own.below(6); left > 0; left--) {
        switch (own.below(8)) {
        case 0: case 1: add(life, own.whole(kSums), own); break;
        case 2: swap(life, own.whole(kSwaps)); break;
        case 3: case 4: write(life, own.whole(kRegisters)); break;
        case 5: read(life, own.whole(life.options.ranks), own.whole(kRegisters)); break;
        case 6: check_count(life, sum_key(0), life.ledger.sums[0]); break;
        default: miss(life); break;
        }
    }
    const int place = own.whole(kSums);
    check_count(life, sum_key(place), life.ledger.sums[place]);
}

void check_store(Life &life) {
    for (int place = 0; place < kSums; place++) {
        check_count(life, sum_key(place), life.ledger.sums[place]);
    }
    for (int place = 0; place < kSwaps; place++) {
        check_count(life, swap_key(place), life.ledger.swaps[place]);
    }
    for (int rank = 0; rank < life.options.ranks; rank++) {
        for (int place = 0; place < kRegisters; place++) {
            read(life, rank, place);
        }
    }
}
