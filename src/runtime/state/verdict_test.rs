//! A node that has asked what became of a peer, of which nobody tells it.

use super::{Inquiry, Unsaid, Word, ALONE_WAIT};
use crate::runtime::base::interrupts::Attention;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::collectives::failure::tests::Bench;
use crate::types::Time;
use std::time::Duration;

/// What a call hears that waits until then, and how long it has waited.
fn awaited(bench: &Bench, inquiry: &Inquiry, until: Time, attention: &Attention<'_>) -> (Word, Duration) {
    let word = inquiry.wait(&bench.group.context, until, attention);
    (word, bench.state.clock.now().since(inquiry.since))
}

#[test]
fn a_call_waits_for_the_scheduler_no_longer_than_its_time_out_and_a_little() {
    let bench = Bench::new();
    let context = &bench.group.context;
    for (is_silent, seconds) in [(true, 0), (true, 1), (false, 60)] {
        let inquiry = Inquiry::about(context, 3, "nothing is heard", is_silent);
        assert!(inquiry.word(context).is_none(), "it is asked just now");
        let until = inquiry.since + Duration::from_secs(seconds);
        let (word, took) = awaited(&bench, &inquiry, until, &Attention::none());
        assert!(matches!(word, Word::Unsaid(Unsaid::Silent)));
        let least = if is_silent { VERDICT_WAIT.max(Duration::from_secs(seconds)) } else { VERDICT_WAIT };
        assert!(took >= least && took < context.bounds.most(), "{seconds} s, silent: {is_silent}: {took:?}");
    }
}

#[test]
fn a_link_that_ended_is_asked_about_shortly_while_the_scheduler_is_away() {
    let bench = Bench::recoverable();
    bench.state.view().away = Some("it does not answer".to_owned());
    let inquiry = Inquiry::about(&bench.group.context, 3, "the link has ended", false);
    let (word, took) = awaited(&bench, &inquiry, inquiry.since + VERDICT_WAIT * 100, &Attention::none());
    assert!(matches!(word, Word::Unsaid(Unsaid::Silent)));
    assert!(took >= ALONE_WAIT && took < bench.group.context.bounds.most(), "{took:?}");
}

#[test]
fn an_interruption_ends_the_wait() {
    let bench = Bench::new();
    let attention = bench.state.program.interrupts.attention();
    let inquiry = Inquiry::about(&bench.group.context, 3, "nothing is heard", true);
    bench.state.program.interrupts.interrupt();
    let (word, took) = awaited(&bench, &inquiry, inquiry.since + VERDICT_WAIT * 100, &attention);
    assert!(matches!(word, Word::Unsaid(Unsaid::Silent)));
    assert!(took < bench.group.context.bounds.most(), "{took:?}");
}
