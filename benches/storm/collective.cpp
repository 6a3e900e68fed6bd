#include "collective.hpp"

#include "../../ctests/arithmetic.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace {

// Elements of a rank's input repeat after so many; none of the lengths in which the library cuts is a multiple of it.
constexpr std::size_t kPeriod = 251;
constexpr std::size_t kGuard = 64;
constexpr unsigned char kUntouched = 0xee;

const char *const names[kKinds] = {"barrier", "broadcast", "allreduce", "reduce", "allgather", "allgatherv", "gather",
                                   "gatherv", "scatter", "scatterv", "reduce_scatter", "reduce_scatterv", "alltoall",
                                   "alltoallv"};

bool reduces(Kind kind) {
    return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter || kind == Kind::kReduceScatterv;
}

// A value that leaves every result of this operation exact: bits, or a small number.
std::uint64_t operand(std::int32_t dtype, std::int32_t op, std::uint64_t chance, std::uint64_t common, int size) {
    const ::type &of = types[dtype];
    if (op >= COMMUTATIVE || (of.exact == 0 && op != MUSTER_AVG)) {
        return chance & mask_of(of.width);
    }
    int number = static_cast<int>(chance % 33) - 16;
    if (op == MUSTER_AVG) {
        number = static_cast<int>(common % 8) + size * static_cast<int>(chance % 2);  // their sum is a multiple of the size
    } else if (op == MUSTER_PROD) {
        const int factors[] = {1, -1, 2};
        number = factors[chance % 3];
    }
    return of.exact == 0 ? static_cast<std::uint64_t>(number) & mask_of(of.width) : pack(dtype, number);
}

std::size_t elements(Chance &chance, std::size_t width, std::size_t parts) {
    std::size_t bytes = 0;
    switch (chance.below(20)) {
    case 0: return 0;
    case 1: bytes = 64 * 1024 - 8 + chance.below(16); break;
    case 2: bytes = chance.one_in(3) ? chance.below(3 << 20) : chance.below(512 << 10); break;
    case 3: case 4: bytes = chance.below(256 << 10); break;
    case 5: case 6: case 7: case 8: bytes = chance.below(16 << 10); break;
    default: return chance.below(40);
    }
    return bytes / width / parts;
}

}  // namespace

Spec draw_spec(Chance &chance, int size, std::uint64_t key) {
    Spec spec{};
    spec.kind = static_cast<Kind>(chance.below(kKinds));
    spec.dtype = chance.whole(TYPES);
    const bool whole = types[spec.dtype].exact == 0;
    do {
        spec.op = chance.whole(OPS);
    } while (!whole && spec.op >= MUSTER_AND && spec.op <= MUSTER_XOR);
    spec.root = chance.whole(size);
    const bool in_parts = spec.kind >= Kind::kAllgather;
    const std::size_t width = types[spec.dtype].width, parts = in_parts ? static_cast<std::size_t>(size) : 1;
    spec.count = elements(chance, width, parts);
    spec.symmetric = chance.one_in(2);
    const bool differ = spec.kind == Kind::kAllgatherv || spec.kind == Kind::kGatherv || spec.kind == Kind::kScatterv ||
                        spec.kind == Kind::kReduceScatterv || spec.kind == Kind::kAlltoallv;
    const std::size_t lists = spec.kind == Kind::kAlltoallv ? parts * parts : parts;
    for (std::size_t at = 0; at < lists; at++) {
        spec.counts.push_back(!differ ? spec.count : chance.one_in(5) ? 0 : spec.count / 2 + chance.below(spec.count + 3));
    }
    for (std::size_t one = 0; spec.kind == Kind::kAlltoallv && spec.symmetric && one < parts; one++) {
        for (std::size_t other = 0; other < one; other++) {
            spec.counts[one * parts + other] = spec.counts[other * parts + one];
        }
    }
    spec.key = mix(chance.next() + key);
    return spec;
}

Collective::Collective(Life &life, muster_group_t *group, std::string where, Spec spec, const UserOps &ops, Chance &own)
    : life_(life),
      group_(group),
      spec_(std::move(spec)),
      ops_(ops),
      rank_(muster_group_rank(group)),
      size_(muster_group_size(group)),
      width_(types[spec_.dtype].width),
      what_(std::string(names[static_cast<int>(spec_.kind)]) + " on " + where + ", " + std::to_string(spec_.count) + " of " +
            types[spec_.dtype].name + (reduces(spec_.kind) ? ", operation " + std::to_string(spec_.op) : "")) {
    prepare(own);
}

