//! A node that has asked what became of a peer, of which nobody tells it.

use super::{PeerQuery, Unsaid, Word, ALONE_WAIT};
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::collectives::failure::tests::Bench;
use std::time::Duration;

#[test]
fn how_long_it_waits_follows_from_what_was_seen_and_who_is_there() {
    let most = |bench: &Bench| bench.group.context.bounds.most() + VERDICT_WAIT;
    for (recovery, is_away, is_silent, longest) in [
        (false, false, false, Some(VERDICT_WAIT)),
        (true, true, false, Some(ALONE_WAIT)),
        (false, true, false, None),
        (true, true, true, None),
        (false, false, true, None),
    ] {
        let bench = Bench::with_time_out(20_000, recovery);
        let context = &bench.group.context;
        let query = PeerQuery::about(context, 3, "nothing is heard", is_silent);
        assert!(query.word(context).is_none(), "it is asked just now");
        bench.state.view().away = is_away.then(|| "it does not answer".to_owned());
        let limit = query.limit(context, &bench.state.view());
        assert_eq!(limit.since(query.since), longest.unwrap_or(most(&bench)), "{recovery} {is_away} {is_silent}");
    }
}

#[test]
fn a_wait_ends_then_and_not_before() {
    for (time_out, is_silent) in [(500, true), (60_000, false)] {
        let bench = Bench::with_time_out(time_out, false);
        let context = &bench.group.context;
        let query = PeerQuery::about(context, 3, "nothing is heard", is_silent);
        assert!(matches!(query.wait(context), Word::Unsaid(Unsaid::Silent)));
        let took = bench.state.clock.now().since(query.since);
        let least = if is_silent { context.bounds.most() + VERDICT_WAIT } else { VERDICT_WAIT };
        assert!(took >= least && took < Duration::from_secs(60), "{took:?}");
    }
}
