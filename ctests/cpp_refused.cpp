// What muster.hpp refuses when it is compiled. cpp_compilers.sh compiles this file once for each case, and each must fail with the
// words behind it. Without a case it compiles.
#include <muster.hpp>

#include <array>
#include <initializer_list>
#include <list>
#include <string_view>
#include <vector>

struct opaque {
    int number;
};

struct alignas(64) wide {
    float lanes[16];
};

const std::vector<float> made();

inline void refused(const muster::group &world, muster::cluster &cluster) {
    std::vector<float> values(4);
    const std::vector<float> constant(4);
    std::vector<double> doubles(4);
    std::vector<opaque> opaques(4);
    std::vector<float *> pointers(4);
    std::vector<bool> bits(4);
    std::list<float> list(4);
    static_cast<void>(world), static_cast<void>(cluster);
#if CASE == 1 // must not be a temporary
    world.iallreduce(std::vector<float>(4)).wait();
#elif CASE == 2 // must not be a temporary
    world.isend(std::array<float, 2>{}, 0).wait();
#elif CASE == 3 // must not be constant
    world.allreduce(constant);
#elif CASE == 4 // must have the same element type
    world.allreduce(values, doubles);
#elif CASE == 5 // this is no element type
    world.broadcast(pointers);
#elif CASE == 6 // trivially copyable
    world.broadcast(bits);
#elif CASE == 7 // trivially copyable
    world.broadcast(list);
#elif CASE == 8 // ignoring return
    world.ibarrier();
#elif CASE == 9 // ignoring return
    world.allreduce(values[0]);
#elif CASE == 10 // deleted
    muster::cluster copy(cluster);
#elif CASE == 11 // no matching
    world.allreduce(values, cluster.make_op<double>([](double a, double) noexcept { return a; }));
#elif CASE == 12 // no matching|invalid user-defined conversion
    cluster.make_op<double>([](double a, double) { return a; });
#elif CASE == 14 // only a function can reduce this type
    world.allreduce(opaques);
#elif CASE == 15 // the function must be noexcept
    world.allreduce(values, [](float a, float b) { return a * b; });
#elif CASE == 16 // must not be temporaries
    world.iallgather_list(values, std::vector<std::vector<float>>(2, std::vector<float>(4))).wait();
#elif CASE == 17 // no matching|could not convert|cannot convert
    world.reduce_scatterv(values, values, {0, 2});
#elif CASE == 18 // must not be a temporary
    world.isend(made(), 0).wait();
#elif CASE == 19 // must not be a temporary
    world.isend(std::initializer_list<float>{1, 2}, 0).wait();
#elif CASE == 20 // must not be a temporary
    world.isend(std::array<const float, 2>{1, 2}, 0).wait();
#elif CASE == 21 // deleted
    muster::group half = world.split(0, 0);
    half.barrier();
#elif CASE == 22 // deleted
    muster::group half;
    half = world.split(0, 0);
#elif CASE == 23 // aligned beyond that
    std::vector<wide> wides(4);
    world.allreduce(wides, [](const wide &a, const wide &) noexcept { return a; });
#elif CASE == 13 // must not be a temporary
    world.recv(std::vector<float>(4));
#endif
}

inline void refused_by_the_store(muster::cluster &cluster) {
    std::vector<float *> pointers(4);
    static_cast<void>(cluster);
#if CASE == 24 // does not travel
    cluster.store().set("pointers", pointers);
#elif CASE == 25 // does not travel
    cluster.store().set("views", std::vector<std::string_view>(1));
#elif CASE == 26 // no matching
    cluster.store().set("counter", 0);
#elif CASE == 27 // no matching
    cluster.store().set("counter", nullptr);
#elif CASE == 28 // cannot convert|could not convert|no matching|no viable
    cluster.store().append("counter", 0);
#elif CASE == 29 // cannot convert|could not convert|no matching|no viable
    cluster.store().compare_set("counter", 0, "1");
#elif CASE == 30 // cannot convert|could not convert|no matching|no viable
    static_cast<void>(cluster.store().get(0));
#elif CASE == 31 // pass a std::u8string_view
    cluster.store().set("text", u8"text");
#endif
}
