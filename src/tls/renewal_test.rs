//! Files that change while a process goes on. The tests decide what time it is.

use super::*;
use crate::tls::testing::Files;

/// A renewal, and the time: each look is a while after the one before, when nothing is new any more.
struct Passing {
    renewal: Renewal<Ends>,
    now: Instant,
}

impl Passing {
    fn of(files: &Files) -> Passing {
        let (renewal, warnings) = Renewal::open(&files.settings()).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        Passing { renewal, now: Instant::now() }
    }

    /// Whether a connection that begins so much later has something else than before.
    fn is_new_after(&mut self, passed: Duration, today: SystemTime) -> bool {
        let before = self.renewal.locked().used.1.clone();
        self.now += passed;
        !Arc::ptr_eq(&self.renewal.ends_at(self.now, today).1, &before)
    }

    fn remarks(&self) -> Vec<String> {
        self.renewal.remarks(self.now)
    }
}

fn later() -> SystemTime {
    SystemTime::now() + 60 * SETTLED
}

#[test]
fn what_has_changed_serves_new_connections() {
    let files = Files::new();
    let mut passing = Passing::of(&files);
    assert!(!passing.is_new_after(PAUSE, later()), "nothing has changed");
    files.write("server.pem", files.node("renewed", |_| ()));
    assert!(!passing.is_new_after(PAUSE / 2, later()), "it is not looked at all the time");
    assert!(passing.is_new_after(PAUSE, later()));
    assert!(!passing.is_new_after(PAUSE, later()), "it is read once");
    assert_eq!(passing.remarks(), Vec::<String>::new());
}

#[test]
fn what_was_written_a_moment_ago_waits_for_a_second_look() {
    let files = Files::new();
    let mut passing = Passing::of(&files);
    files.write("client.pem", files.node("renewed", |_| ()));
    let today = SystemTime::UNIX_EPOCH; // as if all were written in a time to come
    assert!(!passing.is_new_after(PAUSE, today) && passing.is_new_after(PAUSE, today));
}

#[test]
fn nothing_waits_once_a_certificate_has_ended() {
    let files = Files::new();
    let (mut passing, at_once) = (Passing::of(&files), Duration::ZERO);
    let today = SystemTime::UNIX_EPOCH; // as if all were written in a time to come
    let renewed = files.node("renewed", |_| ());
    files.write("client.pem", &renewed[..renewed.len() / 2]);
    assert!(!passing.is_new_after(at_once, today), "there is time");
    passing.renewal.locked().until = 0;
    assert!(!passing.is_new_after(at_once, today) && passing.remarks().is_empty(), "its writer is not done");
    files.write("client.pem", renewed);
    assert!(passing.is_new_after(at_once, today));
    assert!(!passing.is_new_after(PAUSE, today) && passing.remarks().is_empty(), "it is read once");
}

#[test]
fn the_first_end_of_a_certificate_or_list_is_known() {
    let files = Files::new();
    let until = |files: &Files| Passing::of(files).renewal.locked().until;
    let day = |days: u32| SystemTime::now() + days * DAY;
    let in_seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    for (name, ends) in [("server", day(300)), ("client", day(200))] {
        files.write(&format!("{name}.pem"), files.node(name, |params| params.not_after = ends.into()));
        assert_eq!(until(&files), in_seconds(ends));
    }
    files.configure(r#", "crl_path": "crl.pem""#);
    let ends = day(100);
    files.write("crl.pem", files.list(&[7], SystemTime::now(), ends));
    assert_eq!(until(&files), in_seconds(ends));
}

#[test]
fn what_is_wrong_is_said_once_and_the_old_serves_on() {
    let files = Files::new();
    let mut passing = Passing::of(&files);
    files.write("server.pem", "nonsense");
    assert!(!passing.is_new_after(PAUSE, later()));
    let remarks = passing.remarks();
    let sentence = "; what was read from the files before stays in use";
    assert!(remarks.len() == 1 && remarks[0].ends_with(sentence), "{remarks:?}");
    assert!(
        remarks[0].contains("has server_cert_path \"") && remarks[0].contains("which is neither PEM nor PKCS#12"),
        "{remarks:?}"
    );
    assert!(!passing.is_new_after(PAUSE, later()) && passing.remarks().is_empty(), "it is said once");
    files.write("server.pem", files.node("renewed", |_| ()));
    assert!(passing.is_new_after(PAUSE, later()) && passing.remarks().is_empty());
}

#[test]
fn what_was_wrong_is_tried_again_without_a_change() {
    let files = Files::new();
    files.configure(r#", "crl_path": "crl.pem""#);
    let day = |from: SystemTime| files.list(&[7], from, from + DAY);
    files.write("crl.pem", day(SystemTime::now()));
    let mut passing = Passing::of(&files);
    let begins = SystemTime::now() + Duration::from_secs(4); // by a clock that is ahead of this one
    files.write("crl.pem", day(begins));
    assert!(!passing.is_new_after(PAUSE, later()));
    let remarks = passing.remarks();
    assert!(remarks.len() == 1 && remarks[0].contains("which is not in effect yet"), "{remarks:?}");
    assert!(!passing.is_new_after(AGAIN, later()) && passing.remarks().is_empty(), "it is said once");
    std::thread::sleep(begins.duration_since(SystemTime::now()).unwrap_or_default()); // no other clock says when it begins
    assert!(!passing.is_new_after(PAUSE, later()), "it is not tried all the time");
    assert!(passing.is_new_after(AGAIN, later()) && passing.remarks().is_empty());
}

#[test]
fn a_file_that_another_configuration_names_is_looked_at_too() {
    let files = Files::new();
    let mut passing = Passing::of(&files);
    let other = r#"{"server_cert_path": "other.pem", "client_cert_path": "client.pem", "ca_cert_path": "ca.pem"}"#;
    files.write("tls.json", other);
    assert!(!passing.is_new_after(PAUSE, later()), "it is not there yet");
    assert_eq!(passing.remarks().len(), 1);
    files.write("other.pem", files.node("other", |_| ()));
    assert!(passing.is_new_after(PAUSE, later()));
}

#[test]
fn an_end_that_is_near_is_told_every_day() {
    let files = Files::new();
    let mut passing = Passing::of(&files);
    let soon = SystemTime::now() + 10 * DAY + DAY / 2;
    files.write("server.pem", files.node("server", |params| params.not_after = soon.into()));
    for _ in 0..2 {
        passing.now += DAY;
        let remarks = passing.remarks();
        assert!(remarks.len() == 1 && remarks[0].ends_with("ends in 10 days: renew it"), "{remarks:?}");
        assert!(passing.remarks().is_empty());
    }
}
