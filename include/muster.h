/*
 * muster: turns a set of processes into a cluster with ranks, host collectives and a small shared store.
 *
 * This file is made from src/ffi by `make header`. Do not edit it.
 *
 * Conventions:
 * - A muster_status_t is 0 for success, positive for a state, negative for an error. After an error muster_last_error()
 *   says in a full sentence which input was wrong, what it was, and what would be right.
 * - Queries for a number return 0 or more, or a negative status. Queries also answer when the cluster is broken, and
 *   after muster_finalize.
 * - A required argument that is NULL gives MUSTER_ERR_INVALID. A buffer may be NULL where its count is 0.
 * - A function that makes a handle writes it to a `T **out`. The handle's _free function frees it, and accepts NULL. The
 *   groups that muster_world, muster_servers and muster_universe return belong to their cluster and are not freed.
 * - Outputs are written on success only, unless a function says otherwise.
 * - A call that gives out a text takes `buf`, `cap` and `needed`. It copies the text to `buf`, which has `cap` bytes,
 *   and writes the length with the zero byte to `needed` (may be NULL). If `cap` is too small, it returns
 *   MUSTER_ERR_LIMIT, copies nothing, and still writes `needed`. To ask for the length only, pass NULL for `buf` and 0
 *   for `cap`.
 * - A call that fills a struct takes the struct's size: pass `sizeof *out`. If the program's struct is shorter than the
 *   library's, it gets only its own members. If it is longer, the rest becomes zero. A size that does not hold the
 *   first member is MUSTER_ERR_INVALID.
 * - A timeout_ms of INT64_MAX means "no limit", and 0 means "try once". Each function says what -1 means. Other negative values
 *   are MUSTER_ERR_INVALID.
 * - Calls on clusters, groups, schedulers and the store may come from any thread, several at a time. A configuration and
 *   a request belong to one thread at a time. All ranks of a group call its collectives in the same order.
 * - The library installs no signal handlers, and its threads block the program's signals. No call ends early because of
 *   a signal, unless the program's hook says so (muster_config_set_interrupt). Sending to a dead process raises no
 *   SIGPIPE. No function may be called in a signal handler.
 * - After fork(), calls on inherited handles return MUSTER_ERR_FORKED in the child. The child may free these handles,
 *   and may join a cluster of its own. Neither affects the parent.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

/** The number of this ABI. The SONAME carries it (libmuster.so.1); it grows only with an incompatible change. */
#define MUSTER_ABI_VERSION 1

/**
 * The version of this header: MUSTER_ABI_VERSION in the lower 16 bits, the minor number in the upper ones. It grows with each
 * release that adds something. Pass it to muster_config_new, and a library that is older than the header says so.
 */
#define MUSTER_HEADER_VERSION 1

/** Element type: 8-bit signed integer. */
#define MUSTER_INT8 0

/** Element type: 16-bit signed integer. */
#define MUSTER_INT16 1

/** Element type: 32-bit signed integer. */
#define MUSTER_INT32 2

/** Element type: 64-bit signed integer. */
#define MUSTER_INT64 3

/** Element type: 8-bit unsigned integer; also for plain bytes. */
#define MUSTER_UINT8 4

/** Element type: 16-bit unsigned integer. */
#define MUSTER_UINT16 5

/** Element type: 32-bit unsigned integer. */
#define MUSTER_UINT32 6

/** Element type: 64-bit unsigned integer. */
#define MUSTER_UINT64 7

/** Element type: IEEE 754 half precision. */
#define MUSTER_FLOAT16 8

/** Element type: bfloat16. */
#define MUSTER_BFLOAT16 9

/** Element type: IEEE 754 single precision. */
#define MUSTER_FLOAT32 10

/** Element type: IEEE 754 double precision. */
#define MUSTER_FLOAT64 11

/**
 * Element type: an element of the caller's own, which is never split. The type is this number plus the element's size
 * in bytes, 1 to MUSTER_ELEMENT_BYTES_MAX: MUSTER_ELEMENT + sizeof(struct pair).
 *
 * All collectives and messages move such elements, and ranks must agree on the size. The library does not know what they
 * mean. So only the caller's own functions reduce them: those of muster_op_create, and of muster_allreduce_with and
 * its like. With the library's operations, such as MUSTER_SUM, the call returns MUSTER_ERR_INVALID.
 */
#define MUSTER_ELEMENT 1048576

/** The largest size of a MUSTER_ELEMENT, in bytes. */
#define MUSTER_ELEMENT_BYTES_MAX 65536

/** Operation: sum. Integers wrap. */
#define MUSTER_SUM 0

/** Operation: product. Integers wrap. */
#define MUSTER_PROD 1

/** Operation: minimum. NaN propagates; the minimum of the two zeros is -0. */
#define MUSTER_MIN 2

/** Operation: maximum. NaN propagates; the maximum of the two zeros is +0. */
#define MUSTER_MAX 3

/**
 * Operation: average: the sum divided by the number of ranks. Integers truncate toward zero, once, at the end.
 *
 * 8, 16 and 32 bit integers, float16 and bfloat16 are summed in wider types, so that nothing overflows in between.
 * Averages of these integers are exact. Averages of float16 and bfloat16 are rounded once, from sums in float32.
 * An average of such elements costs as much as an operation on elements of twice the width, or of four times the
 * width (integers of 8 bits in groups of more than 256, and of 16 bits beyond 65,536). The group keeps memory for the
 * average: about twice the size of the input, and several times that size for a reduce-scatter over several hosts. The
 * sums of 64 bit integers wrap, and those of float32 and float64 overflow to infinity, like those of MUSTER_SUM.
 */
#define MUSTER_AVG 4

/** Operation: bitwise and; integer types only. */
#define MUSTER_AND 5

/** Operation: bitwise or; integer types only. */
#define MUSTER_OR 6

/** Operation: bitwise exclusive or; integer types only. */
#define MUSTER_XOR 7

/**
 * Operation: exact sum; float types only. The result is the real sum of all ranks' elements, rounded once, to the nearest, ties
 * to even.
 *
 * So the result depends on the elements alone: not on their order, the ranks' numbers, the algorithm or the transport.
 * Nothing overflows in between. A sum that is zero is +0, or -0 if all elements are -0. With a NaN, or infinities of
 * both signs, the sum is the canonical NaN. The library may need memory for a piece of every rank's addends, about 512
 * KiB in all. With more than 128 addends it may need 4 KiB for each addend of the other ranks: 256 MiB for 65,536
 * addends in muster_allreduce_addends. With several hosts, one rank of each host needs up to about 5 MiB. In
 * muster_allreduce_addends that rank also needs room for its host's addends, up to 64 MiB.
 */
#define MUSTER_SUM_EXACT 8

/** In place of a sender's rank: any rank. */
#define MUSTER_ANY_SOURCE (-1)

/** In place of a tag: any tag. */
#define MUSTER_ANY_TAG (-1)

/**
 * Flag of muster_store_compare_set_bytes: if the key does not exist and `expected` is not empty, the call answers as
 * PyTorch's c10d does.
 */
#define MUSTER_STORE_C10D 1

/** What muster_role answers in a worker. */
#define MUSTER_ROLE_WORKER 1

/** What muster_role answers in a parameter server. */
#define MUSTER_ROLE_SERVER 2

/** State of a member: in the cluster, as far as this process has heard. */
#define MUSTER_MEMBER_PRESENT 0

/** State of a member: lost; the cluster is broken because of it. */
#define MUSTER_MEMBER_LOST 1

/** State of a member: the member has left, and a call that needed it has noticed. */
#define MUSTER_MEMBER_LEFT 2

/** Log level: errors. */
#define MUSTER_LOG_ERROR 1

/** Log level: errors, and warnings about what is odd or slow. The default. */
#define MUSTER_LOG_WARNING 2

/** Log level: also what happens to the cluster. */
#define MUSTER_LOG_INFO 3

/** Log level: also what happens inside the cluster. */
#define MUSTER_LOG_DEBUG 4

/** The size of node_id and host in the structs of this header, with the ending zero byte. */
#define MUSTER_NAME_BYTES 256

/** The size of an address in the structs of this header, with the ending zero byte. */
#define MUSTER_ADDRESS_BYTES 64

/** The size of the cause in muster_failure_t, with the ending zero byte. */
#define MUSTER_CAUSE_BYTES 512

/** A node's cluster. Its calls are thread-safe. */
typedef struct muster_cluster_t muster_cluster_t;

/** Settings as key and value strings; docs/settings.md lists the keys. Belongs to one thread at a time. */
typedef struct muster_config_t muster_config_t;

/**
 * An ordered set of nodes with its own sequence of collectives. The built-in groups are borrowed from their cluster,
 * and live as long as it does. Groups that the program makes belong to the program, which frees them with
 * muster_group_free. Every rank must call a group's collectives in the same order.
 */
typedef struct muster_group_t muster_group_t;

/**
 * An operation that was started and may still go on. Belongs to one thread at a time. Free it with
 * muster_request_free, also after the operation has ended, and also if its group or cluster has been freed before.
 */
typedef struct muster_request_t muster_request_t;

/** A scheduler on a thread of its own. Its calls are thread-safe. */
typedef struct muster_scheduler_t muster_scheduler_t;

/** The result of a call: 0 is success, a positive value a state, a negative value an error. Values are never reused. */
typedef int32_t muster_status_t;

/**
 * Receives log lines: their level (MUSTER_LOG_...), the speaker, and the line, which has no line end. The strings
 * live as long as the call. Called from a thread of the library, which blocks the program's signals, one line at a
 * time, in the order in which the lines were logged. The function may take as long as it likes, and may wait for a
 * lock of the program: no heartbeat waits for it, and a call that fails waits at most 100 ms. The function must not
 * call this library. A forked child calls it from a thread of its own.
 */
typedef void (*muster_log_fn)(int32_t level, const char *target, const char *message, void *ctx);

/** What broke a cluster or a group: the first cause. */
typedef struct {
    /** The status that the failing calls returned. */
    muster_status_t status;
    /**
     * The role of the culprit, the node that caused the failure (MUSTER_ROLE_...); 0 if there is no culprit. If ranks
     * called different collectives (MUSTER_ERR_MISMATCH), the culprit is the rank that disagrees with the majority of
     * the group's members. If several ranks disagree, it is the lowest of them. If no call has a majority, there is no
     * culprit.
     */
    int32_t role;
    /**
     * The culprit's rank among the nodes of its role; -1 if it has none. On a process that is cut off from the others
     * this is that process's own rank.
     */
    int32_t rank;
    /** The culprit's process id; 0 if there is no culprit. */
    int32_t pid;
    /** The epoch in which the failure happened. */
    int64_t epoch;
    /**
     * The group that the failure broke: 0 is world, 1 servers, 2 universe, -1 the whole cluster. From 3 on it is a
     * group that the program made, which error sentences call "group 3". A lost node (MUSTER_ERR_PEER_LOST) breaks the
     * whole cluster. Then this is the group of the collective in which, or after which, the node was heard last; -1 if
     * there is no such collective.
     */
    int64_t group;
    /**
     * The number of the group's collective in which the failure was noticed, from 1; 0 if there was none. If a node
     * was lost, this is the collective in which, or after which, the node was heard last.
     */
    uint64_t sequence;
    /** The node's id. */
    char node_id[MUSTER_NAME_BYTES];
    /** Its host's name. */
    char host[MUSTER_NAME_BYTES];
    /** What happened, in words. */
    char cause[MUSTER_CAUSE_BYTES];
} muster_failure_t;

/**
 * The five values that HCCL needs to start through its cluster manager (CM_CHIEF_IP, CM_CHIEF_PORT, CM_CHIEF_DEVICE,
 * CM_WORKER_SIZE, CM_WORKER_IP).
 */
typedef struct {
    /** The scheduler's port plus one. */
    int32_t chief_port;
    /** The chief's device. With several workers it is 0. With one worker it is that worker's DEVICE_ID, or 0 if that is not set. */
    int32_t chief_device;
    /** How many workers. */
    int32_t worker_size;
    /** The scheduler's address, numeric. */
    char chief_ip[MUSTER_ADDRESS_BYTES];
    /** This node's address, numeric. */
    char worker_ip[MUSTER_ADDRESS_BYTES];
} muster_hccl_cm_t;

/** A member of a group. */
typedef struct {
    /** MUSTER_ROLE_WORKER or MUSTER_ROLE_SERVER. */
    int32_t role;
    /** Its rank in its role's rank space. */
    int32_t rank;
    /** Its place among the nodes of its role on its host. */
    int32_t local_rank;
    /** Its process. */
    int32_t pid;
    /** MUSTER_MEMBER_PRESENT, _LOST or _LEFT, as far as this process has heard. */
    int32_t state;
    /** Its node id. */
    char node_id[MUSTER_NAME_BYTES];
    /** Its host's name. */
    char host[MUSTER_NAME_BYTES];
    /** Where it can be reached, as "host:port" with a numeric host: the first of its addresses. */
    char address[MUSTER_ADDRESS_BYTES];
} muster_member_t;

