use super::*;
use std::cell::RefCell;
use std::collections::VecDeque;

fn news(phase: JobPhase, why: Option<&str>, ended: bool) -> JobNews {
    JobNews { instance: JobInstance([1; 16]), phase, recovery: false, why: why.map(str::to_owned), ended }
}

/// What one connection brings.
enum Brings {
    /// It brings this news, and then it ends.
    News(Vec<JobNews>),
    /// It brings this news, and then the scheduler says that it tells no more.
    Rejection(Vec<JobNews>),
    /// It cannot be made, for the port refuses.
    Refusal,
    /// It cannot be made, for another reason.
    Silence,
}

use Brings::{News, Refusal, Rejection, Silence};

/// What is told if connections bring this one after another, and the scheduler may be out of reach for so long.
fn told_within(out_of_reach: Duration, lines: Vec<Brings>) -> Vec<Found> {
    let (tells, heard) = channel();
    let ear = Ear { bell: Arc::new(sys::bell().unwrap()), tells, out_of_reach };
    let lines = RefCell::new(VecDeque::from(lines));
    let no_answer = |is_refused| NoAnswer { words: "no answer".to_owned(), is_refused };
    let begin = || {
        let ended = Unheard::Ended("the connection has ended".to_owned());
        let (news, end) = match lines.borrow_mut().pop_front().expect("it has heard enough by then") {
            News(news) => (news, ended),
            Rejection(news) => (news, Unheard::Rejected),
            Refusal => return Err(no_answer(true)),
            Silence => return Err(no_answer(false)),
        };
        let mut left = news.into_iter();
        Ok(move || left.next().ok_or_else(|| end.clone()))
    };
    ear.hear(begin, "a port 1");
    assert!(lines.borrow().is_empty(), "it has heard all");
    drop(ear);
    heard.into_iter().collect()
}

fn told(lines: Vec<Brings>) -> Vec<Found> {
    told_within(Duration::ZERO, lines)
}

fn running() -> JobNews {
    news(JobPhase::Running, None, false)
}

fn ending() -> JobNews {
    news(JobPhase::Running, None, true)
}

#[test]
fn a_loss_ends_the_job_unless_it_recovers() {
    let broken = news(JobPhase::Broken, Some("rank 3 is lost"), false);
    let over = Found::Over("rank 3 is lost".to_owned());
    assert_eq!(told(vec![News(vec![running(), broken.clone()])]), [Found::Formed, over]);
    assert_eq!(told(vec![News(vec![JobNews { recovery: true, ..broken }])]), []);
    assert_eq!(told(vec![News(vec![JobNews { recovery: true, ..running() }])]), []);
}

#[test]
fn a_scheduler_that_says_that_it_ends_stops_nobody() {
    let forming = news(JobPhase::Forming, None, false);
    assert_eq!(told(vec![News(vec![forming, running(), ending()])]), [Found::Formed]);
    assert_eq!(told(vec![News(vec![news(JobPhase::Forming, Some("forming timed out"), true)])]), []);
    let stopped = news(JobPhase::Broken, Some("it was stopped"), true);
    assert_eq!(told(vec![News(vec![stopped])]), [Found::Over("it was stopped".to_owned())]);
}

#[test]
fn one_that_goes_without_a_word_is_gone_and_one_that_is_not_there_yet_may_come() {
    let gone = told(vec![Refusal, Silence, News(vec![]), News(vec![running()]), Refusal]);
    assert_eq!(gone[0], Found::Formed);
    let Found::Gone(why) = &gone[1] else { panic!("{gone:?}") };
    assert_eq!(
        why,
        "the scheduler at a port 1 is gone: its port refuses connections, and it has not said that it ends"
    );
}

#[test]
fn one_that_is_out_of_reach_has_its_time_from_when_it_was_heard_last() {
    let gone = told(vec![News(vec![running()]), Silence]);
    assert!(matches!(&gone[1], Found::Gone(why) if why.contains("out of reach for 0 s: no answer")), "{gone:?}");
    // Something else accepts connections there, and closes them.
    let gone = told(vec![News(vec![running()]), News(vec![])]);
    assert!(matches!(&gone[1], Found::Gone(why) if why.contains("the connection has ended")), "{gone:?}");
    let second = Duration::from_secs(1);
    let heard_again =
        vec![News(vec![running()]), Silence, News(vec![running()]), Silence, News(vec![running(), ending()])];
    assert_eq!(told_within(second, heard_again), [Found::Formed]);
}

#[test]
fn one_that_does_not_tell_any_more_is_asked_again_and_a_port_that_refuses_then_means_nothing() {
    let lines = vec![Rejection(vec![running()]), Refusal, News(vec![running(), ending()])];
    assert_eq!(told(lines), [Found::Formed, Found::Formed]);
    assert_eq!(told(vec![News(vec![running()]), Rejection(vec![]), Silence, News(vec![ending()])]), [Found::Formed]);
}

#[test]
fn a_connection_that_ends_is_made_again_and_another_job_at_the_port_is_not_this_one() {
    assert_eq!(told(vec![News(vec![running()]), News(vec![running(), ending()])]), [Found::Formed]);
    let failed = news(JobPhase::Broken, Some("rank 1 is lost"), false);
    let other = JobNews { instance: JobInstance([2; 16]), ..failed };
    let gone = told(vec![News(vec![running()]), News(vec![other.clone()])]);
    assert!(matches!(&gone[1], Found::Gone(why) if why.contains("another job has its port")), "{gone:?}");
    let forming = news(JobPhase::Forming, None, false);
    assert_eq!(told(vec![News(vec![forming]), News(vec![other])]), [], "nothing was promised");
}

#[test]
fn what_is_found_rings_until_all_of_it_was_looked_at() {
    let (tells, heard) = channel();
    let bell = Arc::new(sys::bell().unwrap());
    let ear = Ear { bell: Arc::clone(&bell), tells, out_of_reach: OUT_OF_REACH };
    let mut check = JobCheck { bell, heard: Some(heard), said: None };
    let rings = |check: &JobCheck| sys::poll([check.descriptor()], Some(Duration::ZERO)).unwrap()[0];
    assert!(!rings(&check) && check.look().is_none());
    ear.tell(Found::Formed).unwrap();
    ear.tell(Found::Over("why".to_owned())).unwrap();
    assert!(rings(&check));
    assert_eq!(check.look(), Some(Found::Formed));
    assert!(rings(&check));
    assert_eq!(check.said(), None);
    assert_eq!(check.look(), Some(Found::Over("why".to_owned())));
    assert_eq!(check.said(), Some("why"));
    assert!(check.look().is_none() && !rings(&check));
    check.end();
    assert!(ear.tell(Found::Formed).is_err() && check.look().is_none());
}
