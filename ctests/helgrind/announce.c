/* Tells helgrind how the library's threads take turns. Rust's locks, channels and reference counts are built on atomics
 * and futexes, which helgrind does not know: without this, everything that they guard looks like a race.
 *
 * Preloaded (LD_PRELOAD) into programs that run under helgrind, whose wrappers these are. In a library, and a standard
 * library, that are built without optimization every atomic access is a call of one of the few functions below. An argument
 * says in which order it stands to other accesses. This file tells helgrind what the calls publish and what they see: if
 * one thread sees with `Acquire` what another has published with `Release`, the one comes after the other. So a missing
 * lock, or an order that is too weak, is still found. The atomics themselves do not race, and are not looked at.
 *
 * This is coarser than the language. An exchange that publishes also sees (so the fence at the end of a reference count
 * needs no word). An exchange that fails has published all the same. Fences by themselves say nothing. */
#include <semaphore.h>
#include <valgrind/helgrind.h>

/* `core::sync::atomic::Ordering` */
enum { RELAXED, RELEASE, ACQUIRE, ACQUIRE_RELEASE, SEQUENTIAL };

typedef unsigned long word;

/* What a function of Rust's returns: one register or two. */
struct pair {
    word low, high;
};

/* Calls the wrapped function, with all arguments that it may have. */
static inline struct pair call(OrigFn original, word a, word b, word c, word d, word e) {
    struct pair result;
    register word fifth __asm__("r8") = e;
    __asm__ volatile("movq %%rsp, %%r14\n\t"
                     "andq $-16, %%rsp\n\t" VALGRIND_CALL_NOREDIR_RAX "movq %%r14, %%rsp\n\t"
                     : "=a"(result.low), "=d"(result.high), "+D"(a), "+S"(b), "+c"(d), "+r"(fifth)
                     : "0"(original.nraddr), "1"(c)
                     : "cc", "memory", "r9", "r10", "r11", "r14");
    return result;
}

static inline int publishes(word order) {
    order &= 0xff;
    return order == RELEASE || order == ACQUIRE_RELEASE || order == SEQUENTIAL;
}

static inline int sees(word order) {
    order &= 0xff;
    return order == ACQUIRE || order == ACQUIRE_RELEASE || order == SEQUENTIAL;
}

/* The pattern matches any type (`code`, as it stands in the symbol) and any crate: `_R...4core4sync6atomic<name><code>...`
 * */
#define ATOMIC(name, code) I_WRAP_SONAME_FNNAME_ZZ(Za, _RINvNtNtCsZa_4core4sync6atomic##name##code##Za)

#define LOAD(name, code, bytes)                                       \
    struct pair ATOMIC(name, code)(word at, word order) {             \
        OrigFn original;                                              \
        VALGRIND_GET_ORIG_FN(original);                               \
        VALGRIND_HG_DISABLE_CHECKING(at, bytes);                      \
        struct pair result = call(original, at, order, 0, 0, 0);      \
        if (sees(order)) {                                            \
            ANNOTATE_HAPPENS_AFTER(at);                               \
        }                                                             \
        return result;                                                \
    }

#define STORE(name, code, bytes)                                      \
    struct pair ATOMIC(name, code)(word at, word value, word order) { \
        OrigFn original;                                              \
        VALGRIND_GET_ORIG_FN(original);                               \
        VALGRIND_HG_DISABLE_CHECKING(at, bytes);                      \
        if (publishes(order)) {                                       \
            ANNOTATE_HAPPENS_BEFORE(at);                              \
        }                                                             \
        return call(original, at, value, order, 0, 0);                \
    }

