// muster.hpp: what every call of a group gives, blocking and not, on all kinds of buffers; and what it refuses.
#include "fails.hpp"
#include "nodes.hpp"

#include <poll.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <string>
#include <vector>

namespace {

constexpr int kSize = 4;
constexpr std::size_t kRanks = kSize;

// ------------------------------------------------------------------------------------------------------------ Types

// Every element type goes through a reduction, and comes back as what it was.
template <class T> void type_travels(const muster::group &world, muster::dtype expected) {
    CHECK(muster::dtype_of<T>::value == expected);
    std::vector<T> values(37, static_cast<T>(2));
    world.allreduce(values);
    for (const T &value : values) {
        CHECK(value == static_cast<T>(2 * kSize));
    }
    CHECK(world.allreduce(static_cast<T>(3), muster::op::max) == static_cast<T>(3));
}

// A type of the user's own that has a half's bits.
struct my_half {
    std::uint16_t bits;
};

}  // namespace

template <> struct muster::dtype_of<my_half> { static constexpr auto value = muster::dtype::float16; };

namespace {

void types(const muster::group &world) {
    type_travels<std::int8_t>(world, muster::dtype::int8);
    type_travels<std::uint8_t>(world, muster::dtype::uint8);
    type_travels<std::int16_t>(world, muster::dtype::int16);
    type_travels<std::uint16_t>(world, muster::dtype::uint16);
    type_travels<std::int32_t>(world, muster::dtype::int32);
    type_travels<std::uint32_t>(world, muster::dtype::uint32);
    type_travels<long>(world, muster::dtype::int64);
    type_travels<long long>(world, muster::dtype::int64);
    type_travels<unsigned long long>(world, muster::dtype::uint64);
    type_travels<char>(world, muster::dtype::uint8);  // whether or not it has a sign here
    type_travels<float>(world, muster::dtype::float32);
    type_travels<double>(world, muster::dtype::float64);
    type_travels<muster::float16>(world, muster::dtype::float16);
    type_travels<muster::bfloat16>(world, muster::dtype::bfloat16);
#ifdef __STDCPP_FLOAT16_T__
    type_travels<std::float16_t>(world, muster::dtype::float16);
#endif
    static_assert(muster::dtype_of<std::byte>::value == muster::dtype::uint8);
    my_half halves[2] = {{0x3c00}, {0x4000}};  // 1 and 2
    world.allreduce(halves);
    CHECK(halves[0].bits == 0x4400 && halves[1].bits == 0x4800);
}

// Every half becomes a float and the same half again, and floats between two become the nearest.
void halves() {
    for (std::uint32_t bits = 0; bits <= 0xffff; bits++) {
        const auto half = muster::float16::from_bits(static_cast<std::uint16_t>(bits));
        const auto brain = muster::bfloat16::from_bits(static_cast<std::uint16_t>(bits));
        const bool is_nan = (bits & 0x7fff) > 0x7c00, is_brain_nan = (bits & 0x7fff) > 0x7f80;
        CHECK(is_nan ? half != half && muster::float16(half) != muster::float16(half) : muster::float16(half).bits() == bits);
        CHECK(is_brain_nan ? brain != brain : muster::bfloat16(brain).bits() == bits);
        if (bits < 0x7c00) {  // and the middle to the next goes to the even one
            const float low = half, high = muster::float16::from_bits(static_cast<std::uint16_t>(bits + 1));
            const float middle = bits == 0x7bff ? 65520.0F : (low + high) / 2;
            CHECK(muster::float16(middle).bits() == bits + (bits & 1));
            CHECK(muster::float16(-middle).bits() == 0x8000 + bits + (bits & 1));
            CHECK(muster::float16(std::nextafter(middle, 0.0F)).bits() == bits);
            CHECK(muster::float16(std::nextafter(middle, 1e9F)).bits() == bits + 1);
        }
        if (bits < 0x7f80) {
            const float middle = muster::basic::float_of_bits((bits << 16) | 0x8000);
            CHECK(muster::bfloat16(middle).bits() == bits + (bits & 1));
            CHECK(muster::bfloat16(std::nextafter(middle, 0.0F)).bits() == bits);
            CHECK(muster::bfloat16(std::nextafter(middle, HUGE_VALF)).bits() == bits + 1);
        }
    }
    CHECK(static_cast<float>(muster::float16(1e9F)) == HUGE_VALF);
    CHECK(static_cast<float>(muster::bfloat16(1.0F)) == 1.0F && static_cast<float>(muster::float16(0.1F)) == 0.0999755859375F);
}

// ---------------------------------------------------------------------------------------------------------- Buffers

void buffers(const muster::group &world) {
    std::vector<float> vector{1, 2};
    std::array<float, 2> array{1, 2};
    float plain[2] = {1, 2};
    std::string text("ab");
    world.allreduce(vector);
    world.allreduce(array);
    world.allreduce(plain);
    world.allreduce(muster::span(plain));
    world.allreduce(muster::span(plain, 1));
    world.allreduce(muster::one(plain[1]), muster::op::max);
    world.broadcast(text);
    CHECK(vector[1] == 8 && array[1] == 8 && plain[1] == 32 && plain[0] == 64 && text == "ab");
    world.allreduce(std::vector<float>{1, 2}, array);  // what is only read may be a temporary
    const std::vector<float> constant{1, 2};
    world.allreduce(constant, muster::span(vector));
    CHECK(array[1] == 8 && vector[1] == 8);
    std::vector<float> none;
    world.allreduce(none);
    world.broadcast(none);

    const muster::span<const float> read(vector);
    CHECK(read.size() == 2 && read.size_bytes() == 8 && !read.empty() && read[1] == 8 && *read.begin() == 8 - 4);
    CHECK(read.first(1).size() == 1 && read.last(1)[0] == 8 && read.subspan(1, 1).data() == vector.data() + 1);
    static_assert(std::is_convertible_v<muster::span<float>, muster::span<const float>>);
    static_assert(!std::is_convertible_v<muster::span<const float>, muster::span<float>>);
    static_assert(!std::is_convertible_v<const std::vector<float> &, muster::span<float>>);
    static_assert(!std::is_convertible_v<std::vector<float>, muster::span<float>>, "a temporary is not written to");
    static_assert(!std::is_constructible_v<muster::span<float>, std::list<float> &>, "elements lie one after another");
    static_assert(!std::is_constructible_v<muster::span<float>, std::deque<float> &>, "elements lie one after another");
#if __cplusplus >= 202002L
    std::span<float> theirs = muster::span<float>(vector);  // both ways
    muster::span<float> ours = theirs;
    CHECK(theirs.data() == ours.data() && theirs.size() == ours.size());
    world.broadcast(theirs);
    world.iallreduce(std::span<float>(vector)).wait();  // a view may be a temporary
    static_assert(std::is_convertible_v<std::span<const float>, muster::span<const float>>);
    static_assert(std::is_convertible_v<muster::span<float>, std::span<const float>>);
    static_assert(!std::is_convertible_v<std::span<const float>, muster::span<float>>);
#endif
}

// ------------------------------------------------------------------------------------------------------ Collectives

// Makes the same call in its blocking form, or in the other form and waits for it.
#define EITHER(is_blocking, name, ...)         \
    do {                                       \
        if (is_blocking) {                     \
            world.name(__VA_ARGS__);           \
        } else {                               \
            world.i##name(__VA_ARGS__).wait(); \
        }                                      \
    } while (false)

void equal_parts(const muster::group &world, std::int32_t rank, bool blocks) {
    const std::vector<std::int32_t> mine{rank, 10 * rank};
    std::vector<std::int32_t> all(2 * kRanks, -1), sums(2), part(2);

    EITHER(blocks, allreduce, mine, sums);
    CHECK(sums[0] == 6 && sums[1] == 60);
    EITHER(blocks, allreduce, mine, sums, muster::op::max);
    CHECK(sums[0] == 3 && sums[1] == 30);
    sums = mine;
    EITHER(blocks, allreduce, sums, muster::op::min);
    CHECK(sums[0] == 0 && sums[1] == 0);

    const float large = 1e30F, small = 1e-30F;
    const std::vector<float> addends =
        rank == 0 ? std::vector<float>{large, -large} : std::vector<float>(rank == 3 ? 2 : 0, small);
    float sum = 0;
    EITHER(blocks, allreduce_addends, addends, muster::one(sum));
    CHECK(sum == 2 * small);
    std::vector<float> exact{rank == 0 ? large : rank == 1 ? -large : small};
    EITHER(blocks, allreduce, exact, muster::op::sum_exact);
    CHECK(exact[0] == 2 * small);

    std::vector<std::int32_t> at_root(rank == 2 ? 2 : 0);
    EITHER(blocks, reduce, mine, at_root, 2);
    CHECK(rank != 2 || (at_root[0] == 6 && at_root[1] == 60));
    EITHER(blocks, reduce, mine, at_root, 2, muster::op::max);
    CHECK(rank != 2 || (at_root[0] == 3 && at_root[1] == 30));

    std::vector<std::int32_t> from_root(2, rank);
    EITHER(blocks, broadcast, from_root, 3);
    CHECK(from_root[0] == 3 && from_root[1] == 3);

    EITHER(blocks, allgather, mine, all);
    for (std::int32_t from = 0; from < kSize; from++) {
        CHECK(all[2 * static_cast<std::size_t>(from)] == from && all[2 * static_cast<std::size_t>(from) + 1] == 10 * from);
    }
    const muster::span<std::int32_t> own = muster::span(all).subspan(2 * static_cast<std::size_t>(rank), 2);
    EITHER(blocks, allgather, own, all);  // in place
    CHECK(all[7] == 30);

    std::vector<std::int32_t> gathered(rank == 1 ? 2 * kRanks : 0);
    EITHER(blocks, gather, mine, gathered, 1);
    CHECK(rank != 1 || gathered == all);
    EITHER(blocks, scatter, gathered, part, 1);
    CHECK(part == mine);

    EITHER(blocks, reduce_scatter, all, part);
    CHECK(part[0] == 4 * rank && part[1] == 40 * rank);
    EITHER(blocks, reduce_scatter, all, part, muster::op::min);
    CHECK(part == mine);

    std::vector<std::int32_t> there(kRanks), back(kRanks);
    for (std::int32_t to = 0; to < kSize; to++) {
        there[static_cast<std::size_t>(to)] = 10 * rank + to;
    }
    EITHER(blocks, alltoall, there, back);
    for (std::int32_t from = 0; from < kSize; from++) {
        CHECK(back[static_cast<std::size_t>(from)] == 10 * from + rank);
    }
    EITHER(blocks, alltoall, back, back);  // in place
    CHECK(back == there);
    EITHER(blocks, barrier, );
}

void unequal_parts(const muster::group &world, std::int32_t rank, bool blocks) {
    const std::vector<std::size_t> counts{1, 0, 2, 3}, places{6, 0, 0, 3};
    const std::size_t own = counts[static_cast<std::size_t>(rank)];
    const std::vector<int> mine(own, rank);
    std::vector<int> all(6, -1), placed(8, -1), taken(own, -1);
    const std::vector<int> in_order{0, 2, 2, 3, 3, 3}, in_places{2, 2, -1, 3, 3, 3, 0, -1};

    EITHER(blocks, allgatherv, mine, all, counts);
    CHECK(all == in_order);
    EITHER(blocks, allgatherv, mine, placed, {counts, places});
    CHECK(placed == in_places);

    std::vector<int> gathered(rank == 0 ? 8 : 0, -1);
    EITHER(blocks, gatherv, mine, gathered, {counts, places}, 0);
    CHECK(rank != 0 || gathered == in_places);
    EITHER(blocks, scatterv, gathered, {counts, places}, taken, 0);
    CHECK(taken == mine);
    EITHER(blocks, scatterv, all, counts, taken, 3);
    CHECK(taken == mine);

    EITHER(blocks, reduce_scatterv, all, taken, counts);
    CHECK(taken == std::vector<int>(own, 4 * rank));
    EITHER(blocks, reduce_scatterv, all, taken, counts, muster::op::max);
    CHECK(taken == mine);

    // Each rank sends what it has to every rank: rank + 1 elements.
    const std::size_t each = static_cast<std::size_t>(rank) + 1;
    const std::vector<int> out(each * kRanks, 7 * rank);
    const std::vector<std::size_t> same(kRanks, each), growing{1, 2, 3, 4}, apart{0, 2, 5, 9};
    std::vector<int> in(10, -1), in_apart(13, -1);
    EITHER(blocks, alltoallv, out, same, in, growing);
    EITHER(blocks, alltoallv, out, same, in_apart, {growing, apart});
    CHECK((in == std::vector<int>{0, 7, 7, 14, 14, 14, 21, 21, 21, 21}));
    CHECK((in_apart == std::vector<int>{0, -1, 7, 7, -1, 14, 14, 14, -1, 21, 21, 21, 21}));
}

void values(const muster::group &world, std::int32_t rank) {
    CHECK(world.allreduce(rank) == 6);
    CHECK(world.allreduce(rank + 0.5, muster::op::min) == 0.5);
    CHECK(world.broadcast(rank, 2) == 2);
    CHECK((world.allgather(rank) == std::vector<std::int32_t>{0, 1, 2, 3}));
    CHECK((world.allgather(rank > 1) == std::vector<bool>{false, false, true, true}));
    struct numbered {
        explicit numbered(std::int32_t its) : number(its) {}
        std::int32_t number;
    };
    CHECK(world.allgather(numbered(rank))[3].number == 3);
    std::vector<std::int8_t> small(3, static_cast<std::int8_t>(rank));
    world.allreduce(small, [](auto a, auto b) noexcept { return a + b; });
    CHECK(small[2] == 6);
    const muster::group none;
    FAILS(invalid, "group", none.allgather(small, small));
}

// x -> a x + b, one after the other, in two bytes: does not commute.
std::uint16_t compose(std::uint16_t low, std::uint16_t high) noexcept {
    const unsigned low_factor = low >> 8, high_factor = high >> 8;
    const unsigned addend = high_factor * (low & 0xffU) + (high & 0xffU);
    return static_cast<std::uint16_t>(((low_factor * high_factor) & 0xffU) << 8 | (addend & 0xffU));
}

void own_reductions(muster::cluster &cluster, std::int32_t rank) {
    const muster::group world = cluster.world();
    const auto chain = cluster.make_op(compose, false);
    std::vector<std::uint16_t> chained(1000, static_cast<std::uint16_t>((rank + 2) << 8 | (rank + 1)));
    world.allreduce(chained, chain);
    // ((2x + 1) * 3 + 2) * 4 + 3, and so on
    CHECK(chained[0] == (2 * 3 * 4 * 5 << 8 | (((1 * 3 + 2) * 4 + 3) * 5 + 4)) && chained[999] == chained[0]);
    const auto longest = cluster.make_op<double>([](double a, double b) noexcept { return a * a > b * b ? a : b; });
    CHECK(world.allreduce(-1.0 * rank, longest) == -3.0);
    static_assert(!std::is_convertible_v<muster::reduction<double>, muster::reduction<float>>, "it is one of doubles");
    cluster.free_op(longest);
    FAILS(invalid, "op", cluster.free_op(longest));
    FAILS(invalid, "fn is NULL", cluster.make_op<float>(nullptr));
    float (*const none)(float, float) noexcept = nullptr;
    std::vector<float> values(3, 1.0F);
    FAILS(invalid, "fn is NULL", world.allreduce(values, none));
    FAILS(invalid, "fn is NULL", world.iallreduce(values, none));
    FAILS(invalid, "fn is NULL", world.allreduce(1.0F, none));
}

// Elements of the program's own, and functions with the call.
struct best {
    double gain;
    std::int32_t owner;
    char words[100];
};
best better(const best &a, const best &b) noexcept { return a.gain >= b.gain ? a : b; }

void own_elements(const muster::group &world, std::int32_t rank, bool blocks) {
    static_assert(static_cast<std::int32_t>(muster::dtype_of<best>::value) == MUSTER_ELEMENT + sizeof(best));
    static_assert(static_cast<std::int32_t>(muster::dtype_of<float *>::value) < 0 &&
                  static_cast<std::int32_t>(muster::dtype_of<std::string_view>::value) < 0 &&
                  static_cast<std::int32_t>(muster::dtype_of<std::string>::value) >= 0);
    std::vector<best> mine(50), all(50 * kRanks), found(50);
    for (std::size_t at = 0; at < mine.size(); at++) {
        mine[at] = {static_cast<double>((rank + static_cast<std::int32_t>(at)) % kSize), rank, "words"};
    }
    EITHER(blocks, allgather, mine, all);
    CHECK(all[50 * 3 + 7].owner == 3 && std::string(all[199].words) == "words");
    EITHER(blocks, allreduce, mine, found, better);
    CHECK(found[0].owner == 3 && found[1].owner == 2 && found[49].gain == 3);
    EITHER(
        blocks, allreduce, mine, [](const best &a, const best &b) noexcept { return a.gain < b.gain ? a : b; }, false);
    CHECK(mine[0].owner == 0 && mine[1].owner == 3 && mine[49].gain == 0);
    CHECK(world.broadcast(mine[0], 2).owner == 0);

    const std::int32_t base = rank + 10;  // a function may capture; this one does not commute
    const auto first = [base](std::int32_t low, std::int32_t high) noexcept { return low < base ? low : high; };
    const std::vector<std::int32_t> one_digit(4, rank + 1);
    const std::vector<std::size_t> counts(kRanks, 1);
    std::vector<std::int32_t> number(4), part(1);
    EITHER(blocks, reduce, one_digit, number, 1, first, false);
    CHECK(rank != 1 || number[3] == 1);
    EITHER(blocks, reduce_scatter, one_digit, part, first, false);
    CHECK(part[0] == 1);
    EITHER(blocks, reduce_scatterv, one_digit, part, counts, first, false);
    CHECK(part[0] == 1);
    CHECK(world.allreduce(rank + 1, first, false) == 1);
}

void lists(const muster::group &world, std::int32_t rank, bool blocks) {
    std::vector<std::vector<int>> apart{std::vector<int>(2), std::vector<int>(0), std::vector<int>(3), std::vector<int>(1)};
    const std::vector<int> mine(apart[static_cast<std::size_t>(rank)].size(), rank + 1);
    EITHER(blocks, allgather_list, mine, apart);
    CHECK((apart == std::vector<std::vector<int>>{{1, 1}, {}, {3, 3, 3}, {4}}));
    std::vector<int> sums(mine.size());
    EITHER(blocks, reduce_scatter_list, apart, sums);
    CHECK(sums == std::vector<int>(mine.size(), kSize * (rank + 1)));
    std::array<muster::span<int>, 4> views{muster::span(apart[0]), muster::span(apart[1]), muster::span(apart[2]),
                                           muster::span(apart[3])};
    EITHER(blocks, reduce_scatter_list, views, sums, muster::op::max);
    CHECK(sums == mine);
    apart.pop_back();
    FAILS(invalid, "allgather_list: `outs` has 3 buffers: the group has 4 ranks", world.allgather_list(mine, apart));
}

// --------------------------------------------------------------------------------------------------------- Messages

void messages(const muster::group &world, std::int32_t rank) {
    const std::int32_t next = (rank + 1) % kSize, before = (rank + kSize - 1) % kSize;
    std::vector<double> out(3, rank + 0.25), in(5, -1);
    muster::request coming = world.irecv(in, before, 7);
    FAILS(state, "received nothing", coming.received());
    world.barrier();  // nobody has sent it before
    world.send(out, next, 7);
    coming.wait();
    muster::request moved(std::move(coming));  // what was received goes along
    CHECK(moved.test() && moved.received().count == 3 && moved.received().source == before && moved.received().tag == 7);
    CHECK(in[2] == before + 0.25 && in[3] == -1);

    muster::request going = world.isend(out, next, 8);
    CHECK(world.probe(before).count == 3 && world.iprobe(before, 8)->tag == 8 && !world.iprobe(before, 9));
    muster::request unasked = world.irecv(in, before, 10);
    world.send(out, next, 10);
    pollfd ended{unasked.descriptor(), POLLIN, 0};
    CHECK(poll(&ended, 1, 60'000) == 1 && unasked.received().tag == 10);  // nobody has waited for it, or tested it
    const muster::received told = world.recv(in);
    CHECK(told.source == before && told.tag == 8 && told.dtype == MUSTER_FLOAT64);
    going.wait();
    FAILS(state, "received nothing", going.received());
}

// A container that counts its elements with a sign, as those of some libraries do.
struct signed_size {
    std::vector<float> elements;
    float *data() { return elements.data(); }
    const float *data() const { return elements.data(); }
    std::ptrdiff_t size() const { return static_cast<std::ptrdiff_t>(elements.size()); }
};

// What the error of a receive tells of a message that is too long for it.
void long_messages(const muster::group &world, std::int32_t rank) {
    const std::int32_t next = (rank + 1) % kSize, before = (rank + kSize - 1) % kSize;
    const std::vector<double> out(3, 0.5);
    double one = 0;
    for (const int way : {0, 1, 2, 3}) {
        try {
            if (way == 0) {
                world.sendrecv(out, next, 11, muster::one(one), before, 11);
            } else if (way == 1) {
                world.send(out, next, 11);
                world.recv(muster::one(one), muster::any_source, 11);
            } else {
                muster::request receive = world.irecv(muster::one(one), before, 11);
                world.send(out, next, 11);
                way == 2 ? receive.wait() : static_cast<void>(receive.wait_for(muster::no_limit));
            }
            CHECK(false);
        } catch (const muster::error &error) {
            CHECK(error.code() == muster::status::mismatch && error.misfit() && error.misfit()->source == before);
            CHECK(error.misfit()->count == 3 && error.misfit()->tag == 11 && error.misfit()->dtype == MUSTER_FLOAT64);
        }
    }
    try {
        world.recv(muster::one(one), kSize);
        CHECK(false);
    } catch (const muster::error &error) {
        CHECK(error.code() == muster::status::invalid && !error.misfit());
    }
}

void exchanges(const muster::group &world, std::int32_t rank) {
    const std::int32_t next = (rank + 1) % kSize, before = (rank + kSize - 1) % kSize;
    const std::array<std::int32_t, 2> out{rank, 5};
    std::array<std::int32_t, 4> in{};
    signed_size ones{{1, 1}}, sums{{0, 0}};
    world.allreduce(ones, sums);
    CHECK(sums.elements[1] == kSize);
    muster::received told = world.sendrecv(out, next, 3, in, before, 3);
    CHECK(told.count == 2 && in[0] == before && in[1] == 5);
    in = {};
    muster::request both = world.isendrecv(out, next, 4, in, muster::any_source, 4);
    both.wait();
    CHECK(both.received().source == before && in[0] == before);
}

// --------------------------------------------------------------------------------------------------------- Refusals

// Each is refused before anything has begun: the group goes on.
void misfits(const muster::group &world, std::int32_t rank) {
    std::vector<float> two(2), three(3), eight(8);
    const std::vector<std::size_t> counts{1, 1, 1, 1}, few{1, 1}, long_ones{1, 1, 1, 100}, far{0, 1, 2, SIZE_MAX};
    FAILS(invalid, "allreduce: `in` has 2 elements and `out` 3: they must have as many", world.allreduce(two, three));
    FAILS(invalid, "iallreduce: `in` has 2", world.iallreduce(two, three));
    FAILS(invalid, "allgather: `in` has 2 elements and `out` 3: `out` must have 2 for each of 4 ranks",
          world.allgather(two, three));
    FAILS(invalid, "iallgather: `in` has 3 elements and `out` 8", world.iallgather(three, eight));
    FAILS(invalid, "reduce_scatter: `out` has 3 elements and `in` 8: `in` must have 3 for each",
          world.reduce_scatter(eight, three));
    FAILS(invalid, "alltoall: `in` has 3 elements and `out` 3: that cannot be divided by 4", world.alltoall(three, three));
    FAILS(invalid, "alltoall: `in` has 2 elements and `out` 8: they must", world.alltoall(two, eight));
    FAILS(invalid, "gather: `in` has 3 elements and `out` 8", world.gather(three, eight, rank));
    FAILS(invalid, "scatter: `out` has 3 elements and `in` 8", world.scatter(eight, three, rank));
    FAILS(invalid, "reduce: `in` has 3", world.reduce(three, two, rank));
    FAILS(invalid, "allgatherv: the parts of `out` list 2 numbers: the group has 4 ranks", world.allgatherv(two, eight, few));
    FAILS(invalid, "gatherv: the parts of `out` list 2 numbers", world.gatherv(two, eight, {counts, few}, rank));
    FAILS(invalid, "scatterv: the part of rank 3 in `in` is 100 elements from element 3 on: there are 8",
          world.scatterv(eight, long_ones, two, rank));
    FAILS(invalid, "alltoallv: the part of rank 3 in `out` is 1 elements from element 18446744073709551615 on: there are 8",
          world.alltoallv(eight, counts, eight, {counts, far}));
    FAILS(invalid, "reduce_scatterv: `out` has 2 elements: the part of this rank has 1",
          world.reduce_scatterv(eight, two, counts));
    FAILS(invalid, "allreduce_addends: `in` has 8 elements and `out` 3: `in` must have a multiple of that",
          world.allreduce_addends(eight, three));
    FAILS(invalid, "iallreduce_addends: `in` has 3", world.iallreduce_addends(three, two));
    FAILS(invalid, "op", world.allreduce(two, muster::op::bit_and));
    FAILS(invalid, "root", world.broadcast(two, kSize));
    world.barrier();
}

void everything(muster::cluster &cluster, std::int32_t rank) {
    const muster::group world = cluster.world();
    types(world);
    buffers(world);
    for (const bool blocks : {true, false}) {
        own_elements(world, rank, blocks);
        lists(world, rank, blocks);
        equal_parts(world, rank, blocks);
        unequal_parts(world, rank, blocks);
    }
    values(world, rank);
    own_reductions(cluster, rank);
    exchanges(world, rank);
    messages(world, rank);
    long_messages(world, rank);
    misfits(world, rank);
}

}  // namespace

int main() {
    halves();
    run_workers(kSize, everything);
    return 0;
}
