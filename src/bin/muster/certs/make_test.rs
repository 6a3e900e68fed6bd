//! The library accepts what is made. What is there already is not overwritten.

use super::*;
use crate::certs::testing::TestFolder;
use muster::config::Config;
use std::fs;

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
    node(what, Vec::new(), &mut said).map(|()| said)
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
    assert_eq!(recorded_names(&folder.path, &what.nodes[0]).unwrap().hosts, hosts);
    let found = in_file(&folder.path.join("rank%203/node.pem"), &[]).unwrap();
    assert_eq!(contents::node_id(&found.certificates[0]).as_deref(), Some("rank 3"));
    assert_eq!(recorded(&folder.path, &what.nodes[0]).unwrap().len(), 2);
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
    assert!(ask(Vec::new(), vec![folder.path.join("node/node.pem")]).unwrap().contains(" is revoked\n"));
}