/**
 * A user's reduction: `inout[i] = in[i] op inout[i]` for `count` elements of the element type `dtype`, where `in` has the
 * operands of lower ranks. `ctx` is what muster_op_create, or the call, was given.
 *
 * Any thread that carries out a collective may call the function, and several threads at a time if several groups
 * reduce at once. A call gets any stretch of whole elements. `in` and `inout` are aligned as the caller's buffers are,
 * or as malloc aligns. It finds the floating-point environment with which a process begins, whatever its caller has set
 * in its own thread. The function must write nothing but `inout`, must not throw, and must not call this library.
 */
typedef void (*muster_reduce_fn)(const void *in, void *inout, size_t count, int32_t dtype, void *ctx);

/**
 * What a receive says about the message that it got, or about a message that did not fit. A probe says the same
 * about the message that it has found.
 */
typedef struct {
    /** The sender's rank in the group. */
    int32_t source;
    /** The sender's tag. */
    int32_t tag;
    /**
     * How many elements the message has. If a receive returned MUSTER_ERR_MISMATCH, this is the true length of the message that
     * did not fit.
     */
    uint64_t count;
    /** Their type, a MUSTER_ constant. */
    int32_t dtype;
} muster_received_t;

/**
 * A function of the program that a waiting call asks. If it returns 0 the call goes on waiting. Any other value ends
 * the wait. `ctx` is what muster_config_set_interrupt was given.
 *
 * The waiting thread calls it, and several threads at a time if several wait. The function may call muster_interrupt,
 * and any function that neither waits nor frees anything. It must not call a function that waits. It must not throw.
 */
typedef int32_t (*muster_interrupt_fn)(void *ctx);

/**
 * A function of the program that the library calls once an operation has ended: with MUSTER_OK or the operation's
 * error, and the `ctx` that muster_request_notify was given.
 *
 * A thread of the library calls it, one function at a time for each cluster. A function that takes long delays the
 * functions of other requests, but no operation. The function may call this library: muster_request_test, after
 * which muster_last_error gives the error's sentence and `received` of a receive is written; and muster_request_free,
 * for this or another request. The function must not free the request's cluster, and must not throw.
 */
typedef void (*muster_notify_fn)(muster_status_t status, void *ctx);

/**
 * Bytes with a length: a key of the store, or a value. The library only reads the bytes that the caller passes. `data`
 * may be NULL where `len` is 0.
 */
typedef struct {
    /** Where the bytes begin. */
    const void *data;
    /** How many bytes there are. */
    size_t len;
} muster_bytes_t;

/** Success. */
#define MUSTER_OK 0

/** The operation is not finished yet. */
#define MUSTER_IN_PROGRESS 1

/** This process was the scheduler, and its job has ended well. There is no cluster handle. */
#define MUSTER_SCHEDULER_DONE 2

/** An argument is not valid. Nothing has happened. */
#define MUSTER_ERR_INVALID (-1)

/** A setting is not valid; the sentence names the variable, its value, and what would be right. */
#define MUSTER_ERR_CONFIG (-2)

/** Not possible at this moment, for instance after muster_finalize. */
#define MUSTER_ERR_STATE (-3)

/** The setting `shm` is `require`, but memory cannot be shared; or this version of the library lacks the function. */
#define MUSTER_ERR_UNSUPPORTED (-4)

/** A limit is exceeded; the sentence says which. */
#define MUSTER_ERR_LIMIT (-5)

/** There is no such key, or no such thing. */
#define MUSTER_ERR_NOT_FOUND (-6)

/** The scheduler refused this node; the sentence names both sides of the disagreement. */
#define MUSTER_ERR_REJECTED (-7)

/** An address could not be bound. */
#define MUSTER_ERR_BIND (-8)

/** The scheduler, or a peer, could not be reached. */
#define MUSTER_ERR_UNREACHABLE (-9)

/** The time is up. The sentence names the missing nodes, or the rank for which this process waits. */
#define MUSTER_ERR_TIMEOUT (-10)

/** A process of the cluster was lost. */
#define MUSTER_ERR_PEER_LOST (-11)

/** A process that the call needs has left the cluster, or freed the group. */
#define MUSTER_ERR_PEER_LEFT (-12)

/** Two live processes cannot reach each other; the sentence names both. */
#define MUSTER_ERR_LINK (-13)

/** Bytes were damaged on the way. */
#define MUSTER_ERR_CORRUPT (-14)

/**
 * Ranks called different collectives, or a message does not fit its receive; the sentence tells both sides. It
 * describes a list of ranks or counts by its length or sum, and by a check number that differs if the lists differ.
 */
#define MUSTER_ERR_MISMATCH (-15)

/** A node has called muster_recover, which ends the epoch for every group. */
#define MUSTER_ERR_REVOKED (-16)

/** A rank aborted the job, or its scheduler was stopped; or a request was cancelled, or a message given up midway. */
#define MUSTER_ERR_ABORTED (-17)

/**
 * A newer process of this node has taken its place, or the others have taken this process for lost. This happens
 * with and without recovery.
 */
#define MUSTER_ERR_FENCED (-18)

/** Authentication or encryption failed: a certificate, or the proof of the job secret, was not accepted. */
#define MUSTER_ERR_SECURITY (-19)

/** The journal, or what a node keeps beside it, could not be read or written, or the journal is an older copy. */
#define MUSTER_ERR_JOURNAL (-20)

/** The operating system refused something. */
#define MUSTER_ERR_SYSTEM (-21)

/**
 * Out of memory. This covers memory whose size a caller or the network gives: requests and messages that wait, memory
 * beside a collective's buffers, values of the store, lists of counts. It does not cover the few hundred bytes that a call
 * takes at a time: before a call takes them, the library checks that 64 KiB are free. If other threads take even those,
 * the process is aborted. The process is also aborted if there is no memory for an object (a cluster, a group, a link, a
 * thread) or a control message (at most 1 MiB).
 */
#define MUSTER_ERR_MEMORY (-22)

/** A bug in this library. */
#define MUSTER_ERR_INTERNAL (-23)

/** The handle belongs to the parent of this forked process. */
#define MUSTER_ERR_FORKED (-24)

/** The program has ended the wait: by muster_interrupt, or by its hook (muster_config_set_interrupt). */
#define MUSTER_ERR_INTERRUPTED (-25)

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** The ABI number of the library that is loaded; compare it with MUSTER_ABI_VERSION, which is the header's. */
uint32_t muster_abi_version(void);

/** The library's version, as "1.0.0". Lives as long as the library is loaded. */
const char *muster_version(void);

/** Name and meaning of a status, as "ERR_TIMEOUT: the time is up". Never NULL; lives as long as the library is loaded. */
const char *muster_status_string(muster_status_t status);

/**
 * A full sentence about this thread's last failing call; empty if none has failed. Never NULL. Valid until this thread's
 * next failing call, which frees the sentence. So copy what you keep, and do not call this in the argument list of
 * another call of this library.
 */
const char *muster_last_error(void);

/**
 * Frees a value that the store gave out. Accepts NULL.
 *
 * Requires:
 * `value` must be NULL, or what a muster_store_ call gave out, and not be used any more.
 */
void muster_free(void *value);

/**
 * Sends the log of every cluster of this process, up to `level` (MUSTER_LOG_ERROR to MUSTER_LOG_DEBUG), to `fn`
 * instead of standard error. The variable MUSTER_LOG has no effect then. NULL for `fn` sends the log to standard error
 * again, whatever `level` is. Without a callback, warnings and errors go to standard error, one line each;
 * MUSTER_LOG=debug or another level changes that.
 *
 * A thread that logs does not wait until the line is written. Lines wait for a thread of the library, 1,024 of them
 * or 256 KiB at most. A line that finds no room is dropped. A line that cannot be written is dropped, too: nobody
 * reads the pipe any more, or standard error is closed. Dropped lines are counted: a line in their place, or before
 * the next line that is written, says how many were dropped. No SIGPIPE is raised, and the flags of standard error
 * stay what they are. A call that returns an error first waits until the lines logged before have been written, but no
 * longer than 100 ms after the last of them. This holds for calls that otherwise do not block, too. Freeing the last
 * handle waits in the same way. If the thread that writes the log has not yet been given a processor, the call that
 * frees waits up to 2 s for that. Then that thread ends. If the thread does not return (from `fn`, from a terminal
 * that is stopped, from a disk that does not answer), it continues to exist, and the library stays in memory.
 *
 * A call that replaces or removes a function drops the lines that wait for the old function, and does not count them.
 * It returns only when the old function is not running. So the caller must not hold a lock for which that function
 * waits. None of the parent's calls runs in a forked child, so the child does not wait for them; the function stays
 * set there. When a function is set, lines that wait for standard error have 100 ms more. Lines still unwritten after
 * that are dropped and counted, and the function is told how many.
 *
 * Requires:
 * `fn` must be NULL or a function that may be called, with `ctx`, until another callback has been set.
 */
muster_status_t muster_set_log_callback(int32_t level, muster_log_fn fn, void *ctx);

/**
 * Makes empty settings. Free them with muster_config_free.
 *
 * `abi_version` says for which library the program was built. Pass MUSTER_HEADER_VERSION to refuse a library that is
 * older than the program's header. Pass MUSTER_ABI_VERSION to accept any library of this ABI. MUSTER_ERR_INVALID for
 * another ABI, and for a greater minor number than the library's; the sentence has both versions.
 *
 * Requires:
 * `out` must be NULL or writable.
 */
muster_status_t muster_config_new(uint32_t abi_version, muster_config_t **out);

/**
 * Takes the settings that stand in the environment (MUSTER_..., MS_..., another launcher's); what was set by
 * muster_config_set stays. If a value is bad, muster_init returns an error, but only if no other source beats that
 * value.
 *
 * Requires:
 * `config` must be NULL or a live configuration; no other thread may change the environment meanwhile.
 */
muster_status_t muster_config_load_env(muster_config_t *config);

/**
 * Sets one setting, which then beats every other source. Copies both strings. An unknown key, or a value that does not
 * fit, is MUSTER_ERR_CONFIG at once. A key that is not UTF-8 is MUSTER_ERR_INVALID. (muster_init checks the text of
 * `thresholds`, which only a scheduler uses, and whether the settings fit each other.)
 *
 * Requires:
 * `config` must be NULL or a live configuration; `key` and `value` must be NULL or strings.
 */
muster_status_t muster_config_set(muster_config_t *config, const char *key, const char *value);

/**
 * Gives the value that is in effect for a key, defaults included. Where two keys limit one time (`cluster_timeout` and
 * `topo_timeout`), each gives its own, and the smaller one counts. The value is copied to `buf`, and its length with the
 * zero byte to `needed` (may be NULL). MUSTER_ERR_LIMIT if `cap` is too small (`buf` NULL and `cap` 0 only ask for
 * the length), MUSTER_ERR_NOT_FOUND if the key has no value. An unknown key, or the key of a secret, gives
 * MUSTER_ERR_CONFIG. MUSTER_ERR_INVALID if the key is not UTF-8, or `buf` and `needed` are both NULL.
 *
 * Requires:
 * `config` must be NULL or a live configuration, `key` NULL or a string, `buf` writable for `cap` bytes or NULL, `needed`
 * writable or NULL.
 */
muster_status_t muster_config_get(const muster_config_t *config,
                                  const char *key,
                                  char *buf,
                                  size_t cap,
                                  size_t *needed);

/**
 * Frees settings. Accepts NULL. A cluster keeps what it needs, so this may be called right after muster_init.
 *
 * Requires:
 * `config` must be NULL or a live configuration, and is not to be used any more.
 */
void muster_config_free(muster_config_t *config);

/**
 * Joins the cluster that the settings describe; NULL for `config` means the settings of the environment. Blocks until
 * all nodes have joined, at most for the forming time-out (setting cluster_timeout, 600 s by default), then writes a
 * handle to `out`. The hook of `config` (muster_config_set_interrupt) may end the wait early; no signal does by
 * itself.
 *
 * In a process whose role is scheduler the call serves until the job has ended, and then returns MUSTER_SCHEDULER_DONE
 * with `*out` set to NULL, or the job's error. With no settings at all the process is a cluster of one.
 *
 * Errors: MUSTER_ERR_CONFIG, MUSTER_ERR_BIND, MUSTER_ERR_LIMIT (this process runs the scheduler, and may not open as many
 * descriptors as there are nodes), MUSTER_ERR_UNREACHABLE (no scheduler), MUSTER_ERR_REJECTED,
 * MUSTER_ERR_TIMEOUT (the sentence names who is missing), MUSTER_ERR_SECURITY (until the time was up, this node and
 * the scheduler did not accept each other's certificate or secret; the sentence says why), MUSTER_ERR_ABORTED (the
 * job was ended while it formed, or before this node came back), MUSTER_ERR_INTERRUPTED (the hook). With recovery
 * also: MUSTER_ERR_JOURNAL (what this process keeps in the recovery path cannot be read or written);
 * MUSTER_ERR_PEER_LEFT (this node comes back to a cluster that another node has left for good); MUSTER_ERR_FENCED
 * (another process has taken this node's place meanwhile). In a scheduler also the status of the job's first cause,
 * such as MUSTER_ERR_PEER_LOST.
 *
 * Requires:
 * `config` must be NULL or a live configuration; `out` must be NULL or writable. Where `config` is NULL no other thread may change
 * the environment meanwhile.
 */
muster_status_t muster_init(const muster_config_t *config,
                            muster_cluster_t **out);