Collective::~Collective() {
    if (request_ != nullptr) {
        life_.settle("to free " + what_, [this] { muster_request_free(request_); });  // its buffers are in use until it has ended
    }
}

void Collective::pattern(int rank) {
    patterns_.resize(static_cast<std::size_t>(size_));
    Bytes &bytes = patterns_[static_cast<std::size_t>(rank)];
    bytes.resize(kPeriod * width_);
    for (std::size_t at = 0; at < kPeriod; at++) {
        const std::uint64_t common = key_of(spec_.key, at), chance = key_of(spec_.key, at, rank + 1);
        put(bytes.data(), at, width_, reduces(spec_.kind) ? operand(spec_.dtype, spec_.op, chance, common, size_)
                                                          : chance & mask_of(width_));
    }
}

Collective::Bytes Collective::blank(std::size_t elements) const { return Bytes(elements * width_, kUntouched); }

void Collective::fill(Bytes &bytes, std::size_t at, const Bytes &pattern, std::size_t first, std::size_t count) const {
    unsigned char *to = bytes.data() + at * width_;
    for (std::size_t left = count; left > 0;) {
        const std::size_t phase = first % kPeriod, now = std::min(left, kPeriod - phase);
        std::memcpy(to, pattern.data() + phase * width_, now * width_);
        to += now * width_;
        first += now;
        left -= now;
    }
}

// Where the parts lie: one after the other, or with room between them.
std::vector<std::size_t> Collective::places(Chance &own, const std::vector<std::size_t> &counts, bool gaps) {
    std::vector<std::size_t> places;
    std::size_t at = 0;
    for (const std::size_t count : counts) {
        at += gaps ? own.below(4) : 0;
        places.push_back(at);
        at += count;
    }
    places.push_back(at);
    return places;
}

void Collective::lay_out(Bytes in, Bytes before, Bytes after, std::size_t in_at, std::size_t out_at, bool in_place) {
    in_ = std::move(in);
    in_after_ = in_;
    out_ = std::move(before);
    out_after_ = std::move(after);
    out_.resize(out_.size() + kGuard, kUntouched);
    out_after_.resize(out_after_.size() + kGuard, kUntouched);
    in_pointer_ = in_place ? out_.data() + in_at * width_ : in_.data();
    out_pointer_ = out_.data() + out_at * width_;
}

void Collective::prepare(Chance &own) {
    if (spec_.kind == Kind::kBarrier) {
        return;
    }
    for (int rank = 0; rank < size_; rank++) {
        pattern(rank);
    }
    if (reduces(spec_.kind)) {
        prepare_reduction(own);
    } else if (spec_.kind == Kind::kAlltoall || spec_.kind == Kind::kAlltoallv) {
        prepare_alltoall(own);
    } else {
        prepare_data(own);
    }
}

void Collective::prepare_data(Chance &own) {
    const std::size_t me = static_cast<std::size_t>(rank_), root = static_cast<std::size_t>(spec_.root);
    const bool is_root = me == root, in_place = own.one_in(2);
    if (spec_.kind == Kind::kBroadcast) {
        Bytes after = blank(spec_.count);
        fill(after, 0, patterns_[root], 0, spec_.count);
        Bytes before = is_root ? after : blank(spec_.count);
        return lay_out({}, std::move(before), std::move(after), 0, 0, true);
    }
    counts_ = spec_.counts;
    given_places_ = own.one_in(2) && (spec_.kind == Kind::kAllgatherv || spec_.kind == Kind::kGatherv ||
                                      spec_.kind == Kind::kScatterv);
    out_places_ = places(own, counts_, given_places_);
    const std::size_t all = out_places_.back();
    if (spec_.kind == Kind::kScatter || spec_.kind == Kind::kScatterv) {
        Bytes in = is_root ? blank(all) : Bytes{}, part = blank(counts_[me]);
        std::size_t first = 0;
        for (std::size_t rank = 0; rank < counts_.size(); first += counts_[rank], rank++) {
            if (is_root) {
                fill(in, out_places_[rank], patterns_[root], first, counts_[rank]);
            }
            if (rank == me) {
                fill(part, 0, patterns_[root], first, counts_[rank]);
            }
        }
        if (is_root && in_place) {
            Bytes same = in;
            return lay_out({}, std::move(in), std::move(same), 0, out_places_[me], true);
        }
        return lay_out(std::move(in), blank(counts_[me]), std::move(part), 0, 0, false);
    }
    const bool gets = is_root || spec_.kind == Kind::kAllgather || spec_.kind == Kind::kAllgatherv;
    Bytes in = blank(counts_[me]), before = blank(gets ? all : 0), after = before;
    fill(in, 0, patterns_[me], 0, counts_[me]);
    for (std::size_t rank = 0; gets && rank < counts_.size(); rank++) {
        fill(after, out_places_[rank], patterns_[rank], 0, counts_[rank]);
    }
    if (gets && in_place) {
        fill(before, out_places_[me], patterns_[me], 0, counts_[me]);
    }
    lay_out(std::move(in), std::move(before), std::move(after), out_places_[me], 0, gets && in_place);
}

