/* gloo: how long it takes to start N processes that meet through Gloo, pass one barrier and end.
 *
 *   gloo PROCESSES [REPETITIONS=1]
 *
 * Forks and execs this very file anew N times; the processes meet through files in a folder of their own and connect to one
 * another over TCP on 127.0.0.1. Prints: processes, median in milliseconds.
 */
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

const std::chrono::seconds kTimeout(120);

void take_part(int rank, int processes, const std::string &folder) {
    gloo::rendezvous::FileStore store(folder);
    gloo::transport::tcp::attr at("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(at);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, processes);
    context->setTimeout(kTimeout);
    context->connectFullMesh(store, device);
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
}

int child(char **argv) {
    try {
        take_part(atoi(argv[2]), atoi(argv[3]), argv[4]);
    } catch (const std::exception &error) {
        std::cerr << "rank " << argv[2] << ": " << error.what() << "\n";
        _exit(1);
    }
    _exit(0); /* Gloo's threads and connections need no farewell */
}

/* Waits for all; the first that fails ends the others. */
bool all_end_well(std::set<pid_t> children) {
    bool well = true;
    while (!children.empty()) {
        int status = 0;
        pid_t ended = wait(&status);
        if (ended < 0) return false;
        children.erase(ended);
        if (status == 0 || !well) continue;
        well = false;
        for (pid_t other : children) kill(other, SIGKILL);
    }
    return well;
}

/* Milliseconds; negative where a process failed. */
double launch(int processes) {
    std::string folder = (std::filesystem::temp_directory_path() / "bench-gloo-XXXXXX").string();
    if (!mkdtemp(folder.data())) return perror("mkdtemp"), -1;
    pid_t parent = getpid();
    auto begun = std::chrono::steady_clock::now();
    std::set<pid_t> children;
    std::string size = std::to_string(processes);
    for (int rank = 0; rank < processes; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
            std::string number = std::to_string(rank);
            execl("/proc/self/exe", "gloo", "--child", number.c_str(), size.c_str(), folder.c_str(), nullptr);
            _exit(1);
        }
        children.insert(pid);
    }
    bool well = all_end_well(children);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
    std::filesystem::remove_all(folder);
    return well ? took.count() : -1;
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--child") == 0) return child(argv);
    int processes = argc > 1 ? atoi(argv[1]) : 0, repetitions = argc > 2 ? atoi(argv[2]) : 1;
    if (processes < 2 || repetitions < 1) {
        std::cerr << "usage: " << argv[0] << " PROCESSES [REPETITIONS]\n";
        return 2;
    }
    std::vector<double> took;
    for (int i = 0; i < repetitions; i++) {
        took.push_back(launch(processes));
        if (took.back() < 0) return 1;
    }
    std::sort(took.begin(), took.end());
    std::cout << processes << "," << took[took.size() / 2] << "\n";
    return 0;
}
