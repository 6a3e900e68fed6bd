//! Little-endian encoding of plain values, and a decoder that never reads past its input.

use super::{NAME_MAX, SENTENCE_MAX};
use crate::types::{
    ChecksumScope, Epoch, GroupId, Incarnation, JobInstance, LaunchId, Role, Secret, SharedMemory, Token, TokenHash,
};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Why bytes could not be decoded. Ends the connection that they came over, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError(pub String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}

/// Collects encoded bytes.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What has been encoded so far.
    pub bytes: Vec<u8>,
}

/// Walks over received bytes.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: bytes }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        if count > self.rest.len() {
            return Err(WireError(format!("{count} bytes expected, {} left", self.rest.len())));
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// All that is left.
    pub fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// A count of things that each take at least `least_bytes`, at most `max` of them.
    pub fn count(&mut self, max: usize, least_bytes: usize, what: &str) -> Result<usize, WireError> {
        let count = u32::take(self)? as usize;
        if count > max || count.saturating_mul(least_bytes) > self.rest.len() {
            return Err(WireError(format!(
                "{count} {what} announced: more than the limit ({max}) or than the message holds"
            )));
        }
        Ok(count)
    }

    /// Fails unless everything was taken.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(WireError(format!("{left} bytes too many"))),
        }
    }
}

/// A value that lies on the wire.
pub trait Wire: Sized {
    /// Appends it.
    fn put(&self, to: &mut Encoder);
    /// Takes it off the front.
    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError>;
}

macro_rules! wire_numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, to: &mut Encoder) {
                to.bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
                let bytes = from.bytes(std::mem::size_of::<$number>())?;
                Ok(<$number>::from_le_bytes(bytes.try_into().expect("exactly as many bytes as asked for")))
            }
        }
    )*};
}

wire_numbers!(u8, u16, u32, u64, i32, i64);

impl Wire for bool {
    fn put(&self, to: &mut Encoder) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError(format!("{other} where 0 or 1 belongs"))),
        }
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, to: &mut Encoder) {
        to.bytes.extend_from_slice(self);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(from.bytes(N)?.try_into().expect("exactly as many bytes as asked for"))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Encoder) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

/// Sentences and names: a length of two bytes, then UTF-8; cut at [`SENTENCE_MAX`] when too long.
impl Wire for String {
    fn put(&self, to: &mut Encoder) {
        let mut end = self.len().min(SENTENCE_MAX);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        u16::try_from(end).expect("SENTENCE_MAX fits in u16").put(to);
        to.bytes.extend_from_slice(&self.as_bytes()[..end]);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        take_text(from, SENTENCE_MAX, "text").map(str::to_owned)
    }
}

/// A text of at most `max` bytes. It is not copied.
pub(super) fn take_text<'a>(from: &mut Decoder<'a>, max: usize, what: &str) -> Result<&'a str, WireError> {
    let length = usize::from(u16::take(from)?);
    if length > max {
        return Err(WireError(format!("a {what} of {length} bytes: the limit is {max}")));
    }
    std::str::from_utf8(from.bytes(length)?).map_err(|_| WireError("a text that is not UTF-8".to_owned()))
}

/// A string that keeps [`NAME_MAX`]: decoding a longer one fails.
pub(super) fn take_name(from: &mut Decoder<'_>, what: &str) -> Result<String, WireError> {
    take_text(from, NAME_MAX, what).map(str::to_owned)
}

/// Sequences: a count of four bytes, then the elements. The count is compared with what the message can hold.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Encoder) {
        u32::try_from(self.len()).expect("sequences that travel have named limits far below 2^32").put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let count = from.count(usize::MAX, 1, "elements")?;
        // A count is only a claim: the memory that is reserved for it is never more than the message itself takes.
        let mut values = Vec::with_capacity(count.min(from.rest.len() / std::mem::size_of::<T>().max(1)));
        for _ in 0..count {
            values.push(T::take(from)?);
        }
        Ok(values)
    }
}

