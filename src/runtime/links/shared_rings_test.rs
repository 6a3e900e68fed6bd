use super::*;

const LENGTH: usize = 4096;

fn pair() -> [Rings<Segment>; 2] {
    let length = LENGTH.max(page_bytes());
    let (one, file) = Segment::create(total_bytes(length)).unwrap();
    let other = Segment::open(&file, total_bytes(length)).unwrap();
    [Rings::new(one, 0, length), Rings::new(other, 1, length)]
}

fn put(end: &mut Rings<Segment>, bytes: &[u8]) -> Transfer {
    end.write(&[IoSlice::new(bytes)]).unwrap()
}

fn take(end: &mut Rings<Segment>, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let (count, _) = end.read(&mut [IoSliceMut::new(&mut bytes)]).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn bytes_come_in_order_both_ways_in_whatever_portions() {
    let [mut one, mut other] = pair();
    let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
    let byte = |way: usize, number: u64| (number.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ way as u8;
    let mut state = 7u64;
    while got.iter().any(|count| *count < 40 * LENGTH as u64) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let portion = (state >> 40) as usize % (2 * one.length);
        let way = (state >> 63) as usize;
        let (from, to) = if way == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let bytes: Vec<u8> = (0..portion as u64).map(|at| byte(way, sent[way] + at)).collect();
        let (head, tail) = bytes.split_at(portion / 3);
        sent[way] += from.write(&[IoSlice::new(head), IoSlice::new(tail)]).unwrap().0 as u64;
        let (mut head, mut tail) = (vec![0; portion / 2], vec![0; 100]);
        let taken = to.read(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)]).unwrap().0;
        for taken in head.iter().chain(&tail).take(taken) {
            assert_eq!(*taken, byte(way, got[way]), "byte {}", got[way]);
            got[way] += 1;
        }
    }
}

#[test]
fn a_full_ring_takes_no_more_and_an_empty_one_gives_none() {
    let [mut one, mut other] = pair();
    let length = one.length;
    assert_eq!(put(&mut one, &vec![1; length + 1]).0, length);
    assert_eq!(put(&mut one, &[2]).0, 0);
    assert_eq!(take(&mut other, 1), [1]);
    assert_eq!(put(&mut one, &[2, 3]).0, 1);
    assert_eq!(take(&mut other, 2 * length).len(), length);
    assert!(take(&mut other, 1).is_empty());
    assert!(!other.has_bytes() && !one.has_bytes());
}

#[test]
fn one_that_sleeps_is_woken_once_for_each_sleep_and_one_that_looks_is_not() {
    let [mut one, mut other] = pair();
    assert!(!put(&mut one, &[1]).1, "it looks");
    assert!(!other.may_sleep(), "there is something");
    assert_eq!(take(&mut other, 9), [1]);
    assert!(other.may_sleep());
    assert!(other.may_sleep(), "it sleeps already");
    let wakes = [put(&mut one, &[2]).1, put(&mut one, &[3]).1];
    assert_eq!(wakes, [true, false]);
    assert_eq!(take(&mut other, 9), [2, 3]);
    assert!(!put(&mut one, &[4]).1, "it looks");
    take(&mut other, 9);
    assert!(other.may_sleep());
    assert!(put(&mut one, &[5]).1, "another sleep");
}

#[test]
fn one_that_sleeps_until_there_is_room_is_woken_when_there_is_much() {
    let [mut one, mut other] = pair();
    let length = one.length;
    put(&mut one, &vec![1; length]);
    assert_eq!(put(&mut one, &[2]).0, 0);
    assert!(one.may_sleep());
    let mut bytes = vec![0; length / 2 - 1];
    assert_eq!(other.read(&mut [IoSliceMut::new(&mut bytes)]).unwrap(), (length / 2 - 1, false));
    assert_eq!(other.read(&mut [IoSliceMut::new(&mut bytes[..1])]).unwrap(), (1, true));
    assert_eq!(other.read(&mut [IoSliceMut::new(&mut bytes[..1])]).unwrap(), (1, false), "it has been");
    assert_eq!(put(&mut one, &vec![2; length]).0, length / 2 + 1);
    assert_eq!(put(&mut one, &[2]).0, 0);
    take(&mut other, 1);
    assert!(!one.may_sleep(), "there is room already");
    assert!(put(&mut one, &[2]).0 == 1 && one.may_sleep(), "it has no wish for room");
    assert!(!other.read(&mut [IoSliceMut::new(&mut vec![0; 2 * length])]).unwrap().1);
}

#[test]
fn counts_that_are_longer_than_their_words_go_on() {
    let [mut one, mut other] = pair();
    let begin = (1u64 << COUNT_BITS) - 5;
    (one.put, one.others_taken, other.others_put, other.taken) = (begin, begin, begin, begin);
    one.memory.store(PUT, word_of(begin));
    other.memory.store(END_BYTES + TAKEN, word_of(begin));
    for round in 0..3 {
        assert!(!other.has_bytes());
        assert_eq!(put(&mut one, &vec![round; LENGTH]).0, LENGTH);
        assert!(other.has_bytes());
        assert_eq!(take(&mut other, 2 * LENGTH), vec![round; LENGTH]);
    }
    let length = one.length;
    assert_eq!(put(&mut one, &vec![7; 2 * length]).0, length);
}

/// Whatever another process writes as a word, the result is an error, or bytes.
#[test]
fn words_that_cannot_be_are_damage() {
    for (word, value, what) in [
        (PUT, word_of(LENGTH as u64 * 1000), "it has put"),
        (PUT, 10, "it has put"),
        (PUT, word_of(10) ^ 1 << 9, "it has put"),
        (PUT, u64::MAX, "it has put"),
        (TAKEN, u64::MAX, "it has taken"),
        (TAKEN, word_of(4), "it has taken"),
        (TAKEN, word_of(5) ^ 1 << 52, "it has taken"),
    ] {
        let [mut one, other] = pair();
        put(&mut one, &[0; 10]);
        other.memory.store(END_BYTES + TAKEN, word_of(5));
        let rest = vec![0; one.length - 10];
        put(&mut one, &rest);
        assert_eq!(put(&mut one, &[0; 6]).0, 5, "so much was taken");
        other.memory.store(END_BYTES + word, value);
        let read = one.read(&mut [IoSliceMut::new(&mut [0; 10])]);
        let written = one.write(&[IoSlice::new(&[0; 10])]);
        let error = read.err().or(written.err());
        let error = error.unwrap_or_else(|| panic!("{word} is {value}"));
        assert!(error.kind() == io::ErrorKind::InvalidData && error.to_string().contains(what), "{error}");
    }
}
