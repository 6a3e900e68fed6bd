/*
 * muster: turns a set of processes into a cluster with ranks, host collectives and a small shared store.
 *
 * This file is made from src/ffi by `make header`. Do not edit it.
 *
 * Conventions:
 * - A muster_status_t is 0 for success, positive for a state, negative for an error. After an error muster_last_error()
 *   says in a full sentence which input it was, what it was, and what would be right.
 * - Queries return a value that is not negative, or a negative status.
 * - Handles are made into a `T **out` and freed by their _free function, which accepts NULL. The groups that
 *   muster_world, muster_servers and muster_universe return belong to their cluster and are not freed.
 * - Outputs are written on success only, unless a function says otherwise.
 * - A timeout_ms of -1 means the default, 0 "try once", INT64_MAX "no limit".
 * - Calls on clusters, groups and the store may come from any thread. A configuration or a request belongs to one thread
 *   at a time. All ranks of a group call its collectives in the same order.
 * - After fork() calls on inherited handles return MUSTER_ERR_FORKED in the child.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

/** The number of this ABI. The SONAME carries it (libmuster.so.1); it grows only with an incompatible change. */
#define MUSTER_ABI_VERSION 1

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

/** Operation: sum. Integers wrap. */
#define MUSTER_SUM 0

/** Operation: product. Integers wrap. */
#define MUSTER_PROD 1

/** Operation: minimum. NaN propagates; the minimum of the two zeros is -0. */
#define MUSTER_MIN 2

/** Operation: maximum. NaN propagates; the maximum of the two zeros is +0. */
#define MUSTER_MAX 3

/** Operation: average: the sum divided by the number of ranks. Integers truncate toward zero. */
#define MUSTER_AVG 4

/** What muster_role answers in a worker. */
#define MUSTER_ROLE_WORKER 1

/** What muster_role answers in a parameter server. */
#define MUSTER_ROLE_SERVER 2

/** Log level: what failed. */
#define MUSTER_LOG_ERROR 1

/** Log level: and what is odd, or takes long. The default. */
#define MUSTER_LOG_WARNING 2

/** Log level: and what happens to the cluster. */
#define MUSTER_LOG_INFO 3

/** Log level: and what happens within it. */
#define MUSTER_LOG_DEBUG 4

/** How long node_id and host are in the structs that go out, the ending zero byte included. */
#define MUSTER_NAME_BYTES 256

/** How long an address is in the structs that go out, the ending zero byte included. */
#define MUSTER_ADDRESS_BYTES 64

/** How long the cause of a failure is in muster_failure_t, the ending zero byte included. */
#define MUSTER_CAUSE_BYTES 512

/** A node's cluster. Its calls are thread-safe. */
typedef struct muster_cluster_t muster_cluster_t;

/** Settings as key and value strings; docs/settings.md lists the keys. Belongs to one thread at a time. */
typedef struct muster_config_t muster_config_t;

/**
 * An ordered set of nodes with its own sequence of collectives. The built-in ones are borrowed from their cluster, and
 * live as long as it. Every rank must call a group's collectives in the same order.
 */
typedef struct muster_group_t muster_group_t;

/** A scheduler on a thread of its own. Its calls are thread-safe. */
typedef struct muster_scheduler_t muster_scheduler_t;

/** What a call came to: 0 is success, a positive value a state, a negative value an error. Values are never reused. */
typedef int32_t muster_status_t;

/**
 * Receives log lines: their level (MUSTER_LOG_...), who speaks, the line. The strings live as long as the call. May be
 * called from any thread, several at a time; must not call back into this library.
 */
typedef void (*muster_log_fn)(int32_t level, const char *target, const char *message, void *ctx);