/**
 * Leaves the cluster in order; does not free the handle. If all is well this takes milliseconds, however many groups
 * there are. It ends within the setting finalize_timeout (30 s) in any case: also without a scheduler, when the
 * scheduler or a peer does not respond, and while another thread of this process is in a call, which then ends with
 * MUSTER_ERR_STATE. It returns MUSTER_OK then, too; a warning in the log says what was missing. It returns
 * MUSTER_ERR_INTERRUPTED if the program ended the wait (muster_interrupt). If a user's function (muster_op_create) has
 * not returned by then, muster_cluster_free waits for it. Peers that need this node afterwards get
 * MUSTER_ERR_PEER_LEFT. A process that hosts the scheduler waits here for the others to leave. If they have not left
 * when the time is up, their job goes on: the scheduler serves them until muster_cluster_free, and then ends as if its
 * process had died. Accepts NULL; a second call does nothing.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_status_t muster_finalize(muster_cluster_t *cluster);

/**
 * Ends the job for every rank: their pending and later calls return MUSTER_ERR_ABORTED with this rank, code and
 * reason. The program decides what `code` and `reason` mean. `reason` is UTF-8, and is cut after 1,024 bytes. A
 * group that was over before keeps its own first cause. If recovery is on and a node was lost before, muster_failure
 * goes on reporting that loss, and muster_recover returns MUSTER_ERR_ABORTED.
 *
 * Waits up to 250 ms for the scheduler's answer. If none comes, this rank tells every node itself, for 2 s at most.
 * It returns MUSTER_OK once all nodes have been told, except those known to be lost or to have left. Otherwise it
 * returns MUSTER_ERR_UNREACHABLE, and the sentence says how many nodes have not been told. With recovery, if the
 * scheduler is started again and hears of the abort from any node, it tells the nodes that do not know yet.
 * muster_finalize waits up to 1 s for the scheduler, so that it can hear of the abort. In a cluster of more than 1,024 nodes a rank can tell only the
 * nodes whose addresses it knows. Returns MUSTER_OK at once if the job is already over: without recovery any loss ends
 * it. With recovery it returns MUSTER_ERR_FENCED if the others have taken this node for lost (nobody is told then). It
 * returns MUSTER_ERR_STATE after muster_finalize, and MUSTER_ERR_INVALID if `reason` is NULL or not UTF-8.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `reason` must be NULL or a string.
 */
muster_status_t muster_abort(muster_cluster_t *cluster,
                             int32_t code,
                             const char *reason);

/**
 * Makes the cluster whole again after a group was revoked: the next epoch begins once every node, workers and
 * servers, is in this call. Then every group, also one that the program made, is as new under the same handle. What
 * revoked the group is forgotten, its collectives count from 1, and its links and messages are new. Ranks, members,
 * time-outs, the store, operations and finished requests stay what they are.
 *
 * Blocking, at most `timeout_ms` milliseconds, and 250 ms more where the scheduler does not say at once which nodes
 * are awaited. -1 means the forming time-out (600 s unless set), and INT64_MAX no limit. With 0 it succeeds only if
 * all other nodes wait for the next epoch already. The first node's call revokes all groups of more than one member
 * that are not revoked yet. It does so even if nothing was wrong with the cluster; then all nodes go on in the next
 * epoch. Pending and later calls on those groups return MUSTER_ERR_REVOKED with that node's name, so that nobody waits
 * for a node that is in this call. (Only the scheduler tells the other nodes. If it is away, the groups are revoked
 * when it is back. If a node has left for good, the groups are revoked, too, and the call fails.) Once a second a line
 * in the scheduler's log says which nodes are awaited. One thread of a process at a time may be in this call; other
 * calls may go on meanwhile.
 *
 * A reduction function of the program that has not returned by then holds nobody up. It goes on with the memory of its own call, whose
 * request ends when it has returned; muster_cluster_free waits for it.
 *
 * After an error the epoch is what it was, and the call may be repeated: MUSTER_ERR_TIMEOUT (the sentence names first
 * the nodes that have not called it, then those that have called it and gave up); MUSTER_ERR_PEER_LEFT (a node has
 * left for good); MUSTER_ERR_STATE (another thread is in this call, or this process has left); MUSTER_ERR_INVALID
 * (`timeout_ms`). If the job is aborted, the call returns MUSTER_ERR_ABORTED, each time. If a node is lost without
 * recovery, the call returns MUSTER_ERR_PEER_LOST with that node, each time, even if the first cause (muster_failure)
 * is another one. (If the first cause is that a node has left, the call returns MUSTER_ERR_PEER_LEFT.) If the
 * scheduler is away as well, that takes a second or two. With recovery, if the launcher of a lost node does not start
 * the node again, the call returns the first cause. Otherwise the call waits for a scheduler that is away, as it waits
 * for a node.
 *
 * If the scheduler did not answer in time, or the call was interrupted, the other nodes may begin the next epoch with this node all the
 * same. This node goes on in its own: calls on its groups return MUSTER_ERR_REVOKED until the call is repeated. It then returns at
 * once, in the epoch of the others.
 *
 * With recovery (MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH) this is also how survivors of a loss go on. Every lost node
 * must be started again, with the same node id or the same rank from its launcher, and call muster_init. Then the
 * epoch begins, and muster_init returns there. muster_recover returns in the newest epoch (muster_epoch), and may
 * have skipped some. The program must repeat the work that a loss interrupted. An allreduce with MUSTER_MIN over the
 * number of each rank's newest state gives the newest state that all ranks have. A node that others have replaced, or
 * taken for lost while it was silent, gets MUSTER_ERR_FENCED each time. Groups that were made go on under their
 * handles; a node that comes back makes them again, in the same order as the first time, and the others take no part.
 * If it calls muster_group_split where it first called muster_group_create, or the reverse, or passes another list of
 * ranks, the call returns MUSTER_ERR_MISMATCH. Like every mismatch, this revokes `parent` on all its members, because
 * their groups are no longer the same. (Colour and key are not compared: the node gets the place that it had.)
 * Operations (muster_op_create) belong to a process. So a process that was started again must create its operations
 * again.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_status_t muster_recover(muster_cluster_t *cluster,
                               int64_t timeout_ms);

/**
 * Frees a cluster, and its built-in groups with it. Accepts NULL. Without muster_finalize before it, the others lose
 * this node. A scheduler that this process hosts ends with it. With recovery the job goes on when this node is
 * started again; without recovery it has ended for good. The program must still free the groups that it made.
 * Operations on these groups, and muster_group_member, return MUSTER_ERR_STATE. Their other queries (size, ranks,
 * failure) and muster_group_set_timeout still work. When the last handle has been freed no thread and no descriptor of
 * the library is left, except a thread that waits for a name server, a disk or an output of the log that does not
 * answer. Blocking, without a limit: it waits until each function of the program (of muster_op_create or
 * muster_request_notify) has returned, and until a scheduler that this process hosts has ended.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster that no other thread is using, and is not to be used any more.
 */
void muster_cluster_free(muster_cluster_t *cluster);

/**
 * Starts a scheduler on a thread of this process. The settings name the number of workers and, if wanted, host (default
 * 127.0.0.1) and port (default 0: the system chooses; muster_scheduler_address tells). The role is ignored, and so are
 * a launcher's variables that say where its own job's scheduler is, such as MASTER_ADDR. NULL for `config` means the
 * environment's settings. Returns when the port is bound. Among its errors are MUSTER_ERR_CONFIG, MUSTER_ERR_BIND,
 * MUSTER_ERR_LIMIT (too few descriptors), MUSTER_ERR_INTERRUPTED (by the hook, while a name is looked up) and, with
 * recovery, MUSTER_ERR_JOURNAL.
 *
 * Requires:
 * `config` must be NULL or a live configuration; `out` must be NULL or writable. Where `config` is NULL no other thread may change
 * the environment meanwhile.
 */
muster_status_t muster_scheduler_start(const muster_config_t *config,
                                       muster_scheduler_t **out);

/**
 * Where the scheduler listens, as "host:port" with a numeric host: "0.0.0.0:port" where it listens at every address
 * (`sched_bind`). Copied to `buf`, its length with the zero byte to `needed` (may be NULL). MUSTER_ERR_LIMIT if `cap`
 * is too small, MUSTER_ERR_INVALID if `buf` and `needed` are both NULL.
 *
 * Requires:
 * `scheduler` must be NULL or a live scheduler, `buf` writable for `cap` bytes or NULL, `needed` writable or NULL.
 */
muster_status_t muster_scheduler_address(const muster_scheduler_t *scheduler, char *buf, size_t cap, size_t *needed);

/**
 * Waits until the job has ended: MUSTER_OK, or the job's error. MUSTER_IN_PROGRESS if the job has not ended after
 * `timeout_ms`: the program can wait again, and several threads may wait. After muster_scheduler_stop it returns
 * MUSTER_ERR_ABORTED, or the status with which the job had ended before.
 *
 * `timeout_ms` is -1 or INT64_MAX to wait without limit, 0 to look only.
 *
 * Requires:
 * `scheduler` must be NULL or a live scheduler.
 */
muster_status_t muster_scheduler_wait(muster_scheduler_t *scheduler, int64_t timeout_ms);

/**
 * Ends the job for all nodes that are still in it (MUSTER_ERR_ABORTED there), and waits until the scheduler has
 * ended. It also returns MUSTER_OK if the job had ended before. With recovery it waits up to 30 s until the rest of
 * the journal is on disk.
 *
 * Requires:
 * `scheduler` must be NULL or a live scheduler.
 */
muster_status_t muster_scheduler_stop(muster_scheduler_t *scheduler);

/**
 * Frees a scheduler, and stops it first if it still runs. Accepts NULL.
 *
 * Requires:
 * `scheduler` must be NULL or a live scheduler that no other thread is using, and is not to be used any more.
 */
void muster_scheduler_free(muster_scheduler_t *scheduler);

/**
 * MUSTER_ROLE_WORKER or MUSTER_ROLE_SERVER. (The scheduler's process has no cluster handle.)
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_role(const muster_cluster_t *cluster);

/**
 * This node's rank in its role's rank space, 0 or more.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_rank(const muster_cluster_t *cluster);

/**
 * How many nodes of this node's role there are: workers, for a worker.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_size(const muster_cluster_t *cluster);

/**
 * This node's place among the nodes of its role on its host, in order of rank.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_local_rank(const muster_cluster_t *cluster);

/**
 * How many nodes of this node's role are on its host.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_local_size(const muster_cluster_t *cluster);

/**
 * How often this node was lost, started again, and took part again; 0 in its first process. It does not change during
 * a process.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_restarts(const muster_cluster_t *cluster);

/**
 * The number of the present epoch, the time in which the same processes are the cluster. The first epoch is 1. A new, higher one
 * begins when muster_recover succeeds.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int64_t muster_epoch(const muster_cluster_t *cluster);

/**
 * This node's id: the one it was given, or one made of the rank from its launcher, such as "rank 3". Both are the same
 * when the node is started again. If the node has neither, this process made the id up. Borrowed from the cluster;
 * NULL only if `cluster` is not usable.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
const char *muster_node_id(const muster_cluster_t *cluster);

/**
 * Writes the ranks of the lost workers in ascending order, at most `cap` of them, to `ranks` (may be NULL if `cap` is 0). Writes
 * the number of all lost workers to `count`, which may exceed `cap`; that is no error. Lost servers are not among
 * them. Only workers whose loss the scheduler has confirmed count. While the cluster is whole there are none.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `ranks` must be writable for `cap` numbers or NULL; `count` writable or NULL.
 */
muster_status_t muster_failed_ranks(const muster_cluster_t *cluster,
                                    int32_t *ranks,
                                    size_t cap,
                                    size_t *count);

/**
 * The first cause for which the cluster is broken, as this process knows it in the present epoch. Pass `sizeof *out` as
 * `size`. MUSTER_ERR_NOT_FOUND while nothing has failed. Thread-safe; does not block.
 *
 * The first cause is what ended the cluster as a whole (a loss, an abort) or one of its own groups (world, servers,
 * universe), whichever this process heard of first. If nothing has ended these, it is what ended a group that the
 * program made and has not freed. If several such groups have ended, it is the one whose end this process heard of
 * first. What ends other groups later changes nothing. MUSTER_ERR_REVOKED (a rank called muster_recover) is reported
 * only if nothing else has ended a group. If nothing is broken, the call reports the newest message that timed out:
 * MUSTER_ERR_TIMEOUT, with the rank that the message was to or from (-1: any rank). It takes the first group that has
 * such a message, in this order: world, servers, universe, then the groups that the program made. The group still
 * holds then (muster_group_failure says so), and a later break takes the place of this report.
 *
 * A failing call on a group (its status and muster_last_error) and muster_group_failure tell the first cause of that
 * group: what ended it alone, or otherwise the first cause of the cluster. Most programs use only one of the cluster's
 * own groups. Then the calls on that group, muster_failure, muster_group_failure and muster_cluster_error all tell the
 * same. If another error ends only a message or a store call, or if muster_recover fails, only that call tells why.
 *
 * If a process ends soon after it was told that a group is over, its end counts as a consequence, not as a loss of its
 * own: then calls on the other groups tell why the first group ended. Its end counts as a loss if the process went on:
 * it lived longer than the heartbeat time-out after that, or called something on another group. muster_failed_ranks
 * lists the process in each case. (docs/recovery.md, "Which loss is the first cause")
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_failure(const muster_cluster_t *cluster, muster_failure_t *out, size_t size);

/**
 * The first cause as a sentence. Any thread may ask. Copied to `buf`, its length with the zero byte to `needed` (may be
 * NULL). MUSTER_ERR_LIMIT if `cap` is too small, MUSTER_ERR_NOT_FOUND while nothing has failed, otherwise
 * MUSTER_ERR_INVALID if `buf` and `needed` are both NULL.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `buf` writable for `cap` bytes or NULL, `needed` writable or NULL.
 */
