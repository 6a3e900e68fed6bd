#include "own.h"

#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int entries(const char *path) {
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    int count = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

int own_threads(void) {
    const char *foreign = getenv("CTESTS_FOREIGN_THREADS");
    return entries("/proc/self/task") - (foreign == NULL ? 0 : atoi(foreign));
}

/* Whether the count is that, now or within two seconds. */
static bool comes_to(int (*count)(void), int expected) {
    struct timespec pause = {.tv_nsec = 1000000}; /* between two looks */
    for (int i = 0; i < 2000 * patience() && count() != expected; i++) {
        nanosleep(&pause, NULL);
    }
    return count() == expected;
}

bool own_threads_are(int expected) {
    return comes_to(own_threads, expected);
}

int own_descriptors(void) {
    return entries("/proc/self/fd") - 1; /* the folder itself was open */
}

bool own_descriptors_are(int expected) {
    return comes_to(own_descriptors, expected);
}

bool own_sockets(void) {
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    bool found = false;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[300];
        char target[300] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (entry->d_name[0] == '.' || atoi(entry->d_name) <= 2 || readlink(path, target, sizeof target - 1) < 0) {
            continue;
        }
        if (strncmp(target, "socket:", 7) == 0 || strncmp(target, "anon_inode:", 11) == 0) {
            fprintf(stderr, "    descriptor %s is %s\n", entry->d_name, target);
            found = true;
        }
    }
    closedir(folder);
    return found;
}

long own_memory(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long total = 0;
    long resident = 0;
    CHECK(file != NULL && fscanf(file, "%ld %ld", &total, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

void own_thread_calls(int *tid) {
    __atomic_store_n(tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
}

void own_thread_sleeps(const int *tid) {
    char path[64], line[512], state = 0;
    /* Under Valgrind a thread sleeps, too, while another one has its turn: there it must be asleep turn after turn. */
    for (int asleep = 0; asleep < patience(); asleep = state == 'S' ? asleep + 1 : 0) {
        usleep(1000); /* the kernel tells nobody when a thread falls asleep */
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", __atomic_load_n(tid, __ATOMIC_SEQ_CST));
        int file = open(path, O_RDONLY | O_CLOEXEC); /* no stream: helgrind does not know the lock of the list of all streams */
        state = 0;                                   /* it has no number yet */
        if (file >= 0) {
            ssize_t length = read(file, line, sizeof line - 1);
            CHECK(length > 0 && close(file) == 0);
            line[length] = 0;
            CHECK(sscanf(line, "%*d (%*[^)]) %c", &state) == 1);
        }
    }
}