/** What broke a cluster or a group: the first cause. */
typedef struct {
    /** The status that the failing calls returned. */
    muster_status_t status;
    /** The role of the node that caused it (MUSTER_ROLE_...); 0 where none did. */
    int32_t role;
    /** Its rank in its role's rank space; -1 where it has none. */
    int32_t rank;
    /** Its process; 0 where none caused it. */
    int32_t pid;
    /** The epoch in which it happened. */
    int64_t epoch;
    /** The group that it broke: 0 world, 1 servers, 2 universe; -1: the whole cluster. */
    int64_t group;
    /** The group's collective in which it was noticed, counted from 1; 0 where there was none. */
    uint64_t sequence;
    /** The node's id. */
    char node_id[MUSTER_NAME_BYTES];
    /** Its host's name. */
    char host[MUSTER_NAME_BYTES];
    /** What happened, in words. */
    char cause[MUSTER_CAUSE_BYTES];
} muster_failure_t;

/**
 * The five values with which HCCL starts by its cluster manager (CM_CHIEF_IP, CM_CHIEF_PORT, CM_CHIEF_DEVICE,
 * CM_WORKER_SIZE, CM_WORKER_IP).
 */
typedef struct {
    /** The scheduler's port plus one. */
    int32_t chief_port;
    /** The device of rank 0: its local rank. */
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
    /** Its place among those of its role on its host. */
    int32_t local_rank;
    /** Its process. */
    int32_t pid;
    /** 0: in the cluster. (Other states come with recovery.) */
    int32_t state;
    /** Its node id. */
    char node_id[MUSTER_NAME_BYTES];
    /** Its host's name. */
    char host[MUSTER_NAME_BYTES];
    /** Where it can be reached, as "host:port" with a numeric host: the first of its addresses. */
    char address[MUSTER_ADDRESS_BYTES];
} muster_member_t;

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

/** This version does not do that. */
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

/** The time is up; the sentence names who is missing. */
#define MUSTER_ERR_TIMEOUT (-10)

/** A process of the cluster was lost. */
#define MUSTER_ERR_PEER_LOST (-11)

/** A process that the call needs has left the cluster. */
#define MUSTER_ERR_PEER_LEFT (-12)

/** Two live processes cannot reach each other. */
#define MUSTER_ERR_LINK (-13)

/** Bytes were damaged on the way. */
#define MUSTER_ERR_CORRUPT (-14)

/** Ranks called different collectives; the sentence says what each called. */
#define MUSTER_ERR_MISMATCH (-15)

/** The group was revoked. */
#define MUSTER_ERR_REVOKED (-16)

/** A rank aborted the job. */
#define MUSTER_ERR_ABORTED (-17)

/** A newer life of this node has taken its place. */
#define MUSTER_ERR_FENCED (-18)

/** Authentication or encryption failed. */
#define MUSTER_ERR_SECURITY (-19)

/** The journal could not be read or written. */
#define MUSTER_ERR_JOURNAL (-20)

/** The operating system refused something. */
#define MUSTER_ERR_SYSTEM (-21)

/** Out of memory. */
#define MUSTER_ERR_MEMORY (-22)

/** A bug in this library. */
#define MUSTER_ERR_INTERNAL (-23)

/** The handle belongs to the parent of this forked process. */
#define MUSTER_ERR_FORKED (-24)

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** The ABI number of the library that is loaded; compare it with MUSTER_ABI_VERSION, which is the header's. */
uint32_t muster_abi_version(void);

/** The library's version, as "0.1.0". Lives as long as the library is loaded. */
const char *muster_version(void);

/** Name and meaning of a status, as "ERR_TIMEOUT: the time is up". Never NULL; lives as long as the library is loaded. */
const char *muster_status_string(muster_status_t status);

/**
 * The last failing call of this thread, in a full sentence; empty if none has failed. Never NULL. Valid until this
 * thread's next failing call; to be copied by who wants to keep it.
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
 * Sends the log of every cluster of this process, up to `level` (MUSTER_LOG_ERROR to MUSTER_LOG_DEBUG), to `fn` instead
 * of standard error. NULL for `fn` goes back to standard error, and returns only when no call to the old function is
 * running. Without a callback warnings and errors go to standard error, one line each; MUSTER_LOG=debug changes that.
 *
 * Requires:
 * `fn` must be NULL or a function that may be called, with `ctx`, until another callback has been set.
 */