muster_status_t muster_cluster_error(const muster_cluster_t *cluster, char *buf, size_t cap, size_t *needed);

/**
 * The values with which this node starts HCCL through its cluster manager (MS_HCCL_CM_INIT in MindSpore). Pass
 * `sizeof *out` as `size`. MUSTER_ERR_CONFIG if the scheduler's port is above 65,519: the chief's port is that port
 * plus one, and HCCL takes no port above 65,520. Thread-safe; does not block. (In a cluster of more than 1,024 nodes with one worker a
 * server may first ask the scheduler for that worker, as muster_group_member does.)
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_hccl_cm(const muster_cluster_t *cluster,
                               muster_hccl_cm_t *out,
                               size_t size);

/**
 * The HCCL rank table, version 1.0, of the cluster's workers: JSON text, the same on every node. A later run may read
 * it through RANK_TABLE_FILE. `needed` gets the length of the text with the ending zero byte, which is how long `buf`
 * must be. With `buf` NULL and `cap` 0 the call gives only that length.
 *
 * One server for each host, in order of its lowest rank: `server_id` is the host's address, or its name if another
 * host has the same address, and `host_nic_ip` is "reserve". There is one device for each worker. `device_id` is its
 * DEVICE_ID, or its local rank where that was not set. `device_ip` is its setting `device_ip`, or what
 * `/etc/hccn.conf` on its host says of that device. It is left out where neither is known. HCCL wants it on hosts
 * whose devices have network ports of their own. The fields are those of the rank table in Huawei's HCCL
 * documentation.
 *
 * MUSTER_ERR_STATE if two workers of a host have the same device (the sentence names both); MUSTER_ERR_LIMIT if `cap`
 * is too small; MUSTER_ERR_INVALID if `buf` and `needed` are both NULL. Thread-safe. Does not block on a cluster of up
 * to 1,024 nodes. In a larger cluster it asks the scheduler for each worker that it does not know, and waits for each
 * answer for at most one heartbeat time-out. Without an answer it returns MUSTER_ERR_UNREACHABLE.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `buf` must be writable for `cap` bytes or NULL, `needed` writable or NULL.
 */
muster_status_t muster_rank_table(const muster_cluster_t *cluster, char *buf, size_t cap, size_t *needed);

/**
 * All workers. Borrowed from the cluster: not to be freed. NULL only if `cluster` is NULL.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_group_t *muster_world(muster_cluster_t *cluster);

/**
 * All parameter servers; of size 0 if there are none. Borrowed from the cluster: not to be freed.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_group_t *muster_servers(muster_cluster_t *cluster);

/**
 * All workers, then all servers. Borrowed from the cluster: not to be freed.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_group_t *muster_universe(muster_cluster_t *cluster);

/**
 * This process's rank in the group, 0 or more; MUSTER_ERR_NOT_FOUND if it is no member.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
int32_t muster_group_rank(const muster_group_t *group);

/**
 * How many members the group has.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
int32_t muster_group_size(const muster_group_t *group);

/**
 * Translates the rank of a member of this group to that member's rank among all workers; MUSTER_ERR_NOT_FOUND for a
 * member that is no worker, MUSTER_ERR_INVALID for a rank that the group does not have.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
int32_t muster_group_to_world(const muster_group_t *group, int32_t rank);

/**
 * Translates a rank among all workers to the rank that this worker has in the group; MUSTER_ERR_NOT_FOUND if the
 * worker is no member, MUSTER_ERR_INVALID for a rank that no worker has.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
int32_t muster_group_from_world(const muster_group_t *group, int32_t world_rank);

/**
 * Describes a member. Pass `sizeof *out` as `size`. In clusters of more than 1,024 nodes this may ask the scheduler,
 * and wait for its answer for one heartbeat time-out at most. Without an answer it returns MUSTER_ERR_UNREACHABLE.
 * MUSTER_ERR_INVALID for a rank that the group does not have.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_group_member(const muster_group_t *group, int32_t rank, muster_member_t *out, size_t size);

/**
 * The first cause for which the group is over: what a failing call on it returns and says (muster_last_error). Pass
 * `sizeof *out` as `size`. MUSTER_ERR_NOT_FOUND while nothing has ended the group, and if muster_finalize or
 * muster_cluster_free has ended it. muster_failure says how this and the cluster's first cause relate. Thread-safe;
 * does not block.
 *
 * Once this call has given a cause, the cause stays the same, with one exception. If it is MUSTER_ERR_REVOKED (a rank
 * called muster_recover) and the real cause becomes known later, the real cause takes its place. Calls on the group
 * then return the real cause, too.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_group_failure(const muster_group_t *group, muster_failure_t *out, size_t size);

/**
 * How long an operation on the group may take, in milliseconds: -1 means the default (setting timeout, 1,800 s),
 * INT64_MAX no limit, and 0 only what can be done at once. It counts for later calls of this process. When the time is
 * up, a collective revokes the group, and a message ends alone.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
muster_status_t muster_group_set_timeout(muster_group_t *group, int64_t timeout_ms);

/**
 * Makes a group of `world_ranks`, which are `n` ranks of workers, each at most once; their order is the order of
 * rank in the new group. Only those ranks call it, each with the same list and the same `tag`; nobody else takes part.
 * The call has no place in the order of any group's collectives. The group that it writes to `out` has the default
 * time-out. Free it with muster_group_free.
 *
 * `tag` tells groups of the same ranks apart: a string of at most 255 bytes of UTF-8, "" if one group is enough. The
 * members' n-th call with the same list and tag makes their n-th such group. Threads that make groups at the same time
 * must give them different tags; a second call with the same list and tag meanwhile is MUSTER_ERR_STATE.
 *
 * Blocks until all members have asked and the scheduler has made the group: at most for `timeout_ms`, and 250 ms more
 * if the scheduler does not answer. -1 means the setting timeout (1,800 s), and INT64_MAX no limit. With 0 it succeeds
 * only if all other members have asked already. muster_interrupt says how it may end early. After an early end, and
 * after a time-out, nothing has changed for the other members, and this process may call it again. If the group is
 * made at the moment of that end, the call returns MUSTER_OK.
 *
 * Errors, which end nothing but this call: MUSTER_ERR_TIMEOUT (the sentence names the members that have not asked);
 * MUSTER_ERR_MISMATCH (two members call it with the same tag and different lists, and each of them is in both lists;
 * the sentence names both members; members that already wait for either list get the error, too, and a member that
 * asks later waits until its time is up); MUSTER_ERR_PEER_LEFT (a member has left); MUSTER_ERR_REVOKED (a node has
 * called muster_recover); MUSTER_ERR_LIMIT (this process is already making 16 groups); MUSTER_ERR_UNREACHABLE
 * (as in muster_group_create); MUSTER_ERR_INVALID, also if this process is not among the ranks; and in a broken
 * cluster its first cause.
 *
 * With recovery the scheduler writes the group to its journal, like other groups. A node that comes back after its
 * loss makes this call again for each group that it had, and the others need not take part. The order of different
 * lists and tags does not matter. Thread-safe.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `world_ranks` readable for `n` numbers or NULL; `tag` NULL or a string; `out` NULL
 * or writable.
 */
muster_status_t muster_group_create_members(muster_cluster_t *cluster,
                                            const int32_t *world_ranks,
                                            size_t n,
                                            const char *tag,
                                            int64_t timeout_ms,
                                            muster_group_t **out);

/**
 * Makes a group of `ranks`, which are `n` ranks of `parent`, each at most once; their order is the order of rank in the new
 * group. All of parent's members call it, with the same list. Those in the list get the group, the others NULL. Free
 * the group with muster_group_free. `ranks` may be NULL where `n` is 0: then nobody gets a group. MUSTER_ERR_INVALID
 * for a rank that `parent` does not have, and for a rank that is in the list twice: then nothing has begun.
 *
 * Blocks until all members have asked and the scheduler has made the group: at most for parent's time-out, and up to
 * 500 ms more, as muster_barrier. With a time-out of 0 the call fails and revokes `parent`, because the scheduler's
 * answer takes time. Without recovery it waits for a scheduler that is away only until two things hold: the scheduler
 * has not been heard for the heartbeat time-out, and it accepts no connection. Then the call returns
 * MUSTER_ERR_UNREACHABLE without a culprit, and `parent` is revoked. The call takes its place among the collectives of
 * parent, and has the errors of muster_barrier: if a member passes another list, or calls another collective, that is
 * a mismatch. A node that comes back after its loss makes its groups once more, each with the same list: see
 * muster_recover. Thread-safe. The new group has the default time-out.
 *
 * Requires:
 * `parent` must be NULL or a live group; `ranks` readable for `n` numbers or NULL; `out` NULL or writable.
 */
muster_status_t muster_group_create(muster_group_t *parent,
                                    const int32_t *ranks,
                                    size_t n,
                                    muster_group_t **out);

/**
 * Splits a group: all members that pass the same colour get one new group together, ordered by `key` and, if keys are
 * equal, by rank in `parent`. All of parent's members call it. A member that passes a negative colour is in no new group, and
 * gets NULL.
 *
 * Otherwise as muster_group_create.
 *
 * Requires:
 * `parent` must be NULL or a live group; `out` NULL or writable.
 */
muster_status_t muster_group_split(muster_group_t *parent,
                                   int32_t colour,
                                   int32_t key,
                                   muster_group_t **out);

/**
 * Frees a group that was made. Does nothing for NULL and for a built-in group. This is no collective: each member may
 * free its own handle at any time. Members that still call collectives which need this member get
 * MUSTER_ERR_PEER_LEFT. This process's calls and requests on the group that are still going on end with
 * MUSTER_ERR_STATE. It may also be called after the cluster has been freed. May wait up to 1 s until what was sent
 * last has reached its peers, and without a limit until a reduction function of the caller's own has returned.
 *
 * Requires:
 * `group` must be NULL, a live group, which must not be used afterwards, or a built-in group of a live cluster.
 */
void muster_group_free(muster_group_t *group);

/**
 * Returns when every member of the group has called it.
 *
 * Blocking; at most for the group's time-out, and up to 500 ms more where the scheduler does not answer: 250 ms to
 * learn which ranks are missing, and 250 ms to agree on the first cause. An error revokes the group: all members'
 * pending and later calls on it return the same first cause. MUSTER_ERR_INVALID, _STATE and _FORKED do not revoke it:
 * then nothing has begun. The same holds for MUSTER_ERR_LIMIT if `addends` is too large (muster_allreduce_addends),
 * and for MUSTER_ERR_MEMORY if there is no memory for the lists of the arguments. (A call that is under way ends with
 * MUSTER_ERR_STATE, too, when another thread leaves the cluster or frees the group.) A process that is no member of
 * the group gets MUSTER_ERR_INVALID.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
muster_status_t muster_barrier(muster_group_t *group);

/**
 * Copies `count` elements from the root's `buf` to everyone's. All ranks pass the same count, element type and root.
 *
 * `buf` is the caller's again when this returns; on the root it is only read. May be NULL where `count` is 0. Blocking
 * and errors as muster_barrier.
 *
 * Requires:
 * `group` must be NULL or a live group; `buf` must be NULL, or readable and (except on the root) writable for `count`
 * elements. Nobody else may write to it meanwhile.
 */
muster_status_t muster_broadcast(muster_group_t *group, void *buf, size_t count, int32_t dtype, int32_t root);

/**
 * Combines `count` elements of every rank, element by element, and gives everyone the result. All ranks pass the same
 * count, element type and operation.
 *
 * In place where `in` equals `out`. If they overlap otherwise, the library works on a copy of `in`, in memory that
 * the group keeps (MUSTER_ERR_MEMORY). This holds for all collectives. The copy costs time, so it is better if the
 * buffers are either separate or in place. `in` is only read. Both buffers are the caller's again when this returns,
 * and may be NULL where `count` is 0. After an error the contents of `out` are undefined. Every rank gets the same
 * bits. They are also the same from run to run, with the same count and ranks, under the conditions that "The same bits"
 * in docs/c-api.md names. Blocking and errors as muster_barrier.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable and `out` writable for `count` elements, or NULL; nobody
 * else may write to them, or read `out`, meanwhile.
 */
muster_status_t muster_allreduce(muster_group_t *group,
                                 const void *in,
                                 void *out,
                                 size_t count,
                                 int32_t dtype,
                                 int32_t op);

/**
 * As muster_allreduce, but only the root gets the result. All ranks pass the same root. On other ranks `out` is not
 * used and may be NULL. In place at the root where `in` equals `out`.
 *
 * Requires:
 * As for muster_allreduce; `out` matters at the root only.
 */
