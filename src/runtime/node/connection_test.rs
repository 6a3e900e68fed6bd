//! Which of a scheduler's addresses is tried first, where something else listens at one of them.

use super::super::whereabouts::Places;
use super::*;
use crate::config::LogLevel;
use crate::runtime::base::control::tests::framed;
use crate::runtime::cluster_test::plain;
use crate::wire::HeartbeatEcho;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

const LIMIT: Duration = Duration::from_secs(60);

/// A connection, and the poller that watches it.
struct Side {
    connection: Connection,
    poller: Poller,
    logger: Arc<Logger>,
}

impl Side {
    fn new(whereabouts: Whereabouts) -> Side {
        let connection = Connection::new(plain(), None, whereabouts, None);
        Side { connection, poller: Poller::new().unwrap(), logger: Logger::new(LogLevel::Off, "test") }
    }

    fn dial(&mut self) -> Attempt {
        self.connection.dial(0, Time::NEVER, &self.poller)
    }

    /// Where an attempt that has begun leads.
    fn up(&mut self, mut attempt: Attempt) -> SocketAddr {
        loop {
            match attempt {
                Attempt::Up(_) => return self.connection.scheduler().unwrap(),
                Attempt::Failed(why) => panic!("{why}"),
                Attempt::Pending => self.poller.poll(Some(LIMIT)).unwrap(),
            }
            assert!(self.poller.ready().count() > 0, "nothing comes of it");
            attempt = self.connection.look_at_dial(&self.poller);
        }
    }

    /// Reads until the connection has ended. Returns what the brain is told of that.
    fn lost(&mut self) -> Input {
        loop {
            if let (_, Some(end)) = self.connection.read() {
                return self.connection.lose(&end, &self.logger).expect("it was up");
            }
            self.poller.poll(Some(LIMIT)).unwrap();
            assert!(self.poller.ready().count() > 0, "it does not end");
        }
    }
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn say_http(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().unwrap().0;
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\nThis is no scheduler.").unwrap();
    stream
}

#[test]
fn after_an_address_at_which_no_scheduler_answers_the_next_one_comes() {
    let ((foreign, first), (right, second)) = (listener(), listener());
    let whereabouts = || Whereabouts::new(Places::Here(vec![first, second]), Arc::new(|| ()));
    for says in ["HTTP", "nothing, and closes", "nothing"] {
        let mut side = Side::new(whereabouts());
        let attempt = side.dial();
        assert_eq!(side.up(attempt), first);
        match says {
            "HTTP" => {
                let _stream = say_http(&foreign);
                let Input::Strange(reason) = side.lost() else { panic!("it is no scheduler") };
                assert!(!reason.contains("(at "), "its address is known: {reason}");
            }
            "nothing" => {
                let _stream = foreign.accept().unwrap();
                side.connection.give_up(Time(0));
            }
            _ => {
                drop(foreign.accept().unwrap());
                assert!(matches!(side.lost(), Input::Closed(_)));
            }
        }
        let attempt = side.dial();
        assert_eq!(side.up(attempt), second);
        // The scheduler answers, and is looked for there when it is lost.
        let mut stream = right.accept().unwrap().0;
        stream.write_all(&framed(&Message::HeartbeatEcho(HeartbeatEcho { sequence: 0 }))).unwrap();
        drop(stream);
        assert!(matches!(side.lost(), Input::Closed(_)));
        let attempt = side.dial();
        assert_eq!(side.up(attempt), second);
        // Something else listens there now. The first address follows the last.
        drop(right.accept().unwrap());
        assert!(matches!(side.lost(), Input::Closed(_)));
        let attempt = side.dial();
        assert_eq!(side.up(attempt), first);
        drop(foreign.accept().unwrap());
    }
}

#[test]
fn what_listens_at_an_address_of_a_name_is_told_with_that_address() {
    let (foreign, address) = listener();
    let (announce, announced) = mpsc::channel();
    let places = Places::Host { host: "localhost".to_owned(), ports: vec![address.port()], spans_hosts: false };
    let whereabouts = Whereabouts::new(places, Arc::new(move || announce.send(()).unwrap_or(())));
    let mut side = Side::new(whereabouts);
    let mut attempt = side.dial();
    announced.recv_timeout(LIMIT).unwrap();
    if let Attempt::Pending = attempt {
        attempt = side.connection.hear_names(&side.poller);
    }
    assert_eq!(side.up(attempt), address);
    let _stream = say_http(&foreign);
    let Input::Strange(reason) = side.lost() else { panic!("it is no scheduler") };
    assert_eq!(reason, format!("not a frame of this protocol: it begins with \"HTTP\" (at {address})"));
}
