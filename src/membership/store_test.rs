use super::*;
use crate::wire::STORE_PIECE_BYTES;

fn limits() -> StoreLimits {
    StoreLimits { key_max: 8, value_max: 200_000, total_max: 300_000 }
}

fn ask(operation: StoreOperation, request: u64, key: &str) -> StoreBegin {
    StoreBegin {
        request,
        answered_below: 0,
        operation,
        keys: vec![Blob::new(key.as_bytes().to_vec())],
        delta: 0,
        expected_bytes: 0,
        value_bytes: 0,
    }
}

fn many(operation: StoreOperation, request: u64, keys: &[&str]) -> StoreBegin {
    let keys = keys.iter().map(|key| Blob::new(key.as_bytes())).collect();
    StoreBegin { keys, ..ask(operation, request, "") }
}

fn parts(parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Parts::default();
    parts.iter().for_each(|part| all.push(part));
    all.bytes
}

/// A store, and what it answered: node, request, status, number, value.
struct Bench(Store);

type Told = (u32, u64, Status, i64, Option<Vec<u8>>);

impl Bench {
    fn new() -> Bench {
        Bench(Store::new(limits(), false))
    }

    fn begin(&mut self, node: u32, begin: StoreBegin) -> Vec<Told> {
        self.0.begin(node, begin, 0);
        self.answers()
    }

    fn answers(&mut self) -> Vec<Told> {
        std::iter::from_fn(|| self.0.next_answer())
            .map(|Answer { to, reply, value, .. }| {
                let status = Status::from_code(reply.status).expect("a status");
                assert_eq!(reply.value_bytes, value.as_ref().map_or(0, Blob::len) as u64);
                assert_eq!(reply.reason.is_empty(), status == Status::Ok, "{reply:?}");
                (to, reply.request, status, reply.number, value.map(|value| value.as_slice().to_vec()))
            })
            .collect()
    }

    /// Begins a request, and sends its value in pieces.
    fn with_value(&mut self, node: u32, begin: StoreBegin, value: &[u8]) -> Vec<Told> {
        let request = begin.request;
        self.0.begin(node, StoreBegin { value_bytes: value.len() as u64, ..begin }, 0);
        for bytes in Blob::new(value.to_vec()).pieces() {
            self.0.piece(node, StorePiece { request, bytes });
        }
        self.answers()
    }

    fn set(&mut self, node: u32, request: u64, key: &str, value: &[u8]) -> Vec<Told> {
        self.with_value(node, ask(StoreOperation::Set, request, key), value)
    }

    fn compare_set(&mut self, request: u64, expected: &[u8], desired: &[u8]) -> Told {
        let expected_bytes = expected.len() as u64;
        let begin = StoreBegin { expected_bytes, ..ask(StoreOperation::CompareSet, request, "k") };
        self.with_value(1, begin, &[expected, desired].concat()).remove(0)
    }

    /// The sentence of the one refusal.
    fn refusal(&mut self, node: u32, begin: StoreBegin) -> (Status, String) {
        self.0.begin(node, begin, 0);
        let answer = self.0.next_answer().expect("answered");
        assert!(self.0.next_answer().is_none());
        (Status::from_code(answer.reply.status).expect("a status"), answer.reply.reason)
    }

    fn multi_set(&mut self, request: u64, keys: &[&str], values: &[&[u8]]) -> Vec<Told> {
        self.with_value(1, many(StoreOperation::MultiSet, request, keys), &parts(values))
    }

    fn value(&mut self, begin: StoreBegin) -> Vec<u8> {
        self.begin(2, begin).remove(0).4.expect("a value")
    }

    fn add(&mut self, node: u32, request: u64, key: &str, delta: i64) -> Vec<Told> {
        self.begin(node, StoreBegin { delta, ..ask(StoreOperation::Add, request, key) })
    }
}

const OK: Status = Status::Ok;