void Collective::prepare_reduction(Chance &own) {
    const bool in_place = own.one_in(2);
    reduced_ = patterns_[0];
    for (std::size_t at = 0; at < kPeriod; at++) {
        std::uint64_t sum = get(patterns_[0].data(), at, width_);
        for (int rank = 1; rank < size_; rank++) {
            sum = combine(spec_.op, spec_.dtype, sum, get(patterns_[static_cast<std::size_t>(rank)].data(), at, width_));
        }
        put(reduced_.data(), at, width_, spec_.op == MUSTER_AVG ? divide(spec_.dtype, sum, size_) : sum);
    }
    const std::size_t me = static_cast<std::size_t>(rank_);
    if (spec_.kind == Kind::kAllreduce || spec_.kind == Kind::kReduce) {
        const bool gets = spec_.kind == Kind::kAllreduce || rank_ == spec_.root;
        Bytes in = blank(spec_.count), after = blank(gets ? spec_.count : 0);
        fill(in, 0, patterns_[me], 0, spec_.count);
        fill(after, 0, reduced_, 0, gets ? spec_.count : 0);
        Bytes before = gets && in_place ? in : blank(gets ? spec_.count : 0);
        return lay_out(std::move(in), std::move(before), std::move(after), 0, 0, gets && in_place);
    }
    counts_ = spec_.counts;
    const std::size_t first = std::accumulate(counts_.begin(), counts_.begin() + rank_, std::size_t{0});
    const std::size_t all = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
    Bytes in = blank(all);
    fill(in, 0, patterns_[me], 0, all);
    if (in_place) {
        Bytes after = in;
        fill(after, first, reduced_, first, counts_[me]);
        return lay_out({}, std::move(in), std::move(after), 0, first, true);
    }
    Bytes after = blank(counts_[me]);
    fill(after, 0, reduced_, first, counts_[me]);
    lay_out(std::move(in), blank(counts_[me]), std::move(after), 0, 0, false);
}

void Collective::prepare_alltoall(Chance &own) {
    const std::size_t me = static_cast<std::size_t>(rank_), all = static_cast<std::size_t>(size_);
    const bool v = spec_.kind == Kind::kAlltoallv;
    const auto count = [&](std::size_t from, std::size_t to) { return v ? spec_.counts[from * all + to] : spec_.count; };
    for (std::size_t rank = 0; rank < all; rank++) {
        in_counts_.push_back(count(me, rank));
        counts_.push_back(count(rank, me));
    }
    const bool in_place = (!v || spec_.symmetric) && own.one_in(2);
    given_places_ = v && own.one_in(2);
    out_places_ = places(own, counts_, given_places_);
    in_places_ = in_place ? out_places_ : places(own, in_counts_, given_places_);
    Bytes in = blank(in_places_.back()), after = blank(out_places_.back());
    std::size_t sent = 0;
    for (std::size_t rank = 0; rank < all; rank++) {
        fill(in, in_places_[rank], patterns_[me], sent, in_counts_[rank]);
        sent += in_counts_[rank];
        std::size_t first = 0;
        for (std::size_t before = 0; before < me; before++) {
            first += count(rank, before);
        }
        fill(after, out_places_[rank], patterns_[rank], first, counts_[rank]);
    }
    Bytes before = in_place ? in : blank(out_places_.back());
    lay_out(std::move(in), std::move(before), std::move(after), 0, 0, in_place);
}

std::int32_t Collective::op_number() const {
    return spec_.op == COMMUTATIVE ? ops_.commutative : spec_.op == ORDERED ? ops_.ordered : spec_.op;
}

