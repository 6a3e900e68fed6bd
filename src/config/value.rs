//! What values settings take: how each kind is read from text, and the words for what would be right.
//!
//! Text is read whole (`80x` is no number), and nothing is trimmed. A reader answers `None` for text that is not of its
//! kind. Its caller knows the variable and makes the sentence.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::reach::{self, Endpoint, Interfaces, ADDRESSES_LIMIT};
use crate::types::{is_hidden, ChecksumScope, Role, SharedMemory};

/// Lowest port that a scheduler may be given.
pub const PORT_MIN: u64 = 1024;

/// The longest time that can be set; more is an error rather than a surprise. About 31 years.
const SECONDS_MAX: u64 = 1_000_000_000;

/// The longest path, as Linux has it.
const PATH_MAX_BYTES: usize = 4095;

/// The longest host name, as DNS has it.
const HOST_MAX_BYTES: usize = 253;

/// Which values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `expectation` says what each is
pub enum Kind {
    Role,
    Host,
    Port,
    Whole { min: u64, max: u64 },
    Seconds { min_ms: u64, limitless: bool },
    Flag,
    Text { max_bytes: usize },
    Path,
    Secret { max_bytes: usize },
    Address,
    Addresses,
    Binds,
    Endpoints,
    Ports,
    Interfaces,
    Level,
    Sharing,
    Checksums,
    TlsVersion,
}

/// A value, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A value of `Kind::Role`.
    Role(Role),
    /// A value of `Kind::Host`, `Text`, `Path` or `Secret`.
    Text(String),
    /// A value of `Kind::Port` or `Whole`.
    Whole(u64),
    /// A value of `Kind::Seconds`; `None` is no limit.
    Seconds(Option<Duration>),
    /// A value of `Kind::Flag`.
    Flag(bool),
    /// A value of `Kind::Address`.
    Address(IpAddr),
    /// A value of `Kind::Addresses` or `Binds`; at least one.
    Addresses(Vec<IpAddr>),
    /// A value of `Kind::Endpoints`; at least one.
    Endpoints(Vec<Endpoint>),
    /// A value of `Kind::Ports`; at least one.
    Ports(RangeInclusive<u16>),
    /// A value of `Kind::Interfaces`.
    Interfaces(Interfaces),
    /// A value of `Kind::Level`.
    Level(LogLevel),
    /// A value of `Kind::Sharing`.
    Sharing(SharedMemory),
    /// A value of `Kind::Checksums`.
    Checksums(ChecksumScope),
    /// A value of `Kind::TlsVersion`.
    TlsVersion(TlsVersion),
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl TlsVersion {
    const NAMES: [(TlsVersion, &'static str); 2] = [(TlsVersion::Tls12, "1.2"), (TlsVersion::Tls13, "1.3")];

    fn from_name(name: &str) -> Option<TlsVersion> {
        TlsVersion::NAMES.iter().find(|(_, known)| *known == name).map(|(version, _)| *version)
    }

    /// The version's name in the setting.
    pub fn name(self) -> &'static str {
        let found = TlsVersion::NAMES.iter().find(|(version, _)| *version == self);
        found.map(|(_, name)| *name).expect("the table has both")
    }
}

/// How much is logged: messages of this level and of the more severe ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum LogLevel {
    /// Nothing.
    Off = 0,
    /// What failed.
    Error = 1,
    /// What is not as it should be, though it works.
    Warn = 2,
    /// What happens to the cluster.
    Info = 3,
    /// What happens within it.
    Debug = 4,
    /// Every frame.
    Trace = 5,
}

impl LogLevel {
    const NAMES: [(LogLevel, &'static str); 6] = [
        (LogLevel::Off, "off"),
        (LogLevel::Error, "error"),
        (LogLevel::Warn, "warn"),
        (LogLevel::Info, "info"),
        (LogLevel::Debug, "debug"),
        (LogLevel::Trace, "trace"),
    ];

    /// The level with this number in the C ABI.
    pub fn from_code(code: i32) -> Option<LogLevel> {
        LogLevel::NAMES.iter().map(|(level, _)| *level).find(|level| *level as i32 == code)
    }

    fn from_name(name: &str) -> Option<LogLevel> {
        LogLevel::NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known)).map(|(level, _)| *level)
    }
}

