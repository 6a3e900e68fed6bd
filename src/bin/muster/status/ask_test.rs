use super::super::told::testing;
use super::*;
use muster::error::Status;
use muster::wire::{JobPhase, Later, Rejected};
use std::net::TcpListener;

/// What the question comes to where a scheduler's part is played: it gets the connection.
fn asked(timeout: Duration, part: impl FnOnce(TcpStream) + Send + 'static) -> Result<Told, String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let player = std::thread::spawn(move || part(listener.accept().unwrap().0));
    let told = ask("127.0.0.1", port, timeout, |job| job.phase != JobPhase::Forming);
    player.join().unwrap();
    told.map_err(|why| why.words.replace(&format!("127.0.0.1:{port}"), "ADDRESS"))
}

const LONG: Duration = Duration::from_secs(60);

/// Hears a question.
fn hear(stream: &mut TcpStream) {
    let mut question = [0; 24 + 4 + 4];
    stream.read_exact(&mut question).unwrap();
    let (frame, _) = peek_frame(&question, 1 << 16).unwrap().expect("a whole frame");
    let query = Message::decode(frame.header.kind, &frame.payload).unwrap();
    assert_eq!(query, Message::StatusQuery(StatusQuery { protocol_lowest: 1, protocol_highest: 1 }));
}

fn say(stream: &mut TcpStream, message: &Message) {
    let mut frame = Vec::new();
    encode_frame(message.kind(), 0, &message.encode(), &mut frame);
    stream.write_all(&frame).unwrap();
}

fn refusal(part: impl FnOnce(TcpStream) + Send + 'static) -> String {
    asked(LONG, part).map(|_| ()).unwrap_err()
}

#[test]
fn parts_are_asked_for_one_by_one_and_a_new_job_takes_the_place_of_what_was_told() {
    let Told { job, mut nodes, groups, carriers, .. } = testing::told();
    let second = nodes.split_off(1);
    let rest = StatusPart { groups: groups.clone(), carriers: Later(carriers.clone()), ..StatusPart::default() };
    let stale = StatusPart { job: Some(job.clone()), nodes: second.clone(), ..rest.clone() };
    let first = StatusPart { job: Some(job.clone()), nodes, ..StatusPart::default() };
    let last = StatusPart { nodes: second, last: true, ..rest };
    let told = asked(LONG, move |mut stream| {
        for part in [stale, first, last] {
            hear(&mut stream);
            say(&mut stream, &Message::StatusPart(part));
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nothing more is asked");
    });
    let told = told.unwrap();
    assert_eq!((told.job, told.nodes, told.groups, told.carriers), (job, testing::told().nodes, groups, carriers));
}

#[test]
fn what_is_not_wanted_is_not_asked_for() {
    let job = StatusJob { phase: JobPhase::Forming, ..testing::told().job };
    let first = StatusPart { job: Some(job.clone()), ..StatusPart::default() };
    let told = asked(LONG, move |mut stream| {
        hear(&mut stream);
        say(&mut stream, &Message::StatusPart(first));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nothing more is asked");
    });
    assert_eq!(told.unwrap().job, job);
}

#[test]
fn why_there_is_no_answer() {
    let other = "what listens at ADDRESS is not a muster scheduler: ";
    let said = refusal(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
    assert_eq!(said, format!("{other}not a frame of this protocol: it begins with \"HTTP\""));
    let said = refusal(|mut stream| {
        hear(&mut stream);
        say(&mut stream, &Message::Bye);
    });
    assert_eq!(said, format!("{other}it answers with a message of kind 9"));
    let said = refusal(|mut stream| {
        hear(&mut stream);
        let (status, reason) = (Status::Rejected, "none in common".to_owned());
        say(&mut stream, &Message::Rejected(Rejected { status, reason }));
    });
    assert_eq!(said, "the scheduler at ADDRESS gave no status: none in common");
    let said = refusal(|mut stream| {
        hear(&mut stream);
        let mut frame = Vec::new();
        encode_frame(200, 0, b"?", &mut frame);
        stream.write_all(&frame).unwrap();
    });
    assert!(said.starts_with("what listens at ADDRESS speaks another protocol than this command (muster "), "{said}");
    let said = refusal(|mut stream| hear(&mut stream));
    assert!(
        said.starts_with("no answer from ADDRESS: it closes the connection: it is not a muster scheduler"),
        "{said}"
    );
}

#[test]
fn one_that_says_nothing_is_not_waited_for_longer_than_it_may_take() {
    let said = asked(Duration::from_millis(50), |mut stream| {
        hear(&mut stream);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is given up");
    });
    let said = said.map(|_| ()).unwrap_err();
    assert!(said.starts_with("ADDRESS takes connections, but did not answer within 0.05 s: "), "{said}");
}

#[test]
fn where_nothing_listens_every_address_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let addresses = [SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([127, 0, 0, 2], port))];
    let said = connect_to_any(&addresses, Instant::now() + LONG).map(|_| ()).unwrap_err();
    assert!(said.is_refused);
    for address in addresses {
        assert!(said.words.contains(&format!("{address}: ")), "{said:?}");
    }
}
