//! The library accepts what is made. What is there already is not overwritten.

use super::*;
use crate::certs::testing::TestFolder;
use muster::config::Config;
use std::fs::{self, File};
use std::time::{Duration, SystemTime};
use x509_cert::ext::pkix::name::GeneralName;

fn asked(folder: &Path, form: Form) -> Make {
    Make {
        folder: folder.to_owned(),
        nodes: vec![Target::default()],
        hosts: Vec::new(),
        days: 365,
        ca_days: 3650,
        form: Some(form),
        password_file: None,
        renew: false,
    }
}

/// The library's judgement: its warnings, or its sentence.
fn judged(folder: &Path) -> Result<Vec<String>, String> {
    let mut config = Config::new();
    let set = |config: &mut Config, key: &str, path: &Path| config.set(key, path.to_str().unwrap()).unwrap();
    config.set("enable_ssl", "1").unwrap();
    set(&mut config, "config_file_path", &folder.join(CONFIGURATION));
    if folder.join(PASSWORD).exists() {
        set(&mut config, "client_password_file", &folder.join(PASSWORD));
        set(&mut config, "server_password_file", &folder.join(PASSWORD));
    }
    let opened = config.tls_settings().and_then(|settings| muster::tls::open(settings.as_ref(), None));
    opened.map(|tls| tls.warnings).map_err(|error| error.to_string())
}

fn made(what: &Make) -> Result<String, String> {
    let mut said = String::new();
    node(what, || Ok(Vec::new()), &mut said).map(|()| said)
}

#[test]
fn the_library_takes_what_is_made_until_it_is_revoked_and_renewed() {
    for form in [Form::Pem, Form::Pkcs12] {
        let folder = TestFolder::new();
        let what = asked(&folder.path, form);
        let said = new(&what, Vec::new()).unwrap();
        assert!(said.contains("MUSTER_CONFIG_FILE_PATH="), "{said}");
        assert_eq!(said.contains("MUSTER_SERVER_PASSWORD_FILE="), form == Form::Pkcs12, "{said}");
        let of_node = folder.path.join("node");
        assert_eq!(judged(&of_node), Ok(Vec::new()));

        let ask = Revoke { folder: folder.path.clone(), nodes: vec![Target::default()], files: Vec::new() };
        let said = revoke(&ask, &[]).unwrap();
        assert!(said.contains(" is revoked\n") && said.contains("list 2, until"), "{said}");
        assert!(judged(&of_node).unwrap_err().ends_with("others will not take: its certificate is revoked"));
        assert!(revoke(&ask, &[]).unwrap().contains("is on the list already"));

        let said = made(&Make { renew: true, form: None, ..what }).unwrap();
        assert!(said.contains("node: renewed: a certificate until "), "{said}");
        assert_eq!(judged(&of_node), Ok(Vec::new()));
    }
}

#[test]
fn the_advice_names_the_password_wherever_it_came_from() {
    let given = |setting: &str| vec![Given { password: Password::new("a".to_owned()), setting: setting.to_owned() }];
    let files = |file: &str| {
        format!("  export MUSTER_SERVER_PASSWORD_FILE={file}\n  export MUSTER_CLIENT_PASSWORD_FILE={file}\n")
    };
    let folder = TestFolder::new();
    let what = Make { password_file: Some("/etc/the word".to_owned()), ..asked(&folder.path, Form::Pkcs12) };
    let said = new(&what, given("--password_file")).unwrap();
    assert!(said.ends_with(&files("'/etc/the word'")), "{said}");
    let other = Make { nodes: vec![Target::named("b").unwrap()], password_file: None, ..what };
    let mut said = String::new();
    node(&other, || Ok(given("MUSTER_CLIENT_PASSWORD")), &mut said).unwrap();
    assert!(
        !said.contains("_PASSWORD_FILE=") && said.contains("b/tls.json\nand both MUSTER_SERVER_PASSWORD"),
        "{said}"
    );
    let made_up = Make { nodes: vec![Target::named("c").unwrap()], ..other };
    let said = made(&made_up).unwrap();
    assert!(said.ends_with(&files(folder.path.join("c/password").to_str().unwrap())), "{said}");
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let folder = TestFolder::new();
    let what = asked(&folder.path, Form::Pem);
    new(&what, Vec::new()).unwrap();
    let before = fs::read(folder.path.join("node/node.pem")).unwrap();
    let again = new(&what, Vec::new()).unwrap_err();
    assert!(again.contains("ca\" is there already: expected a folder without a CA"), "{again}");
    let again = made(&what).unwrap_err();
    assert!(again.contains("node\" is there already: expected another name, or muster certs node --renew"), "{again}");
    assert_eq!(fs::read(folder.path.join("node/node.pem")).unwrap(), before);
    let lost = Make { nodes: vec![Target::named("lost").unwrap()], renew: true, ..what };
    assert!(made(&lost).unwrap_err().contains("has neither node.pem nor node.p12"));
}