muster_status_t muster_set_log_callback(int32_t level, muster_log_fn fn, void *ctx);

/**
 * Makes empty settings. Pass MUSTER_ABI_VERSION, so that a header of another ABI is found at once. Free them with
 * muster_config_free.
 *
 * Requires:
 * `out` must be NULL or writable.
 */
muster_status_t muster_config_new(uint32_t abi_version, muster_config_t **out);

/**
 * Takes the settings that stand in the environment (MUSTER_..., MS_..., another launcher's); what was set by
 * muster_config_set stays. A bad value is an error of muster_init, and only if it would count.
 *
 * Requires:
 * `config` must be NULL or a live configuration; no other thread may change the environment meanwhile.
 */
muster_status_t muster_config_load_env(muster_config_t *config);

/**
 * Sets one setting, which then beats every other source. Copies both strings. An unknown key, or a value that does not
 * fit, is MUSTER_ERR_CONFIG at once.
 *
 * Requires:
 * `config` must be NULL or a live configuration; `key` and `value` must be NULL or strings.
 */
muster_status_t muster_config_set(muster_config_t *config, const char *key, const char *value);

/**
 * The value that counts for a key, with defaults: copied to `buf`, its length with the zero byte to `needed` (may be
 * NULL). MUSTER_ERR_LIMIT if `cap` is too small (`buf` NULL and `cap` 0 only ask for the length), MUSTER_ERR_NOT_FOUND if
 * it has no value. Never gives a secret out.
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
 * Joins the cluster that the settings describe; NULL for `config` means those of the environment. Blocks until all nodes
 * are there (at most for the forming time-out), then gives a handle out.
 *
 * In a process whose role is scheduler it serves until the job has ended, and then returns MUSTER_SCHEDULER_DONE with
 * `*out` set to NULL, or the job's error. With no settings at all the process is a cluster of one.
 *
 * Errors: MUSTER_ERR_CONFIG, MUSTER_ERR_BIND, MUSTER_ERR_UNREACHABLE (no scheduler), MUSTER_ERR_REJECTED,
 * MUSTER_ERR_TIMEOUT (the sentence names who is missing), MUSTER_ERR_UNSUPPORTED.
 *
 * Requires:
 * `config` must be NULL or a live configuration; `out` must be NULL or writable.
 */
muster_status_t muster_init(const muster_config_t *config,
                            muster_cluster_t **out);

/**
 * Leaves the cluster in order; does not free the handle. Bounded in time (setting finalize_timeout, 30 s), also when
 * there is no scheduler any more. Peers that need this node afterwards get MUSTER_ERR_PEER_LEFT. A process that hosts
 * the scheduler waits here for the others to leave. Accepts NULL; a second call does nothing.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
muster_status_t muster_finalize(muster_cluster_t *cluster);

/**
 * Ends the job for every rank: their pending and later calls return MUSTER_ERR_ABORTED with this rank, code and reason.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `reason` must be NULL or a string.
 */
muster_status_t muster_abort(muster_cluster_t *cluster, int32_t code, const char *reason);

/**
 * Frees a cluster, and its built-in groups with it. Accepts NULL. Without muster_finalize before it, the others lose
 * this node. When the last handle has been freed no thread and no descriptor of the library is left.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster that no other thread is using, and is not to be used any more.
 */
void muster_cluster_free(muster_cluster_t *cluster);

/**
 * Starts a scheduler on a thread of this process. The settings name the number of workers and, if wanted, host (default
 * 127.0.0.1) and port (default 0: the system chooses; muster_scheduler_address tells); the role does not count. NULL for
 * `config` means the environment's settings. Returns when the port is bound.
 *
 * Requires:
 * `config` must be NULL or a live configuration; `out` must be NULL or writable.
 */
muster_status_t muster_scheduler_start(const muster_config_t *config,
                                       muster_scheduler_t **out);

