//! The status codes of the C ABI. Values are never reused.

/// 0 is success, positive is a state, negative is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
#[allow(missing_docs)] // `text` says what each means
pub enum Status {
    Ok = 0,
    InProgress = 1,
    SchedulerDone = 2,
    Invalid = -1,
    Config = -2,
    State = -3,
    Unsupported = -4,
    Limit = -5,
    NotFound = -6,
    Rejected = -7,
    Bind = -8,
    Unreachable = -9,
    Timeout = -10,
    PeerLost = -11,
    PeerLeft = -12,
    Link = -13,
    Corrupt = -14,
    Mismatch = -15,
    Revoked = -16,
    Aborted = -17,
    Fenced = -18,
    Security = -19,
    Journal = -20,
    System = -21,
    Memory = -22,
    Internal = -23,
    Forked = -24,
    Interrupted = -25,
}

/// The one table: status, its text. The text carries the C constant's name first, without the prefix.
const TABLE: [(Status, &std::ffi::CStr); 28] = [
    (Status::Ok, c"OK: success"),
    (Status::InProgress, c"IN_PROGRESS: not finished yet"),
    (Status::SchedulerDone, c"SCHEDULER_DONE: this process was the scheduler and its job has ended"),
    (Status::Invalid, c"ERR_INVALID: an argument is not valid"),
    (Status::Config, c"ERR_CONFIG: a setting is not valid"),
    (Status::State, c"ERR_STATE: not possible at this moment"),
    (Status::Unsupported, c"ERR_UNSUPPORTED: this version does not do that"),
    (Status::Limit, c"ERR_LIMIT: a limit is exceeded"),
    (Status::NotFound, c"ERR_NOT_FOUND: no such key, or no such thing"),
    (Status::Rejected, c"ERR_REJECTED: the scheduler refused this node"),
    (Status::Bind, c"ERR_BIND: an address could not be bound"),
    (Status::Unreachable, c"ERR_UNREACHABLE: the scheduler or a peer could not be reached"),
    (Status::Timeout, c"ERR_TIMEOUT: the time is up"),
    (Status::PeerLost, c"ERR_PEER_LOST: a process of the cluster was lost"),
    (Status::PeerLeft, c"ERR_PEER_LEFT: a process that is needed has left the cluster"),
    (Status::Link, c"ERR_LINK: two live processes cannot reach each other"),
    (Status::Corrupt, c"ERR_CORRUPT: bytes were damaged on the way"),
    (Status::Mismatch, c"ERR_MISMATCH: ranks called different collectives"),
    (Status::Revoked, c"ERR_REVOKED: the group was revoked"),
    (Status::Aborted, c"ERR_ABORTED: the job, or the operation, was aborted"),
    (Status::Fenced, c"ERR_FENCED: the others have given this process up, or another has its place"),
    (Status::Security, c"ERR_SECURITY: authentication or encryption failed"),
    (Status::Journal, c"ERR_JOURNAL: the journal could not be read or written"),
    (Status::System, c"ERR_SYSTEM: the operating system refused"),
    (Status::Memory, c"ERR_MEMORY: out of memory"),
    (Status::Internal, c"ERR_INTERNAL: a bug in this library"),
    (Status::Forked, c"ERR_FORKED: the handle belongs to the parent process"),
    (Status::Interrupted, c"ERR_INTERRUPTED: the program has ended the wait"),
];

impl Status {
    /// The status with this number.
    pub fn from_code(code: i32) -> Option<Status> {
        TABLE.iter().map(|(status, _)| *status).find(|status| *status as i32 == code)
    }

    /// Its number in the C ABI.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Name and meaning, as `muster_status_string` gives them.
    pub fn text(self) -> &'static std::ffi::CStr {
        TABLE.iter().find(|(status, _)| *status == self).map_or(c"unknown status", |(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_round_trip() {
        let mut codes: Vec<i32> = TABLE.iter().map(|(status, _)| status.code()).collect();
        for (status, text) in TABLE {
            assert_eq!(Status::from_code(status.code()), Some(status));
            assert_eq!(status.text(), text);
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), TABLE.len());
        assert_eq!(Status::from_code(3), None);
    }
}
