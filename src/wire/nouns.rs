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

impl Wire for Call {
    fn put(&self, to: &mut Encoder) {
        (self.kind as u8).put(to);
        self.dtype.map_or(u8::MAX, |dtype| dtype as u8).put(to);
        self.op.map_or(NO_VALUE, ReduceOp::wire_code).put(to);
        self.root.put(to);
        self.count.put(to);
        self.layout.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        fn known<T>(code: u32, none: u32, what: &str, value: Option<T>) -> Result<Option<T>, WireError> {
            match value {
                _ if code == none => Ok(None),
                None => Err(WireError(format!("unknown {what} {code}"))),
                known => Ok(known),
            }
        }
        let kind = u8::take(from)?;
        let kind = CallKind::from_code(kind).ok_or_else(|| WireError(format!("unknown collective {kind}")))?;
        let (dtype, op) = (u8::take(from)?, u32::take(from)?);
        Ok(Call {
            kind,
            dtype: known(dtype.into(), u8::MAX.into(), "element type", DType::from_code(dtype.into()))?,
            op: known(op, NO_VALUE, "operation", ReduceOp::from_wire_code(op))?,
            root: Wire::take(from)?,
            count: Wire::take(from)?,
            layout: Wire::take(from)?,
        })
    }
}