#[test]
fn a_renewed_certificate_keeps_its_node_id_and_its_hosts() {
    let folder = TestFolder::new();
    let hosts = ["a.example", "10.0.0.1"].map(|host| crate::certs::names::host(host).unwrap()).to_vec();
    let nodes = vec![Target::of_id("rank 3").unwrap()];
    let what = Make { nodes, hosts: hosts.clone(), ..asked(&folder.path, Form::Pem) };
    new(&what, Vec::new()).unwrap();
    let by_name = Target { id: None, ..what.nodes[0].clone() };
    let renewed = Make { nodes: vec![by_name], hosts: Vec::new(), renew: true, ..what.clone() };
    let said = made(&renewed).unwrap();
    assert!(said.contains("a certificate for the node id \"rank 3\", a.example, 10.0.0.1 until "), "{said}");
    assert_eq!(recorded_names(&folder.path, &what.nodes[0], None).unwrap().hosts, hosts);
    let found = in_file(&folder.path.join("rank%203/node.pem"), &[]).unwrap();
    assert_eq!(contents::node_id(&found.certificates[0]).as_deref(), Some("rank 3"));
    assert_eq!(recorded(&folder.path, &what.nodes[0]).unwrap().len(), 2);
}

fn hosts(names: &[&str]) -> Vec<GeneralName> {
    names.iter().map(|name| crate::certs::names::host(name).unwrap()).collect()
}

#[test]
fn a_renewed_certificate_keeps_the_hosts_of_the_one_that_lies_there_within_the_same_second_too() {
    for form in [Form::Pem, Form::Pkcs12] {
        let folder = TestFolder::new();
        let what = Make { hosts: hosts(&["first.example"]), ..asked(&folder.path, form) };
        new(&what, Vec::new()).unwrap();
        let renewed = |hosts| made(&Make { hosts, form: None, renew: true, ..what.clone() }).unwrap();
        for name in ["a.example", "b.example", "c.example", "d.example", "e.example", "f.example"] {
            renewed(hosts(&[name]));
            let said = renewed(Vec::new());
            assert!(said.contains(&format!("a certificate for {name} until ")), "{said}");
        }
    }
}

#[test]
fn where_no_certificate_on_record_lies_there_the_times_of_the_records_decide() {
    let (folder, other) = (TestFolder::new(), TestFolder::new());
    let what = asked(&folder.path, Form::Pem);
    new(&what, Vec::new()).unwrap();
    new(&Make { hosts: hosts(&["foreign.example"]), ..asked(&other.path, Form::Pem) }, Vec::new()).unwrap();
    let (authority, _) = ca(&folder.path).unwrap();
    let (target, records) = (Target::named("a").unwrap(), folder.path.join("ca/issued"));
    let issued = |name| {
        let names = Names { node_id: None, hosts: hosts(&[name]) };
        issue(&folder.path, &target, &names, 365, &authority).unwrap().certificate
    };
    let begins = |certificate: &Certificate| moment::seconds(&certificate.tbs_certificate.validity.not_before);
    let (one, two) = loop {
        let both = (issued("one.example"), issued("two.example"));
        if begins(&both.0) == begins(&both.1) {
            break both;
        }
        folder::names(&records).unwrap().iter().for_each(|name| fs::remove_file(records.join(name)).unwrap());
    };
    let written = |certificate: &Certificate, since: Duration| {
        let serial = hex(certificate.tbs_certificate.serial_number.as_bytes());
        let record = File::options().write(true).open(records.join(format!("a.{serial}.pem"))).unwrap();
        record.set_modified(SystemTime::UNIX_EPOCH + since).unwrap();
    };
    let foreign = certificate_in(&other.path.join("node/node.pem"), None).unwrap();
    for (old, new) in [(&one, &two), (&two, &one)] {
        written(old, Duration::from_nanos(1_000_000_000));
        written(new, Duration::from_nanos(1_004_000_000));
        let kept = |own| recorded_names(&folder.path, &target, own).unwrap().hosts;
        assert_eq!(kept(None), contents::alternative_names(new));
        assert_eq!(kept(Some(old)), contents::alternative_names(old));
        assert_eq!(kept(Some(&foreign)), contents::alternative_names(new), "it is not on record");
    }
}

