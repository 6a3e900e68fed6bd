//! Times of certificates: in seconds since 1970, as DER has them, and in words.

use der::asn1::{GeneralizedTime, UtcTime};
use der::DateTime;
pub use muster::tls::parts::{day, moment};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::time::Time;

/// Seconds of a day.
pub const DAY: u64 = 24 * 60 * 60;

/// Now.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time as certificates have it: with two digits of the year until 2049 (RFC 5280).
pub fn time(seconds: u64) -> der::Result<Time> {
    let date = DateTime::from_unix_duration(Duration::from_secs(seconds))?;
    match date.year() <= UtcTime::MAX_YEAR {
        true => Ok(Time::UtcTime(UtcTime::from_date_time(date)?)),
        false => Ok(Time::GeneralTime(GeneralizedTime::from_date_time(date))),
    }
}

/// The seconds since 1970 of a certificate's time.
pub fn seconds(time: &Time) -> u64 {
    time.to_unix_duration().as_secs()
}

/// When something begins or ends, and how far off that is.
pub fn with_distance(seconds: u64, now: u64, verb: &str, past: &str) -> String {
    let days = |span: u64| match span / DAY {
        0 => format!("{} h", span / 3600),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    let distance = match seconds.checked_sub(now) {
        Some(left) => format!("{verb} in {}", days(left)),
        None => format!("{past} {} ago", days(now - seconds)),
    };
    format!("{} ({distance})", moment(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_went() {
        for seconds in [0, 1_795_588_260, 2_524_607_999, 2_524_608_000, 4_102_444_800] {
            assert_eq!(super::seconds(&time(seconds).unwrap()), seconds);
        }
        // The last second of 2049 still has two digits of its year, the next has four.
        assert!(matches!(time(2_524_607_999), Ok(Time::UtcTime(_))));
        assert!(matches!(time(2_524_608_000), Ok(Time::GeneralTime(_))));
        assert!(time(u64::MAX).is_err());
    }

    #[test]
    fn words_say_when_and_how_far_off() {
        let now = 1_795_588_260;
        let said = |seconds| with_distance(seconds, now, "ends", "ended");
        assert_eq!(said(now + DAY), "2026-11-26 06:31:00 UTC (ends in 1 day)");
        assert_eq!(said(now + 366 * DAY - 1), "2027-11-26 06:30:59 UTC (ends in 365 days)");
        assert_eq!(said(now - 7200), "2026-11-25 04:31:00 UTC (ended 2 h ago)");
        assert_eq!(day(u64::MAX), "a time after the year 9999");
    }
}