muster_status_t muster_reduce(muster_group_t *group,
                              const void *in,
                              void *out,
                              size_t count,
                              int32_t dtype,
                              int32_t op,
                              int32_t root);

/**
 * Gives everyone every rank's `count` elements, in order of rank: `out` takes `count` elements of each of the group's
 * members. All ranks pass the same count and element type.
 *
 * In place where `in` equals `out` plus `count` times this rank's number, in elements. Ownership, overlap, NULL,
 * blocking and errors as muster_allreduce.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable for `count` elements and `out` writable for `count` elements
 * times the group's size, or NULL; nobody else may write to them, or read `out`, meanwhile.
 */
muster_status_t muster_allgather(muster_group_t *group,
                                 const void *in,
                                 void *out,
                                 size_t count,
                                 int32_t dtype);

/**
 * As muster_allgather with parts of different sizes: `counts[r]` elements come from rank r and go to `out` at element
 * `displs[r]`; `count` is this rank's own, `counts[rank]`. All ranks pass the same `counts` and element type; `displs` may
 * differ between ranks, and NULL means that the parts follow each other. Parts must not overlap in `out`; what lies
 * between them is left as it is. Where an empty part would lie does not matter.
 *
 * In place where `in` equals `out` plus `displs[rank]` elements. The lists are not needed after this returns.
 *
 * Requires:
 * As for muster_allgather, but `out` must be writable up to the end of its last part: the largest `displs[r] + counts[r]`
 * elements. `counts` must be readable for one number per member of the group, `displs` likewise or NULL.
 */
muster_status_t muster_allgatherv(muster_group_t *group,
                                  const void *in,
                                  size_t count,
                                  void *out,
                                  const size_t *counts,
                                  const size_t *displs,
                                  int32_t dtype);

/**
 * Gives the root every rank's `count` elements, in order of rank, as muster_allgather gives them to everyone. All ranks pass
 * the same count, element type and root. On other ranks than the root `out` is not used and may be NULL. In place at
 * the root where `in` equals `out` plus `count` elements times its rank.
 *
 * Requires:
 * As for muster_allgather; `out` matters at the root only.
 */
muster_status_t muster_gather(muster_group_t *group,
                              const void *in,
                              void *out,
                              size_t count,
                              int32_t dtype,
                              int32_t root);

/**
 * As muster_gather with parts of different sizes. Each rank gives `count` elements of its own. The root says in `counts[r]` how
 * many it expects of rank r, and in `displs[r]` at which element of `out` they go. With NULL for `displs` the parts
 * follow each other. The parts must not overlap. `out`, `counts` and `displs` are used at the root only. A rank that
 * gives another number than the root expects ends the call with MUSTER_ERR_MISMATCH. That rank only sends, so its own
 * call may have returned MUSTER_OK by then. It gets the error in a later call on the group, at the latest in one that
 * waits for the root. If `count` at the root differs from the root's own entry of `counts`, the root gets
 * MUSTER_ERR_INVALID, and nothing has begun. In place at the root where `in` equals `out` plus its own `displs`
 * elements.
 *
 * Requires:
 * As for muster_gather, but at the root `out` must be writable up to the end of its last part: the largest `displs[r] + counts[r]`
 * elements. There `counts` must be readable for one number per member of the group, `displs` likewise or NULL.
 */
muster_status_t muster_gatherv(muster_group_t *group,
                               const void *in,
                               size_t count,
                               void *out,
                               const size_t *counts,
                               const size_t *displs,
                               int32_t dtype,
                               int32_t root);

/**
 * Gives each rank its `count` elements of the root's `in`, which has `count` for every member, in order of rank. All
 * ranks pass the same count, element type and root. On other ranks than the root `in` is not used and may be NULL. In
 * place at the root where `out` equals `in` plus `count` elements times its rank: then the root's part just stays
 * there.
 *
 * Ownership, overlap, NULL, blocking and errors as muster_allreduce.
 *
 * Requires:
 * `group` must be NULL or a live group; at the root `in` must be readable for `count` elements times the
 * group's size; `out` must be writable for `count` elements, or NULL. Nobody else may write to them, or read `out`,
 * meanwhile.
 */
muster_status_t muster_scatter(muster_group_t *group,
                               const void *in,
                               void *out,
                               size_t count,
                               int32_t dtype,
                               int32_t root);

/**
 * As muster_scatter with parts of different sizes. The root gives `counts[r]` elements to rank r, from element `displs[r]` of
 * `in` on (NULL: they follow each other). Each rank takes `count`. `in`, `counts` and `displs` are used at the root only. A rank
 * that expects another number than the root gives ends the call with MUSTER_ERR_MISMATCH. The root only sends, so its own call
 * may have returned MUSTER_OK by then. It gets the error in a later call on the group, at the latest in one that waits for that
 * rank. If `count` at the root differs from the root's own entry of `counts`, the root gets MUSTER_ERR_INVALID, and nothing has
 * begun. In place at the root where `out` equals `in` plus its own `displs` elements.
 *
 * Requires:
 * As for muster_scatter, but at the root `in` must be readable up to the end of its last part: the largest `displs[r] + counts[r]`
 * elements. There `counts` must be readable for one number per member of the group, `displs` likewise or NULL.
 */
muster_status_t muster_scatterv(muster_group_t *group,
                                const void *in,
                                const size_t *counts,
                                const size_t *displs,
                                void *out,
                                size_t count,
                                int32_t dtype,
                                int32_t root);

/**
 * Combines the ranks' inputs, of `count` elements for every member, element by element, and gives each rank its part of the
 * result: `count` elements, in order of rank. All ranks pass the same count, element type and operation.
 *
 * In place where `out` equals `in` plus `count` elements times this rank: then the rest of `in` stays as it is.
 * Ownership, overlap, NULL, bits, blocking and errors as muster_allreduce.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable for `count` elements times the group's size and `out` writable
 * for `count` elements, or NULL; nobody else may write to them, or read `out`, meanwhile.
 */
muster_status_t muster_reduce_scatter(muster_group_t *group,
                                      const void *in,
                                      void *out,
                                      size_t count,
                                      int32_t dtype,
                                      int32_t op);

/**
 * As muster_reduce_scatter with parts of different sizes: rank r gets the `counts[r]` elements that follow those of the
 * ranks before it. All ranks pass the same `counts`, element type and operation. In place where `out` equals this rank's
 * part of `in`. The list is not needed after this returns.
 *
 * Requires:
 * As for muster_reduce_scatter, with the sum of `counts` in place of `count` times the size; `counts` must be readable for
 * one number per member of the group.
 */
muster_status_t muster_reduce_scatterv(muster_group_t *group,
                                       const void *in,
                                       void *out,
                                       const size_t *counts,
                                       int32_t dtype,
                                       int32_t op);

/**
 * Gives every rank a part of every other's input. `in` and `out` have `count` elements for every member. Part r of
 * `in` becomes this rank's part of rank r's `out`. All ranks pass the same count and element type.
 *
 * In place where `in` equals `out`. Ownership, overlap, NULL, blocking and errors as muster_allreduce.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable and `out` writable for `count` elements times the group's size,
 * or NULL; nobody else may write to them, or read `out`, meanwhile.
 */
muster_status_t muster_alltoall(muster_group_t *group,
                                const void *in,
                                void *out,
                                size_t count,
                                int32_t dtype);

/**
 * As muster_alltoall with parts of different sizes: `in_counts[r]` elements from element `in_displs[r]` of `in` on
 * go to rank r, and `out_counts[r]` come from it, to element `out_displs[r]` of `out`. If a list of displacements is
 * NULL, its parts follow each other. Parts of `out` must not overlap. Each rank must send as many elements as the
 * receiver expects, or the call ends with MUSTER_ERR_MISMATCH. Before the call begins, this rank checks what it sends
 * to itself. If the two counts differ, it returns MUSTER_ERR_INVALID, and nothing has begun.
 *
 * In place where `in` equals `out`, and both counts and displacements are the same.
 *
 * Requires:
 * As for muster_alltoall, but each buffer reaches to the end of its last part: the largest displacement with its count. The counts
 * must be readable for one number per member of the group, the displacements likewise or NULL.
 */
muster_status_t muster_alltoallv(muster_group_t *group,
                                 const void *in,
                                 const size_t *in_counts,
                                 const size_t *in_displs,
                                 void *out,
                                 const size_t *out_counts,
                                 const size_t *out_displs,
                                 int32_t dtype);

/**
 * muster_allreduce by a function that comes with the call, in place of an operation that was made before.
 *
 * `fn` and `ctx` are as for muster_op_create, and are used until this returns. `commutative` is 1 if operands may be
 * exchanged, 0 if not; then contributions are folded in order of rank. All ranks pass the same count, element type
 * and `commutative`, or the call ends with MUSTER_ERR_MISMATCH. Nobody can check that their functions do the same.
 * If one rank calls muster_allreduce instead, with any operation, the call ends with MUSTER_ERR_MISMATCH, too.
 * `dtype` may be an element of the caller's own (MUSTER_ELEMENT). MUSTER_ERR_INVALID if `fn` is NULL, or
 * `commutative` neither 0 nor 1.
 *
 * Requires:
 * As for muster_allreduce; `fn` and `ctx` must be good until this returns.
 */
muster_status_t muster_allreduce_with(muster_group_t *group,
                                      const void *in,
                                      void *out,
                                      size_t count,
                                      int32_t dtype,
                                      muster_reduce_fn fn,
                                      void *ctx,
                                      int32_t commutative);

/**
 * muster_reduce by a function that comes with the call, as muster_allreduce_with.
 *
 * Requires:
 * As for muster_reduce; `fn` and `ctx` must be good until this returns.
 */
muster_status_t muster_reduce_with(muster_group_t *group,
                                   const void *in,
                                   void *out,
                                   size_t count,
                                   int32_t dtype,
                                   muster_reduce_fn fn,
                                   void *ctx,
                                   int32_t commutative,
                                   int32_t root);

/**
 * muster_reduce_scatter by a function that comes with the call, as muster_allreduce_with.
 *
 * Requires:
 * As for muster_reduce_scatter; `fn` and `ctx` must be good until this returns.
 */
muster_status_t muster_reduce_scatter_with(muster_group_t *group,
                                           const void *in,
                                           void *out,
                                           size_t count,
                                           int32_t dtype,
                                           muster_reduce_fn fn,
                                           void *ctx,
                                           int32_t commutative);

/**
 * muster_reduce_scatterv by a function that comes with the call, as muster_allreduce_with.
 *
 * Requires:
 * As for muster_reduce_scatterv; `fn` and `ctx` must be good until this returns.
 */
muster_status_t muster_reduce_scatterv_with(muster_group_t *group,
                                            const void *in,
                                            void *out,
                                            const size_t *counts,
                                            int32_t dtype,
                                            muster_reduce_fn fn,
                                            void *ctx,
                                            int32_t commutative);

/**
 * muster_allreduce_with without waiting: starts it and gives a request out, which says when it is done. See
 * muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier. The function is called by a thread of the library, or by a
 * thread that waits for a request of the group (muster_request_wait, muster_request_wait_all).
 *
 * Requires:
 * As for muster_allreduce_with, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iallreduce_with(muster_group_t *group,
                                       const void *in,
                                       void *out,
                                       size_t count,
                                       int32_t dtype,
                                       muster_reduce_fn fn,
                                       void *ctx,
                                       int32_t commutative,
                                       muster_request_t **request);

/**
 * muster_reduce_with without waiting, as muster_iallreduce_with.
 *
 * Requires:
 * As for muster_reduce_with, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce_with(muster_group_t *group,
                                    const void *in,
                                    void *out,
                                    size_t count,
                                    int32_t dtype,
                                    muster_reduce_fn fn,
                                    void *ctx,
                                    int32_t commutative,
                                    int32_t root,
                                    muster_request_t **request);

/**
 * muster_reduce_scatter_with without waiting, as muster_iallreduce_with.
 *
 * Requires:
 * As for muster_reduce_scatter_with, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce_scatter_with(muster_group_t *group,
                                            const void *in,
                                            void *out,
                                            size_t count,
                                            int32_t dtype,
                                            muster_reduce_fn fn,
                                            void *ctx,
                                            int32_t commutative,
                                            muster_request_t **request);

/**
 * muster_reduce_scatterv_with without waiting, as muster_iallreduce_with.
 *
 * Requires:
 * As for muster_reduce_scatterv_with, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce_scatterv_with(muster_group_t *group,
                                             const void *in,
                                             void *out,
                                             const size_t *counts,
                                             int32_t dtype,
                                             muster_reduce_fn fn,
                                             void *ctx,
                                             int32_t commutative,
                                             muster_request_t **request);

/**
 * Adds vectors of all ranks exactly, and gives everyone the sum: an all-reduce by MUSTER_SUM_EXACT to which each rank
 * brings as many vectors as it likes, or none.
 *
 * `in` holds `addends` vectors of `count` elements, one after another; `out` takes `count` elements. All ranks pass
 * the same count and element type, a float; `addends` may differ. Each element of the result is the real sum of the
 * elements at that place in all vectors of all ranks, rounded once. So a fixed list of vectors has the same sum, bit
 * for bit, on any number of ranks. If nobody brings a vector the sum is +0.
 *
 * `addends` is 65,536 at most. With more the call returns MUSTER_ERR_LIMIT, and nothing has begun. If all ranks
 * together bring more vectors than one call can add (thousands of vectors, and gigabytes), the call ends with
 * MUSTER_ERR_LIMIT for everyone. `in` may be NULL where `addends` or `count` is 0. In place where `out` equals `in`:
 * then the sum takes the place of the first vector. Ownership, overlap, blocking and errors otherwise as
 * muster_allreduce. If one rank calls muster_allreduce instead, the call ends with MUSTER_ERR_MISMATCH.
 *
 * Long vectors, of some 16 KiB or more, cost about as much as an exact sum (MUSTER_SUM_EXACT) of as many bytes. Many
 * short vectors cost far more: if a rank brings hundreds of vectors, or shares no memory with the others, each vector
 * may be a message of its own. So bring fewer and longer vectors, or sum short ones up beforehand. See "What it costs"
 * in docs/exact-sums.md, also for the memory that many vectors take.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable for `addends` times `count` elements and `out` writable for
 * `count`, or NULL; nobody else may write to them, or read `out`, meanwhile.
 */
