//! How the crate's nouns lie on the wire: hosts, processes, calls, failures.

use super::codec::{take_name, Decoder, Encoder, Wire, WireError};
use crate::error::{Culprit, Failure, LastCall, Status};
use crate::types::{Call, CallKind, DType, Device, HostName, Process, ReduceOp, NO_VALUE};

impl Wire for HostName {
    fn put(&self, to: &mut Encoder) {
        self.name.put(to);
        self.key.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(HostName { name: take_name(from, "host name")?, key: take_name(from, "host key")? })
    }
}

impl Wire for Device {
    fn put(&self, to: &mut Encoder) {
        self.id.put(to);
        self.ip.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Device { id: Wire::take(from)?, ip: Wire::take(from)? })
    }
}

impl Wire for Process {
    fn put(&self, to: &mut Encoder) {
        self.pid.put(to);
        self.start_ticks.put(to);
        self.pid_namespace.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Process { pid: Wire::take(from)?, start_ticks: Wire::take(from)?, pid_namespace: Wire::take(from)? })
    }
}

impl Wire for Status {
    fn put(&self, to: &mut Encoder) {
        self.code().put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let code = i32::take(from)?;
        Status::from_code(code).ok_or_else(|| WireError(format!("unknown status {code}")))
    }
}

impl Wire for LastCall {
    fn put(&self, to: &mut Encoder) {
        self.group.put(to);
        self.sequence.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(LastCall { group: Wire::take(from)?, sequence: Wire::take(from)? })
    }
}

impl Wire for Culprit {
    fn put(&self, to: &mut Encoder) {
        self.role.put(to);
        self.rank.put(to);
        self.node_id.put(to);
        self.host.put(to);
        self.pid.put(to);
        self.last_call.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Culprit {
            role: Wire::take(from)?,
            rank: Wire::take(from)?,
            node_id: take_name(from, "node id")?,
            host: take_name(from, "host name")?,
            pid: Wire::take(from)?,
            last_call: Wire::take(from)?,
        })
    }
}

impl Wire for Failure {
    fn put(&self, to: &mut Encoder) {
        self.status.put(to);
        self.culprit.put(to);
        self.cause.put(to);
        self.epoch.put(to);
        self.group.put(to);
        self.sequence.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Failure {
            status: Wire::take(from)?,
            culprit: Wire::take(from)?,
            cause: Wire::take(from)?,
            epoch: Wire::take(from)?,
            group: Wire::take(from)?,
            sequence: Wire::take(from)?,
        })
    }
}

/// The number of a call without an element type.
const NO_TYPE: u8 = u8::MAX;
/// The number of the caller's own element types. Their size lies in the bits above the count.
const OWN_TYPE: u8 = 12;
/// The bit at which that size begins: counts of such elements are smaller.
const SIZE_SHIFT: u32 = 48;

/// How an element type and a count lie on the wire: a number, and the count. For a caller's own element types, their size
/// less one lies in the bits above the count, so that a header has the same length for every type.
pub(super) fn put_elements(dtype: Option<DType>, count: u64) -> (u8, u64) {
    match dtype {
        None => (NO_TYPE, count),
        Some(DType::Element(bytes)) => {
            assert!(count >> SIZE_SHIFT == 0, "{count} elements of {bytes} bytes are more than any memory holds");
            (OWN_TYPE, u64::from(bytes - 1) << SIZE_SHIFT | count)
        }
        Some(dtype) => (dtype.code() as u8, count),
    }
}

/// The element type and the count that `put_elements` has put on the wire.
pub(super) fn take_elements(code: u8, count: u64) -> Result<(Option<DType>, u64), WireError> {
    match code {
        NO_TYPE => Ok((None, count)),
        OWN_TYPE => {
            let dtype = DType::of_bytes((count >> SIZE_SHIFT) as u32 + 1);
            Ok((dtype, count & ((1 << SIZE_SHIFT) - 1)))
        }
        _ => match DType::from_code(code.into()) {
            None => Err(WireError(format!("unknown element type {code}"))),
            known => Ok((known, count)),
        },
    }
}

impl Wire for Call {
    fn put(&self, to: &mut Encoder) {
        let (dtype, count) = put_elements(self.dtype, self.count);
        (self.kind as u8).put(to);
        dtype.put(to);
        self.op.map_or(NO_VALUE, ReduceOp::wire_code).put(to);
        self.root.put(to);
        count.put(to);
        self.layout.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let kind = u8::take(from)?;
        let kind = CallKind::from_code(kind).ok_or_else(|| WireError(format!("unknown collective {kind}")))?;
        let (dtype, op) = (u8::take(from)?, u32::take(from)?);
        let op = match ReduceOp::from_wire_code(op) {
            _ if op == NO_VALUE => None,
            None => return Err(WireError(format!("unknown operation {op}"))),
            known => known,
        };
        let (root, count, layout) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        let (dtype, count) = take_elements(dtype, count)?;
        Ok(Call { kind, dtype, op, root, count, layout })
    }
}
