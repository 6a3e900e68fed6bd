/* Loading the library, using it, and unloading it, a hundred times: nothing is left over, and nothing grows. This
 * program is not linked with the library. */
#include "check.h"
#include "own.h"

#include <dlfcn.h>
#include <pthread.h>

enum { ROUNDS = 100, WARM = 30, GROWTH_MAX = 8 << 20 };

/* Every function that a round uses, loaded under its own name. */
#define FUNCTIONS(X)                                                                                                   \
    X(config_new) X(config_set) X(config_free) X(init) X(finalize) X(cluster_free) X(scheduler_start)                  \
    X(scheduler_address) X(scheduler_wait) X(scheduler_free) X(world) X(rank) X(barrier) X(allreduce) X(store_set)     \
    X(store_get) X(free) X(last_error)

#define POINTER(name) __typeof__(muster_##name) *name;
static struct {
    FUNCTIONS(POINTER)
} muster;

static void load(void *library, const char *name, void *pointer) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(pointer, &found, sizeof found); /* ISO C has no cast from an object's pointer to a function's */
}

static void load_all(void *library) {
#define LOAD(name) load(library, "muster_" #name, &muster.name);
    FUNCTIONS(LOAD)
}

static void use(muster_cluster_t *cluster, int size) {
    int64_t one = 1;
    int64_t sum = 0;
    void *value = NULL;
    size_t len = 0;
    CHECK_OK(muster.barrier(muster.world(cluster)));
    CHECK_OK(muster.allreduce(muster.world(cluster), &one, &sum, 1, MUSTER_INT64, MUSTER_SUM));
    CHECK_IS(size, sum);
    if (muster.rank(cluster) == 0) {
        CHECK_OK(muster.store_set(cluster, "key", "value", 5));
    }
    CHECK_OK(muster.store_get(cluster, "key", -1, &value, &len));
    CHECK_IS(5, len);
    muster.free(value);
    CHECK_IS(MUSTER_ERR_INVALID, muster.barrier(NULL)); /* makes this thread's last error */
    CHECK(muster.last_error()[0] != 0);
    CHECK_OK(muster.finalize(cluster));
    muster.cluster_free(cluster);
}

static muster_config_t *configuration(void) {
    muster_config_t *config = NULL;
    CHECK_OK(muster.config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster.config_set(config, "worker_num", "2"));
    return config;
}

static void *run_node(void *port) {
    muster_config_t *config = configuration();
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster.config_set(config, "role", "MS_WORKER"));
    CHECK_OK(muster.config_set(config, "sched_host", "127.0.0.1"));
    CHECK_OK(muster.config_set(config, "sched_port", port));
    CHECK_OK(muster.init(config, &cluster));
    muster.config_free(config);
    use(cluster, 2);
    return NULL;
}

static void cluster_of_two(void) {
    muster_config_t *config = configuration();
    muster_scheduler_t *scheduler = NULL;
    char address[MUSTER_ADDRESS_BYTES];
    pthread_t threads[2];
    CHECK_OK(muster.scheduler_start(config, &scheduler));
    muster.config_free(config);
    CHECK_OK(muster.scheduler_address(scheduler, address, sizeof address, NULL));
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_node, strrchr(address, ':') + 1) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_OK(muster.scheduler_wait(scheduler, 20000));
    muster.scheduler_free(scheduler);
}

static void cluster_of_one(void) {
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster.init(NULL, &cluster));
    use(cluster, 1);
}

int main(void) {
    int threads = own_threads();
    int descriptors = own_descriptors();
    long warm = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        void *library = dlopen(MUSTER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "    %s\n", dlerror());
        }
        CHECK(library != NULL);
        load_all(library);
        cluster_of_one();
        cluster_of_two();
        CHECK(own_threads_are(threads)); /* before dlclose: nothing may run in what is about to go */
        CHECK(dlclose(library) == 0);
        CHECK_IS(descriptors, own_descriptors());
        if (round == WARM) {
            warm = own_memory();
        }
    }
    long grown = own_memory() - warm;
    if (grown > GROWTH_MAX) {
        fprintf(stderr, "    %ld bytes more after %d rounds\n", grown, ROUNDS - WARM);
    }
    CHECK(grown <= GROWTH_MAX);
    return 0;
}