#[test]
fn set_get_delete() {
    let mut bench = Bench::new();
    assert_eq!(bench.set(1, 1, "k", b"value"), [(1, 1, OK, 0, None)]);
    assert_eq!(bench.begin(2, ask(StoreOperation::Get, 1, "k")), [(2, 1, OK, 0, Some(b"value".to_vec()))]);
    assert_eq!(bench.set(1, 2, "k", b""), [(1, 2, OK, 0, None)], "values may be empty");
    assert_eq!(bench.begin(2, ask(StoreOperation::TryGet, 2, "k")), [(2, 2, OK, 0, Some(Vec::new()))]);
    assert_eq!(bench.begin(1, ask(StoreOperation::Delete, 3, "k")), [(1, 3, OK, 1, None)]);
    assert_eq!(bench.begin(1, ask(StoreOperation::Delete, 4, "k")), [(1, 4, OK, 0, None)]);
    assert_eq!(
        bench.refusal(1, ask(StoreOperation::TryGet, 5, "k")),
        (Status::NotFound, "no key \"k\" in the store".to_string())
    );
    assert_eq!(bench.0.used(), 0);
}

#[test]
fn values_travel_in_pieces() {
    let mut bench = Bench::new();
    let value: Vec<u8> = (0..150_000u32).map(|at| at as u8).collect();
    assert_eq!(bench.set(1, 1, "k", &value), [(1, 1, OK, 0, None)]);
    assert_eq!(bench.begin(2, ask(StoreOperation::Get, 1, "k")), [(2, 1, OK, 0, Some(value))]);
    assert_eq!(bench.0.used(), 150_001);
}

#[test]
fn a_waiting_node_is_answered_when_the_key_appears() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(1, ask(StoreOperation::Get, 7, "k")), []);
    assert_eq!(bench.begin(2, ask(StoreOperation::Get, 8, "k")), []);
    let both = StoreBegin {
        keys: ["k", "l"].map(|key| Blob::new(key.as_bytes().to_vec())).to_vec(),
        ..ask(StoreOperation::Wait, 9, "")
    };
    assert_eq!(bench.begin(3, both), []);
    assert_eq!(
        bench.set(4, 1, "k", b"v"),
        [(4, 1, OK, 0, None), (1, 7, OK, 0, Some(b"v".to_vec())), (2, 8, OK, 0, Some(b"v".to_vec()))]
    );
    assert_eq!(bench.add(4, 2, "l", 3), [(4, 2, OK, 3, None), (3, 9, OK, 0, None)], "add makes a key too");
    assert!(bench.0.waiters.is_empty());
}

#[test]
fn wait_means_all_at_once() {
    let mut bench = Bench::new();
    let both = StoreBegin {
        keys: ["k", "l"].map(|key| Blob::new(key.as_bytes().to_vec())).to_vec(),
        ..ask(StoreOperation::Wait, 9, "")
    };
    assert_eq!(bench.begin(3, both), []);
    bench.set(4, 1, "k", b"v");
    bench.begin(4, ask(StoreOperation::Delete, 2, "k"));
    assert_eq!(bench.set(4, 3, "l", b"v").len(), 1, "k is gone again");
    assert_eq!(bench.set(4, 4, "k", b"v").len(), 2);
}

#[test]
fn a_node_that_no_longer_waits_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.begin(1, ask(StoreOperation::Get, 7, "k"));
    bench.begin(1, ask(StoreOperation::Get, 8, "k"));
    bench.begin(2, ask(StoreOperation::Get, 7, "k"));
    bench.0.cancel(1, 7);
    bench.0.gone(2);
    assert_eq!(bench.set(4, 1, "k", b"v"), [(4, 1, OK, 0, None), (1, 8, OK, 0, Some(b"v".to_vec()))]);
    bench.begin(1, ask(StoreOperation::Get, 9, "other"));
    bench.0.cancel(1, 9);
    bench.0.cancel(1, 10);
    assert!(bench.0.waiters.is_empty());
    assert_eq!(bench.0.used(), 2);
}