/**
 * Where the scheduler listens, as "host:port" with a numeric host. Copied to `buf`, its length with the zero byte to
 * `needed` (may be NULL). MUSTER_ERR_LIMIT if `cap` is too small.
 *
 * Requires:
 * `scheduler` must be NULL or a live scheduler, `buf` writable for `cap` bytes or NULL, `needed` writable or NULL.
 */
muster_status_t muster_scheduler_address(const muster_scheduler_t *scheduler, char *buf, size_t cap, size_t *needed);

/**
 * Waits until the job has ended: MUSTER_OK, or the job's error. -1: without limit; 0: only looks; otherwise
 * milliseconds. MUSTER_IN_PROGRESS if the job has not ended by then.
 *
 * Requires:
 * `scheduler` must be NULL or a live scheduler.
 */
muster_status_t muster_scheduler_wait(muster_scheduler_t *scheduler, int64_t timeout_ms);

/**
 * Ends the job for whoever is still in it (MUSTER_ERR_ABORTED there), and waits until the scheduler has ended.
 * MUSTER_OK also when the job had ended before.
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
 * This node's place among those of its role on its host, in order of rank.
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
 * How often this node has been started again within its job; 0 for one that was never lost.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int32_t muster_restarts(const muster_cluster_t *cluster);

/**
 * Which membership this is: 1 for the first.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
int64_t muster_epoch(const muster_cluster_t *cluster);

/**
 * This node's id. Borrowed from the cluster; NULL only if `cluster` is not usable.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster.
 */
const char *muster_node_id(const muster_cluster_t *cluster);

/**
 * The ranks of the workers that are lost, ascending: at most `cap` of them to `ranks` (may be NULL where `cap` is 0), their
 * number to `count`. None while the cluster is whole.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `ranks` must be writable for `cap` numbers or NULL; `count` writable or NULL.
 */
muster_status_t muster_failed_ranks(const muster_cluster_t *cluster,
                                    int32_t *ranks,
                                    size_t cap,
                                    size_t *count);

/**
 * The first cause of a broken cluster, or of its first broken group. Pass `sizeof *out` as `size`.
 * MUSTER_ERR_NOT_FOUND while nothing has failed.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_failure(const muster_cluster_t *cluster, muster_failure_t *out, size_t size);

/**
 * The same as a sentence, for whoever moves between threads. Copied to `buf`, its length with the zero byte to `needed`
 * (may be NULL). MUSTER_ERR_LIMIT if `cap` is too small, MUSTER_ERR_NOT_FOUND while nothing has failed.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `buf` writable for `cap` bytes or NULL, `needed` writable or NULL.
 */
muster_status_t muster_cluster_error(const muster_cluster_t *cluster, char *buf, size_t cap, size_t *needed);

/**
 * Those values for this node. Pass `sizeof *out` as `size`. (Their meaning is that of MS_HCCL_CM_INIT in MindSpore.)
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_hccl_cm(const muster_cluster_t *cluster, muster_hccl_cm_t *out, size_t size);

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
 * The rank among all workers of the member with this rank; MUSTER_ERR_NOT_FOUND for a member that is no worker,
 * MUSTER_ERR_INVALID for a rank that the group does not have.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
int32_t muster_group_to_world(const muster_group_t *group, int32_t rank);

/**
 * The rank in the group of the worker with this rank; MUSTER_ERR_NOT_FOUND if that is no member, MUSTER_ERR_INVALID for
 * a rank that no worker has.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
int32_t muster_group_from_world(const muster_group_t *group, int32_t world_rank);

/**
 * Describes a member. Pass `sizeof *out` as `size`. In clusters of more than 1,024 nodes this may ask the scheduler, and
 * wait for its answer for one heartbeat time-out at most.
 *
 * Requires:
 * `group` must be NULL or a live group; `out` must be NULL or writable for `size` bytes.
 */
muster_status_t muster_group_member(const muster_group_t *group,
                                    int32_t rank,
                                    muster_member_t *out,
                                    size_t size);

