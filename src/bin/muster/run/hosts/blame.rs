//! Decides which failure of a run on several hosts was first, and what is said of all of them.
//!
//! Each host's launcher knows what failed first there. On most hosts that is only a consequence of a loss elsewhere. So
//! the scheduler's word counts more than the order in which the hosts told of it.

use super::conduct::{Conduct, End};
use super::plan::HostShare;
use super::report::Fault;
use crate::code;
use crate::run::summary::{aborted_with, first_rank, with_code_0};

/// How many other hosts are told one by one.
const OTHERS: usize = 3;

/// The text for standard error, and the exit code.
pub fn verdict(conduct: &Conduct, places: &[HostShare]) -> (String, i32) {
    let ends = conduct.ends();
    let missing = no_answer(&ends, places);
    if !missing.is_empty() {
        return (missing, code::FAILED);
    }
    if let Some(signal) = conduct.interrupted() {
        let lost = ends.iter().zip(places).filter_map(|(end, place)| match end {
            Some(End::Cut(words)) => Some(format!("muster: host {}: {words}\n", place.host.name)),
            _ => None,
        });
        let all = if ends.iter().any(|end| matches!(end, Some(End::Cut(_)))) {
            "others have"
        } else {
            "processes on all hosts have"
        };
        return (
            format!("{}muster: stopped by signal {signal}; the {all} ended\n", lost.collect::<String>()),
            code::SIGNAL + signal,
        );
    }
    let Some(first) = first(conduct.failed(), &ends, places) else { return (String::new(), 0) };
    failed(first, conduct.failed(), &ends, places)
}

/// The text about hosts that never answered.
fn no_answer(ends: &[Option<&End>], places: &[HostShare]) -> String {
    let missing: Vec<String> = ends
        .iter()
        .zip(places)
        .filter_map(|(end, place)| match end {
            Some(End::NoAnswer(words)) => Some(format!("muster: host {}: {words}\n", place.host.name)),
            _ => None,
        })
        .collect();
    match missing.len() {
        0 => String::new(),
        count => format!(
            "{}muster: {count} of {} hosts can't be used, so nothing was started\n",
            missing.concat(),
            places.len()
        ),
    }
}

/// The host on which the first failure was.
fn first(failed: &[usize], ends: &[Option<&End>], places: &[HostShare]) -> Option<usize> {
    let found = |test: &dyn Fn(usize) -> bool| failed.iter().copied().find(|host| test(*host));
    let told = |host: usize| match ends[host] {
        Some(End::Told { code, summary }) => Some((*code, summary.as_ref())),
        _ => None,
    };
    let named = scheduler_words(ends).and_then(first_rank);
    let is_named = |host: usize| named.is_some_and(|rank| places[host].has_rank(rank));
    // All workers of a host may have ended with code 0, and one of them without leaving: its launcher does not see that.
    let ended_well = |host: usize| told(host).is_some_and(|(code, _)| code == 0);
    let unclean = (0..ends.len()).find(|host| !failed.is_empty() && is_named(*host) && ended_well(*host));
    let has = |fault| {
        move |host: usize| told(host).and_then(|(_, summary)| summary).is_some_and(|summary| summary.fault == fault)
    };
    // The scheduler's host alone knows that forming timed out. A worker may end with the same code.
    found(&has(Fault::NotFormed))
        .or_else(|| found(&has(Fault::HadLeft)))
        .or_else(|| found(&is_named))
        .or(unclean)
        .or_else(|| found(&has(Fault::Killed)))
        .or_else(|| found(&|host| matches!(ends[host], Some(End::Cut(_)))))
        .or_else(|| failed.first().copied())
}

fn scheduler_words<'a>(ends: &[Option<&'a End>]) -> Option<&'a str> {
    ends.iter().find_map(|end| match end {
        Some(End::Told { summary: Some(summary), .. }) => {
            Some(summary.scheduler.as_str()).filter(|words| !words.is_empty())
        }
        _ => None,
    })
}