#[test]
fn add_counts_in_decimal() {
    let mut bench = Bench::new();
    assert_eq!(bench.add(1, 1, "n", 5), [(1, 1, OK, 5, None)]);
    assert_eq!(bench.add(2, 1, "n", -7), [(2, 1, OK, -2, None)]);
    assert_eq!(bench.begin(1, ask(StoreOperation::Get, 2, "n")), [(1, 2, OK, 0, Some(b"-2".to_vec()))]);
    bench.set(1, 3, "n", b"9223372036854775807");
    assert_eq!(
        bench.refusal(1, StoreBegin { delta: 1, ..ask(StoreOperation::Add, 4, "n") }),
        (Status::Invalid, "store key \"n\" holds 9223372036854775807: adding 1 does not fit into 64 bits".to_string())
    );
    for odd in [&b"12x"[..], b"", b"\xff\xfe", b" 1"] {
        bench.set(1, 5, "n", odd);
        bench.0.clients.clear();
        let (status, reason) = bench.refusal(1, StoreBegin { delta: 1, ..ask(StoreOperation::Add, 6, "n") });
        assert_eq!(status, Status::Invalid);
        assert!(reason.contains("add needs a decimal number"), "{reason}");
    }
    bench.0.limits.value_max = 2;
    assert_eq!(bench.add(1, 7, "short", 99), [(1, 7, OK, 99, None)]);
    let (status, reason) = bench.refusal(1, StoreBegin { delta: 1, ..ask(StoreOperation::Add, 8, "short") });
    assert_eq!((status, reason.as_str()), (Status::Limit, "a store value of 3 bytes: the limit is 2"));
}

#[test]
fn compare_and_set() {
    let mut bench = Bench::new();
    assert_eq!(bench.compare_set(1, b"x", b"y"), (1, 1, OK, -1, None), "absent, and not empty");
    assert_eq!(bench.compare_set(2, b"", b"one"), (1, 2, OK, 1, Some(b"one".to_vec())), "absent equals empty");
    assert_eq!(bench.compare_set(3, b"", b"two"), (1, 3, OK, 0, Some(b"one".to_vec())));
    assert_eq!(bench.compare_set(4, b"one", b"two"), (1, 4, OK, 1, Some(b"two".to_vec())));
    assert_eq!(bench.compare_set(5, b"two", b""), (1, 5, OK, 1, Some(Vec::new())));
    assert_eq!(bench.compare_set(6, b"two", b"x"), (1, 6, OK, 0, Some(Vec::new())), "empty is not absent");
}

#[test]
fn append_grows_a_value_and_tells_its_length() {
    let mut bench = Bench::new();
    let append = |request| ask(StoreOperation::Append, request, "k");
    assert_eq!(bench.with_value(1, append(1), b"ab"), [(1, 1, OK, 2, None)], "absent counts as empty");
    assert_eq!(bench.with_value(1, append(2), b"\0c"), [(1, 2, OK, 4, None)]);
    assert_eq!(bench.with_value(1, append(2), b"\0c"), [(1, 2, OK, 4, None)], "the same again");
    assert_eq!(bench.begin(1, append(3)), [(1, 3, OK, 4, None)], "nothing makes it no longer");
    assert_eq!(bench.value(ask(StoreOperation::Get, 1, "k")), b"ab\0c");
    bench.set(1, 4, "k", &[1; 199_999]);
    let told = bench.with_value(1, append(5), b"ab");
    assert_eq!((told[0].2, bench.0.used()), (Status::Limit, 200_000), "{told:?}");
}

#[test]
fn several_are_set_together_or_not_at_all() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(2, many(StoreOperation::MultiGet, 1, &["a", "b"])), []);
    assert_eq!(
        bench.multi_set(1, &["a", "b", "a"], &[b"1", b"", b"3"]),
        [(1, 1, OK, 0, None), (2, 1, OK, 0, Some(parts(&[b"3", b""])))],
        "of a key that is there twice the later value counts"
    );
    bench.set(2, 2, "a", b"later");
    assert_eq!(bench.multi_set(1, &["a", "b", "a"], &[b"1", b"", b"3"]).len(), 1, "once and no more");
    assert_eq!(bench.value(many(StoreOperation::TryMultiGet, 3, &["b", "a", "a"])), parts(&[b"", b"later", b"later"]));
    let refused = bench.refusal(2, many(StoreOperation::TryMultiGet, 4, &["a", "x"]));
    assert_eq!(refused, (Status::NotFound, "no key \"x\" in the store".to_owned()));
    // Together the values would be too much: none is set.
    bench.set(1, 5, "a", &[1; 150_000]);
    let (used, long) = (bench.0.used(), [2; 149_998]);
    let told = bench.multi_set(6, &["b", "c"], &[b"new", &long]);
    assert_eq!((told[0].2, bench.0.used()), (Status::Limit, used), "{told:?}");
    assert_eq!(bench.value(many(StoreOperation::Check, 7, &["b", "c"])), [1, 0]);
    assert_eq!(bench.value(ask(StoreOperation::Get, 8, "b")), b"");
    // A new value adds only its difference to the old one to the total, once it is here.
    bench.set(1, 20, "a", &[1; 100_000]);
    assert_eq!(bench.multi_set(21, &["a", "b"], &[b"short", &long])[0].2, OK);
    assert_eq!(bench.0.used(), 6 + 149_999);
    bench.set(1, 22, "a", &[1; 149_999]);
    let refused = bench.refusal(2, many(StoreOperation::MultiGet, 9, &["a", "b"]));
    let words = "2 values of 299997 bytes in all: the limit of one answer is 200000".to_owned();
    assert_eq!(refused, (Status::Limit, words));
}

