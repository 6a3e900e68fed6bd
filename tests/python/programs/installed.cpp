// What a user of an installed muster builds in C++: a cluster of one.
#include <muster.hpp>

#include <cstdio>
#include <string>

int main() {
    try {
        const muster::cluster cluster = muster::init();
        const float sum = cluster.world().allreduce(20.5F);
        std::printf("muster %s: the sum is %.1f\n", std::string(muster::version()).c_str(), sum);
    } catch (const muster::error &error) {
        return std::fprintf(stderr, "%s\n", error.what()), 1;
    }
}
