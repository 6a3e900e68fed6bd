//! A scheduler that stands still for a while, as under SIGSTOP or on a machine that is too busy, and what it makes of all that
//! has come meanwhile.

use super::*;
use crate::config::Config;
use crate::runtime::by_hand_test::Node;
use crate::types::GroupId;
use crate::wire::{Heartbeat, WhereAre};
use std::io::Write;
use std::net::TcpStream;

/// So many workers have joined. Nobody drives the scheduler any more, and each node has word from it that it has not read.
fn stands_still(workers: u32) -> (Serving, Vec<Node>) {
    let mut config = Config::new();
    for (key, value) in [("sched_host", "127.0.0.1"), ("sched_port", "0"), ("worker_num", &workers.to_string())] {
        config.set(key, value).unwrap();
    }
    let mut serving = Serving::new(&config.scheduler_settings().unwrap()).unwrap();
    let (address, joined) = (serving.addresses()[0], AtomicU8::new(0));
    let nodes = std::thread::scope(|scope| {
        let drives = scope.spawn(|| {
            while joined.load(Ordering::SeqCst) == 0 {
                serving.round(Some(Duration::from_millis(1))).unwrap();
            }
        });
        let mut nodes: Vec<_> = (0..workers).map(|index| Node::join_as(address, index, workers)).collect();
        nodes.iter_mut().for_each(|node| drop(node.formed()));
        for node in &mut nodes {
            node.say(&heartbeat(1));
            // Peeked at only: a socket that is closed with something unread is reset.
            assert!(node.stream.peek(&mut [0]).unwrap() > 0);
        }
        joined.store(1, Ordering::SeqCst);
        drives.join().unwrap();
        nodes
    });
    (serving, nodes)
}

fn heartbeat(sequence: u64) -> Message {
    Message::Heartbeat(Heartbeat { sequence, ..Heartbeat::default() })
}

#[test]
fn a_goodbye_behind_heartbeats_counts_though_these_can_no_longer_be_answered() {
    let (serving, mut nodes) = stands_still(1);
    nodes[0].say_all(&[heartbeat(2), heartbeat(3), Message::Leave]);
    drop(nodes);
    serving.run().unwrap();
}

#[test]
fn a_goodbye_counts_though_the_word_of_another_node_comes_before_it() {
    let (serving, mut nodes) = stands_still(2);
    let question = WhereAre { query: 1, group: GroupId::WORLD, sequence: 1, about: None };
    nodes[0].say_all(&[Message::WhereAre(question), Message::Leave]);
    nodes[1].say(&Message::Leave);
    drop(nodes);
    serving.run().unwrap();
}

/// It may cost much time to read what strangers send: a few of them are read at a time, after the nodes.
#[test]
fn strangers_are_read_a_few_at_a_time() {
    let (mut serving, mut nodes) = stands_still(1);
    let address = serving.addresses()[0];
    let mut strangers: Vec<_> = (0..3 * STRANGERS_AT_ONCE).map(|_| TcpStream::connect(address).unwrap()).collect();
    while serving.connections.len() < 1 + strangers.len() {
        serving.round(Some(Duration::from_secs(60))).unwrap();
    }
    while serving.round(Some(Duration::ZERO)).unwrap() {}
    strangers.iter_mut().for_each(|stranger| stranger.write_all(b"GET / HTTP/1.1\r\n\r\n and so on").unwrap());
    nodes[0].say(&heartbeat(2));
    let mut left = strangers.len();
    while left > 0 {
        // The loop does this, too: it does not sleep while a stranger stands in line.
        let longest = if serving.connections.line.is_empty() { 60 } else { 0 };
        serving.round(Some(Duration::from_secs(longest))).unwrap();
        let now = serving.connections.len() - 1;
        assert!(left - now <= STRANGERS_AT_ONCE, "{left} strangers, and in one turn later {now}");
        left = now;
    }
    assert_eq!(serving.connections.len(), 1, "the node's");
}