#[test]
fn keys_are_checked_counted_and_listed_in_pieces() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(1, many(StoreOperation::Count, 1, &[])), [(1, 1, OK, 0, None)]);
    let list = |prefix: &str, after: &str| many(StoreOperation::List, 1, &[prefix, after]);
    assert_eq!(bench.begin(1, list("", "")), [(1, 1, OK, 0, Some(Vec::new()))]);
    let keys = ["a", "a\0l", "a\0m", "ab", "b"];
    bench.multi_set(2, &keys, &[&b"1"[..]; 5]);
    assert_eq!(bench.begin(1, many(StoreOperation::Count, 3, &[])), [(1, 3, OK, 5, None)]);
    assert_eq!(bench.value(many(StoreOperation::Check, 4, &["a\0m", "a\0n", "b", "c"])), [1, 0, 1, 0]);
    let bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    for (prefix, after, from, to) in
        [("", "", 0, 5), ("a", "", 0, 4), ("a\0", "", 1, 3), ("a", "a\0l", 2, 4), ("a", "ab", 4, 4), ("c", "", 5, 5)]
    {
        let told = bench.begin(1, list(prefix, after));
        assert_eq!(told, [(1, 1, OK, 0, Some(parts(&bytes[from..to])))], "{prefix:?} after {after:?}");
    }
    // There are more keys than fit into one message.
    let names: Vec<String> = (0..8000).map(|number| format!("n{number:05}")).collect();
    for (at, some) in names.chunks(4000).enumerate() {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        assert_eq!(bench.multi_set(10 + at as u64, &some, &vec![&b""[..]; some.len()])[0].2, OK);
    }
    let (mut after, mut found, mut pieces) = (String::new(), Vec::new(), 0);
    loop {
        let (_, _, status, more, value) = bench.begin(1, list("n", &after)).remove(0);
        let value = value.expect("keys");
        assert!(status == OK && value.len() <= STORE_PIECE_BYTES);
        found.extend(Parts::of(&value).expect("parts").into_iter().map(|key| String::from_utf8(key.to_vec()).unwrap()));
        pieces += 1;
        if more == 0 {
            break;
        }
        after = found.last().expect("there is more behind it").clone();
    }
    assert_eq!((found == names, pieces), (true, 2));
}

#[test]
fn once_and_no_more() {
    let mut bench = Bench::new();
    let first = bench.add(1, 1, "n", 5);
    assert_eq!(bench.add(1, 1, "n", 5), first, "the same again");
    assert_eq!(bench.add(2, 1, "n", 5), [(2, 1, OK, 10, None)], "another node's is another");
    let swapped = bench.compare_set(2, b"", b"v");
    bench.set(2, 2, "k", b"w");
    assert_eq!(bench.compare_set(2, b"", b"v"), swapped);
    assert_eq!(bench.begin(3, ask(StoreOperation::Get, 1, "k")), [(3, 1, OK, 0, Some(b"w".to_vec()))]);
    bench.set(1, 3, "k", b"x");
    bench.set(2, 3, "k", b"y");
    assert_eq!(bench.set(1, 3, "k", b"x"), [(1, 3, OK, 0, None)]);
    assert_eq!(bench.begin(3, ask(StoreOperation::Get, 2, "k")), [(3, 2, OK, 0, Some(b"y".to_vec()))]);
    bench.begin(1, ask(StoreOperation::Delete, 4, "k"));
    bench.set(2, 4, "k", b"z");
    assert_eq!(bench.begin(1, ask(StoreOperation::Delete, 4, "k")), [(1, 4, OK, 1, None)]);
    assert_eq!(bench.begin(3, ask(StoreOperation::Get, 3, "k")), [(3, 3, OK, 0, Some(b"z".to_vec()))]);
    // Results that the node has acknowledged are forgotten.
    bench.begin(1, StoreBegin { answered_below: 5, ..ask(StoreOperation::TryGet, 5, "k") });
    assert!(bench.0.clients[&1].kept.is_empty());
}