/**
 * How long an operation on the group may take, in milliseconds: -1 the default (setting timeout, 1,800 s), INT64_MAX
 * without limit, 0 only what can be done at once. Counts for later calls.
 *
 * Requires:
 * `group` must be NULL or a live group.
 */
muster_status_t muster_group_set_timeout(muster_group_t *group, int64_t timeout_ms);

/**
 * Returns when every member of the group has called it.
 *
 * Blocking; at most for the group's time-out. Any error but MUSTER_ERR_INVALID revokes the group: all members' pending
 * and later calls on it return the same first cause.
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
 * `group` must be NULL or a live group; `buf` must be NULL, or readable and (but for the root) writable for `count`
 * elements, and nobody else may write to it meanwhile.
 */
muster_status_t muster_broadcast(muster_group_t *group, void *buf, size_t count, int32_t dtype, int32_t root);

/**
 * Combines `count` elements of every rank, element by element, and gives everyone the result. All ranks pass the same
 * count, element type and operation.
 *
 * In place where `in` equals `out`; otherwise they must not overlap, and `in` is only read. Both are the caller's again
 * when this returns, and may be NULL where `count` is 0. After an error the contents of `out` are undefined. Every rank
 * gets the same bits, and the same from run to run with the same ranks and count. Blocking and errors as muster_barrier.
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
 * Gives everyone every rank's `count` elements, in order of rank: `out` takes `count` elements of each of the group's
 * members. All ranks pass the same count and element type.
 *
 * In place where `in` equals `out` plus this rank's `count` elements times its rank; otherwise they must not overlap.
 * Ownership, NULL, blocking and errors as muster_allreduce.
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
 * Sets a key to `len` bytes. Returns when the scheduler has it; from then on every node's get finds it. Keys are strings
 * of 1 to 4,096 bytes, values arbitrary bytes of up to 16 MiB, all together up to 256 MiB (settings store_key_max,
 * store_value_max, store_total_max); beyond, MUSTER_ERR_LIMIT. `value` may be NULL where `len` is 0.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `value` readable for `len` bytes or NULL.
 */
muster_status_t muster_store_set(muster_cluster_t *cluster,
                                 const char *key,
                                 const void *value,
                                 size_t len);

/**
 * The value of a key, waiting until somebody sets it: the scheduler pushes it, nobody polls. `timeout_ms`: -1 the default
 * (300 s), 0 try once (MUSTER_ERR_NOT_FOUND if it is not there), INT64_MAX without limit. The value is the caller's, to
 * be freed with muster_free; a zero byte that `len` does not count stands behind it.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `value` and `len` NULL or writable.
 */
muster_status_t muster_store_get(muster_cluster_t *cluster,
                                 const char *key,
                                 int64_t timeout_ms,
                                 void **value,
                                 size_t *len);

/**
 * Adds to the number in a key, and gives the sum to `out` (may be NULL). A key that is not there counts as 0. The number
 * is kept as decimal text; a value that is none, or a sum beyond 64 bits, is MUSTER_ERR_INVALID. Happens exactly once,
 * whatever happens to the connection.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster, `key` NULL or a string, `out` writable or NULL.
 */
muster_status_t muster_store_add(muster_cluster_t *cluster,
                                 const char *key,
                                 int64_t delta,
                                 int64_t *out);

/**
 * Sets a key to `desired` if its value is `expected` (a key that is not there counts as empty), and gives what it is
 * afterwards to `current` and `clen`: `desired`, or what was there instead. Freed with muster_free; both may be NULL.
 * Happens exactly once.
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
 * Waits until every one of `n` keys exists. `timeout_ms` as for muster_store_get.
 *
 * Requires:
 * `cluster` must be NULL or a live cluster; `keys` must be readable for `n` pointers, each NULL or a string.
 */
muster_status_t muster_store_wait(muster_cluster_t *cluster, const char *const *keys, size_t n, int64_t timeout_ms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MUSTER_H */
