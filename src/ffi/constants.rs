//! The constants of the header.

use crate::types::DType;

const _: () = assert!(MUSTER_ELEMENT == DType::ELEMENT && MUSTER_ELEMENT_BYTES_MAX as u32 == DType::ELEMENT_BYTES_MAX);

/// The result of a call: 0 is success, a positive value a state, a negative value an error. Values are never reused.
pub type muster_status_t = i32;

/// The number of this ABI. The SONAME carries it (libmuster.so.1); it grows only with an incompatible change.
pub const MUSTER_ABI_VERSION: u32 = 1;
/// The version of this header: MUSTER_ABI_VERSION in the lower 16 bits, the minor number in the upper ones. It grows with each
/// release that adds something. Pass it to muster_config_new, and a library that is older than the header says so.
pub const MUSTER_HEADER_VERSION: u32 = 1;

/// Success.
pub const MUSTER_OK: muster_status_t = 0;
/// The operation is not finished yet.
pub const MUSTER_IN_PROGRESS: muster_status_t = 1;
/// This process was the scheduler, and its job has ended well. There is no cluster handle.
pub const MUSTER_SCHEDULER_DONE: muster_status_t = 2;
/// An argument is not valid. Nothing has happened.
pub const MUSTER_ERR_INVALID: muster_status_t = -1;
/// A setting is not valid; the sentence names the variable, its value, and what would be right.
pub const MUSTER_ERR_CONFIG: muster_status_t = -2;
/// Not possible at this moment, for instance after muster_finalize.
pub const MUSTER_ERR_STATE: muster_status_t = -3;
/// The setting `shm` is `require`, but memory cannot be shared; or this version of the library lacks the function.
pub const MUSTER_ERR_UNSUPPORTED: muster_status_t = -4;
/// A limit is exceeded; the sentence says which.
pub const MUSTER_ERR_LIMIT: muster_status_t = -5;
/// There is no such key, or no such thing.
pub const MUSTER_ERR_NOT_FOUND: muster_status_t = -6;
/// The scheduler refused this node; the sentence names both sides of the disagreement.
pub const MUSTER_ERR_REJECTED: muster_status_t = -7;
/// An address could not be bound.
pub const MUSTER_ERR_BIND: muster_status_t = -8;
/// The scheduler, or a peer, could not be reached.
pub const MUSTER_ERR_UNREACHABLE: muster_status_t = -9;
/// The time is up. The sentence names the missing nodes, or the rank for which this process waits.
pub const MUSTER_ERR_TIMEOUT: muster_status_t = -10;
/// A process of the cluster was lost.
pub const MUSTER_ERR_PEER_LOST: muster_status_t = -11;
/// A process that the call needs has left the cluster, or freed the group.
pub const MUSTER_ERR_PEER_LEFT: muster_status_t = -12;
/// Two live processes cannot reach each other; the sentence names both.
pub const MUSTER_ERR_LINK: muster_status_t = -13;
/// Bytes were damaged on the way.
pub const MUSTER_ERR_CORRUPT: muster_status_t = -14;
/// Ranks called different collectives, or a message does not fit its receive; the sentence tells both sides. It
/// describes a list of ranks or counts by its length or sum, and by a check number that differs if the lists differ.
pub const MUSTER_ERR_MISMATCH: muster_status_t = -15;
/// A node has called muster_recover, which ends the epoch for every group.
pub const MUSTER_ERR_REVOKED: muster_status_t = -16;
/// A rank aborted the job, or its scheduler was stopped; or a request was cancelled, or a message given up midway.
pub const MUSTER_ERR_ABORTED: muster_status_t = -17;
/// A newer process of this node has taken its place, or the others have taken this process for lost. This happens
/// with and without recovery.
pub const MUSTER_ERR_FENCED: muster_status_t = -18;
/// Authentication or encryption failed: a certificate, or the proof of the job secret, was not accepted.
pub const MUSTER_ERR_SECURITY: muster_status_t = -19;
/// The journal, or what a node keeps beside it, could not be read or written, or the journal is an older copy.
pub const MUSTER_ERR_JOURNAL: muster_status_t = -20;
/// The operating system refused something.
pub const MUSTER_ERR_SYSTEM: muster_status_t = -21;
/// Out of memory. This covers memory whose size a caller or the network gives: requests and messages that wait, memory
/// beside a collective's buffers, values of the store, lists of counts. It does not cover the few hundred bytes that a call
/// takes at a time: before a call takes them, the library checks that 64 KiB are free. If other threads take even those,
/// the process is aborted. The process is also aborted if there is no memory for an object (a cluster, a group, a link, a
/// thread) or a control message (at most 1 MiB).
pub const MUSTER_ERR_MEMORY: muster_status_t = -22;
/// A bug in this library.
pub const MUSTER_ERR_INTERNAL: muster_status_t = -23;
/// The handle belongs to the parent of this forked process.
pub const MUSTER_ERR_FORKED: muster_status_t = -24;
/// The program has ended the wait: by muster_interrupt, or by its hook (muster_config_set_interrupt).
pub const MUSTER_ERR_INTERRUPTED: muster_status_t = -25;