#[test]
fn what_is_written_down_is_done_once_also_by_a_scheduler_that_is_started_again() {
    let mut bench = Bench(Store::new(limits(), true));
    let append = |request| ask(StoreOperation::Append, request, "k");
    bench.with_value(1, append(1), b"ab");
    bench.multi_set(2, &["l", "m\0n", "l"], &[b"1", b"2", b"3"]);
    bench.set(2, 1, "l", b"later");
    bench.begin(1, ask(StoreOperation::Delete, 3, "m\0n"));
    let mut again = Bench(Store::new(limits(), true));
    let changes: Vec<Change> = std::iter::from_fn(|| bench.0.next_change()).collect();
    assert_eq!(
        changes.iter().map(|change| change.entries.len()).collect::<Vec<_>>(),
        [1, 2, 1, 1],
        "each in one record"
    );
    for Change { entries, by } in changes {
        let by = by.map(|(node, request, number, change)| (node, Incarnation([1; 16]), request, number, change));
        again.0.restore(StoreRecord { entries, by });
    }
    assert_eq!(again.0.used(), bench.0.used());
    assert_eq!(again.with_value(1, append(1), b"ab"), [(1, 1, OK, 2, None)]);
    assert_eq!(again.multi_set(2, &["l", "m\0n", "l"], &[b"1", b"2", b"3"]), [(1, 2, OK, 0, None)]);
    assert_eq!(again.value(many(StoreOperation::MultiGet, 4, &["k", "l"])), parts(&[b"ab", b"later"]));
    assert_eq!(again.value(many(StoreOperation::Check, 5, &["m\0n"])), [0]);
    assert_eq!(again.with_value(1, append(4), b"c"), [(1, 4, OK, 3, None)]);
}

#[test]
fn results_are_kept_up_to_a_limit() {
    let mut bench = Bench::new();
    for request in 0..KEPT_MAX as u64 + 10 {
        bench.add(1, request, "n", 1);
    }
    assert_eq!(bench.0.clients[&1].kept.len(), KEPT_MAX);
    assert_eq!(bench.add(1, 10, "n", 1)[0].3, 11);
}

#[test]
fn a_cut_transfer_comes_again_from_the_start() {
    let mut bench = Bench::new();
    let begin = StoreBegin { value_bytes: 4, ..ask(StoreOperation::Set, 1, "k") };
    let piece = |bytes: &[u8]| StorePiece { request: 1, bytes: Blob::new(bytes.to_vec()) };
    bench.begin(1, begin.clone());
    bench.0.piece(1, piece(b"ab"));
    bench.begin(1, ask(StoreOperation::Get, 2, "other"));
    bench.0.detached(1);
    assert_eq!(bench.0.used(), 5, "the waiter's key only");
    bench.0.piece(1, piece(b"cd"));
    assert_eq!(bench.answers(), []);
    bench.begin(1, begin);
    bench.0.piece(1, piece(b"ab"));
    bench.0.piece(1, piece(b"cd"));
    assert_eq!(bench.answers(), [(1, 1, OK, 0, None)]);
    bench.begin(1, ask(StoreOperation::Get, 2, "other"));
    assert_eq!(bench.set(2, 1, "other", b"v").len(), 2, "one answer, though it was asked twice");
}

