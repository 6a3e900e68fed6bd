/* Every descriptor of the library is close-on-exec: a program that a node starts sees none of them. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <stdlib.h>
#include <sys/wait.h>

static const char program[] = "/proc/self/exe";

/* Starts a program that may have so many descriptors, and no socket among them. */
static void start_another(int descriptors) {
    char most[16];
    snprintf(most, sizeof most, "%d", descriptors);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(program, program, most, (char *)NULL);
        _exit(3);
    }
    int status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* vfork runs no handler before the exec. */
    pid = vfork();
    if (pid == 0) {
        execl(program, program, most, (char *)NULL);
        _exit(3);
    }
    CHECK(pid > 0);
    status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What the program that is started does. */
static int look(int descriptors) {
    if (own_descriptors() > descriptors) {
        fprintf(stderr, "    %d descriptors are open, and there were %d:\n", own_descriptors(), descriptors);
        CHECK(system("ls -l /proc/$PPID/fd >&2") == 0);
        return 1;
    }
    return own_sockets() ? 1 : 0;
}

static void start_from(muster_cluster_t *cluster, int descriptors) {
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(own_descriptors() > descriptors); /* there is something to be seen */
    start_another(descriptors);
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void alone(void) {
    int descriptors = own_descriptors();
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster_init(NULL, &cluster));
    start_from(cluster, descriptors);
}

/* A scheduler with a journal, and a node with an identity file and a trace. */
static void with_files(void) {
    char path[] = "/tmp/muster-exec-XXXXXX", command[64], port[8] = "";
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, "trace", path, NULL};
    struct plan plan = {.workers = 1, .node_ids = rank_ids, .settings = settings};
    int descriptors = own_descriptors();
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    start_from(join(&plan, port, 0), descriptors);
    CHECK_OK(muster_scheduler_wait(scheduler, 20000 * patience()));
    muster_scheduler_free(scheduler);
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return look(atoi(argv[1]));
    }
    alone();
    with_files();
    return 0;
}