impl Kind {
    /// The value that `text` is, if it is one of this kind.
    pub fn parse(&self, text: &str) -> Option<Value> {
        match *self {
            Kind::Role => Role::from_ms_name(text).map(Value::Role),
            Kind::Host => host(text).map(Value::Text),
            Kind::Port => whole(text)
                .filter(|port| *port == 0 || (PORT_MIN..=u64::from(u16::MAX)).contains(port))
                .map(Value::Whole),
            Kind::Whole { min, max } => whole(text).filter(|number| (min..=max).contains(number)).map(Value::Whole),
            Kind::Seconds { min_ms, limitless } => seconds(text, min_ms, limitless).map(Value::Seconds),
            Kind::Flag => flag(text).map(Value::Flag),
            Kind::Text { max_bytes } => printable(text, max_bytes).then(|| Value::Text(text.to_string())),
            Kind::Path => plain(text, PATH_MAX_BYTES).then(|| Value::Text(text.to_string())),
            Kind::Secret { max_bytes } => plain(text, max_bytes).then(|| Value::Text(text.to_string())),
            Kind::Address => reach::address(text.trim()).map(Value::Address),
            Kind::Addresses => reach::addresses(text).map(Value::Addresses),
            Kind::Binds => reach::binds(text).map(Value::Addresses),
            Kind::Endpoints => reach::endpoints(text).map(Value::Endpoints),
            Kind::Ports => reach::ports(text, PORT_MIN).map(Value::Ports),
            Kind::Interfaces => reach::interfaces(text).map(Value::Interfaces),
            Kind::Level => LogLevel::from_name(text).map(Value::Level),
            Kind::Sharing => SharedMemory::from_name(text).map(Value::Sharing),
            Kind::Checksums => checksum_scope(text).map(Value::Checksums),
            Kind::TlsVersion => TlsVersion::from_name(text).map(Value::TlsVersion),
        }
    }

    /// What would be right, to stand after "expected".
    pub fn expectation(&self) -> String {
        match *self {
            Kind::Role => "MS_SCHED, MS_WORKER or MS_PSERVER".into(),
            Kind::Host => "a host name or an IP address (not of multicast or broadcast), without a port".into(),
            Kind::Port => format!(
                "a whole number from {PORT_MIN} to {}, or 0 where the caller can ask for the address \
                 (muster_scheduler_start, muster run --master_port 0)",
                u16::MAX
            ),
            Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Seconds { min_ms, limitless } => {
                let least = Duration::from_millis(min_ms).as_secs_f64();
                let unlimited = if limitless { ", or a negative number for no limit" } else { "" };
                format!("seconds from {least} to {SECONDS_MAX}{unlimited}")
            }
            Kind::Flag => "0 or 1".into(),
            Kind::Text { max_bytes } => {
                format!("1 to {max_bytes} bytes of printable text that neither begin nor end with a blank")
            }
            Kind::Path => format!("a path of at most {PATH_MAX_BYTES} bytes"),
            Kind::Secret { max_bytes } => format!("1 to {max_bytes} bytes of any text"),
            Kind::Address => "an IP address (not of multicast or broadcast, and neither 0.0.0.0 nor ::)".into(),
            Kind::Addresses => {
                format!("1 to {ADDRESSES_LIMIT} IP addresses of this host, separated by commas")
            }
            Kind::Binds => format!("* for every address, or 1 to {ADDRESSES_LIMIT} IP addresses of this host, separated by commas"),
            Kind::Endpoints => {
                let least = "each with its port if that is another (10.0.0.1:7000, [fd00::1]:7000)";
                format!("1 to {ADDRESSES_LIMIT} IP addresses, separated by commas, {least}")
            }
            Kind::Ports => format!("two ports from {PORT_MIN} to {}, the lower one first, such as 7000-7999", u16::MAX),
            Kind::Interfaces => {
                "the beginnings of interfaces' names (eth,ib), whole names (=eth0,eth1), or either excluded (^docker,lo; ^=docker0)"
                    .into()
            }
            Kind::Level => LogLevel::NAMES.map(|(_, name)| name).join(", "),
            Kind::Sharing => SharedMemory::NAMES.map(|(_, name)| name).join(", "),
            Kind::Checksums => "0, 1 or all".into(),
            Kind::TlsVersion => TlsVersion::NAMES.map(|(_, name)| name).join(" or "),
        }
    }

    /// What would be right in place of this text, to stand after "expected".
    pub fn expectation_for(&self, text: &str) -> String {
        match self {
            Kind::Host if is_link_local(bare(text)) => "its interface, too, as in fe80::1%eth0".into(),
            _ => self.expectation(),
        }
    }