fn failed(first: usize, failed: &[usize], ends: &[Option<&End>], places: &[HostShare]) -> (String, i32) {
    let name = |host: usize| places[host].host.name.as_str();
    let mut text = String::new();
    // If a process left the cluster and then failed, later losses follow from its failure.
    let is_its_own =
        matches!(ends[first], Some(End::Told { summary: Some(summary), .. }) if summary.fault == Fault::HadLeft);
    let words = scheduler_words(ends).filter(|_| !is_its_own);
    let code = match ends[first] {
        Some(End::Told { code, summary: Some(summary) }) if !summary.text.is_empty() => {
            text.push_str(&format!("muster: host {}:\n{}", name(first), summary.text));
            let words = words.filter(|words| !summary.text.contains(words));
            text.extend(words.map(|words| format!("muster: the scheduler says: {words}\n")));
            *code
        }
        Some(End::Told { code: 0, .. }) => {
            let (told, why) = (words.unwrap_or_default(), with_code_0(words));
            text.push_str(&format!("muster: host {}:\nmuster: first failure: {told}\n    {why}\n", name(first)));
            code::FAILED
        }
        // The launcher there has said why itself.
        Some(End::Told { code, .. }) => {
            text.push_str(&format!(
                "muster: first failure: the launcher on host {} exited with code {code}\n",
                name(first)
            ));
            *code
        }
        Some(End::Cut(cut)) => {
            text.push_str(&format!("muster: first failure: host {}: {cut}\n", name(first)));
            text.extend(words.map(|words| format!("muster: the scheduler says: {words}\n")));
            code::FAILED
        }
        Some(End::NoAnswer(_)) | None => code::FAILED,
    };
    let how = |host: usize| match ends[host] {
        Some(End::Told { summary: Some(summary), .. }) if !summary.how.is_empty() => Some(summary.how.clone()),
        Some(End::Told { code, .. }) => Some(format!("the launcher exited with code {code}")),
        Some(End::Cut(words)) => Some(words.clone()),
        Some(End::NoAnswer(_)) | None => None,
    };
    let others = failed.iter().filter(|host| **host != first);
    let told: Vec<String> =
        others.filter_map(|host| Some(format!("muster: then host {}: {}\n", name(*host), how(*host)?))).collect();
    text.extend(told.iter().take(OTHERS).map(String::as_str));
    if told.len() > OTHERS {
        text.push_str(&format!("muster: and {} more\n", told.len() - OTHERS));
    }
    // If a worker aborted the job and was told to end, and nothing else on its host failed, this is the only code that
    // it has.
    let is_named = |host: usize| words.and_then(first_rank).is_some_and(|rank| places[host].has_rank(rank));
    let told = words.filter(|_| !failed.iter().any(|host| is_named(*host))).and_then(aborted_with);
    let code = told.unwrap_or(code);
    (text, if code == 0 { code::FAILED } else { code })
}

#[cfg(test)]
mod tests {
    use super::super::report::Summary;
    use super::*;
    use muster::config::HostSlots;
    use std::time::Duration;

    fn places() -> Vec<HostShare> {
        let place = |(name, first_rank): (&str, u32)| {
            let host = HostSlots { name: name.to_owned(), slots: None };
            HostShare { host, workers: 4, first_rank }
        };
        [("one", 0), ("two", 4), ("three", 8)].map(place).to_vec()
    }

    fn told(code: i32, rank: u32, fault: Fault, scheduler: &str) -> End {
        let how = format!("worker {rank} exited with code {code}");
        let text = format!("muster: first failure: {how}, log\n");
        let summary = Summary { how, fault, text, scheduler: scheduler.to_owned() };
        End::Told { code, summary: Some(summary) }
    }

    /// The verdict on these ends, in the order in which they came.
    fn of(ends: Vec<(usize, End)>) -> (String, i32) {
        let mut conduct = Conduct::new(3);
        (0..3).for_each(|host| conduct.answered(host, Duration::ZERO));
        conduct.port_known(Duration::ZERO);
        ends.into_iter().for_each(|(host, end)| conduct.ended(host, end, Duration::ZERO));
        verdict(&conduct, &places())
    }

