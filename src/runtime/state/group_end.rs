//! Whether a group is over, as its calls have told: no, only because somebody wants the next epoch, or for good. All
//! that changes this is here: what was told stays, but a wish for the next epoch gives way to what was really wrong.
//! A call looks without a lock. Tested below.

use super::causes::is_real;
use crate::error::{Error, Failure};
use std::sync::OnceLock;

/// Whether calls have told that a group is over. The errors have the failure, and calls share them.
#[derive(Clone, Copy)]
pub(crate) enum Over<'a> {
    No,
    /// Somebody wants the next epoch.
    Revoked(&'a Error),
    /// For good.
    Broken(&'a Error),
}

impl<'a> Over<'a> {
    /// What calls tell, be it only a wish.
    pub(crate) fn failure(self) -> Option<&'a Failure> {
        match self {
            Over::No => None,
            Over::Revoked(error) | Over::Broken(error) => error.failure(),
        }
    }
}

/// What the calls of one group have told of its end.
#[derive(Default)]
pub(crate) struct GroupEnd(OnceLock<FirstTold>);

/// What a call has told first. It stays where it is, because others have borrowed it.
enum FirstTold {
    Broken(Error),
    Revoked { wish: Error, broken: OnceLock<Error> },
}

impl GroupEnd {
    /// Whether the group is over.
    pub(crate) fn get(&self) -> Over<'_> {
        match self.0.get() {
            None => Over::No,
            Some(FirstTold::Broken(error)) => Over::Broken(error),
            Some(FirstTold::Revoked { wish, broken }) => broken.get().map_or(Over::Revoked(wish), Over::Broken),
        }
    }

    /// A call is about to tell this failure. Returns the error that it is to tell, and whether that is news.
    pub(crate) fn tell(&self, failure: &Failure) -> (&Error, bool) {
        let mut is_news = false;
        let mut news = || {
            is_news = true;
            Error::from(failure.clone())
        };
        let first = self.0.get_or_init(|| match is_real(failure) {
            true => FirstTold::Broken(news()),
            false => FirstTold::Revoked { wish: news(), broken: OnceLock::new() },
        });
        let told = match first {
            FirstTold::Broken(error) => error,
            FirstTold::Revoked { broken, .. } if is_real(failure) => broken.get_or_init(news),
            FirstTold::Revoked { wish, broken } => broken.get().unwrap_or(wish),
        };
        (told, is_news)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Status;
    use crate::types::Epoch;

    fn failure(status: Status) -> Failure {
        Failure { status, culprit: None, cause: "a cause".to_owned(), epoch: Epoch(1), group: None, sequence: 0 }
    }

    #[test]
    fn what_was_told_first_stays_but_a_wish_gives_way_once() {
        let [wish, lost, late] = [Status::Revoked, Status::PeerLost, Status::Timeout].map(failure);
        for is_wanted_anew in [false, true] {
            let end = GroupEnd::default();
            assert!(matches!(end.get(), Over::No));
            assert_eq!(end.get().failure(), None);
            if is_wanted_anew {
                for is_first in [true, false] {
                    let (error, is_news) = end.tell(&wish);
                    assert_eq!((error.failure(), is_news), (Some(&wish), is_first));
                    assert!(matches!(end.get(), Over::Revoked(_)));
                    assert_eq!(end.get().failure(), Some(&wish));
                }
            }
            for (told, is_first) in [(&lost, true), (&late, false), (&wish, false)] {
                let (error, is_news) = end.tell(told);
                assert_eq!((error.failure(), is_news), (Some(&lost), is_first));
                assert!(matches!(end.get(), Over::Broken(_)));
                assert_eq!(end.get().failure(), Some(&lost));
            }
        }
    }
}
