use super::*;
use crate::config::Config;

const FILE: &str = "RANK_TABLE_FILE is \"/etc/table.json\", which ";

/// Servers with these ids, each with as many devices; ranks run against the order of devices.
fn table(ids: &[&str], devices: u32) -> String {
    let server = |(at, id): (usize, &&str)| {
        let device = |index: u32| {
            let rank = at as u32 * devices + devices - 1 - index;
            format!(r#"{{"device_id": "{index}", "rank_id": "{rank}"}}"#)
        };
        let list: Vec<String> = (0..devices).map(device).collect();
        format!(r#"{{"server_id": "{id}", "device": [{}]}}"#, list.join(", "))
    };
    let list: Vec<String> = ids.iter().enumerate().map(server).collect();
    let (count, list) = (ids.len(), list.join(", "));
    format!(r#"{{"version": "1.0", "status": "completed", "server_count": "{count}", "server_list": [{list}]}}"#)
}

fn two_by_two() -> String {
    table(&["10.0.0.1", "10.0.0.2"], 2)
}

/// A worker of four, with these changes; an empty value takes one away.
fn settings(changes: &[(&str, &str)]) -> Settings {
    let base = [
        ("MS_ROLE", "MS_WORKER"),
        ("MS_SCHED_HOST", "10.0.0.1"),
        ("MS_SCHED_PORT", "8118"),
        ("MS_WORKER_NUM", "4"),
        ("RANK_TABLE_FILE", "/etc/table.json"),
    ];
    let kept = base.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let mut config = Config::new();
    config.load_env(kept.chain(changes.iter().copied()));
    config.settings().expect("these settings are right")
}

/// The rank that a worker takes on host `b`, which has 10.0.0.2 and 10.0.1.2.
fn take(table: &str, changes: &[(&str, &str)]) -> Result<Option<u32>> {
    let mut settings = settings(changes);
    let own: [IpAddr; 2] = ["10.0.0.2", "10.0.1.2"].map(|text| text.parse().unwrap());
    settings.take_rank(table.as_bytes(), &Host { name: "b", has: &|address| own.contains(&address) })?;
    Ok(match settings.assignment {
        Assignment::Node { rank, .. } => rank,
        _ => None,
    })
}

fn rank(table: &str, changes: &[(&str, &str)]) -> Option<u32> {
    take(table, changes).expect("there is an entry")
}

fn error(table: &str, changes: &[(&str, &str)]) -> String {
    let message = take(table, changes).expect_err("this is an error").message().to_string();
    message.strip_prefix(FILE).unwrap_or_else(|| panic!("{message} begins with {FILE}")).to_string()
}

#[test]
fn the_entry_is_that_of_host_and_device() {
    assert_eq!(rank(&two_by_two(), &[("DEVICE_ID", "0")]), Some(3));
    assert_eq!(rank(&two_by_two(), &[("DEVICE_ID", "1")]), Some(2));
    assert_eq!(rank(&two_by_two(), &[("DEVICE_ID", "1"), ("MS_NODE_ID", "pod-a")]), Some(2));
    assert_eq!(rank(&table(&["a", "b"], 2), &[("DEVICE_ID", "1")]), Some(2), "by the host's name");
    let by_address = two_by_two().replace("10.0.0.2\"", "node_1\", \"container_ip\": \"10.0.1.2\"");
    assert_eq!(rank(&by_address, &[("DEVICE_ID", "1")]), Some(2));
}

#[test]
fn what_was_said_of_this_host_counts_more_than_what_the_system_says() {
    let told = |name, value| rank(&two_by_two(), &[("DEVICE_ID", "1"), (name, value)]);
    assert_eq!(told("MS_WORKER_IP", "10.0.0.1"), Some(0));
    assert_eq!(told("MS_WORKER_IP", "192.0.2.1,10.0.0.1"), Some(0), "any of several");
    assert_eq!(told("MUSTER_HOST_ID", "10.0.0.1"), Some(0));
    assert_eq!(
        told("MS_WORKER_IP", "192.0.2.1"),
        Some(2),
        "an address of which the table knows nothing decides nothing"
    );
}

#[test]
fn a_known_rank_finds_the_entry_and_must_agree_with_it() {
    for name in ["RANK_ID", "MS_NODE_ID", "MUSTER_RANK_ID"] {
        assert_eq!(rank(&two_by_two(), &[(name, "2")]), Some(2));
        assert_eq!(rank(&two_by_two(), &[(name, "2"), ("DEVICE_ID", "1")]), Some(2));
        assert_eq!(
            error(&two_by_two(), &[(name, "2"), ("DEVICE_ID", "0")]),
            format!(
                "has rank_id \"2\", which is that of {name}, at server_list[1].device[1] with device_id \"1\", but \
                 DEVICE_ID is \"0\": expected the same device from both"
            )
        );
        assert_eq!(
            error(&two_by_two(), &[(name, "1")]),
            format!(
                "has rank_id \"1\", which is that of {name}, at server_list[0].device[0] on the server \"10.0.0.1\", but \
                 this host is \"10.0.0.2\" (server_list[1]): expected the same server from both"
            )
        );
    }
    assert_eq!(rank(&table(&["x", "y"], 2), &[("RANK_ID", "1")]), Some(1), "a host that is not in the table trusts it");
}

#[test]
fn another_launchers_local_rank_is_no_device_id() {
    let torchrun = [("MS_ROLE", ""), ("RANK", "2"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0"), ("MS_WORKER_NUM", "")];
    assert_eq!(rank(&two_by_two(), &torchrun), Some(2));
}

#[test]
fn what_is_not_in_the_table_is_named_with_what_is() {
    assert_eq!(
        error(&two_by_two(), &[]),
        "can't tell this process's rank, because neither RANK_ID nor DEVICE_ID is set: expected one of them"
    );
    assert_eq!(
        error(&two_by_two(), &[("DEVICE_ID", "2")]),
        "has no device_id \"2\" as DEVICE_ID has it on this host, \"10.0.0.2\" (server_list[1]): expected one of \"0\", \
         \"1\""
    );
    let strange = table(&["x", "10.0.0.9"], 2);
    assert_eq!(
        error(&strange, &[("DEVICE_ID", "0")]),
        "has no server that is an address of this host or its name \"b\"; it has \"x\" (server_list[0]), \"10.0.0.9\" \
         (server_list[1]): expected this host among them, or RANK_ID to be set"
    );
    assert!(error(&strange, &[("DEVICE_ID", "0"), ("MS_WORKER_IP", "10.0.0.7")])
        .starts_with("has no server that is one of MS_WORKER_IP, an address of this host or its name \"b\"; it has"));
    let ids: Vec<String> = (0..100).map(|index| format!("n{index}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let many = error(&table(&ids, 1), &[("DEVICE_ID", "0"), ("MS_WORKER_NUM", "100")]);
    assert!(many.contains("\"n7\" (server_list[7]) and 92 more: expected"), "{many}");
}

#[test]
fn a_host_that_is_two_servers_says_which() {
    let both = table(&["10.0.0.2", "10.0.1.2"], 2);
    assert_eq!(
        error(&both, &[("DEVICE_ID", "0")]),
        "has device_id \"0\" on several servers that are this host, \"10.0.0.2\" (server_list[0]), \"10.0.1.2\" \
         (server_list[1]): expected MS_WORKER_IP to be the address of one of them, or RANK_ID to be set"
    );
    assert_eq!(rank(&both, &[("DEVICE_ID", "0"), ("MS_WORKER_IP", "10.0.1.2")]), Some(3));
    assert_eq!(rank(&both, &[("RANK_ID", "0")]), Some(0));
}

#[test]
fn there_are_as_many_ranks_as_workers() {
    for role in ["MS_WORKER", "MS_SCHED", "MS_PSERVER"] {
        let five = [("MS_ROLE", role), ("MS_WORKER_NUM", "5"), ("MS_SERVER_NUM", "1"), ("RANK_ID", "0")];
        assert_eq!(
            error(&two_by_two(), &five),
            "has 4 ranks (devices of all servers), but MS_WORKER_NUM is \"5\": expected as many ranks as workers"
        );
    }
    let alone = [("MS_ROLE", ""), ("MS_WORKER_NUM", "")];
    assert_eq!(
        error(&two_by_two(), &alone),
        "has 4 ranks, but this process is a cluster of one: expected MS_ROLE to be MS_SCHED, MS_WORKER or MS_PSERVER, or \
         RANK_TABLE_FILE to be unset"
    );
    assert_eq!(rank(&table(&["x"], 1), &alone), None);
}

#[test]
fn those_without_a_rank_in_it_only_make_sure_that_the_table_is_right() {
    let server = [("MS_ROLE", "MS_PSERVER"), ("MS_SERVER_NUM", "2"), ("MS_NODE_ID", "1"), ("DEVICE_ID", "9")];
    assert_eq!(rank(&two_by_two(), &server), Some(1), "a server's rank is its own");
    assert_eq!(rank(&two_by_two(), &[("MS_ROLE", "MS_SCHED")]), None);
    for role in ["MS_SCHED", "MS_PSERVER", "MS_WORKER"] {
        let changes = [("MS_ROLE", role), ("MS_SERVER_NUM", "1"), ("RANK_ID", "0")];
        assert_eq!(error("{}", &changes), "has no version: expected \"1.0\"");
    }
}
