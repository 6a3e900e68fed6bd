use super::*;

/// Two servers of two devices; the ranks cross.
fn table() -> Value {
    serde_json::from_str(
        r#"{
            "version": "1.0",
            "server_count": "2",
            "server_list": [
                {
                    "server_id": "10.0.0.1",
                    "device": [
                        {"device_id": "4", "device_ip": "192.1.27.6", "rank_id": "2"},
                        {"device_id": "5", "device_ip": "192.2.27.6", "rank_id": "0"}
                    ],
                    "host_nic_ip": "reserve"
                },
                {
                    "server_id": "node_1",
                    "container_ip": "fd00::2",
                    "device": [{"device_id": "4", "rank_id": "1"}, {"device_id": "0", "device_ip": "", "rank_id": "3"}]
                }
            ],
            "status": "completed",
            "group_count": 1
        }"#,
    )
    .expect("it is JSON")
}

fn parse(table: &Value) -> Parsed<RankTable> {
    RankTable::parse(table.to_string().as_bytes())
}

/// What is wrong with the table after this change; `at` is a JSON pointer to what becomes `value`.
fn wrong(at: &str, value: Value) -> String {
    let mut table = table();
    *table.pointer_mut(at).expect("the entry is there") = value;
    parse(&table).expect_err(at)
}

/// What is wrong with the table without this field of what `at` points to.
fn missing(at: &str, field: &str) -> String {
    let mut table = table();
    table.pointer_mut(at).and_then(Value::as_object_mut).expect("an object").remove(field).expect("the field is there");
    parse(&table).expect_err(field)
}

#[test]
fn a_table_is_read() {
    let table = parse(&table()).unwrap();
    assert_eq!(table.ranks(), 4);
    let places: Vec<_> = (0..5).map(|rank| table.place_of(rank)).collect();
    assert_eq!(places, [Some((0, 1)), Some((1, 0)), Some((0, 0)), Some((1, 1)), None]);
    let addresses = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
    assert_eq!(table.servers[0].addresses, addresses("10.0.0.1"), "the address of a device is not one of its host");
    assert_eq!((table.servers[1].id.as_str(), &table.servers[1].addresses), ("node_1", &addresses("fd00::2")));
    assert_eq!(table.servers[1].devices, [Device { id: 4, rank: 1 }, Device { id: 0, rank: 3 }]);
}

#[test]
fn missing_fields_are_named() {
    let device = "/server_list/1/device/0";
    for (at, field, expected) in [
        ("", "version", "has no version: expected \"1.0\""),
        ("", "status", "has no status: expected \"completed\""),
        ("", "server_count", "has no server_count: expected the number of servers, in quotes"),
        ("", "server_list", "has no server_list: expected a list of servers"),
        ("/server_list/1", "device", "has no server_list[1].device: expected a list of devices"),
        (device, "rank_id", "has no server_list[1].device[0].rank_id: expected the rank, in quotes"),
        (device, "device_id", "has no server_list[1].device[0].device_id: expected the device's number, in quotes"),
    ] {
        assert_eq!(missing(at, field), expected);
    }
    assert!(
        missing("/server_list/0", "server_id").starts_with("has no server_list[0].server_id: expected 1 to 64 bytes")
    );
}

