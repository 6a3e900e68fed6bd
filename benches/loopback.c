/* loopback: how much TCP moves between two processes of this machine when nothing stands in the way.
 *
 * One way: the parent writes 256 KiB at a time for a second, the child reads into a buffer of that size. Round trips: 8 bytes
 * there and back, blocking. Prints: gigabytes (10^9 bytes) per second, median microseconds of a round trip.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 256 << 10, TRIPS = 5000 };

static char chunk[CHUNK_BYTES];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static void give(int link, size_t bytes) {
    for (size_t sent = 0; sent < bytes;) {
        ssize_t count = send(link, chunk + sent, bytes - sent, MSG_NOSIGNAL);
        if (count <= 0) die("send");
        sent += (size_t)count;
    }
}

static void take(int link, size_t bytes) {
    if (recv(link, chunk, bytes, MSG_WAITALL) != (ssize_t)bytes) die("recv");
}

/* Sends every round trip back, then reads until the other end closes. */
static void child(struct sockaddr_in at) {
    int link = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(link, (void *)&at, sizeof at)) die("connect");
    setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 0; i < TRIPS; i++) {
        take(link, 8);
        give(link, 8);
    }
    while (recv(link, chunk, sizeof chunk, 0) > 0) {
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double round_trip_us(int link) {
    static double took[TRIPS];
    for (int i = 0; i < TRIPS; i++) {
        double begun = now_us();
        give(link, 8);
        take(link, 8);
        took[i] = now_us() - begun;
    }
    qsort(took, TRIPS, sizeof *took, ascending);
    return took[TRIPS / 2];
}

static double gb_per_s(int link) {
    double begun = now_us(), bytes = 0;
    while (now_us() - begun < 1e6) {
        give(link, CHUNK_BYTES);
        bytes += CHUNK_BYTES;
    }
    shutdown(link, SHUT_WR);
    wait(NULL); /* until the other end has read it all */
    return bytes / (now_us() - begun) / 1e3;
}

int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (bind(listener, (void *)&at, size) || listen(listener, 1) || getsockname(listener, (void *)&at, &size)) die("listen");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(listener);
        child(at);
        return 0;
    }
    int link = accept(listener, NULL, NULL);
    if (link < 0) die("accept");
    setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    double trip = round_trip_us(link);
    printf("%.2f,%.1f\n", gb_per_s(link), trip);
    return 0;
}