/// A last field that was added to a message later. If it has its default value, no byte of it lies on the wire. So a message
/// without the field has the same bytes as before there was one, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Later<T>(pub T);

impl<T: Wire + Default + PartialEq> Wire for Later<T> {
    fn put(&self, to: &mut Encoder) {
        if self.0 != T::default() {
            self.0.put(to);
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        if from.left() == 0 {
            return Ok(Later::default());
        }
        let value = T::take(from)?;
        if value == T::default() {
            return Err(WireError("a last field with its default value: such a field must be left out".to_owned()));
        }
        Ok(Later(value))
    }
}

/// A value in a `Box` or an `Arc` lies on the wire like the value itself.
impl<T: Wire> Wire for Box<T> {
    fn put(&self, to: &mut Encoder) {
        self.as_ref().put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        T::take(from).map(Box::new)
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn put(&self, to: &mut Encoder) {
        self.as_ref().put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        T::take(from).map(Arc::new)
    }
}

impl Wire for IpAddr {
    /// 4 or 6, then the address's bytes.
    fn put(&self, to: &mut Encoder) {
        match self {
            IpAddr::V4(ip) => {
                4u8.put(to);
                ip.octets().put(to);
            }
            IpAddr::V6(ip) => {
                6u8.put(to);
                ip.octets().put(to);
            }
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        match u8::take(from)? {
            4 => Ok(IpAddr::from(<[u8; 4]>::take(from)?)),
            6 => Ok(IpAddr::from(<[u8; 16]>::take(from)?)),
            other => Err(WireError(format!("address family {other}: 4 or 6 expected"))),
        }
    }
}

impl Wire for SocketAddr {
    /// The address, then the port. (Scope ids are local to a host and do not travel.)
    fn put(&self, to: &mut Encoder) {
        self.ip().put(to);
        self.port().put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let ip = IpAddr::take(from)?;
        Ok(SocketAddr::new(ip, u16::take(from)?))
    }
}

macro_rules! wire_newtypes {
    ($($name:ident),*) => {$(
        impl Wire for $name {
            fn put(&self, to: &mut Encoder) {
                self.0.put(to);
            }

            fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
                Wire::take(from).map($name)
            }
        }
    )*};
}

wire_newtypes!(Epoch, GroupId, Incarnation, JobInstance, LaunchId, Secret, Token, TokenHash);

/// Enums that have codes of their own (`types`), each with the sentence about a code that none of its variants has.
macro_rules! wire_coded {
    ($($name:ident: $odd:literal),*) => {$(
        impl Wire for $name {
            fn put(&self, to: &mut Encoder) {
                (*self as u8).put(to);
            }

            fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
                let code = u8::take(from)?;
                $name::from_code(code).ok_or_else(|| WireError(format!($odd, code)))
            }
        }
    )*}
}

wire_coded!(
    SharedMemory: "{} does not say whether ranks share memory",
    ChecksumScope: "{} does not say what carries checksums",
    Role: "role {}: 0, 1 or 2 expected"
);

/// Declares a struct whose fields lie on the wire one after another.
macro_rules! record {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$field_about:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $kind,)*
        }

        impl $crate::wire::Wire for $name {
            fn put(&self, _to: &mut $crate::wire::Encoder) {
                $(self.$field.put(_to);)*
            }

            fn take(_from: &mut $crate::wire::Decoder<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok($name { $($field: $crate::wire::Wire::take(_from)?,)* })
            }
        }
    };
}

/// Declares an enum whose variants are single bytes on the wire.
macro_rules! code {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$variant_about:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_about])* $variant = $number,)*
        }

        impl $crate::wire::Wire for $name {
            fn put(&self, to: &mut $crate::wire::Encoder) {
                (*self as u8).put(to);
            }

            fn take(from: &mut $crate::wire::Decoder<'_>) -> Result<Self, $crate::wire::WireError> {
                match u8::take(from)? {
                    $($number => Ok($name::$variant),)*
                    other => Err($crate::wire::WireError(format!("{other} is no {}", stringify!($name)))),
                }
            }
        }
    };
}

pub(super) use {code, record};