#[test]
fn values_that_are_not_as_they_should_be_are_named() {
    let rank = "/server_list/0/device/1/rank_id";
    let number = "a whole number from 0 to 1048575";
    for (at, value, expected) in [
        ("/version", "1.2".into(), "has version \"1.2\": expected \"1.0\"".to_string()),
        ("/version", 1.0.into(), "has version the number 1.0: expected \"1.0\" in quotes".into()),
        ("/status", "initializing".into(), "has status \"initializing\": expected \"completed\"".into()),
        ("/status", Value::Null, "has status null: expected \"completed\"".into()),
        (
            "/server_count",
            "3".into(),
            "has server_count \"3\": expected \"2\", which is the length of server_list".into(),
        ),
        ("/server_count", "two".into(), format!("has server_count \"two\": expected the number of servers, {number}")),
        (
            "/server_list",
            Value::Array(vec![]),
            "has server_list an empty list: expected a list of at least one server".into(),
        ),
        ("/server_list", "x".into(), "has server_list \"x\": expected a list of at least one server".into()),
        ("/server_list/1", true.into(), "has server_list[1] true: expected an object".into()),
        (
            "/server_list/1/device",
            Value::Array(vec![]),
            "has server_list[1].device an empty list: expected a list of at least one device".into(),
        ),
        ("/server_list/0/device/1", "1".into(), "has server_list[0].device[1] \"1\": expected an object".into()),
        (rank, "x".into(), format!("has server_list[0].device[1].rank_id \"x\": expected the rank, {number}")),
        (
            rank,
            0.into(),
            format!("has server_list[0].device[1].rank_id the number 0: expected the rank, {number} in quotes"),
        ),
        (
            "/server_list/0/device/0/device_ip",
            "192.1.*.6".into(),
            "has server_list[0].device[0].device_ip \"192.1.*.6\": expected an IP address".into(),
        ),
        (
            "/server_list/1/container_ip",
            "here".into(),
            "has server_list[1].container_ip \"here\": expected an IP address".into(),
        ),
    ] {
        assert_eq!(wrong(at, value), expected);
    }
    for value in ["", "-1", "00", "01", "1.0", " 1", "+1", "1048576", "99999999999999999999"] {
        assert!(
            wrong(rank, value.into()).starts_with(&format!("has server_list[0].device[1].rank_id {value:?}: expected"))
        );
        let device = wrong("/server_list/1/device/0/device_id", value.into());
        assert!(device.starts_with(&format!("has server_list[1].device[0].device_id {value:?}: expected")), "{device}");
    }
    for id in [" ".to_string(), "a".repeat(65)] {
        assert!(wrong("/server_list/0/server_id", id.into()).starts_with("has server_list[0].server_id \""));
    }
}

#[test]
fn what_must_be_unique_is() {
    assert_eq!(
        wrong("/server_list/1/device/1/rank_id", "2".into()),
        "has server_list[1].device[1].rank_id \"2\", as has server_list[0].device[0].rank_id: expected each rank from 0 \
         to 3 once"
    );
    assert_eq!(
        wrong("/server_list/1/device/1/rank_id", "4".into()),
        "has server_list[1].device[1].rank_id \"4\": expected a rank from 0 to 3, because the table has 4 devices"
    );
    assert_eq!(
        wrong("/server_list/0/device/1/device_id", "4".into()),
        "has server_list[0].device[1].device_id \"4\", as has server_list[0].device[0]: expected each device of a server \
         once"
    );
    assert_eq!(
        wrong("/server_list/1/server_id", "10.0.0.1".into()),
        "has server_list[1].server_id \"10.0.0.1\", as has server_list[0]: expected each server once"
    );
}

#[test]
fn other_files_are_told_from_tables() {
    let error = |text: &str| RankTable::parse(text.as_bytes()).unwrap_err();
    assert_eq!(error("[]"), "is an empty list: expected an object");
    assert_eq!(error("7"), "is the number 7: expected an object");
    assert_eq!(error("{}"), "has no version: expected \"1.0\"");
    assert!(error("rank 0: host a").starts_with("is not JSON as expected: "));
    assert!(error(r#"{"version": "1.0", "version": "1.0"}"#).starts_with("has the key \"version\" in one object twice"));
}

#[test]
fn no_table_is_too_odd() {
    const ODD: &[u8] = b"0123456789{}[]\",:\\ \xffx";
    let text = table().to_string().into_bytes();
    // A fixed sequence, so that a failure is the same again.
    let mut state = 7u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..20_000 {
        let mut odd = text.clone();
        for _ in 0..1 + draw(3) {
            let at = draw(odd.len());
            odd[at] = ODD[draw(ODD.len())];
        }
        match RankTable::parse(&odd) {
            Ok(table) => {
                right += 1;
                assert!((0..table.ranks() as u32).all(|rank| table.place_of(rank).is_some()));
            }
            Err(error) => {
                wrong += 1;
                assert!(error.contains("expected") && !error.contains('\n'), "{error}");
                assert!(["is ", "has "].iter().any(|start| error.starts_with(start)), "{error}");
            }
        }
    }
    assert!(right > 100 && wrong > 1000, "{right} right, {wrong} wrong: the sequence must reach both");
}
