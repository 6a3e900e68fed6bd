use super::*;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn actions(conduct: &mut Conduct) -> Vec<Action> {
    std::iter::from_fn(|| conduct.next_action()).collect()
}

fn told(code: i32) -> End {
    End::Told { code, summary: None }
}

/// Three hosts that have their specs.
fn running() -> Conduct {
    let mut conduct = Conduct::new(3);
    (0..3).for_each(|host| conduct.answered(host, at(0)));
    conduct.port_known(at(0));
    assert_eq!(actions(&mut conduct), [Action::Start(0), Action::Start(1), Action::Start(2)]);
    conduct
}

/// Lets time pass up to its deadlines until this moment: each action with its time.
fn until(conduct: &mut Conduct, end: u64) -> Vec<(u64, Action)> {
    let mut done = Vec::new();
    while let Some(next) = conduct.deadline().filter(|next| *next <= at(end)) {
        conduct.tick(next);
        done.extend(actions(conduct).into_iter().map(|action| (next.as_millis() as u64, action)));
    }
    done
}

#[test]
fn nothing_starts_before_all_have_answered_and_the_scheduler_listens() {
    let mut conduct = Conduct::new(3);
    conduct.answered(1, at(0));
    conduct.answered(0, at(0));
    assert_eq!(actions(&mut conduct), []);
    conduct.answered(2, at(5));
    assert_eq!(actions(&mut conduct), [Action::Start(0)]);
    conduct.port_known(at(6));
    conduct.port_known(at(7));
    assert_eq!(actions(&mut conduct), [Action::Start(1), Action::Start(2)]);
    (1..3).for_each(|host| conduct.ended(host, told(0), at(8)));
    assert_eq!(actions(&mut conduct), [Action::OthersDone(0)]);
    conduct.ended(0, told(0), at(9));
    assert_eq!(actions(&mut conduct), []);
    assert!(conduct.finished() && conduct.failed().is_empty() && conduct.deadline().is_none());
}

#[test]
fn a_first_host_that_ends_well_without_a_scheduler_lets_the_others_begin() {
    let mut conduct = Conduct::new(2);
    (0..2).for_each(|host| conduct.answered(host, at(0)));
    conduct.ended(0, told(0), at(10));
    assert_eq!(actions(&mut conduct), [Action::Start(0), Action::Start(1)]);
}

#[test]
fn where_a_host_does_not_answer_nothing_starts_and_the_others_go() {
    let mut conduct = Conduct::new(3);
    conduct.answered(0, at(0));
    conduct.closed(1, "refused".to_owned(), at(10));
    assert_eq!(actions(&mut conduct), []);
    assert_eq!(until(&mut conduct, 4000), [(3010, Action::Kill(2)), (3010, Action::Close(0))]);
    conduct.closed(0, "gone".to_owned(), at(4000));
    assert!(conduct.finished());
    let answers: Vec<bool> = conduct.ends().iter().map(|end| matches!(end, Some(End::NoAnswer(_)))).collect();
    assert_eq!(answers, [false, true, true]);
}

#[test]
fn the_last_answer_decides_at_once() {
    let mut conduct = Conduct::new(2);
    conduct.closed(0, "refused".to_owned(), at(10));
    conduct.answered(1, at(20));
    assert_eq!(actions(&mut conduct), [Action::Close(1)]);
}

#[test]
fn all_that_answer_late_are_named() {
    let mut conduct = Conduct::new(2);
    assert_eq!(until(&mut conduct, 60_000), [(60_000, Action::Kill(0)), (60_000, Action::Kill(1))]);
    assert!(conduct.finished());
}

#[test]
fn a_failure_ends_the_others_soon_and_their_ways_in_the_end() {
    let mut conduct = running();
    conduct.failing(1, at(1000));
    conduct.ended(1, told(7), at(1200));
    conduct.failing(2, at(1210));
    let signals = |time| [(time, Action::Signal(0, 15)), (time, Action::Signal(2, 15))];
    assert_eq!(until(&mut conduct, 1999), [signals(1250), signals(1750)].concat());
    conduct.ended(2, told(1), at(1800));
    assert_eq!(until(&mut conduct, 19_000), [(11_000, Action::Close(0))]);
    assert_eq!(until(&mut conduct, 30_000), [(21_000, Action::Kill(0))]);
    assert!(conduct.finished());
    assert_eq!(conduct.failed(), [1, 2]);
    assert_eq!(conduct.ends()[0], Some(&End::Cut("it did not end in 20 s".to_owned())));
}

#[test]
fn a_way_that_ends_or_falls_silent_is_a_failure() {
    let mut conduct = running();
    conduct.closed(2, "ssh exited with code 255".to_owned(), at(1000));
    assert_eq!(conduct.failed(), [2]);
    let mut conduct = running();
    (0..2).for_each(|host| conduct.heard(host, at(50_000)));
    assert_eq!(
        until(&mut conduct, 60_300),
        [(60_000, Action::Kill(2)), (60_250, Action::Signal(0, 15)), (60_250, Action::Signal(1, 15))]
    );
    assert_eq!(conduct.failed(), [2]);
    conduct.ended(0, told(143), at(61_000));
    assert_eq!(conduct.failed(), [2], "it ended because it was told to");
}

#[test]
fn the_users_signals_are_passed_on() {
    let mut conduct = running();
    conduct.signalled(2, at(100));
    assert_eq!(actions(&mut conduct), [0, 1, 2].map(|host| Action::Signal(host, 2)));
    conduct.signalled(2, at(200));
    assert_eq!(actions(&mut conduct), [0, 1, 2].map(|host| Action::Signal(host, 2)));
    (0..3).for_each(|host| conduct.ended(host, told(130), at(300)));
    assert!(conduct.finished() && conduct.failed().is_empty());
    assert_eq!(conduct.interrupted(), Some(2));
}

#[test]
fn a_signal_before_the_start_ends_what_was_called() {
    let mut conduct = Conduct::new(2);
    conduct.answered(0, at(0));
    conduct.signalled(15, at(10));
    assert_eq!(actions(&mut conduct), [Action::Close(0), Action::Kill(1)]);
    conduct.closed(0, String::new(), at(20));
    assert!(conduct.finished());
    assert_eq!(conduct.interrupted(), Some(15));
}