muster_status_t muster_allreduce_addends(muster_group_t *group,
                                         const void *in,
                                         size_t addends,
                                         void *out,
                                         size_t count,
                                         int32_t dtype);

/**
 * muster_allreduce_addends without waiting: starts it and gives a request out, which says when it is done. See
 * muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_allreduce_addends, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iallreduce_addends(muster_group_t *group,
                                          const void *in,
                                          size_t addends,
                                          void *out,
                                          size_t count,
                                          int32_t dtype,
                                          muster_request_t **request);

/**
 * muster_allgatherv into a buffer of its own for each rank: the elements of rank r go to `outs[r]`.
 *
 * `counts[r]` elements come from rank r, and `count` is this rank's own, `counts[rank]`. With NULL for `counts` every rank
 * gives `count`. All ranks pass the same counts and element type. A rank may call muster_allgatherv with the same counts
 * instead: it is the same collective. (muster_allgather is another.)
 *
 * In place where `in` equals `outs[rank]`. If `in` overlaps the outputs otherwise, the library works on a copy of it.
 * The outputs must not overlap each other: MUSTER_ERR_INVALID. An output without elements may be NULL. Neither list is
 * needed after this returns. Ownership, NULL, blocking and errors as muster_allreduce.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable for `count` elements, or NULL. `outs` must be readable for
 * one pointer per member of the group, and each of these pointers writable for its elements. `counts` must be readable
 * for one number per member, or NULL. Nobody else may write to the buffers, or read the outputs, meanwhile.
 */
muster_status_t muster_allgather_list(muster_group_t *group,
                                      const void *in,
                                      size_t count,
                                      void *const *outs,
                                      const size_t *counts,
                                      int32_t dtype);

/**
 * muster_allgather_list without waiting: starts it and gives a request out, which says when it is done. See
 * muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier. Both lists are read before this returns.
 *
 * Requires:
 * As for muster_allgather_list, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iallgather_list(muster_group_t *group,
                                       const void *in,
                                       size_t count,
                                       void *const *outs,
                                       const size_t *counts,
                                       int32_t dtype,
                                       muster_request_t **request);

/**
 * muster_reduce_scatterv of a buffer of its own for each rank: what this rank adds to rank r's part lies at `ins[r]`.
 *
 * Rank r gets `counts[r]` elements, and `count` is this rank's own, `counts[rank]`. With NULL for `counts` every rank gets
 * `count`. All ranks pass the same counts, element type and operation. A rank may call muster_reduce_scatterv with the same
 * counts instead: it is the same collective. (muster_reduce_scatter is another.)
 *
 * In place where `out` equals `ins[rank]`: then the other inputs stay as they are. If `out` overlaps the inputs otherwise,
 * the library works on a copy of them. The inputs may overlap each other. An input without elements may be NULL.
 * Neither list is needed after this returns. Ownership, NULL, bits, blocking and errors as muster_allreduce.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be writable for `count` elements, or NULL. `ins` must be readable for
 * one pointer per member of the group, and each of these pointers readable for its elements. `counts` must be readable
 * for one number per member, or NULL. Nobody else may write to the buffers, or read `out`, meanwhile.
 */
muster_status_t muster_reduce_scatter_list(muster_group_t *group,
                                           const void *const *ins,
                                           const size_t *counts,
                                           void *out,
                                           size_t count,
                                           int32_t dtype,
                                           int32_t op);

/**
 * muster_reduce_scatter_list without waiting: starts it and gives a request out, which says when it is done. See
 * muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier. Both lists are read before this returns.
 *
 * Requires:
 * As for muster_reduce_scatter_list, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce_scatter_list(muster_group_t *group,
                                            const void *const *ins,
                                            const size_t *counts,
                                            void *out,
                                            size_t count,
                                            int32_t dtype,
                                            int32_t op,
                                            muster_request_t **request);

/**
 * Sends `count` elements to the member with rank `to`, under a tag of 0 or more. The message meets a receive of that
 * member on the same group which asks for this rank (or any) and this tag (or any). Messages from one rank to another
 * do not overtake each other: if two of them fit a receive, the one that was sent first is received first. (There is
 * one exception. A receive may have just met a message when the sender leaves, the send's time is up, or the sender's
 * call is interrupted. Then that receive waits again. It may get a message that was sent after a message that a later
 * receive has got.)
 *
 * A message of up to 64 KiB is eager: this returns when the system has taken it, and the receiver keeps it until it
 * is received. A receiver keeps up to 16 MiB of eager messages of one sender (in this version each counts 512 bytes
 * more than it has). A further eager message waits for its receive, as a longer message does. If a rank sends to
 * itself and has posted no receive, an eager message is kept (MUSTER_ERR_LIMIT beyond the 16 MiB), and a longer one is
 * MUSTER_ERR_STATE.
 *
 * Messages have no place in the order of collectives, and go on at the same time as these. `in` may be NULL where
 * `count` is 0, and is the caller's again when this returns. Blocking, at most for the group's time-out:
 * MUSTER_ERR_TIMEOUT (the message may still arrive if a part of it had been sent), which ends this call alone. These
 * errors end this call alone, too: MUSTER_ERR_MISMATCH if a message that waited for its receive met one of another
 * element type, or for fewer elements; MUSTER_ERR_ABORTED if that receive was given up in the middle;
 * MUSTER_ERR_PEER_LEFT if the receiver has left. A lost peer, damaged data or a broken link revokes the group, and a
 * revoked group or a broken cluster ends this call with its first cause, as muster_barrier. A process that is no
 * member of the group gets MUSTER_ERR_INVALID. Thread-safe.
 *
 * Requires:
 * `group` must be NULL or a live group; `in` must be readable for `count` elements, or NULL, and nobody may write to it
 * meanwhile.
 */
muster_status_t muster_send(muster_group_t *group,
                            const void *in,
                            size_t count,
                            int32_t dtype,
                            int32_t to,
                            int32_t tag);

/**
 * Receives a message of at most `count` elements from the member with rank `from`, or from any (MUSTER_ANY_SOURCE), under
 * this tag, or any (MUSTER_ANY_TAG). Of several receives that a message fits, the one that was called first gets it.
 *
 * If `received` is not NULL, the call writes to it the sender's rank, the tag, and how many elements came; `size` is
 * sizeof *received. A message of another element type, or longer than `count`, is dropped: MUSTER_ERR_MISMATCH,
 * which ends this call alone. `received` is written then, too, although the call fails: it has the message's true
 * length and type. A caller that does not know how long a message is asks muster_probe. `out` may be NULL where
 * `count` is 0; what lies beyond the elements that came is not touched. After an error its contents are undefined.
 *
 * Blocking, time-out and errors as muster_send. MUSTER_ERR_PEER_LEFT if the sender has left and none of its messages
 * waits. A receive from any source returns this error when this rank has learnt that all other members have left. In a
 * group of two the rank always learns this. In a larger group it learns this only of ranks with which it has exchanged
 * messages, or has tried to: a receive from any source opens no links of its own. MUSTER_ERR_ABORTED if the sender
 * gave up in the middle. Thread-safe.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be writable for `count` elements, or NULL, and nobody else may use it
 * meanwhile; `received` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_recv(muster_group_t *group,
                            void *out,
                            size_t count,
                            int32_t dtype,
                            int32_t from,
                            int32_t tag,
                            muster_received_t *received,
                            size_t size);

/**
 * Sends and receives at once, so that ranks in a ring need not agree on who begins: as muster_irecv and muster_isend together, and
 * a wait for both. Returns when both have ended, with the first error of either. The two may have different partners, tags, counts
 * and element types. If `in` and `out` overlap, the library sends a copy of `in`, made at once (MUSTER_ERR_MEMORY).
 * Blocking as muster_send and muster_recv. `in`, `in_count`, `in_dtype`, `to` and `in_tag` describe the send; `out`,
 * `out_count`, `out_dtype`, `from` and `out_tag` the receive. `received` is as for muster_recv. If the message did not
 * fit, it is written only if the call returns that MUSTER_ERR_MISMATCH.
 *
 * Requires:
 * As for muster_send and muster_recv.
 */
muster_status_t muster_sendrecv(muster_group_t *group,
                                const void *in,
                                size_t in_count,
                                int32_t in_dtype,
                                int32_t to,
                                int32_t in_tag,
                                void *out,
                                size_t out_count,
                                int32_t out_dtype,
                                int32_t from,
                                int32_t out_tag,
                                muster_received_t *received,
                                size_t size);

/**
 * Starts a muster_send, which goes on while the caller does something else; `in` is in use until the send has ended,
 * as the request tells. Sends start in the order in which they are called; a send that waits for its receive does not
 * hold up later sends, as long as at most 65,536 sends to one member wait for their receives. Does not wait. A send
 * that has met its receive can no longer be cancelled. Both forms send the same messages: a send that waits may meet a
 * receive that does not wait, and the other way round.
 *
 * Requires:
 * As for muster_send, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_isend(muster_group_t *group,
                             const void *in,
                             size_t count,
                             int32_t dtype,
                             int32_t to,
                             int32_t tag,
                             muster_request_t **request);

/**
 * Starts a muster_recv, which goes on while the caller does something else; `out` is in use until the receive has
 * ended, as the request tells. muster_request_test, muster_request_wait, muster_request_wait_any and
 * muster_request_wait_all write `received` each time they return MUSTER_OK, or the MUSTER_ERR_MISMATCH of a message
 * that did not fit. `received` must stay writable for as long as any of these is called on the request. Does not wait.
 * A receive that has met its message can no longer be cancelled. But if that message does not come after all, the
 * receive ends with MUSTER_ERR_ABORTED.
 *
 * Requires:
 * As for muster_recv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_irecv(muster_group_t *group,
                             void *out,
                             size_t count,
                             int32_t dtype,
                             int32_t from,
                             int32_t tag,
                             muster_received_t *received,
                             size_t size,
                             muster_request_t **request);

/**
 * Starts a muster_sendrecv: one request that has ended when both have. `received` as for muster_irecv. Cancelling the
 * request ends each of the two messages that has neither ended nor met its other half.
 *
 * Requires:
 * As for muster_sendrecv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_isendrecv(muster_group_t *group,
                                 const void *in,
                                 size_t in_count,
                                 int32_t in_dtype,
                                 int32_t to,
                                 int32_t in_tag,
                                 void *out,
                                 size_t out_count,
                                 int32_t out_dtype,
                                 int32_t from,
                                 int32_t out_tag,
                                 muster_received_t *received,
                                 size_t size,
                                 muster_request_t **request);

/**
 * Waits for the next message that a receive from `from` (a rank, or MUSTER_ANY_SOURCE) under `tag` (or MUSTER_ANY_TAG) would get,
 * and tells of it without taking it: `out` gets its source, tag, length and element type; `size` is sizeof *out. So a caller
 * can make room for a message whose length it does not know, and then receive it from that source under that tag.
 *
 * The message may not be all here yet. Another thread's receive may get it first, and its sender may give it up: then a receive
 * waits for another one. A probe does not find a message that a posted receive has already met. Blocking, time-out and
 * errors as muster_recv. Thread-safe.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be writable for `size` bytes, or NULL (which is refused).
 */
muster_status_t muster_probe(muster_group_t *group,
                             int32_t from,
                             int32_t tag,
                             muster_received_t *out,
                             size_t size);

/**
 * As muster_probe, but does not wait: MUSTER_IN_PROGRESS where there is no such message yet, and `out` is not
 * written. Before it looks, it reads what has arrived on the links, so that a program that asks again and again
 * finds each message. A thread that asks in a loop and finds nothing lets others run now and then, as
 * muster_request_test does. Thread-safe.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be writable for `size` bytes, or NULL (which is refused).
 */
muster_status_t muster_iprobe(muster_group_t *group, int32_t from, int32_t tag, muster_received_t *out, size_t size);

