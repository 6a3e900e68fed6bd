//! What a launcher tells of its run, by a descriptor, if another launcher leads it. Other launchers tell nothing.

use super::frames::{texts, Frame, Kind};
use std::cell::Cell;
use std::fs::File;

/// What the first failure on a host says of its own cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it may be a consequence.
    #[default]
    Unknown,
    /// A signal ended the process, and not one that programs raise to give up.
    Killed,
    /// The process had left a cluster that was whole: no other known failure could have made it fail.
    HadLeft,
    /// It is the scheduler, and the cluster did not form in time: no failure came before that.
    NotFormed,
}

/// How a host's part of the run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The first process that failed there, and how, in words; empty if nothing has failed.
    pub how: String,
    /// What that says of its cause.
    pub fault: Fault,
    /// What the launcher has to say in the end.
    pub text: String,
    /// Why the scheduler says that the job failed.
    pub scheduler: String,
}

impl Summary {
    fn encode(&self) -> Vec<u8> {
        let fault = (self.fault as u8).to_string();
        let texts = [&self.how, &fault, &self.text, &self.scheduler];
        texts.map(|text| text.replace('\0', " ")).join("\0").into_bytes()
    }

    /// What a frame says.
    pub fn decode(body: &[u8]) -> Option<Summary> {
        let [how, fault, text, scheduler] = texts(body).try_into().ok()?;
        let all = [Fault::Killed, Fault::HadLeft, Fault::NotFormed];
        let known = all.into_iter().find(|known| fault == (*known as u8).to_string());
        Some(Summary { how, fault: known.unwrap_or_default(), text, scheduler })
    }
}

/// The place to which a launcher reports.
#[derive(Debug, Default)]
pub struct Report {
    to: Option<File>,
    is_coloured: bool,
    failing: Cell<bool>,
}

impl Report {
    /// Reports to this file; `is_coloured`: the launcher that leads shows the ranks in colour.
    pub fn to(file: File, is_coloured: bool) -> Report {
        Report { to: Some(file), is_coloured, failing: Cell::new(false) }
    }

    /// Whether another launcher leads this one.
    pub fn is_led(&self) -> bool {
        self.to.is_some()
    }

    /// Whether the launcher that leads shows the ranks in colour.
    pub fn is_coloured(&self) -> bool {
        self.is_coloured
    }

    /// Tells how far the cluster is while it forms; with an empty text, that it has formed.
    pub fn forming(&self, words: &str) {
        self.tell(Kind::Forming, words.as_bytes());
    }

    /// Tells that the scheduler listens at this port, and that this secret is the run's.
    pub fn port(&self, port: u16, secret: Option<&str>) {
        self.tell(Kind::Port, format!("{port}\0{}", secret.unwrap_or_default()).into_bytes());
    }

    /// Tells once that something has failed for good, and that the rest is being stopped.
    pub fn failing(&self) {
        if !self.failing.replace(true) {
            self.tell(Kind::Failing, Vec::new());
        }
    }

    /// Tells how the run went.
    pub fn summary(&self, summary: &Summary) {
        self.tell(Kind::Summary, summary.encode());
    }

    /// Sends a frame. An error means that nobody leads any more: the leader's connection tells that.
    fn tell(&self, kind: Kind, body: impl Into<Vec<u8>>) {
        if let Some(mut file) = self.to.as_ref() {
            let _ = Frame::new(kind, body).write(&mut file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let summary = Summary {
            how: "worker 5 (pid 7) exited with code 3".to_owned(),
            fault: Fault::Unknown,
            text: "muster: first failure\n    a\n".to_owned(),
            scheduler: "rank 5 (node id \"5\") is lost".to_owned(),
        };
        for fault in [Fault::Unknown, Fault::Killed, Fault::HadLeft, Fault::NotFormed] {
            let summary = Summary { fault, ..summary.clone() };
            assert_eq!(Summary::decode(&summary.encode()), Some(summary));
        }
        assert_eq!(Summary::decode(&Summary::default().encode()), Some(Summary::default()));
        assert_eq!(Summary::decode(b"one"), None);
    }
}