muster_status_t Collective::call(muster_request_t **r) {
    const void *in = in_pointer_;
    void *out = out_pointer_;
    muster_group_t *const g = group_;
    const std::size_t n = spec_.count, own = counts_.empty() ? 0 : counts_[static_cast<std::size_t>(rank_)];
    const std::size_t *counts = counts_.data(), *at = given_places_ ? out_places_.data() : nullptr;
    const std::size_t *in_counts = in_counts_.data(), *in_at = given_places_ ? in_places_.data() : nullptr;
    const std::int32_t t = spec_.dtype, op = op_number(), root = spec_.root;
    switch (spec_.kind) {
    case Kind::kBarrier: return r ? muster_ibarrier(g, r) : muster_barrier(g);
    case Kind::kBroadcast: return r ? muster_ibroadcast(g, out, n, t, root, r) : muster_broadcast(g, out, n, t, root);
    case Kind::kAllreduce: return r ? muster_iallreduce(g, in, out, n, t, op, r) : muster_allreduce(g, in, out, n, t, op);
    case Kind::kReduce:
        return r ? muster_ireduce(g, in, out, n, t, op, root, r) : muster_reduce(g, in, out, n, t, op, root);
    case Kind::kAllgather: return r ? muster_iallgather(g, in, out, n, t, r) : muster_allgather(g, in, out, n, t);
    case Kind::kAllgatherv:
        return r ? muster_iallgatherv(g, in, own, out, counts, at, t, r) : muster_allgatherv(g, in, own, out, counts, at, t);
    case Kind::kGather: return r ? muster_igather(g, in, out, n, t, root, r) : muster_gather(g, in, out, n, t, root);
    case Kind::kGatherv:
        return r ? muster_igatherv(g, in, own, out, counts, at, t, root, r)
                 : muster_gatherv(g, in, own, out, counts, at, t, root);
    case Kind::kScatter: return r ? muster_iscatter(g, in, out, n, t, root, r) : muster_scatter(g, in, out, n, t, root);
    case Kind::kScatterv:
        return r ? muster_iscatterv(g, in, counts, at, out, own, t, root, r)
                 : muster_scatterv(g, in, counts, at, out, own, t, root);
    case Kind::kReduceScatter:
        return r ? muster_ireduce_scatter(g, in, out, n, t, op, r) : muster_reduce_scatter(g, in, out, n, t, op);
    case Kind::kReduceScatterv:
        return r ? muster_ireduce_scatterv(g, in, out, counts, t, op, r)
                 : muster_reduce_scatterv(g, in, out, counts, t, op);
    case Kind::kAlltoall: return r ? muster_ialltoall(g, in, out, n, t, r) : muster_alltoall(g, in, out, n, t);
    default:
        return r ? muster_ialltoallv(g, in, in_counts, in_at, out, counts, at, t, r)
                 : muster_alltoallv(g, in, in_counts, in_at, out, counts, at, t);
    }
}

void Collective::block() {
    life_.make(what_, [this] { return call(nullptr); }, group_);
    verify();
}

void Collective::start() {
    life_.make("the start of " + what_, [this] { return call(&request_); }, group_);
}

void Collective::wait() {
    ended(life_.attempt("the wait for " + what_, [this] { return muster_request_wait(request_, -1); }));
}

bool Collective::test(int times) {
    muster_status_t status = MUSTER_IN_PROGRESS;
    for (int time = 0; time < times && status == MUSTER_IN_PROGRESS; time++) {
        status = life_.attempt("a test of " + what_, [this] { return muster_request_test(request_); });
    }
    if (status == MUSTER_IN_PROGRESS) {
        return false;
    }
    ended(status);
    return true;
}

void Collective::ended(muster_status_t status) {
    if (status != MUSTER_OK) {
        life_.judge(what_ + ", by request,", status, group_);
        throw CallFailed{status};
    }
    muster_request_free(request_);
    request_ = nullptr;
    verify();
}

void Collective::verify() {
    if (life_.plants("result") && !out_.empty() && spec_.count > 0) {
        out_pointer_[0] ^= 1;
    }
    const auto wrong = std::mismatch(out_.begin(), out_.end(), out_after_.begin()).first;
    if (wrong != out_.end()) {
        const std::size_t at = static_cast<std::size_t>(wrong - out_.begin());
        life_.violate("a wrong result of " + what_ + ", root " + std::to_string(spec_.root) + ", on rank " +
                      std::to_string(rank_) + " of " + std::to_string(size_) + ": byte " + std::to_string(at) + " of " +
                      std::to_string(out_.size() - kGuard) + " is " + std::to_string(*wrong) + ", it must be " +
                      std::to_string(out_after_[at]));
    }
    if (in_ != in_after_) {
        life_.violate(what_ + " has changed its input");
    }
    life_.slot.collectives++;
}