#[test]
fn commands_that_run_at_the_same_time_lose_nothing() {
    let folder = TestFolder::new();
    let nodes: Vec<Target> = (0..8).map(|n| Target::named(&format!("n{n}")).unwrap()).collect();
    let what = Make { nodes: nodes.clone(), ..asked(&folder.path, Form::Pem) };
    new(&what, Vec::new()).unwrap();
    std::thread::scope(|scope| {
        for target in &nodes {
            let ask = Revoke { folder: folder.path.clone(), nodes: vec![target.clone()], files: Vec::new() };
            scope.spawn(move || assert!(revoke(&ask, &[]).unwrap().contains(" is revoked\n")));
        }
        scope.spawn(|| made(&Make { nodes: vec![Target::named("late").unwrap()], ..what.clone() }).unwrap());
    });
    for list in ["ca/crl.pem", "n0/crl.pem", "late/crl.pem"] {
        let found = in_file(&folder.path.join(list), &[]).unwrap().lists.remove(0).tbs_cert_list;
        assert_eq!(found.crl_extensions.iter().flatten().find_map(number), Some(9), "{list}");
        let listed: Vec<_> = found.revoked_certificates.unwrap().into_iter().map(|entry| entry.serial_number).collect();
        for target in &nodes {
            let own = recorded(&folder.path, target).unwrap().remove(0).tbs_certificate.serial_number;
            assert!(listed.contains(&own), "{list}, {}", target.name);
        }
    }
}

#[test]
fn what_cannot_be_revoked_is_said() {
    let (folder, other) = (TestFolder::new(), TestFolder::new());
    new(&asked(&folder.path, Form::Pem), Vec::new()).unwrap();
    new(&asked(&other.path, Form::Pem), Vec::new()).unwrap();
    let ask = |nodes, files| revoke(&Revoke { folder: folder.path.clone(), nodes, files }, &[]);
    let why = ask(vec![Target::named("nobody").unwrap()], Vec::new()).unwrap_err();
    assert!(why.contains("has no certificate of \"nobody\""), "{why}");
    let why = ask(Vec::new(), vec![other.path.join("node/node.pem")]).unwrap_err();
    assert!(why.contains("another CA has signed: only that CA can revoke it"), "{why}");
    let list = fs::read(folder.path.join("ca/crl.pem")).unwrap();
    let why = ask(Vec::new(), ["node/node.pem", "ca/ca.pem"].map(|file| folder.path.join(file)).to_vec()).unwrap_err();
    assert!(why.contains("ca.pem\" has the certificate of the CA itself, which its own list cannot revoke"), "{why}");
    assert_eq!(fs::read(folder.path.join("ca/crl.pem")).unwrap(), list, "nothing is revoked then");
    assert!(ask(Vec::new(), vec![folder.path.join("node/node.pem")]).unwrap().contains(" is revoked\n"));
}

#[test]
fn each_node_id_that_is_right_has_files_which_are_found_again() {
    let folder = TestFolder::new();
    let nodes: Vec<Target> =
        ["a".repeat(219), "a".repeat(255), "\u{e9}".repeat(127)].iter().map(|id| Target::of_id(id).unwrap()).collect();
    let what = Make { nodes: nodes.clone(), ..asked(&folder.path, Form::Pem) };
    new(&what, Vec::new()).unwrap();
    made(&Make { renew: true, ..what }).unwrap();
    for target in &nodes {
        assert_eq!(recorded(&folder.path, target).unwrap().len(), 2);
        assert_eq!(judged(&folder.path.join(&target.folder)), Ok(Vec::new()));
    }
    let said = revoke(&Revoke { folder: folder.path.clone(), nodes, files: Vec::new() }, &[]).unwrap();
    assert_eq!(said.matches(" is revoked\n").count(), 6, "{said}");
}
