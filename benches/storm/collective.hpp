// One collective: what goes in, the call in either form, and what must come out, computed without the library.
#pragma once

#include "chance.hpp"
#include "life.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

enum class Kind {
    kBarrier, kBroadcast, kAllreduce, kReduce, kAllgather, kAllgatherv, kGather, kGatherv, kScatter, kScatterv, kReduceScatter,
    kReduceScatterv, kAlltoall, kAlltoallv
};
constexpr int kKinds = 14;

// What all members of the group draw in the same way.
struct Spec {
    Kind kind;
    std::int32_t dtype, op;
    int root;
    std::size_t count;                // of each part, where all are alike
    std::vector<std::size_t> counts;  // of each rank, or (alltoallv) from each rank to each
    bool symmetric;                   // alltoallv: as many come from a rank as go to it
    std::uint64_t key;
};

// Operations that a program makes, by their place after those of the library.
struct UserOps {
    std::int32_t commutative = -1, ordered = -1;
};

Spec draw_spec(Chance &chance, int size, std::uint64_t key);

class Collective {
public:
    // `own` is the rank's own chance: whether in place, where parts lie.
    Collective(Life &life, muster_group_t *group, std::string where, Spec spec, const UserOps &ops, Chance &own);
    ~Collective();
    Collective(const Collective &) = delete;
    Collective &operator=(const Collective &) = delete;

    void block();  // the call that waits; checks the result
    void start();
    void wait();   // for what was started
    // Asks until it has ended, at most so often.
    bool test(int times);

private:
    using Bytes = std::vector<unsigned char>;

    void prepare(Chance &own);
    void prepare_data(Chance &own);
    void prepare_reduction(Chance &own);
    void prepare_alltoall(Chance &own);
    void lay_out(Bytes in, Bytes before, Bytes after, std::size_t in_at, std::size_t out_at, bool in_place);
    std::vector<std::size_t> places(Chance &own, const std::vector<std::size_t> &counts, bool gaps);
    void pattern(int rank);
    void fill(Bytes &bytes, std::size_t at, const Bytes &pattern, std::size_t first, std::size_t count) const;
    Bytes blank(std::size_t elements) const;
    std::int32_t op_number() const;
    muster_status_t call(muster_request_t **request);
    void ended(muster_status_t status);
    void verify();

    Life &life_;
    muster_group_t *group_;
    const Spec spec_;
    const UserOps &ops_;
    const int rank_, size_;
    std::size_t width_ = 1;
    std::string what_;
    std::vector<Bytes> patterns_;  // of each rank
    Bytes reduced_;                // their combination
    Bytes in_, out_, in_after_, out_after_;
    unsigned char *in_pointer_ = nullptr, *out_pointer_ = nullptr;
    std::vector<std::size_t> counts_, in_places_, out_places_;
    std::vector<std::size_t> in_counts_;
    bool given_places_ = false;
    muster_request_t *request_ = nullptr;
};