    #[test]
    fn the_schedulers_word_counts_more_than_the_order() {
        let words = "rank 5 (node id \"5\", host two, pid 7) is lost: it exited";
        let (text, code) = of(vec![
            (0, told(1, 0, Fault::Unknown, words)),
            (1, told(7, 5, Fault::Unknown, "")),
            (2, told(1, 8, Fault::Unknown, "")),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(code, 7);
        assert_eq!(lines[0], "muster: host two:");
        assert_eq!(lines[1], "muster: first failure: worker 5 exited with code 7, log");
        assert_eq!(lines[2], format!("muster: the scheduler says: {words}"));
        assert_eq!(lines[3], "muster: then host one: worker 0 exited with code 1");
        assert_eq!(lines[4], "muster: then host three: worker 8 exited with code 1");
    }

    #[test]
    fn the_code_of_an_abort_counts_where_nothing_ended_by_itself() {
        let words = "rank 5 (node id \"5\", host two, pid 7) aborted the job with code 7: bad data";
        let (text, code) = of(vec![
            (0, told(3, 0, Fault::Unknown, words)),
            (1, told(0, 5, Fault::Unknown, "")),
            (2, told(1, 8, Fault::Unknown, "")),
        ]);
        assert_eq!(code, 7, "{text}");
        // Its own end counts more.
        let (text, code) = of(vec![(0, told(3, 0, Fault::Unknown, words)), (1, told(9, 5, Fault::Unknown, ""))]);
        assert_eq!(code, 9, "{text}");
    }

    #[test]
    fn a_process_that_had_left_counts_more_than_what_was_lost_since() {
        let words = "rank 0 (node id \"0\", host one, pid 7) is lost: its process has ended";
        let (text, code) = of(vec![(1, told(6, 5, Fault::HadLeft, "")), (0, told(143, 0, Fault::Killed, words))]);
        assert_eq!(code, 6);
        assert!(
            text.starts_with("muster: host two:\nmuster: first failure: worker 5") && !text.contains(words),
            "{text}"
        );
    }

    #[test]
    fn a_death_counts_more_than_what_may_follow_from_it() {
        let (text, code) = of(vec![(0, told(1, 0, Fault::Unknown, "")), (2, told(137, 9, Fault::Killed, ""))]);
        assert!(code == 137 && text.starts_with("muster: host three:\n"), "{text}");
        let (text, code) =
            of(vec![(0, told(1, 0, Fault::Unknown, "")), (2, End::Cut("the connection ended".to_owned()))]);
        assert!(code == 1 && text.starts_with("muster: first failure: host three: the connection ended\n"), "{text}");
        let (text, code) = of(vec![(2, told(1, 8, Fault::Unknown, "")), (0, told(124, 0, Fault::NotFormed, ""))]);
        assert!(code == 124 && text.starts_with("muster: host one:\n"), "{text}");
        let (text, code) = of(vec![(2, told(1, 8, Fault::Unknown, "")), (0, told(124, 0, Fault::Unknown, ""))]);
        assert!(code == 1 && text.starts_with("muster: host three:\n"), "a worker's own code: {text}");
        let refused = End::Told { code: 127, summary: None };
        let (text, code) = of(vec![(1, refused), (0, told(143, 0, Fault::Unknown, ""))]);
        assert!(
            code == 127 && text.starts_with("muster: first failure: the launcher on host two exited with code 127"),
            "{text}"
        );
    }

    #[test]
    fn a_host_where_all_ended_with_code_0_is_the_first_if_the_scheduler_names_its_rank() {
        let words = "rank 8 (node id \"8\", host three, pid 7) is lost: its connection ended";
        let well = End::Told { code: 0, summary: Some(Summary::default()) };
        let (text, code) =
            of(vec![(2, well), (0, told(9, 0, Fault::Unknown, words)), (1, told(9, 4, Fault::Unknown, ""))]);
        assert_eq!(code, 1);
        assert!(text.starts_with(&format!("muster: host three:\nmuster: first failure: {words}\n")), "{text}");
        assert!(text.contains("\nmuster: then host one: worker 0 exited with code 9\n"), "{text}");
    }

    #[test]
    fn many_hosts_that_fail_with_one_are_counted() {
        for (hosts, more) in [(4, None), (5, Some("muster: and 1 more")), (300, Some("muster: and 296 more"))] {
            let place = |number: u32| HostShare {
                host: HostSlots { name: format!("host{number}"), slots: None },
                workers: 1,
                first_rank: number,
            };
            let places: Vec<HostShare> = (0..hosts).map(place).collect();
            let mut conduct = Conduct::new(places.len());
            (0..places.len()).for_each(|host| conduct.answered(host, Duration::ZERO));
            conduct.port_known(Duration::ZERO);
            (0..places.len())
                .for_each(|host| conduct.ended(host, told(1, host as u32, Fault::Unknown, ""), Duration::ZERO));
            let (text, _) = verdict(&conduct, &places);
            assert_eq!(text.lines().filter(|line| line.starts_with("muster: then host ")).count(), 3, "{text}");
            assert_eq!(text.lines().find(|line| line.starts_with("muster: and ")), more, "{text}");
        }
    }

    #[test]
    fn an_end_without_a_failure_is_none() {
        let well = || End::Told { code: 0, summary: None };
        assert_eq!(of(vec![(0, well()), (1, well()), (2, well())]), (String::new(), 0));
    }

    #[test]
    fn hosts_that_do_not_answer_are_all_named() {
        let mut conduct = Conduct::new(3);
        conduct.closed(0, "ssh exited with code 255".to_owned(), Duration::ZERO);
        conduct.closed(2, "ssh exited with code 255".to_owned(), Duration::ZERO);
        conduct.answered(1, Duration::ZERO);
        let (text, code) = verdict(&conduct, &places());
        assert_eq!(code, 1);
        assert!(text.contains("host one: ssh exited") && text.contains("host three: ssh"), "{text}");
        assert!(text.ends_with("muster: 2 of 3 hosts can't be used, so nothing was started\n"), "{text}");
    }
}
