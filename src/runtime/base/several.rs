//! Waits for several requests at once, be they of one cluster or of several of this process.
//!
//! The thread sleeps in a record of its own, which belongs to no request. Each request that has not ended tells that
//! record of its end, and the sleep ends when enough requests have ended.

use super::interrupts::Attention;
use super::program::Program;
use super::request::Request;
use super::request_record::{one_more, Asleep, Outcome, RequestRecord, Requests};
use super::sync::{lock, Arc};
use crate::error::Result;
use std::time::Duration;

impl Request {
    /// Waits until one of these has ended, at most so long, unless the program interrupts the call. Returns the first
    /// that has.
    pub(crate) fn wait_any(requests: &[&Request], limit: Option<Duration>) -> Result<Option<(usize, Outcome)>> {
        let first = || requests.iter().enumerate().find_map(|(at, request)| Some((at, request.test()?)));
        if let Some(found) = first() {
            return Ok(Some(found));
        }
        let homes = homes(requests);
        requests.iter().for_each(|request| request.hurry());
        let waited = wait_for_some(requests, 1, limit, (&homes, &attention(&programs(&homes))));
        // One may have ended while the hook ran, and then it counts.
        first().map_or_else(|| waited.map(|()| None), |found| Ok(Some(found)))
    }

    /// Waits until all of these have ended, at most so long, unless the program interrupts the call. Returns whether
    /// they have.
    pub(crate) fn wait_all(requests: &[&Request], limit: Option<Duration>) -> Result<bool> {
        let have_ended = || requests.iter().all(|request| request.test().is_some());
        if have_ended() {
            return Ok(true);
        }
        let homes = homes(requests);
        let programs = programs(&homes);
        let attention = attention(&programs);
        // A thread that carries a call out hears only what interrupts that call's node.
        match (limit, programs.len()) {
            (None, 1) => {
                if let Err(why) = requests.iter().try_for_each(|request| request.carry_out(&attention)) {
                    return have_ended().then_some(true).ok_or(why);
                }
            }
            _ => requests.iter().for_each(|request| request.hurry()),
        }
        let waited = wait_for_some(requests, requests.len(), limit, (&homes, &attention));
        if have_ended() {
            Ok(true)
        } else {
            waited.map(|()| false)
        }
    }
}

/// The homes of the requests that have not ended: one home for each group, for what interrupts a node's calls does not
/// reach a group that has been freed.
fn homes(requests: &[&Request]) -> Vec<Requests> {
    let mut homes: Vec<Requests> = Vec::new();
    for request in requests {
        let life = lock(&request.record.state);
        let Some(home) = life.home.clone().filter(|_| life.outcome.is_none()) else { continue };
        if !homes.iter().any(|known| Arc::ptr_eq(&home.0, &known.0)) {
            homes.push(home);
        }
    }
    homes
}

/// The programs of these homes, each once.
fn programs(homes: &[Requests]) -> Vec<&Program> {
    let mut programs: Vec<&Program> = Vec::new();
    for home in homes {
        if !programs.iter().any(|known| std::ptr::eq(*known, &*home.0.program)) {
            programs.push(&home.0.program);
        }
    }
    programs
}

/// The attention of a call that waits for requests of these programs.
fn attention<'a>(programs: &[&'a Program]) -> Attention<'a> {
    programs.iter().fold(Attention::none(), |all, program| all.and(&program.interrupts))
}

/// Waits until so many of these have ended.
fn wait_for_some(
    requests: &[&Request],
    count: usize,
    limit: Option<Duration>,
    (homes, attention): (&[Requests], &Attention<'_>),
) -> Result<()> {
    let several = Arc::new(RequestRecord::default());
    lock(&several.state).missing = u32::try_from(count).unwrap_or(u32::MAX);
    for request in requests {
        let mut life = lock(&request.record.state);
        if life.outcome.is_none() {
            life.several.push(Arc::clone(&several));
        } else {
            drop(life);
            one_more(&several);
        }
    }
    let asleep: Vec<Asleep<'_>> = homes.iter().map(|home| home.asleep(&several)).collect();
    let outcome = several.wait_for(limit, attention).map(drop);
    drop(asleep);
    for request in requests {
        lock(&request.record.state).several.retain(|other| !Arc::ptr_eq(other, &several));
    }
    outcome
}
