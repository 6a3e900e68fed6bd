//! The progress thread: the thread that waits for the links of a group's messages, keeps the time of operations, and finds out
//! what became of a peer whose link ended. Whatever callers can do themselves, they do.

use super::engine::Engine;
use super::peer::SuspectedPeer;
use super::transfers::Transfers;
use super::{EngineHandle, Messages, WAKER};
use crate::net::{Poller, Registry, Token};
use crate::runtime::base::sync::lock;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::{turn_away, Mail, Slot};
use crate::runtime::state::verdict::PeerQuery;
use crate::types::Time;
use std::time::Duration;

impl Messages {
    /// Runs the progress thread until the group's messages are ended.
    pub(super) fn run_progress_thread(&self, handle: &EngineHandle, mut poller: Poller) {
        let (mut more, mut ready): (Vec<u32>, Vec<u32>) = Default::default();
        let mut open: Vec<(SuspectedPeer, PeerQuery)> = Vec::new();
        let state = &self.context.state;
        loop {
            #[cfg(test)]
            handle.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (until, has_more) = {
                let mut engine = lock(&handle.engine);
                for rank in ready.drain(..) {
                    engine.transfers.links.opened(rank).into_iter().for_each(|link| link.transport().is_reported());
                    engine.pump(rank);
                }
                more.extend(std::iter::from_fn(|| engine.more.pop_first()));
                more.drain(..).for_each(|rank| engine.pump(rank));
                let look_at = engine.look_for_signs(state.clock.now(), |rank| self.context.answer_about(rank));
                let until = engine.expire(state).min(look_at);
                engine.flush();
                engine.alarm = until;
                (until, !engine.more.is_empty())
            };
            self.see_to(handle, &mut open);
            if handle.mailbox.take_signal() {
                self.look_in_mailbox(handle, poller.registry());
                if lock(&self.progress_thread).ended {
                    return;
                }
                continue;
            }
            let now = state.clock.now();
            let until = open.iter().map(|(_, query)| now + query.pause(now)).fold(until, Time::min);
            let wait = if has_more { Some(Duration::ZERO) } else { state.clock.until(until) };
            poller.poll(wait).expect("epoll_wait fails only for bad arguments");
            ready.extend(poller.ready().filter(|ready| ready.token.0 != WAKER).map(|ready| ready.token.0 as u32));
        }
    }

    /// Takes what the agent thread has for the messages. If the group is over, they end. That is done once only: doing
    /// it again would make the progress thread look up again, without end.
    fn look_in_mailbox(&self, handle: &EngineHandle, registry: &Registry) {
        let mut engine = lock(&handle.engine);
        for mail in handle.mailbox.take() {
            match engine.failed {
                Some(_) => turn_away(mail, self.context.last_word.get()),
                None => take_in(&mut engine, mail, registry),
            }
        }
        if engine.failed.is_some() {
            return;
        }
        if let Some(failure) = self.context.told() {
            let first = self.context.break_with(failure);
            engine.fail(&first, &self.context.last_word_of(&first));
            engine.deadlines.forget_questions(&self.context.state);
        }
    }

    /// Does what takes time, or needs other threads: opening links, and judging peers that may be lost.
    fn see_to(&self, handle: &EngineHandle, open: &mut Vec<(SuspectedPeer, PeerQuery)>) {
        let (wanted, suspects, trouble) = {
            let mut engine = lock(&handle.engine);
            let Transfers { wanted, suspects, .. } = &mut engine.transfers;
            (std::mem::take(wanted), std::mem::take(suspects), engine.trouble.take())
        };
        self.ask_for_links(wanted);
        trouble.into_iter().for_each(|trouble| self.revoke_for(trouble));
        suspects.into_iter().for_each(|suspect| self.judge(handle, suspect, open));
        open.retain(|(suspect, query)| match query.word(&self.context) {
            Some(word) => {
                self.heed(handle, suspect, word);
                false
            }
            None => true,
        });
    }
}

fn take_in(engine: &mut Engine, mail: Mail, registry: &Registry) {
    let (rank, checksums) = (mail.peer(), engine.transfers.roster.formed.agreed.checksums.has_network());
    let Some(entry) = engine.transfers.links.take_in(mail, checksums) else { return };
    match &mut entry.slot {
        Slot::Up(link) => match link.transport().register(registry, Token(rank as usize)) {
            Ok(()) => engine.pump(rank),
            Err(error) => engine.ends(rank, LinkEnd::Ended(format!("it cannot be watched: {error}"))),
        },
        Slot::Ended(end) => {
            let end = end.clone();
            engine.ends(rank, end);
        }
        Slot::Left(_) => engine.transfers.peer_left(rank, None),
        Slot::Unused | Slot::Asked => {} // no mail leaves a slot like that
    }
}