/**
 * Sets a key to `len` bytes. Returns when the scheduler has it; from then on every node's get finds it. Keys are
 * strings of 1 to 4,096 bytes, values arbitrary bytes of up to 16 MiB, all together up to 256 MiB. (The settings
 * store_key_limit, store_value_limit and store_total_limit change that; the scheduler's values apply.) Values of all nodes
 * that are on their way to the scheduler have the same limit in total, for themselves: beyond it a call may be repeated. More is
 * MUSTER_ERR_LIMIT. While 1,024 calls of this process wait for answers of the store, any other call on the store is
 * MUSTER_ERR_LIMIT, too. An empty key is MUSTER_ERR_INVALID. Every call on the store refuses a length, or a list, of
 * more than PTRDIFF_MAX bytes with MUSTER_ERR_INVALID. `value` may be NULL where `len` is 0.
 *
 * A key that is a C string ends at its first zero byte. Calls whose name ends in _bytes take a key with a length
 * instead. Calls on the store that exist in one form only, such as muster_store_append, do so, too. Both kinds name
 * the same keys.
 *
 * Every call on the store waits for the scheduler's answer. muster_store_get, muster_store_wait and
 * muster_store_multi_get wait for at most their `timeout_ms`. Every other call, and a call with `timeout_ms` 0, waits
 * for at most 300 s (no setting changes this). When the time is up, the call returns MUSTER_ERR_TIMEOUT, or
 * MUSTER_ERR_UNREACHABLE if the scheduler cannot be reached. Without recovery it returns MUSTER_ERR_UNREACHABLE as
 * soon as the scheduler has not been heard for the heartbeat time-out and takes no connection, because the keys that
 * the scheduler kept do not come back. In a broken cluster it returns the first cause, also after muster_finalize.
 * After muster_finalize of a whole cluster it returns MUSTER_ERR_STATE. No error of the store revokes anything. With
 * recovery, if a node is lost while a call waits only for the scheduler, the call still gets its answer.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `value` readable for `len` bytes or NULL.
 */
muster_status_t muster_store_set(muster_cluster_t *cluster,
                                 const char *key,
                                 const void *value,
                                 size_t len);

/**
 * Waits until somebody has set a key, and gives its value: the scheduler pushes it, nobody polls. `timeout_ms`: -1
 * means the default (setting store_timeout, 300 s), INT64_MAX no limit, and 0 a single try: MUSTER_ERR_NOT_FOUND if
 * the key is not there. A single try, too, waits for the scheduler's answer. The value is the caller's, to be freed
 * with muster_free. A zero byte follows the value; `len` (may be NULL) does not count it.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `value` writable or NULL (which is refused), `len` writable
 * or NULL.
 */
muster_status_t muster_store_get(muster_cluster_t *cluster,
                                 const char *key,
                                 int64_t timeout_ms,
                                 void **value,
                                 size_t *len);

/**
 * Adds to the number in a key, and gives the sum to `out` (may be NULL). A key that is not there counts as 0. The
 * number is kept as decimal text; if the value is not a number, or the sum needs more than 64 bits, it returns
 * MUSTER_ERR_INVALID. The text keeps the limits of every value (muster_store_set). Happens exactly once, whatever
 * happens to the connection.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `out` writable or NULL.
 */
muster_status_t muster_store_add(muster_cluster_t *cluster, const char *key, int64_t delta, int64_t *out);

/**
 * Sets a key to `desired` if its value is `expected`; a key that is not there counts as empty. Gives its value afterwards to
 * `current` and `clen`: `desired`, or what was there instead. `current` belongs to the caller, who frees it with muster_free.
 * `current` may be NULL. `clen` may be NULL only if `current` is NULL; otherwise the call returns MUSTER_ERR_INVALID. Happens
 * exactly once.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `expected` and `desired` readable for their lengths or
 * NULL, `current` and `clen` writable or NULL.
 */
muster_status_t muster_store_compare_set(muster_cluster_t *cluster,
                                         const char *key,
                                         const void *expected,
                                         size_t elen,
                                         const void *desired,
                                         size_t dlen,
                                         void **current,
                                         size_t *clen);

/**
 * Deletes a key; `existed` (may be NULL) becomes 1 if it was there, otherwise 0.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `existed` writable or NULL.
 */
muster_status_t muster_store_delete(muster_cluster_t *cluster, const char *key, int32_t *existed);

/**
 * Waits until every one of `n` keys exists. `timeout_ms` as for muster_store_get. Of several keys the sentence of a
 * time-out names up to three that are missing. For that it waits up to 250 ms more for the scheduler's answer, and
 * says so if none comes. Without keys it returns MUSTER_OK at once, also if the cluster is broken or left. The keys of
 * one call are limited as those of muster_store_check: more is MUSTER_ERR_LIMIT.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `keys` must be readable for `n` pointers, each NULL or a string.
 */
muster_status_t muster_store_wait(muster_cluster_t *cluster, const char *const *keys, size_t n, int64_t timeout_ms);

/**
 * Sets a hook that every waiting call asks, on the waiting thread: 50 ms after the call has begun to sleep, and every
 * 50 ms from then on. A blocking collective also asks when a signal ends its sleep. A call that does not have to
 * sleep does not ask the hook. So a program ends its waits on Ctrl-C without a thread that watches for it: a signal's
 * handler sets a flag, and the hook returns it.
 *
 * The hook counts for the cluster or the scheduler that is made of this configuration from now on, and for
 * muster_init itself. NULL for `hook` means no hook, as in a new configuration. Then waiting calls do not wake up
 * every 50 ms.
 *
 * Where the hook returns something other than 0, the call returns MUSTER_ERR_INTERRUPTED. muster_interrupt lists the
 * calls that ask, and tells what becomes of each. The library does not remember what the hook has returned: a later
 * call asks again. If a call ends by itself at the moment when the hook returns, the call returns its own result.
 *
 * Requires:
 * `config` must be NULL or a live configuration; `hook` and `ctx` must be good, on any thread, until each cluster and scheduler
 * that was made of it has been freed.
 */
muster_status_t muster_config_set_interrupt(muster_config_t *config,
                                            muster_interrupt_fn hook,
                                            void *ctx);

/**
 * Ends the waits of this process's calls on this cluster. Every call that has begun, and sleeps now or goes to sleep
 * later, returns MUSTER_ERR_INTERRUPTED. A call that ends without sleeping is not disturbed, and neither is a call
 * that begins later. Any thread may call this, also from the hook, but not from a signal handler. Does not block.
 *
 * These calls can be interrupted, here and by the hook. What becomes of what they did:
 *
 * - A blocking collective, muster_group_create and muster_group_split: cancelled as by muster_request_cancel. That revokes
 *   the group: calls on it return MUSTER_ERR_ABORTED on every rank, with this rank's name. May take up to 250 ms more,
 *   for the scheduler's answer.
 * - muster_send, muster_recv, muster_sendrecv: the message is taken back if it has not met its other half, as by
 *   muster_request_cancel. A message that has met its other half goes on. If it succeeds, the call returns
 *   MUSTER_OK, otherwise MUSTER_ERR_INTERRUPTED. If that takes longer than 250 ms, the group is revoked, as above.
 *   Only the receiver knows whether a send that waits has met its receive. If it does not say so within 250
 *   ms, the send is taken back, and the group is not revoked. After a muster_sendrecv one of its two messages may
 *   have been sent or received.
 * - muster_request_wait, muster_request_wait_any, muster_request_wait_all: only the wait ends. The operations go on. A wait for
 *   requests of several clusters ends with the first that is interrupted.
 * - The store's calls: a call that waits ends. It does not say whether a change was made.
 * - muster_group_create_members: as after a time-out, and the program may call it again. May take up to 250 ms more.
 * - muster_recover: as after a time-out, and the program may call it again. If the next epoch begins at that moment it
 *   returns MUSTER_OK. May take up to 250 ms more.
 * - muster_probe: only the wait ends.
 * - muster_finalize: the program may call it again, and it goes on where it stopped. Or the program may free the cluster without
 *   that.
 *
 * By the hook alone:
 *
 * - muster_init: this process is no part of the cluster, as if it had been killed. Where it serves as the scheduler, it ends the
 *   job for all nodes (MUSTER_ERR_ABORTED there).
 * - muster_scheduler_wait: only the wait ends.
 *
 * No other call can be interrupted. muster_abort waits for 2.3 s at most; muster_request_free, muster_group_free,
 * muster_cluster_free and muster_scheduler_stop wait as long as their comments say.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_status_t muster_interrupt(muster_cluster_t *cluster);

/**
 * muster_barrier without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Collectives of a group, blocking or not, run one after another in the order of the calls. One rank may call the
 * blocking form of a collective, and another rank the other form. The buffers must stay as they are until the request
 * has ended; lists of counts and displacements are read before this returns. The group's time-out counts from this
 * call on. If an argument is wrong, this call returns the error and makes no request. Later errors come from the
 * request, and revoke the group as muster_barrier says. If the progress thread cannot be started, this call returns
 * that error and revokes the group. In a group of one, a collective whose buffers have at most 64 KiB has ended when
 * this returns, unless an earlier collective of the group is still going on.
 *
 * Requires:
 * As for muster_barrier, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ibarrier(muster_group_t *group,
                                muster_request_t **request);

/**
 * muster_broadcast without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_broadcast, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ibroadcast(muster_group_t *group,
                                  void *buf,
                                  size_t count,
                                  int32_t dtype,
                                  int32_t root,
                                  muster_request_t **request);

/**
 * muster_allreduce without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_allreduce, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iallreduce(muster_group_t *group,
                                  const void *in,
                                  void *out,
                                  size_t count,
                                  int32_t dtype,
                                  int32_t op,
                                  muster_request_t **request);

/**
 * muster_reduce without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_reduce, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce(muster_group_t *group,
                               const void *in,
                               void *out,
                               size_t count,
                               int32_t dtype,
                               int32_t op,
                               int32_t root,
                               muster_request_t **request);

/**
 * muster_allgather without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_allgather, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iallgather(muster_group_t *group,
                                  const void *in,
                                  void *out,
                                  size_t count,
                                  int32_t dtype,
                                  muster_request_t **request);

/**
 * muster_allgatherv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_allgatherv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iallgatherv(muster_group_t *group,
                                   const void *in,
                                   size_t count,
                                   void *out,
                                   const size_t *counts,
                                   const size_t *displs,
                                   int32_t dtype,
                                   muster_request_t **request);

/**
 * muster_gather without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_gather, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_igather(muster_group_t *group,
                               const void *in,
                               void *out,
                               size_t count,
                               int32_t dtype,
                               int32_t root,
                               muster_request_t **request);

/**
 * muster_gatherv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_gatherv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_igatherv(muster_group_t *group,
                                const void *in,
                                size_t count,
                                void *out,
                                const size_t *counts,
                                const size_t *displs,
                                int32_t dtype,
                                int32_t root,
                                muster_request_t **request);

/**
 * muster_scatter without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_scatter, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iscatter(muster_group_t *group,
                                const void *in,
                                void *out,
                                size_t count,
                                int32_t dtype,
                                int32_t root,
                                muster_request_t **request);

/**
 * muster_scatterv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_scatterv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_iscatterv(muster_group_t *group,
                                 const void *in,
                                 const size_t *counts,
                                 const size_t *displs,
                                 void *out,
                                 size_t count,
                                 int32_t dtype,
                                 int32_t root,
                                 muster_request_t **request);

/**
 * muster_reduce_scatter without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_reduce_scatter, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce_scatter(muster_group_t *group,
                                       const void *in,
                                       void *out,
                                       size_t count,
                                       int32_t dtype,
                                       int32_t op,
                                       muster_request_t **request);

/**
 * muster_reduce_scatterv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_reduce_scatterv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ireduce_scatterv(muster_group_t *group,
                                        const void *in,
                                        void *out,
                                        const size_t *counts,
                                        int32_t dtype,
                                        int32_t op,
                                        muster_request_t **request);

/**
 * muster_alltoall without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_alltoall, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ialltoall(muster_group_t *group,
                                 const void *in,
                                 void *out,
                                 size_t count,
                                 int32_t dtype,
                                 muster_request_t **request);

/**
 * muster_alltoallv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
 *
 * Buffers, order, time-out and errors as muster_ibarrier.
 *
 * Requires:
 * As for muster_alltoallv, until the request has ended; `request` must be NULL or writable.
 */
muster_status_t muster_ialltoallv(muster_group_t *group,
                                  const void *in,
                                  const size_t *in_counts,
                                  const size_t *in_displs,
                                  void *out,
                                  const size_t *out_counts,
                                  const size_t *out_displs,
                                  int32_t dtype,
                                  muster_request_t **request);

/**
 * Makes a reduction operation of a function, and writes its number to `*op`: calls on any group of this cluster take it as their
 * `op`.
 *
 * `commutative` is 1 if operands may be exchanged, 0 if not; then contributions are folded in order of rank. The same
 * conditions as for muster_allreduce give the same bits ("The same bits" in docs/c-api.md). If the result is to be the
 * same on 4 and on 5 ranks the function must be associative.
 * Operations are numbered in the order in which they are made. Ranks that reduce together must have made theirs in the
 * same order, because different numbers are a mismatch. A cluster has 65,536 numbers, and does not use a freed number
 * again. When all are used, the call returns MUSTER_ERR_LIMIT. MUSTER_ERR_INVALID if `fn` is NULL, or `commutative`
 * neither 0 nor 1. Thread-safe; does not block.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `op` NULL or writable; `fn` and `ctx` must be good until muster_op_free has
 * returned and every call that uses the operation has ended.
 */
