use super::*;

fn accepts(kind: Kind, right: &[&str], wrong: &[&str]) {
    for text in right {
        assert!(kind.parse(text).is_some(), "{kind:?} takes {text:?}");
    }
    for text in wrong {
        assert!(kind.parse(text).is_none(), "{kind:?} does not take {text:?}");
    }
}

#[test]
fn numbers_are_read_whole() {
    accepts(
        Kind::Whole { min: 2, max: 10 },
        &["2", "10", "007"],
        &["1", "11", "", "+3", "-3", "3x", " 3", "3 ", "3.0", "٣"],
    );
    accepts(Kind::Port, &["0", "1024", "65535"], &["1", "1023", "65536", "-1", "80x", "18446744073709551616"]);
    assert_eq!(plain_decimal("0"), Some(0));
    assert_eq!(plain_decimal("10"), Some(10));
    for name in ["00", "01", "", "-1", "1x", "18446744073709551616"] {
        assert_eq!(plain_decimal(name), None, "{name}");
    }
}

#[test]
fn seconds_have_fractions_and_may_be_limitless() {
    let kind = Kind::Seconds { min_ms: 500, limitless: false };
    accepts(
        kind,
        &["0.5", "5", "2.25", "1000000000"],
        &[
            "0.499",
            "0",
            "-1",
            "1e3",
            "inf",
            "NaN",
            ".5",
            "5.",
            "1000000001",
            "1000000000.1",
            "1.5s",
            "1.-5",
            "1.2.3",
            "",
        ],
    );
    let limitless = Kind::Seconds { min_ms: 1, limitless: true };
    accepts(limitless, &["-1", "-0.5", "-600", "0.001"], &["0", "-0", "-0.000", "--1", "+1", "-", "-x", "0.0009"]);
    assert_eq!(limitless.parse("-1"), Some(Value::Seconds(None)));
    assert_eq!(limitless.parse("1.0000000019"), Some(Value::Seconds(Some(Duration::new(1, 1)))));
    assert_eq!(limitless.parse("2.5"), Some(Value::Seconds(Some(Duration::from_millis(2500)))));
}

#[test]
fn hosts_are_names_or_addresses() {
    accepts(
        Kind::Host,
        &[
            "localhost",
            "node-1.cluster_a.local",
            "10.0.0.1",
            "::1",
            "[::1]",
            "fe80::1%eth0",
            "[fe80::1%eth0]",
            "fec0::1",
            "0.0.0.0",
            "1a",
        ],
        &[
            "",
            " ",
            "a b",
            "a:80",
            "10.0.0.1:80",
            "[::1]:80",
            "[localhost]",
            "10.0.0",
            "10.0.0.256",
            "123",
            "fe80::1%",
            "fe80::1",
            "[fe80::1]",
            "febf::1",
            "http://a",
            "a/b",
            "näh",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "ff02::1%eth0",
            "::ffff:224.0.0.1",
        ],
    );
    assert!(Kind::Host.parse(&"a".repeat(253)).is_some() && Kind::Host.parse(&"a".repeat(254)).is_none());
    assert_eq!(Kind::Host.parse("[fd00::1]"), Some(Value::Text("fd00::1".into())));
    for text in ["fe80::1", "[fe80::1]", "febf::1"] {
        assert_eq!(Kind::Host.expectation_for(text), "its interface, too, as in fe80::1%eth0", "{text}");
    }
    for text in ["fe80::1%", "fec0::x", "a:80", ""] {
        assert_eq!(Kind::Host.expectation_for(text), Kind::Host.expectation(), "{text}");
    }
}

#[test]
fn addresses_are_literal_and_reachable() {
    accepts(
        Kind::Addresses,
        &["127.0.0.1", "10.0.0.1,fd00::1", "10.0.0.1 , 10.0.0.2"],
        &["", ",", "10.0.0.1,", "localhost", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "10.0.0.1:80", "255.255.255.255"],
    );
    accepts(
        Kind::Address,
        &["127.0.0.1", "fd00::1", " 10.0.0.1"],
        &["", "10.0.0.1,10.0.0.2", "localhost", "0.0.0.0", "224.0.0.1", "10.0.0.1:80"],
    );
    assert_eq!(Kind::Address.parse("::ffff:10.0.0.1"), Some(Value::Address([10, 0, 0, 1].into())));
    assert!(Kind::Addresses.parse(&["127.0.0.1"; 8].join(",")).is_some());
    assert!(Kind::Addresses.parse(&["127.0.0.1"; 9].join(",")).is_none());
}

#[test]
fn a_range_of_ports_begins_with_the_lower_one_and_says_so() {
    accepts(Kind::Ports, &["7000-7999", "7000-7000", "1024-65535"], &["7000-6000", "7000", "80-90", "7000-65536"]);
    assert!(Kind::Ports.expectation().ends_with("65535, the lower one first, such as 7000-7999"));
}

#[test]
fn text_paths_flags_and_levels() {
    accepts(Kind::Text { max_bytes: 4 }, &["a", "ab d", "éé"], &["", " a", "a ", "a\tb", "a\0", "abcde", "ééé"]);
    accepts(Kind::Path, &["/a b", ".", " "], &["", "a\0b"]);
    accepts(Kind::Secret { max_bytes: 4 }, &[" a ", "\n"], &["", "abcde", "a\0b"]);
    accepts(Kind::Flag, &["0", "1", "true", "False"], &["", "2", "yes", "on", " 1"]);
    accepts(Kind::Checksums, &["0", "1", "all", "ALL", "true"], &["", "2", "on", "all "]);
    accepts(Kind::Sharing, &["off", "auto", "Require"], &["", "on", "1"]);
    accepts(Kind::TlsVersion, &["1.2", "1.3"], &["", "1.1", "1", "1.20", "TLSv1.2", "auto"]);
    accepts(Kind::Level, &["off", "warn", "DEBUG"], &["", "warning", "3"]);
    accepts(Kind::Role, &["MS_SCHED", "MS_WORKER", "MS_PSERVER"], &["", "ms_sched", "MS_SERVER", "MS_WORKER "]);
}

#[test]
fn levels_have_numbers_and_names() {
    for (level, name) in LogLevel::NAMES {
        assert_eq!(LogLevel::from_code(level as i32), Some(level));
        assert_eq!(LogLevel::from_name(name), Some(level));
    }
    assert_eq!((LogLevel::from_code(6), LogLevel::from_code(-1)), (None, None));
}
