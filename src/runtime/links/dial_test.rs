use super::*;
use crate::net::deafen;
use std::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(60);

/// Attempts, and the poller that watches them.
struct Side {
    poller: Poller,
    tokens: usize,
}

impl Side {
    fn new() -> Side {
        Side { poller: Poller::new().unwrap(), tokens: 0 }
    }

    fn start(&mut self, addresses: &[SocketAddr]) -> Dial {
        let Side { poller, tokens } = self;
        Dial::start(addresses, poller, || next(tokens))
    }

    fn go_on(&mut self, dial: &mut Dial, now: u64) -> Time {
        let Side { poller, tokens } = self;
        dial.go_on(Time(now), poller, || next(tokens))
    }

    fn look(&mut self, dial: &mut Dial) -> Dialled {
        let Side { poller, tokens } = self;
        dial.look(poller, || next(tokens))
    }

    /// Looks until it is known what comes of the dial.
    fn end(&mut self, dial: &mut Dial) -> Result<SocketAddr, NotDialled> {
        loop {
            match self.look(dial) {
                Dialled::Ready(transport) => return Ok(transport.peer_address()),
                Dialled::Failed(why) => return Err(why),
                Dialled::Pending => self.poller.poll(Some(LIMIT)).unwrap(),
            }
            assert!(self.poller.ready().count() > 0 || dial.is_settled(), "nothing comes of it");
        }
    }
}

