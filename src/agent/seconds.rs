//! A span of time in words.

use std::time::Duration;

/// `12 s`, or `0.3 s` for short spans.
pub(super) fn seconds(span: Duration) -> String {
    match span.as_secs() {
        0..=9 => format!("{:.1} s", span.as_secs_f64()),
        whole => format!("{whole} s"),
    }
}