    /// What would be right, in a few words, for a table.
    pub fn brief(&self) -> String {
        match *self {
            Kind::Role => "a role".into(),
            Kind::Host => "a host".into(),
            Kind::Port => "a port".into(),
            Kind::Whole { min, max } => format!("{min} to {max}"),
            Kind::Seconds { limitless: true, .. } => "seconds, or negative".into(),
            Kind::Seconds { min_ms, limitless: false } => {
                format!("seconds from {}", Duration::from_millis(min_ms).as_secs_f64())
            }
            Kind::Flag => "0 or 1".into(),
            Kind::Text { max_bytes } => format!("text, {max_bytes} bytes"),
            Kind::Path => "a path".into(),
            Kind::Secret { max_bytes } => format!("any text, {max_bytes} bytes"),
            Kind::Address => "an IP address".into(),
            Kind::Addresses => "IP addresses".into(),
            Kind::Binds => "IP addresses, or `*`".into(),
            Kind::Endpoints => "IP addresses and ports".into(),
            Kind::Ports => "first-last".into(),
            Kind::Interfaces => "interfaces".into(),
            Kind::Level => "a level".into(),
            Kind::Sharing => SharedMemory::NAMES.map(|(_, name)| name).join(", "),
            Kind::Checksums => "0, 1 or all".into(),
            Kind::TlsVersion => TlsVersion::NAMES.map(|(_, name)| name).join(" or "),
        }
    }
}

/// The number that these decimal digits say. With a sign, or anything else, the text is no number.
pub fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The number that a plain decimal is: digits without a leading zero. `00` and `007` are names, not numbers.
pub fn plain_decimal(text: &str) -> Option<u64> {
    if text.len() > 1 && text.starts_with('0') {
        return None;
    }
    whole(text)
}

/// Seconds with an optional fraction. A negative number means no limit, if that is possible; `-0` is refused.
fn seconds(text: &str, min_ms: u64, limitless: bool) -> Option<Option<Duration>> {
    let (negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (integer, fraction) = magnitude.split_once('.').unwrap_or((magnitude, "0"));
    let fraction_is_digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let integer = whole(integer).filter(|_| fraction_is_digits)?;
    if negative {
        let is_zero = integer == 0 && fraction.bytes().all(|byte| byte == b'0');
        return (limitless && !is_zero).then_some(None);
    }
    if integer > SECONDS_MAX {
        return None;
    }
    // What lies below a nanosecond is cut off.
    let nanos_text: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let span = Duration::new(integer, nanos_text.parse().ok()?);
    let fits = span >= Duration::from_millis(min_ms) && span <= Duration::from_secs(SECONDS_MAX);
    fits.then_some(Some(span))
}

fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn checksum_scope(text: &str) -> Option<ChecksumScope> {
    let of_flag = |is_on| if is_on { ChecksumScope::Network } else { ChecksumScope::Nothing };
    if text.eq_ignore_ascii_case("all") {
        Some(ChecksumScope::All)
    } else {
        flag(text).map(of_flag)
    }
}

fn printable(text: &str, max_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= max_bytes && text == text.trim() && !text.chars().any(is_hidden)
}

/// Whether each character of the text may keep its meaning: C allows no NUL within a text.
fn plain(text: &str, max_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= max_bytes && !text.contains('\0')
}

/// Whether the text is an IPv6 address that each of this host's networks may have, without the interface that tells
/// which one is meant.
fn is_link_local(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local())
}

/// The text without the brackets around it.
fn bare(text: &str) -> &str {
    text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text)
}

/// A name or an address; brackets around an IPv6 address are taken off, so that `[::1]` works as in a URL.
fn host(text: &str) -> Option<String> {
    if text.is_empty() || text.len() > HOST_MAX_BYTES {
        return None;
    }
    let bare = bare(text);
    if bare.contains(':') {
        // An IPv6 address, perhaps with the interface that it belongs to. Anything else with a colon is host:port.
        let (address, zone) = bare.split_once('%').unwrap_or((bare, "lo"));
        let zone_is_name = !zone.is_empty() && zone.chars().all(|c| c.is_ascii_graphic());
        let is_address = address.parse::<Ipv6Addr>().is_ok_and(|address| !reach::is_of_many(address.into()));
        return (zone_is_name && is_address && !is_link_local(bare)).then(|| bare.to_string());
    }
    let is_name = bare == text && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    // Text of only digits and dots is an address, or a slip in one; no host has such a name.
    let is_numeric = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_address = || text.parse::<IpAddr>().is_ok_and(|address| !reach::is_of_many(address));
    (is_name && (!is_numeric || is_address())).then(|| text.to_string())
}

#[cfg(test)]
#[path = "value_test.rs"]
mod tests;