fn next(tokens: &mut usize) -> Token {
    *tokens += 1;
    Token(*tokens)
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn deaf() -> (TcpListener, SocketAddr) {
    let (listener, address) = listener();
    deafen(&listener);
    (listener, address)
}

/// An address at which nobody listens.
fn nowhere() -> SocketAddr {
    listener().1
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn of_two_addresses_that_are_good_the_first_counts() {
    let (mut side, (_one, first), (two, second)) = (Side::new(), listener(), listener());
    let mut dial = side.start(&[first, second]);
    assert_eq!(side.end(&mut dial).unwrap(), first);
    two.set_nonblocking(true).unwrap();
    assert!(two.accept().is_err(), "nobody has come to the second");
}

#[test]
fn an_address_that_does_not_answer_holds_the_next_up_for_a_moment_only() {
    let (mut side, (_deaf, first), (_good, second)) = (Side::new(), deaf(), listener());
    let mut dial = side.start(&[first, second]);
    let due = side.go_on(&mut dial, 0);
    assert_eq!(due, Time(0) + NEXT_AFTER);
    assert_eq!(side.go_on(&mut dial, due.0 - 1), due);
    assert!(matches!(side.look(&mut dial), Dialled::Pending));
    assert_eq!(side.go_on(&mut dial, due.0), Time::NEVER);
    assert_eq!(side.end(&mut dial).unwrap(), second);
}

#[test]
fn after_one_that_fails_the_next_is_tried_at_once() {
    let (mut side, (_good, good)) = (Side::new(), listener());
    let mut dial = side.start(&[nowhere(), nowhere(), good]);
    assert_eq!(side.end(&mut dial).unwrap(), good);
}

#[test]
fn each_address_that_was_tried_is_told_with_how_it_failed() {
    let (mut side, gone) = (Side::new(), [nowhere(), nowhere()]);
    let mut dial = side.start(&gone);
    let Err(NotDialled::Refused(words)) = side.end(&mut dial) else { panic!("each was refused") };
    let refused = "Connection refused (os error 111)";
    assert_eq!(words, format!("{}: {refused}; {}: {refused}", gone[0], gone[1]));
    // A refusal at one address does not show that nobody listens at another one, which cannot be asked.
    let mut dial = side.start(&[gone[0], at("255.255.255.255:9")]);
    let Err(NotDialled::Other(words)) = side.end(&mut dial) else { panic!("not each was refused") };
    assert!(words.starts_with(&format!("{}: {refused}; 255.255.255.255:9: ", gone[0])), "{words}");
    let mut dial = side.start(&[]);
    assert_eq!(side.end(&mut dial), Err(NotDialled::Other("no address: none is known".to_owned())));
}

#[test]
fn what_is_unanswered_is_told_behind_what_has_failed() {
    let (mut side, gone, (_deaf, deaf)) = (Side::new(), nowhere(), deaf());
    let mut dial = side.start(&[gone, deaf]);
    assert!(matches!(side.look(&mut dial), Dialled::Pending));
    let refused = format!("{gone}: Connection refused (os error 111)");
    assert_eq!(dial.unanswered(), Some(format!("{refused}; {deaf}")));
    assert_eq!(dial.so_far(), format!("{refused}; {deaf}: no answer in time"));
    let mut dial = side.start(&[gone]);
    assert!(side.end(&mut dial).is_err() && dial.so_far() == refused);
}

/// A peer that begins to listen is found although another of its addresses does not answer.
#[test]
fn an_address_that_refused_is_tried_again_beside_one_that_does_not_answer() {
    let (mut side, gone, (_deaf, deaf)) = (Side::new(), nowhere(), deaf());
    let mut dial = side.start(&[gone, deaf]);
    assert!(matches!(side.look(&mut dial), Dialled::Pending));
    for _ in 0..2 {
        let Side { poller, tokens } = &mut side;
        dial.add(&[gone, deaf], poller, || next(tokens));
        let due = side.go_on(&mut dial, 0);
        side.go_on(&mut dial, due.0);
        assert!(matches!(side.look(&mut dial), Dialled::Pending));
        assert_eq!(dial.so_far().matches("refused").count(), 1, "{}", dial.so_far());
        assert_eq!(dial.attempts.len(), 1, "the one that does not answer is tried once");
    }
    let _listens = TcpListener::bind(gone).unwrap();
    let Side { poller, tokens } = &mut side;
    dial.add(&[gone, deaf], poller, || next(tokens));
    let due = side.go_on(&mut dial, 0);
    side.go_on(&mut dial, due.0);
    assert_eq!(side.end(&mut dial), Ok(gone));
}

#[test]
fn addresses_may_come_later() {
    let (mut side, gone, (_good, good)) = (Side::new(), nowhere(), listener());
    let mut dial = side.start(&[gone]);
    let Side { poller, tokens } = &mut side;
    dial.add(&[gone, good], poller, || next(tokens));
    assert_eq!(side.end(&mut dial).unwrap(), good);
    let mut dial = side.start(&[gone]);
    dial.note_reason("cannot resolve host \"x\"".to_owned());
    let Err(why) = side.end(&mut dial) else { panic!("it is refused") };
    assert_eq!(why.to_string().matches("Connection refused").count(), 1);
    assert!(why.to_string().contains("cannot resolve host \"x\""), "{why}");
}

/// Another program may listen there.
#[test]
fn where_no_peer_answers_on_a_connection_the_other_addresses_are_tried() {
    let (mut side, (_one, first), (_two, second)) = (Side::new(), listener(), listener());
    let mut dial = side.start(&[first, second]);
    assert_eq!(side.end(&mut dial), Ok(first));
    assert!(dial.has_several() && !side.start(&[first]).has_several());
    dial.not_answered(NotDialled::Refused(format!("{first}: it speaks HTTP")));
    side.go_on(&mut dial, 0);
    assert_eq!(side.end(&mut dial), Ok(second), "at once");
    dial.not_answered(NotDialled::Closed(format!("{second}: closed")));
    assert!(dial.is_settled());
    let words = format!("{first}: it speaks HTTP; {second}: closed");
    assert_eq!(side.end(&mut dial), Err(NotDialled::Closed(words)));
}

#[test]
fn an_attempt_that_was_dropped_for_another_one_is_made_again() {
    let (mut side, (_deaf, deaf), (_good, good)) = (Side::new(), deaf(), listener());
    let mut dial = side.start(&[deaf, good]);
    let due = side.go_on(&mut dial, 0);
    side.go_on(&mut dial, due.0);
    assert_eq!(side.end(&mut dial), Ok(good));
    dial.not_answered(NotDialled::Closed(format!("{good}: closed")));
    side.go_on(&mut dial, due.0);
    assert!(matches!(side.look(&mut dial), Dialled::Pending));
    assert_eq!(dial.unanswered(), Some(format!("{good}: closed; {deaf}")));
}

#[test]
fn an_address_at_which_nothing_is_said_comes_last() {
    let (mut side, listeners) = (Side::new(), [listener(), listener(), listener()]);
    let [first, second, third] = [0, 1, 2].map(|at| listeners[at].1);
    let mut dial = side.start(&[first, second, third]);
    for expected in [first, second, third, first] {
        assert_eq!(side.end(&mut dial), Ok(expected));
        dial.start_over_behind(expected);
        side.go_on(&mut dial, 0);
    }
}

#[test]
fn the_families_take_turns() {
    let all = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "[fd00::1]:1", "[fd00::2]:1"].map(at);
    let turns = ["10.0.0.1:1", "[fd00::1]:1", "10.0.0.2:1", "[fd00::2]:1", "10.0.0.3:1"].map(at);
    assert_eq!(alternating(&all), turns);
    assert_eq!(alternating(&all[3..]), all[3..]);
    assert_eq!(alternating(&[]), []);
}

#[test]
fn an_address_that_both_hosts_have_leads_to_no_other_host() {
    let (bridge, net) = (at("172.17.0.1:7000"), at("10.0.0.2:7000"));
    let is_own = |address: &SocketAddr| *address == bridge;
    assert_eq!(worth_a_try(&[bridge, net], false, is_own), [net]);
    assert_eq!(worth_a_try(&[net, bridge], true, is_own), [bridge, net], "within a host the shortest way is the first");
    assert_eq!(worth_a_try(&[bridge], false, is_own), [bridge], "there is no other");
    assert_eq!(worth_a_try(&[bridge, net], false, |_| true), [bridge, net]);
}