/// Element type: 8-bit signed integer.
pub const MUSTER_INT8: i32 = 0;
/// Element type: 16-bit signed integer.
pub const MUSTER_INT16: i32 = 1;
/// Element type: 32-bit signed integer.
pub const MUSTER_INT32: i32 = 2;
/// Element type: 64-bit signed integer.
pub const MUSTER_INT64: i32 = 3;
/// Element type: 8-bit unsigned integer; also for plain bytes.
pub const MUSTER_UINT8: i32 = 4;
/// Element type: 16-bit unsigned integer.
pub const MUSTER_UINT16: i32 = 5;
/// Element type: 32-bit unsigned integer.
pub const MUSTER_UINT32: i32 = 6;
/// Element type: 64-bit unsigned integer.
pub const MUSTER_UINT64: i32 = 7;
/// Element type: IEEE 754 half precision.
pub const MUSTER_FLOAT16: i32 = 8;
/// Element type: bfloat16.
pub const MUSTER_BFLOAT16: i32 = 9;
/// Element type: IEEE 754 single precision.
pub const MUSTER_FLOAT32: i32 = 10;
/// Element type: IEEE 754 double precision.
pub const MUSTER_FLOAT64: i32 = 11;
/// Element type: an element of the caller's own, which is never split. The type is this number plus the element's size
/// in bytes, 1 to MUSTER_ELEMENT_BYTES_MAX: MUSTER_ELEMENT + sizeof(struct pair).
///
/// All collectives and messages move such elements, and ranks must agree on the size. The library does not know what they
/// mean. So only the caller's own functions reduce them: those of muster_op_create, and of muster_allreduce_with and
/// its like. With the library's operations, such as MUSTER_SUM, the call returns MUSTER_ERR_INVALID.
pub const MUSTER_ELEMENT: i32 = 0x10_0000;
/// The largest size of a MUSTER_ELEMENT, in bytes.
pub const MUSTER_ELEMENT_BYTES_MAX: i32 = 65536;

/// Operation: sum. Integers wrap.
pub const MUSTER_SUM: i32 = 0;
/// Operation: product. Integers wrap.
pub const MUSTER_PROD: i32 = 1;
/// Operation: minimum. NaN propagates; the minimum of the two zeros is -0.
pub const MUSTER_MIN: i32 = 2;
/// Operation: maximum. NaN propagates; the maximum of the two zeros is +0.
pub const MUSTER_MAX: i32 = 3;
/// Operation: average: the sum divided by the number of ranks. Integers truncate toward zero, once, at the end.
///
/// 8, 16 and 32 bit integers, float16 and bfloat16 are summed in wider types, so that nothing overflows in between.
/// Averages of these integers are exact. Averages of float16 and bfloat16 are rounded once, from sums in float32.
/// An average of such elements costs as much as an operation on elements of twice the width, or of four times the
/// width (integers of 8 bits in groups of more than 256, and of 16 bits beyond 65,536). The group keeps memory for the
/// average: about twice the size of the input, and several times that size for a reduce-scatter over several hosts. The
/// sums of 64 bit integers wrap, and those of float32 and float64 overflow to infinity, like those of MUSTER_SUM.
pub const MUSTER_AVG: i32 = 4;
/// Operation: bitwise and; integer types only.
pub const MUSTER_AND: i32 = 5;
/// Operation: bitwise or; integer types only.
pub const MUSTER_OR: i32 = 6;
/// Operation: bitwise exclusive or; integer types only.
pub const MUSTER_XOR: i32 = 7;
/// Operation: exact sum; float types only. The result is the real sum of all ranks' elements, rounded once, to the nearest, ties
/// to even.
///
/// So the result depends on the elements alone: not on their order, the ranks' numbers, the algorithm or the transport.
/// Nothing overflows in between. A sum that is zero is +0, or -0 if all elements are -0. With a NaN, or infinities of
/// both signs, the sum is the canonical NaN. The library may need memory for a piece of every rank's addends, about 512
/// KiB in all. With more than 128 addends it may need 4 KiB for each addend of the other ranks: 256 MiB for 65,536
/// addends in muster_allreduce_addends. With several hosts, one rank of each host needs up to about 5 MiB. In
/// muster_allreduce_addends that rank also needs room for its host's addends, up to 64 MiB.
pub const MUSTER_SUM_EXACT: i32 = 8;

/// In place of a sender's rank: any rank.
pub const MUSTER_ANY_SOURCE: i32 = -1;
/// In place of a tag: any tag.
pub const MUSTER_ANY_TAG: i32 = -1;

/// Flag of muster_store_compare_set_bytes: if the key does not exist and `expected` is not empty, the call answers as
/// PyTorch's c10d does.
pub const MUSTER_STORE_C10D: i32 = 1;

/// What muster_role answers in a worker.
pub const MUSTER_ROLE_WORKER: i32 = 1;
/// What muster_role answers in a parameter server.
pub const MUSTER_ROLE_SERVER: i32 = 2;

/// State of a member: in the cluster, as far as this process has heard.
pub const MUSTER_MEMBER_PRESENT: i32 = 0;
/// State of a member: lost; the cluster is broken because of it.
pub const MUSTER_MEMBER_LOST: i32 = 1;
/// State of a member: the member has left, and a call that needed it has noticed.
pub const MUSTER_MEMBER_LEFT: i32 = 2;

/// Log level: errors.
pub const MUSTER_LOG_ERROR: i32 = 1;
/// Log level: errors, and warnings about what is odd or slow. The default.
pub const MUSTER_LOG_WARNING: i32 = 2;
/// Log level: also what happens to the cluster.
pub const MUSTER_LOG_INFO: i32 = 3;
/// Log level: also what happens inside the cluster.
pub const MUSTER_LOG_DEBUG: i32 = 4;

/// The size of node_id and host in the structs of this header, with the ending zero byte.
pub const MUSTER_NAME_BYTES: usize = 256;
/// The size of an address in the structs of this header, with the ending zero byte.
pub const MUSTER_ADDRESS_BYTES: usize = 64;
/// The size of the cause in muster_failure_t, with the ending zero byte.
pub const MUSTER_CAUSE_BYTES: usize = 512;