muster_status_t muster_op_create(muster_cluster_t *cluster,
                                 muster_reduce_fn fn,
                                 void *ctx,
                                 int32_t commutative,
                                 int32_t *op);

/**
 * Frees an operation. Its number is invalid from now on, and is not used again: a call with it, or a second free,
 * returns MUSTER_ERR_INVALID. Calls that have begun go on with the function. Thread-safe; does not block.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_status_t muster_op_free(muster_cluster_t *cluster, int32_t op);

/**
 * Asks whether the operation has ended: MUSTER_IN_PROGRESS while it goes on, MUSTER_OK once it is done, or its error, with
 * its sentence in muster_last_error. A later test says the same again.
 *
 * Operations go on by themselves; this call is not needed for that. Between pieces of other work it only looks. It
 * never waits for the end. But a thread that does nothing but test, one request or many, keeps the processor from
 * the thread that does the work. So after some tests that found nothing within microseconds, this call lets other
 * threads run (sched_yield). If processors are short it sleeps for 0.1 ms at most, or until the operation ends. A
 * caller that can wait does better with muster_request_wait.
 *
 * Requires:
 * `request` must be NULL or a live request.
 */
muster_status_t muster_request_test(muster_request_t *request);

/**
 * Waits until the operation has ended, and answers as muster_request_test. MUSTER_IN_PROGRESS if it goes on after
 * `timeout_ms`: that ends the wait but not the operation, and the caller may wait again.
 *
 * With `timeout_ms` -1 or INT64_MAX the call waits for the operation's own end, which the group's time-out limits. 0
 * only asks. Blocking.
 *
 * If a thread waits without a limit for a collective that no thread has begun, it carries the collective out itself,
 * and before that the group's earlier collectives. So starting and waiting cost little more than the blocking call.
 * muster_request_wait_all does the same for requests of one cluster. So a reduction function may run on this thread.
 * If the wait is interrupted while the collective sleeps, the thread leaves the collective, which goes on without
 * it.
 *
 * Requires:
 * `request` must be NULL or a live request.
 */
muster_status_t muster_request_wait(muster_request_t *request, int64_t timeout_ms);

/**
 * Waits until one of `n` requests has ended, and answers as muster_request_test of that one; its place in `requests`
 * goes to `index`, also if it has failed. If several have ended, it is the first in the list. MUSTER_IN_PROGRESS if
 * all go on after `timeout_ms`, which counts as for muster_request_wait.
 *
 * An entry that is NULL is passed over, so that a caller can put NULL where it has freed one. MUSTER_ERR_NOT_FOUND if
 * all entries are NULL. If no request has ended, `index` is not written. So a caller that has put `n` there before can
 * tell an operation's error from an error of this call. The requests may be of different groups and clusters.
 * Blocking; ends early as muster_interrupt says.
 *
 * Requires:
 * `requests` must be readable for `n` pointers, each NULL or a live request, or be NULL; `index` must be NULL or writable.
 */
muster_status_t muster_request_wait_any(muster_request_t *const *requests,
                                        size_t n,
                                        int64_t timeout_ms,
                                        size_t *index);

/**
 * Waits until all of `n` requests have ended: MUSTER_OK, or the error of the first in `requests` that has failed,
 * once all have ended. muster_request_test tells of each. MUSTER_IN_PROGRESS if one goes on after `timeout_ms`,
 * which counts as for muster_request_wait. Entries that are NULL are passed over. If all entries are NULL it returns
 * MUSTER_OK. The requests may be of different groups and clusters. Blocking; ends early as muster_interrupt says.
 *
 * Requires:
 * `requests` must be readable for `n` pointers, each NULL or a live request, or be NULL.
 */
muster_status_t muster_request_wait_all(muster_request_t *const *requests, size_t n, int64_t timeout_ms);

/**
 * Has `fn` called, exactly once, when the operation has ended. If it has ended already, `fn` is called at once. A
 * thread of the library calls it, never this call itself. For programs with an event loop: nobody waits. If the
 * request is freed meanwhile, `fn` is still called: muster_request_free and muster_cluster_free wait for it.
 *
 * A request takes one function. A second one is MUSTER_ERR_STATE, as is a call after the cluster was freed. The first
 * call on a cluster starts the thread; MUSTER_ERR_SYSTEM if it cannot be started. Does not block.
 *
 * Requires:
 * `request` must be NULL or a live request; `fn` and `ctx` must be good until `fn` has returned.
 */
muster_status_t muster_request_notify(muster_request_t *request, muster_notify_fn fn, void *ctx);

/**
 * A descriptor that becomes readable (poll, epoll, select) when the operation has ended, and not before. If the
 * operation has ended already, it is readable at once. For programs with an event loop. Each call gives the same
 * descriptor.
 *
 * It is an eventfd that belongs to the library: watch it, and do nothing else with it. muster_request_free closes it, so
 * take it out of an epoll set before. A negative value is a status: MUSTER_ERR_SYSTEM if the process can have no more
 * descriptors. Does not block.
 *
 * Requires:
 * `request` must be NULL or a live request.
 */
int32_t muster_request_descriptor(muster_request_t *request);

/**
 * Cancels the operation: it ends soon, with MUSTER_ERR_ABORTED. If it is too far on to be stopped, it ends normally; if
 * it has ended already, nothing changes. The request tells which. It must still be freed, and its buffers are in use until it has
 * ended.
 *
 * A send or a receive can be cancelled if it has not met its receive or its send yet. If they have met, it ends as it
 * would have without this call. But if the message of a receive does not come after all, the receive also ends with
 * MUSTER_ERR_ABORTED. For a send that is under way and waits for its receive, only the receiver knows whether the two
 * have met, so the library asks it. The send ends when that process has answered or is lost, or when the send's time
 * is up.
 *
 * One rank alone cannot take a collective back. Cancelling a collective that has not ended, begun or not, revokes its
 * group: every rank's calls on it return MUSTER_ERR_ABORTED with this rank's name. May wait up to 250 ms for the
 * scheduler's answer. MUSTER_OK means that the library has accepted the wish to cancel.
 *
 * Requires:
 * `request` must be NULL or a live request.
 */
muster_status_t muster_request_cancel(muster_request_t *request);

/**
 * Frees a request. Does nothing for NULL. If the operation goes on, this call waits for its end, as long as the
 * blocking form may take. When this returns, the library no longer touches the buffers. A caller that does not want to
 * wait cancels first. The call also waits until the function of muster_request_notify has returned, unless such a
 * function makes the call. The descriptor of muster_request_descriptor is closed. Nothing interrupts this wait
 * (muster_interrupt).
 *
 * Requires:
 * `request` must be NULL or a live request, which must not be used afterwards.
 */
void muster_request_free(muster_request_t *request);

/**
 * As muster_store_set, with a key of `key_len` bytes, zeros included.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` and `value` readable for their lengths or NULL.
 */
muster_status_t muster_store_set_bytes(muster_cluster_t *cluster,
                                       const void *key,
                                       size_t key_len,
                                       const void *value,
                                       size_t len);

/**
 * As muster_store_get, with a key of `key_len` bytes, zeros included.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` readable for `key_len` bytes or NULL, `value` writable or NULL (which is
 * refused), `len` writable or NULL.
 */
muster_status_t muster_store_get_bytes(muster_cluster_t *cluster,
                                       const void *key,
                                       size_t key_len,
                                       int64_t timeout_ms,
                                       void **value,
                                       size_t *len);

/**
 * As muster_store_add, with a key of `key_len` bytes, zeros included.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` readable for `key_len` bytes or NULL, `out` writable or NULL.
 */
muster_status_t muster_store_add_bytes(muster_cluster_t *cluster,
                                       const void *key,
                                       size_t key_len,
                                       int64_t delta,
                                       int64_t *out);

/**
 * Appends `len` bytes to the value of a key, and writes the new length of the value to `total` (may be NULL). A key
 * that is not there counts as empty. Happens exactly once, whatever happens to the connection. If several nodes
 * append, each piece stays whole. The pieces are in the order in which the scheduler got them. Beyond the limits it is
 * MUSTER_ERR_LIMIT, and nothing has changed. With recovery the whole value is written to the journal each time.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` and `value` readable for their lengths or NULL, `total` writable or NULL.
 */
muster_status_t muster_store_append(muster_cluster_t *cluster,
                                    const void *key,
                                    size_t key_len,
                                    const void *value,
                                    size_t len,
                                    size_t *total);

/**
 * As muster_store_compare_set, with a key of `key_len` bytes, zeros included. `flags` is 0, or MUSTER_STORE_C10D. With
 * the flag, if the key does not exist and `expected` is not empty, `current` gets `expected`, as the compareSet of
 * PyTorch's c10d stores answers. Without the flag, `current` gets no bytes in that case. In both cases the key is not
 * set.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key`, `expected` and `desired` readable for their lengths or NULL, `current` and
 * `clen` writable or NULL.
 */
muster_status_t muster_store_compare_set_bytes(muster_cluster_t *cluster,
                                               const void *key,
                                               size_t key_len,
                                               const void *expected,
                                               size_t elen,
                                               const void *desired,
                                               size_t dlen,
                                               int32_t flags,
                                               void **current,
                                               size_t *clen);

/**
 * As muster_store_delete, with a key of `key_len` bytes, zeros included.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` readable for `key_len` bytes or NULL, `existed` writable or NULL.
 */
muster_status_t muster_store_delete_bytes(muster_cluster_t *cluster, const void *key, size_t key_len, int32_t *existed);

/**
 * As muster_store_wait, with keys that have a length, zeros included.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `keys` must be readable for `n` entries, and each for its length.
 */
muster_status_t muster_store_wait_bytes(muster_cluster_t *cluster,
                                        const muster_bytes_t *keys,
                                        size_t n,
                                        int64_t timeout_ms);

/**
 * Says which of `n` keys exist, all at one moment: `exists`, of `n` entries, gets 1 for each that does, 0 for each
 * that does not. Waits for the scheduler's answer only. The keys of one call may take at most 1 MiB minus 1 KiB
 * together, where each key counts 4 bytes more than its length. Beyond that it returns MUSTER_ERR_LIMIT. Without keys
 * it returns MUSTER_OK at once, also if the cluster is broken or left; `keys` and `exists` may be NULL then.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `keys` must be readable for `n` entries, and each for its length; `exists` must be
 * writable for `n` entries.
 */
muster_status_t muster_store_check(muster_cluster_t *cluster,
                                   const muster_bytes_t *keys,
                                   size_t n,
                                   int32_t *exists);

/**
 * Writes to `count` how many keys there are.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `count` writable or NULL (which is refused).
 */
muster_status_t muster_store_count(muster_cluster_t *cluster, uint64_t *count);

/**
 * Lists the keys that begin with `prefix`, in the order of their bytes; all keys where `prefix_len` is 0 (`prefix` may be NULL
 * then). `keys` gets one block: `n` entries, and the bytes to which they point. The block is the caller's, also if `n`
 * is 0; one muster_free(keys) frees it. A zero byte follows each key; its `len` does not count it.
 *
 * Long lists come in pieces of 64 KiB, so that no other call waits for long. So a key that is set or deleted
 * meanwhile may be in the list or not. All other keys that begin with `prefix` are in it. A prefix that is longer
 * than a key may be (4 KiB, setting store_key_limit) is MUSTER_ERR_LIMIT.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `prefix` readable for `prefix_len` bytes or NULL, `keys` and `n` writable or NULL
 * (which is refused).
 */
muster_status_t muster_store_list(muster_cluster_t *cluster,
                                  const void *prefix,
                                  size_t prefix_len,
                                  muster_bytes_t **keys,
                                  size_t *n);

/**
 * Sets `n` keys, the first to the first of `values` and so on, in one request: all of them at one moment, or none. If
 * a key is in the list twice, the later value counts. Happens exactly once. The keys may take at most 1 MiB minus 1
 * KiB together, where each key counts 4 bytes more than its length. The values together may take as much as one value
 * may (16 MiB, setting store_value_limit). More is MUSTER_ERR_LIMIT. Waits for the scheduler's answer as
 * muster_store_set. Without keys it returns MUSTER_OK at once.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `keys` and `values` must be readable for `n` entries, and each for its length.
 */
muster_status_t muster_store_multi_set(muster_cluster_t *cluster,
                                       const muster_bytes_t *keys,
                                       const muster_bytes_t *values,
                                       size_t n);

/**
 * Waits until `n` keys are there, and gives the values that they have at one moment, in one request. `timeout_ms`
 * as for muster_store_get; with 0, it returns MUSTER_ERR_NOT_FOUND if one of the keys is not there. The error's
 * sentence names missing keys, as after muster_store_wait. `values` gets one block: `n` entries in the order of
 * `keys`, and the bytes to which they point. One muster_free(values) frees it. A zero byte follows each value; its
 * `len` does not count it. Limits as muster_store_multi_set: if the values are longer together, it returns
 * MUSTER_ERR_LIMIT. Without keys it returns MUSTER_OK at once, and `values` gets a block all the same.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `keys` must be readable for `n` entries, and each for its length; `values` must be
 * writable or NULL (which is refused).
 */
muster_status_t muster_store_multi_get(muster_cluster_t *cluster,
                                       const muster_bytes_t *keys,
                                       size_t n,
                                       int64_t timeout_ms,
                                       muster_bytes_t **values);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MUSTER_H */