#define EXCHANGE(name, code, bytes)                                   \
    struct pair ATOMIC(name, code)(word at, word value, word order) { \
        OrigFn original;                                              \
        VALGRIND_GET_ORIG_FN(original);                               \
        VALGRIND_HG_DISABLE_CHECKING(at, bytes);                      \
        if (publishes(order)) {                                       \
            ANNOTATE_HAPPENS_BEFORE(at);                              \
        }                                                             \
        struct pair result = call(original, at, value, order, 0, 0);  \
        if (publishes(order) || sees(order)) {                        \
            ANNOTATE_HAPPENS_AFTER(at);                               \
        }                                                             \
        return result;                                                \
    }

/* The first bit of the result says whether it failed. */
#define COMPARE_EXCHANGE(name, code, bytes)                                                   \
    struct pair ATOMIC(name, code)(word at, word old, word new, word success, word failure) { \
        OrigFn original;                                                                      \
        VALGRIND_GET_ORIG_FN(original);                                                       \
        VALGRIND_HG_DISABLE_CHECKING(at, bytes);                                              \
        if (publishes(success)) {                                                             \
            ANNOTATE_HAPPENS_BEFORE(at);                                                      \
        }                                                                                     \
        struct pair result = call(original, at, old, new, success, failure);                  \
        if (sees((result.low & 1) != 0 ? failure : success)) {                                \
            ANNOTATE_HAPPENS_AFTER(at);                                                       \
        }                                                                                     \
        return result;                                                                        \
    }

/* bool, i8, u8; i16, u16; i32, u32; isize, usize, i64, u64, *const, *mut */
#define EACH_TYPE(what, name)                                                                   \
    what(name, b, 1) what(name, a, 1) what(name, h, 1) what(name, s, 2) what(name, t, 2)        \
    what(name, l, 4) what(name, m, 4) what(name, i, 8) what(name, j, 8) what(name, x, 8)        \
    what(name, y, 8) what(name, P, 8) what(name, O, 8)

EACH_TYPE(LOAD, 11atomic_load)
EACH_TYPE(STORE, 12atomic_store)
EACH_TYPE(EXCHANGE, 11atomic_swap)
EACH_TYPE(EXCHANGE, 10atomic_add)
EACH_TYPE(EXCHANGE, 10atomic_sub)
EACH_TYPE(EXCHANGE, 10atomic_and)
EACH_TYPE(EXCHANGE, 11atomic_nand)
EACH_TYPE(EXCHANGE, 9atomic_or)
EACH_TYPE(EXCHANGE, 10atomic_xor)
EACH_TYPE(EXCHANGE, 10atomic_max)
EACH_TYPE(EXCHANGE, 10atomic_min)
EACH_TYPE(EXCHANGE, 11atomic_umax)
EACH_TYPE(EXCHANGE, 11atomic_umin)
EACH_TYPE(COMPARE_EXCHANGE, 23atomic_compare_exchange)
EACH_TYPE(COMPARE_EXCHANGE, 28atomic_compare_exchange_weak)

/* A thread that leaves a barrier comes after all that have entered it. */
int I_WRAP_SONAME_FNNAME_ZZ(libmusterZa, musterZubarrier)(void *group) {
    static char barrier;
    OrigFn original;
    int status;
    VALGRIND_GET_ORIG_FN(original);
    ANNOTATE_HAPPENS_BEFORE(&barrier);
    CALL_FN_W_W(status, original, group);
    ANNOTATE_HAPPENS_AFTER(&barrier);
    return status;
}

/* Helgrind itself wraps the other functions of semaphores, but not this one. */
int I_WRAP_SONAME_FNNAME_ZZ(libcZdsoZa, semZutimedwaitZa)(sem_t *semaphore, const struct timespec *until) {
    OrigFn original;
    int result;
    VALGRIND_GET_ORIG_FN(original);
    CALL_FN_W_WW(result, original, semaphore, until);
    if (result == 0) {
        VALGRIND_DO_CLIENT_REQUEST_STMT(_VG_USERREQ__HG_POSIX_SEM_WAIT_POST, semaphore, 1, 0, 0, 0);
    }
    return result;
}
