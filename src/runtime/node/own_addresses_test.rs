use super::*;
use crate::config::Config;
use std::net::TcpListener;

/// The addresses of a worker whose settings have these, too.
fn own(settings: &[(&str, &str)]) -> OwnAddresses {
    let mut config = Config::new();
    let worker = [("role", "MS_WORKER"), ("sched_host", "127.0.0.1"), ("sched_port", "8118"), ("worker_num", "2")];
    for (key, value) in worker.iter().chain(settings) {
        config.set(key, value).unwrap();
    }
    OwnAddresses::of(&config.settings().unwrap())
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ips(listener: &Listener) -> Vec<String> {
    listener.local_addresses().iter().map(|address| address.ip().to_string()).collect()
}

/// A port that a socket of the test's own has at an address of its own.
fn taken(ip: &str) -> (TcpListener, u16) {
    let holder = TcpListener::bind((ip, 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    (holder, port)
}

#[test]
fn unless_it_is_set_it_is_the_address_that_leads_to_the_scheduler() {
    let plain = own(&[]);
    assert!(plain.listen_at_once().unwrap().is_none());
    let listener = plain.listen_towards(at("127.0.0.3:40000")).unwrap();
    assert_eq!(ips(&listener), ["127.0.0.3"]);
    assert_ne!(listener.local_addresses()[0].port(), 40000, "that is the control connection's");
    assert_eq!(plain.told(listener.local_addresses()), listener.local_addresses());
    let beside = OwnAddresses { instead: Some("127.0.0.4".parse().unwrap()), ..plain };
    assert_eq!(ips(&beside.listen_towards(at("127.0.0.1:40000")).unwrap()), ["127.0.0.4"]);
}

/// A job script's variables may be there when its program is started alone.
#[test]
fn nobody_looks_for_a_cluster_of_one() {
    let mut config = Config::new();
    config.set("worker_ip", "192.0.2.1").unwrap();
    assert!(OwnAddresses::of(&config.settings().unwrap()).listen_at_once().unwrap().is_none());
}

#[test]
fn addresses_and_interfaces_are_bound_at_once() {
    let given = own(&[("worker_ip", "127.0.0.2,127.0.0.3"), ("ifname", "=nosuch0")]).listen_at_once().unwrap().unwrap();
    assert_eq!(ips(&given), ["127.0.0.2", "127.0.0.3"], "addresses beat interfaces");
    let named = own(&[("ifname", "=lo")]).listen_at_once().unwrap().unwrap();
    assert!(ips(&named).contains(&"127.0.0.1".to_owned()), "{named:?}");
    let error = own(&[("ifname", "=nosuch0")]).listen_at_once().unwrap_err();
    assert_eq!(error.status(), Status::Bind);
    assert!(error.message().starts_with("ifname is \"=nosuch0\", which leaves no address of this host"), "{error}");
    assert!(error.message().contains("lo (127.0.0.1)"), "{error}");
}

#[test]
fn of_a_range_the_first_port_counts_that_is_free_at_each_address() {
    let (_holder, port) = taken("127.0.0.5");
    let range = format!("{port}-{}", port.saturating_add(20));
    let behind =
        own(&[("port_range", &range), ("worker_ip", "127.0.0.6,127.0.0.5")]).listen_at_once().unwrap().unwrap();
    let found = behind.local_addresses()[0].port();
    assert!(found > port && behind.local_addresses().iter().all(|address| address.port() == found));
    let none = format!("{port}-{port}");
    let error = own(&[("port_range", &none)]).listen_towards(at("127.0.0.5:1")).unwrap_err();
    assert_eq!(error.status(), Status::Bind);
    let who = format!("{port} is held by process {} (", std::process::id());
    let said = format!("port_range is {none}: no port is free at 127.0.0.5: {who}");
    assert!(error.message().starts_with(&said), "{error}");
}

#[test]
fn what_is_told_takes_the_place_of_what_is_bound() {
    let told = own(&[("advertise", "192.0.2.1,192.0.2.2:7000"), ("port_range", "20000-30000")]);
    let listener = told.listen_at_once().unwrap().unwrap();
    assert!(listener.local_addresses().iter().all(|address| address.ip().is_unspecified()));
    let port = listener.local_addresses()[0].port();
    assert_eq!(
        told.told(listener.local_addresses()),
        [at("192.0.2.1:0"), at("192.0.2.2:7000")].map(|address| {
            if address.port() == 0 {
                with_port(address, port)
            } else {
                address
            }
        })
    );
    // Without a range the port that is told is the one that is bound.
    let (holder, port) = taken("127.0.0.7");
    drop(holder);
    let told = own(&[("advertise", &format!("192.0.2.1:{port}")), ("worker_ip", "127.0.0.7")]);
    assert_eq!(
        told.listen_at_once().unwrap().unwrap().local_addresses(),
        [SocketAddr::new([127, 0, 0, 7].into(), port)]
    );
}

#[test]
fn interfaces_that_are_down_or_loopback_do_not_count() {
    let address = |interface: &str, ip: &str, is_up, is_loopback| OwnAddress {
        interface: interface.to_owned(),
        address: at(ip),
        is_up,
        is_loopback,
    };
    let all = [
        address("lo", "127.0.0.1:0", true, true),
        address("eth0", "10.0.0.1:0", true, false),
        address("eth0", "[fe80::1%2]:0", true, false),
        address("veth9", "10.9.0.1:0", false, false),
        address("docker0", "172.17.0.1:0", true, false),
        address("ll0", "[fe80::2%5]:0", true, false),
    ];
    let chosen = |text: &str| {
        let interfaces = own(&[("ifname", text)]).reach.interfaces.unwrap();
        choose(&interfaces, &all).iter().map(SocketAddr::to_string).collect::<Vec<_>>()
    };
    assert_eq!(chosen("^docker"), ["10.0.0.1:0"]);
    assert_eq!(chosen("eth,veth"), ["10.0.0.1:0"]);
    assert_eq!(chosen("=ll0"), ["[fe80::2%5]:0"], "there is nothing else");
    assert_eq!(chosen("lo,docker"), ["127.0.0.1:0", "172.17.0.1:0"]);
    assert_eq!(chosen("veth"), Vec::<String>::new());
}
