//! The ranks that have not entered a collective, in the words of a time-out, of the warning before it, and of `muster status`.

use crate::types::GroupId;
use crate::wire::{MessageWait, Straggler, StragglerState};

/// How many absent ranks a sentence names.
const NAMED_MAX: usize = 3;

/// The absent ranks from the `from`-th on, of so many in all, each as a clause that goes on from a sentence.
pub fn absent_in_words(members: &[Straggler], total: u32, from: usize, group: GroupId) -> String {
    let mut words = String::new();
    for straggler in members.iter().take(NAMED_MAX).skip(from) {
        let place = place_in_words(straggler, group);
        words += &format!("; {} never entered it: {place}", straggler.culprit);
    }
    let named = members.len().min(NAMED_MAX);
    if total as usize > named {
        words += &format!("; nor did {} more", total as usize - named);
    }
    words
}

/// `recv from rank 0, tag 7, on world since 12.0 s`
pub fn wait_in_words(wait: &MessageWait) -> String {
    let (name, way) = if wait.sends { ("send", "to") } else { ("recv", "from") };
    let peer = wait.peer.map_or_else(|| "any rank".to_owned(), |peer| format!("rank {peer}"));
    let tag = wait.tag.map_or_else(|| "any tag".to_owned(), |tag| format!("tag {tag}"));
    format!("{name} {way} {peer}, {tag}, on {} since {:.1} s", wait.group, wait.age_ms as f64 / 1000.0)
}

/// `it is in barrier #1041 since 12 s`
pub fn place_in_words(straggler: &Straggler, group: GroupId) -> String {
    if let (StragglerState::Never | StragglerState::Outside, Some(wait)) = (straggler.state, &straggler.wait) {
        return format!("it waits in {}", wait_in_words(wait));
    }
    let seconds = format!("{:.1} s", straggler.age_ms as f64 / 1000.0);
    let call = straggler.call.map_or("a collective".to_owned(), |call| call.kind.to_string());
    match straggler.state {
        StragglerState::Inside => format!("it is in {call} #{} since {seconds}", straggler.sequence),
        StragglerState::Outside => format!("its last was {call} #{}, entered {seconds} ago", straggler.sequence),
        StragglerState::Never => format!("it has not used {group} yet"),
        StragglerState::Silent => "it does not answer the scheduler: stopped, or cut off".to_owned(),
        StragglerState::Left => "it has left the cluster".to_owned(),
    }
}
