/* Every descriptor of the library is close-on-exec: a program that a node starts sees none of them. */
#include "check.h"
#include "own.h"
#include "ranks.h"

#include <stdlib.h>
#include <sys/wait.h>

static void start_another(const char *program) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(program, program, "look", (char *)NULL);
        _exit(3);
    }
    int status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* vfork runs no handler before the exec. */
    pid = vfork();
    if (pid == 0) {
        execl(program, program, "look", (char *)NULL);
        _exit(3);
    }
    CHECK(pid > 0);
    status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        return own_sockets() ? 1 : 0;
    }
    int descriptors = own_descriptors();
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster_init(NULL, &cluster));
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(own_descriptors() > descriptors); /* there is something to be seen */
    start_another("/proc/self/exe");
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    return 0;
}