#[test]
fn limits_are_named() {
    let mut bench = Bench::new();
    let sized = |value_bytes| StoreBegin { value_bytes, ..ask(StoreOperation::Set, 1, "k") };
    assert_eq!(
        bench.refusal(1, ask(StoreOperation::Get, 1, "123456789")),
        (Status::Limit, "a store key of 9 bytes: the limit is 8".to_string())
    );
    assert_eq!(
        bench.refusal(1, sized(200_001)),
        (Status::Limit, "a store value of 200001 bytes: the limit is 200000".to_string())
    );
    assert_eq!(bench.refusal(1, sized(u64::MAX)).0, Status::Limit);
    // The announced bytes are held at once, and nothing is allocated for them.
    bench.begin(1, sized(200_000));
    assert_eq!(bench.0.clients[&1].open[&1].bytes.capacity(), 0);
    assert_eq!(
        bench.refusal(2, sized(100_000)),
        (Status::Limit, "100001 bytes more in the store's open requests beside 200001: the limit is 300000 in total (setting store_total_limit); when other calls have ended it may succeed".to_string())
    );
    bench.0.piece(2, StorePiece { request: 1, bytes: Blob::new(vec![1; 10]) });
    assert_eq!(bench.answers(), [], "pieces of a refused request are dropped");
    bench.0.gone(1);
    assert_eq!(bench.0.used(), 0);
    assert_eq!(bench.set(2, 2, "k", &[7; 100_000]), [(2, 2, OK, 0, None)]);
    for request in 0..OPEN_MAX as u64 {
        assert_eq!(bench.begin(3, ask(StoreOperation::Get, request, "x")), []);
    }
    assert_eq!(
        bench.refusal(3, ask(StoreOperation::Get, 5_000, "x")).1,
        "this node has 1024 unanswered store requests: that is the limit"
    );
}

#[test]
fn a_full_store_can_be_read_changed_and_emptied() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a", &[1; 199_999]);
    bench.set(1, 2, "b", &[2; 99_999]);
    assert_eq!(bench.0.used(), 300_000);
    assert_eq!(bench.value(ask(StoreOperation::Get, 3, "a")).len(), 199_999);
    assert_eq!(bench.value(many(StoreOperation::Check, 4, &["a", "c"])), [1, 0]);
    assert_eq!(bench.begin(1, many(StoreOperation::List, 5, &["", ""]))[0].2, OK);
    assert_eq!(bench.begin(2, ask(StoreOperation::Get, 5, "c")), [], "it waits");
    let words = "2 bytes more in the store beside 300000: the limit is 300000 in total (setting store_total_limit)";
    assert_eq!(bench.set(1, 6, "c", b"x")[0].2, Status::Limit);
    assert_eq!(bench.refusal(1, StoreBegin { value_bytes: 1, ..ask(StoreOperation::Set, 7, "c") }).1, words);
    assert_eq!(bench.add(1, 8, "n", 1)[0].2, Status::Limit);
    assert_eq!(bench.set(1, 9, "a", &[3; 199_999])[0].2, OK, "it takes the place of as much");
    assert_eq!(bench.multi_set(10, &["a", "b"], &[&[4; 99_000], &[5; 100_000]])[0].2, OK);
    assert_eq!(bench.begin(1, ask(StoreOperation::Delete, 11, "b"))[0].2, OK);
    assert_eq!(bench.set(1, 12, "c", b"x").last().map(|told| told.2), Some(OK), "and the one that waited is told");
}

