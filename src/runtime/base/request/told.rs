//! What is told of a request's end, beside the threads that wait for it: what can be read then, the waits for several requests, and
//! the program's function.

use super::{leave, several, Error, Life, Record, Request};
use crate::error::{Result, Status};
use crate::runtime::base::interrupts::Attention;
use crate::runtime::base::sync::{lock, Arc, Bell};
use std::os::fd::RawFd;

/// What is known of the function that a program wants to be called.
#[derive(Default)]
pub(super) enum Notice {
    /// There is none.
    #[default]
    None,
    /// The operation goes on; this takes the word of its end on.
    Pending(Box<dyn FnOnce(Notified) + Send>),
    /// The operation has ended, and the function has not returned.
    OnItsWay,
    /// It has.
    Given,
}

/// The word that an operation has ended, on its way to the program's function. Dropped, it has arrived.
pub(crate) struct Notified {
    record: Arc<Record>,
    /// How it ended.
    pub status: Status,
}

impl Drop for Notified {
    fn drop(&mut self) {
        let mut life = lock(&self.record.state);
        (life.notice, life.ends) = (Notice::Given, life.ends - 1);
        let waiting = life.waiting;
        leave(&self.record, life);
        if waiting > 0 {
            self.record.changed.notify_all();
        }
    }
}

/// Who is told of an end with the record unlocked, for they want it next.
#[derive(Default)]
pub(super) struct Hearers {
    waiting: u32,
    several: Vec<Arc<Record>>,
    notice: Option<(Box<dyn FnOnce(Notified) + Send>, Notified)>,
}

impl Life {
    pub(super) fn tell(&mut self, record: &Arc<Record>) -> Hearers {
        self.bell.iter().for_each(Bell::wake);
        let (waiting, several) = (self.waiting, std::mem::take(&mut self.several));
        let notice = match std::mem::take(&mut self.notice) {
            Notice::Pending(take_on) => Some((take_on, self.notified(record))),
            other => {
                self.notice = other;
                None
            }
        };
        Hearers { waiting, several, notice }
    }

    fn notified(&mut self, record: &Arc<Record>) -> Notified {
        (self.notice, self.ends) = (Notice::OnItsWay, self.ends + 1);
        let status = match &self.outcome {
            Some(Err(error)) => error.status(),
            _ => Status::Ok,
        };
        Notified { record: Arc::clone(record), status }
    }
}

impl Hearers {
    pub(super) fn tell(self, record: &Record) {
        if self.waiting > 0 {
            record.changed.notify_all();
        }
        self.several.iter().for_each(several::one_more);
        if let Some((take_on, notified)) = self.notice {
            take_on(notified);
        }
    }
}

impl Request {
    /// Waits until the program's function has returned, where it is to be called.
    pub fn await_notice(&self) {
        let is_given = |life: &mut Life| (!matches!(life.notice, Notice::Pending(_) | Notice::OnItsWay)).then_some(());
        let _ = self.record.wait_until(None, &Attention::none(), is_given); // nothing interrupts it
    }

    /// Has this function called once the operation has ended, by a thread of its node; at once if it has.
    pub fn notify(&self, function: impl FnOnce(Status) + Send + 'static) -> Result<()> {
        let notices = {
            let life = lock(&self.record.state);
            if !matches!(life.notice, Notice::None) {
                return Err(Error::new(Status::State, "this request has a function already, which is called once"));
            }
            life.home.as_ref().map(|home| std::sync::Arc::clone(&home.0.notices)).unwrap_or_default()
        };
        notices.promise()?;
        self.tell_by(move |notified| notices.take_on(notified, Box::new(function)));
        Ok(())
    }

    /// Has this take the word of the end on: when the operation ends, with its engine's locks held, or at once where it has.
    pub(crate) fn tell_by(&self, take_on: impl FnOnce(Notified) + Send + 'static) {
        let mut life = lock(&self.record.state);
        if life.outcome.is_none() {
            life.notice = Notice::Pending(Box::new(take_on));
            return;
        }
        let notified = life.notified(&self.record);
        drop(life);
        take_on(notified);
    }

    /// What can be read once the operation has ended, until the request is dropped.
    pub fn descriptor(&self) -> Result<RawFd> {
        if let Some(bell) = &lock(&self.record.state).bell {
            return Ok(bell.descriptor());
        }
        let bell = Bell::new()?;
        let descriptor = bell.descriptor();
        let mut life = lock(&self.record.state);
        if life.outcome.is_some() {
            bell.wake();
        }
        life.bell = Some(bell);
        Ok(descriptor)
    }
}
