use super::*;
use std::cell::RefCell;
use std::collections::VecDeque;

fn news(phase: JobPhase, why: Option<&str>, ended: bool) -> JobNews {
    JobNews { phase, recovery: false, why: why.map(str::to_owned), ended }
}

/// What one connection brings: some news, after which it ends; or why there is none, and whether the port refuses.
type Line = Result<Vec<JobNews>, bool>;

/// What is told, where connections bring this one after another.
fn told(lines: Vec<Line>) -> Vec<Found> {
    let (tells, heard) = channel();
    let ear = Ear { bell: Arc::new(sys::bell().unwrap()), tells };
    let lines = RefCell::new(VecDeque::from(lines));
    let begin = || {
        let line = lines.borrow_mut().pop_front().expect("it has heard enough by then");
        let mut left = line.map_err(|is_refused| NoAnswer { words: "no answer".to_owned(), is_refused })?.into_iter();
        Ok(move || left.next().ok_or_else(|| "the connection has ended".to_owned()))
    };
    ear.hear(begin, "a port 1", Duration::ZERO);
    assert!(lines.borrow().is_empty(), "it has heard all");
    drop(ear);
    heard.into_iter().collect()
}

fn running() -> JobNews {
    news(JobPhase::Running, None, false)
}

#[test]
fn a_loss_ends_the_job_unless_it_recovers() {
    let broken = news(JobPhase::Broken, Some("rank 3 is lost"), false);
    assert_eq!(
        told(vec![Ok(vec![running(), broken.clone()])]),
        [Found::Formed, Found::Over("rank 3 is lost".to_owned())]
    );
    assert_eq!(told(vec![Ok(vec![JobNews { recovery: true, ..broken }])]), []);
    assert_eq!(told(vec![Ok(vec![JobNews { recovery: true, ..running() }])]), []);
}

#[test]
fn a_scheduler_that_says_that_it_ends_stops_nobody() {
    let forming = news(JobPhase::Forming, None, false);
    assert_eq!(told(vec![Ok(vec![forming, running(), news(JobPhase::Running, None, true)])]), [Found::Formed]);
    let failed = news(JobPhase::Forming, Some("forming timed out"), true);
    assert_eq!(told(vec![Ok(vec![failed])]), [Found::Over("forming timed out".to_owned())]);
}

#[test]
fn one_that_goes_without_a_word_is_gone_and_one_that_is_not_there_yet_may_come() {
    let gone = told(vec![Err(true), Err(false), Ok(vec![running()]), Err(true)]);
    assert_eq!(gone[0], Found::Formed);
    let Found::Over(why) = &gone[1] else { panic!("{gone:?}") };
    assert_eq!(
        why,
        "the scheduler at a port 1 is gone: its port refuses connections, and it has not said that it ends"
    );
    let gone = told(vec![Ok(vec![running()]), Err(false)]);
    assert!(matches!(&gone[1], Found::Over(why) if why.contains("out of reach for 0 s: no answer")), "{gone:?}");
}

#[test]
fn a_connection_that_ends_is_made_again_and_what_was_told_is_not_told_again() {
    let ends = news(JobPhase::Running, None, true);
    assert_eq!(told(vec![Ok(vec![running()]), Ok(vec![running(), ends])]), [Found::Formed]);
}

#[test]
fn what_is_found_rings_until_all_of_it_was_looked_at() {
    let (tells, heard) = channel();
    let bell = Arc::new(sys::bell().unwrap());
    let ear = Ear { bell: Arc::clone(&bell), tells };
    let mut check = JobCheck { bell, heard: Some(heard) };
    let rings = |check: &JobCheck| sys::poll([check.descriptor()], Some(Duration::ZERO)).unwrap()[0];
    assert!(!rings(&check) && check.look().is_none());
    ear.tell(Found::Formed).unwrap();
    ear.tell(Found::Over("why".to_owned())).unwrap();
    assert!(rings(&check));
    assert_eq!(check.look(), Some(Found::Formed));
    assert!(rings(&check));
    assert_eq!(check.look(), Some(Found::Over("why".to_owned())));
    assert!(check.look().is_none() && !rings(&check));
    check.end();
    assert!(ear.tell(Found::Formed).is_err() && check.look().is_none());
}