#[test]
fn keys_that_are_waited_for_are_not_what_the_store_holds() {
    let mut bench = Bench::new();
    let keys: Vec<String> = (0..8147).map(|number| format!("{number:05}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(bench.begin(1, many(StoreOperation::Wait, 1, &keys)), []);
    assert_eq!(bench.set(2, 1, "k", &[1; 199_999])[0].2, Status::Limit, "that much is open by then");
    let words =
        "5 bytes more in the store's open requests beside 299999: the limit is 300000 in total (setting store_total_limit); when other calls have ended it may succeed";
    assert_eq!(bench.refusal(2, ask(StoreOperation::Get, 2, "00000")).1, words, "keys take memory");
    assert_eq!(bench.begin(2, ask(StoreOperation::Delete, 3, "k"))[0].2, OK);
    bench.0.gone(1);
    assert_eq!(bench.0.used(), 0);
}

#[test]
fn nonsense_is_refused() {
    let mut bench = Bench::new();
    let get = || ask(StoreOperation::Get, 1, "k");
    assert_eq!(bench.refusal(1, StoreBegin { keys: Vec::new(), ..get() }).0, Status::Invalid);
    let two = vec![Blob::new(vec![1]), Blob::new(vec![2])];
    assert_eq!(bench.refusal(1, StoreBegin { keys: two, ..get() }).0, Status::Invalid);
    assert_eq!(bench.refusal(1, StoreBegin { value_bytes: 3, ..get() }).0, Status::Invalid);
    let empty = (Status::Invalid, "an empty store key: a key has 1 to 8 bytes".to_owned());
    assert_eq!(bench.refusal(1, ask(StoreOperation::Get, 1, "")), empty);
    assert_eq!(bench.refusal(1, many(StoreOperation::Check, 1, &["k", ""])), empty);
    assert_eq!(bench.refusal(1, many(StoreOperation::Count, 1, &["k"])).0, Status::Invalid);
    assert_eq!(bench.refusal(1, many(StoreOperation::List, 1, &["k"])).0, Status::Invalid);
    for parts in [&b"\x01\0\0\0x"[..], b"\x01\0\0\0x\x09\0\0\0y", b"\x01\0\0\0x\0\0"] {
        let told = bench.with_value(1, many(StoreOperation::MultiSet, 1, &["k", "l"]), parts);
        assert_eq!(told[0].2, Status::Invalid, "{parts:?}");
    }
    let odd = StoreBegin { expected_bytes: 9, value_bytes: 3, ..ask(StoreOperation::CompareSet, 1, "k") };
    assert_eq!(bench.refusal(1, odd).0, Status::Invalid);
    bench.begin(1, StoreBegin { value_bytes: 3, ..ask(StoreOperation::Set, 1, "k") });
    bench.0.piece(1, StorePiece { request: 1, bytes: Blob::new(vec![0; 4]) });
    assert_eq!(bench.answers()[0].2, Status::Invalid, "more than announced");
    bench.begin(1, get());
    bench.0.piece(1, StorePiece { request: 1, bytes: Blob::new(vec![0; 1]) });
    assert_eq!(bench.answers()[0].2, Status::Invalid, "a waiter takes no value");
    assert_eq!(bench.0.used(), 0);
    assert!(bench.0.waiters.is_empty());
}

#[test]
fn through_the_scheduler_long_answers_come_in_pieces() {
    use crate::membership::testing::Bench;
    use crate::wire::{Message, STORE_PIECE_BYTES};
    let mut bench = Bench::formed(&["here", "there"]);
    let value = vec![5u8; STORE_PIECE_BYTES + 10];
    bench.say(0, Message::StoreBegin(ask(StoreOperation::Get, 1, "k")));
    assert!(bench.sent.is_empty());
    let begin = StoreBegin { value_bytes: value.len() as u64, ..ask(StoreOperation::Set, 1, "k") };
    bench.say(1, Message::StoreBegin(begin));
    for bytes in Blob::new(value).pieces() {
        bench.say(1, Message::StorePiece(StorePiece { request: 1, bytes }));
    }
    assert!(matches!(&bench.told(1)[..], [Message::StoreReply(reply)] if reply.request == 1));
    match &bench.told(0)[..] {
        [Message::StoreReply(reply), Message::StorePiece(first), Message::StorePiece(last)] => {
            assert_eq!(reply.value_bytes as usize, STORE_PIECE_BYTES + 10);
            assert_eq!((first.bytes.len(), last.bytes.len()), (STORE_PIECE_BYTES, 10));
        }
        other => panic!("{other:?}"),
    }
}

impl Store {
    fn used(&self) -> usize {
        self.entries.bytes() + self.reserved
    }

    /// The held bytes add up, and a request that waits stands in line.
    pub(in crate::membership) fn check_sums(&self, seed: u64) {
        let entries: usize = self.entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        let open =
            || self.clients.iter().flat_map(|(node, client)| client.open.values().map(move |open| (*node, open)));
        let reserved = open().map(|(_, open)| open.reserved).sum::<usize>();
        assert_eq!((self.entries.bytes(), self.reserved), (entries, reserved), "seed {seed}");
        for (node, open) in open().filter(|(_, open)| open.waits_for.is_some()) {
            let key = open.begin.keys[open.waits_for.expect("just seen")].as_slice();
            assert!(self.entries.get(key).is_none(), "seed {seed}: it waits for what is there");
            assert!(self.waiters[key].contains(&(node, open.begin.request)), "seed {seed}");
        }
        let lines: usize = self.waiters.values().map(BTreeSet::len).sum();
        assert_eq!(lines, open().filter(|(_, open)| open.waits_for.is_some()).count(), "seed {seed}");
    }
}
