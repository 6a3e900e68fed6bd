use super::*;

#[test]
fn gives_single_bytes_hides_them_and_holds_some_back_from_the_poller() {
    let (mut out, mut into) = TestLink::pair(42);
    let mut poller = Poller::new().unwrap();
    into.register(poller.registry(), Token(5)).unwrap();
    let message = b"every byte is cut";
    let mut written = 0;
    let mut refused = 0;
    while written < message.len() {
        match out.write(&[IoSlice::new(&message[written..])]) {
            Ok(count) => written += count,
            Err(_) => refused += 1,
        }
        assert!(refused < 1000);
    }
    assert!(refused > 0);
    // Nothing has left before the flush, and all is counted as unsent.
    assert_eq!(out.unsent(), message.len());
    assert_eq!(out.shutdown_write().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    while out.flush().is_err() {}
    out.shutdown_write().unwrap();

    let (mut got, mut hidden, mut slept, mut ahead) = (Vec::new(), 0, 0, 0);
    let mut room = [0; 64];
    loop {
        match into.read(&mut [IoSliceMut::new(&mut room)]) {
            Ok(0) => break,
            Ok(count) => {
                assert_eq!(count, 1);
                got.push(room[0]);
                ahead += usize::from(into.holds_readable());
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                hidden += 1;
                if !into.holds_readable() {
                    poller.poll(Some(Duration::from_secs(20))).unwrap();
                    assert!(poller.ready().any(|ready| ready.token == Token(5)), "slept on hidden bytes");
                    slept += 1;
                }
            }
        }
    }
    assert_eq!(got, message);
    assert!(hidden > slept && ahead > 0, "hidden {hidden}, slept {slept}, ahead {ahead}");
    assert!(!into.holds_readable());
}

#[test]
fn the_same_seed_does_the_same() {
    let trace = |seed| {
        let (mut link, _peer) = TestLink::pair(seed);
        (0..200).map(|_| link.write(&[IoSlice::new(b"x")]).is_ok()).collect::<Vec<bool>>()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
