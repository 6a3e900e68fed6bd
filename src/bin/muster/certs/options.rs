//! The command lines of `muster certs`. After that nobody checks an option again. Every complaint names the option, its value, and
//! what would be right.

use super::names::{self, Target};
use crate::cli::table::{option, Command, Operands, Opt, Takes};
use crate::cli::words::Words;
use muster::config::whole;
use std::path::PathBuf;
use x509_cert::ext::pkix::name::GeneralName;

/// `muster certs`.
pub const COMMAND: Command = Command {
    name: "muster certs",
    operands: Operands::One { called: "action", among: &["new", "node", "revoke", "show", "check"] },
    summary: "make the certificates that TLS needs, show what a file holds, check a configuration",
    about: "new makes a CA, and a folder with all that a node needs for TLS. node makes further such folders, or renews a \
            certificate. revoke puts certificates on the revocation list. show tells what a file holds, and when it ends. \
            check judges a configuration file as a node does when it starts.",
    notes: "Two commands run a job under TLS: `muster certs new certs`, then the job with MUSTER_ENABLE_SSL=1 and \
            MUSTER_CONFIG_FILE_PATH=certs/node/tls.json in its environment.",
    exit_codes: ENDS,
    ..Command::BLANK
};

const ENDS: &[(&str, &str)] = &[
    ("0", "it is done; for check: the configuration is right"),
    ("1", "it could not be done, or the configuration is wrong, or standard output cannot be written"),
    ("2", "usage"),
];

const NAME: Opt = option(
    "name",
    Takes::Value("NAME"),
    "",
    "the node's folder, and its certificate, are called so; may be given more than once",
);
const NODE_ID: Opt = option(
    "node_id",
    Takes::Value("ID"),
    "",
    "the same with the node id (MS_NODE_ID) in the certificate, as URI:muster:node:ID; may be given more than once",
);
const HOST: Opt = option(
    "host",
    Takes::Value("NAME"),
    "",
    "a host name or an address, in every certificate that this makes: MUSTER_VERIFY_HOST demands the scheduler's; may be given \
     more than once, or as a list with commas",
);
const DAYS: Opt = option("days", Takes::Value("N"), "365", "how long a node's certificate holds, the CA's end at most");
const FORMAT: Opt = option(
    "format",
    Takes::OneOf(&["pem", "p12"]),
    "pem",
    "what certificate and key of a node are in: PEM, or PKCS#12 with a password",
);
const SEALED_WITH: Opt = option(
    "password_file",
    Takes::Value("FILE"),
    "MUSTER_SERVER_PASSWORD and MUSTER_CLIENT_PASSWORD (or ..._FILE), else one is made up and put into the node's folder",
    "with format p12: a file with the password",
);
const OPENED_WITH: Opt = option(
    "password_file",
    Takes::Value("FILE"),
    "MUSTER_CLIENT_PASSWORD and MUSTER_SERVER_PASSWORD (or ..._FILE)",
    "a file with the password of a PKCS#12 file, or of an encrypted key",
);

/// `muster certs new`.
pub const NEW: Command = Command {
    name: "muster certs new",
    operands: Operands::One { called: "DIR", among: &[] },
    summary: "make a CA, and a folder with all that a node needs for TLS",
    about: "Makes DIR/ca with a new CA: ca.pem, its key ca.key, and the revocation list crl.pem. Makes a folder for each node \
            that is named, or else DIR/node for all of them: tls.json, which MUSTER_CONFIG_FILE_PATH names; node.pem with \
            certificate and key; ca.pem; crl.pem. Copy a node's folder to its host. Nobody but you needs DIR/ca: anyone \
            that has ca.key can make certificates. Keys are ECDSA P-256. Folders are made with mode 0700, files with 0600.",
    options: &[
        NAME,
        NODE_ID,
        HOST,
        DAYS,
        option("ca_days", Takes::Value("N"), "3650", "how long the CA's certificate holds"),
        FORMAT,
        SEALED_WITH,
    ],
    exit_codes: ENDS,
    ..Command::BLANK
};

/// `muster certs node`.
pub const NODE: Command = Command {
    name: "muster certs node",
    operands: Operands::One { called: "DIR", among: &[] },
    summary: "make the folder of a further node, or renew its certificate",
    about: "Makes a folder in DIR for each node that is named, with a certificate of the CA in DIR/ca. That CA may be another \
            than `muster certs new` makes: put its certificate into DIR/ca/ca.pem, and its key into DIR/ca/ca.key.",
    options: &[
        NAME,
        NODE_ID,
        HOST,
        option(
            "renew",
            Takes::Flag,
            "",
            "replace certificate and key in folders that are there, and bring their ca.pem and crl.pem up to date; the node \
             id stays, and so do the hosts where none are given",
        ),
        DAYS,
        FORMAT,
        SEALED_WITH,
    ],
    exit_codes: ENDS,
    ..Command::BLANK
};

/// `muster certs revoke`.
pub const REVOKE: Command = Command {
    name: "muster certs revoke",
    operands: Operands::One { called: "DIR", among: &[] },
    summary: "put certificates on the revocation list",
    about: "Puts all certificates that were made under a name on the revocation list of the CA in DIR/ca, and the new list \
            into each node's folder in DIR. Copy crl.pem to the hosts that have it already. Without any name the list is \
            only made anew.",
    options: &[
        option("name", Takes::Value("NAME"), "", "of this node; may be given more than once"),
        option("node_id", Takes::Value("ID"), "", "of the node with this id; may be given more than once"),
        option("file", Takes::Value("FILE"), "", "the certificate in this file; may be given more than once"),
        OPENED_WITH,
    ],
    exit_codes: ENDS,
    ..Command::BLANK
};

/// `muster certs show`.
pub const SHOW: Command = Command {
    name: "muster certs show",
    operands: Operands::One { called: "FILE", among: &[] },
    summary: "tell what a file holds, and when it ends",
    about: "Tells what is in a file: certificates, keys and revocation lists in PEM, DER or PKCS#12, or a TLS configuration file \
            and the files that it names. It says whose a certificate is, when it ends, which node id it has, and whether the key \
            belongs to it. It judges nothing: that does `muster certs check`.",
    options: &[OPENED_WITH],
    exit_codes: ENDS,
    ..Command::BLANK
};

/// `muster certs check`.
pub const CHECK: Command = Command {
    name: "muster certs check",
    operands: Operands::One { called: "FILE", among: &[] },
    summary: "judge a TLS configuration file as a node does when it starts",
    about: "Reads a TLS configuration file (the one that MUSTER_CONFIG_FILE_PATH names) and all files that it names, with the \
            passwords of the environment, and judges them as muster_init does, in the same words: whether the files open, \
            whether key and certificate belong together, and whether other nodes will take the certificates today. With \
            MUSTER_VERIFY_NODE_ID it also holds MUSTER_NODE_ID against the certificate, if that is set; it holds no \
            host name against one.",
    exit_codes: ENDS,
    ..Command::BLANK
};

/// A century.
const DAYS_MAX: u32 = 36_500;
const DAYS_DEFAULT: u32 = 365;
const CA_DAYS_DEFAULT: u32 = 3650;

/// The format of the file with a node's certificate and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Pem,
    Pkcs12,
}

/// What is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    pub folder: PathBuf,
    pub nodes: Vec<Target>,
    /// The hosts in each certificate.
    pub hosts: Vec<GeneralName>,
    pub days: u32,
    pub ca_days: u32,
    pub form: Option<Form>,
    pub password_file: Option<String>,
    pub renew: bool,
}

/// What is to be revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoke {
    pub folder: PathBuf,
    pub nodes: Vec<Target>,
    pub files: Vec<PathBuf>,
}

/// The words of `muster certs new`.
pub fn new(words: &Words) -> Result<Make, String> {
    let mut make = made(words, false)?;
    make.ca_days = words.value("ca_days").map_or(Ok(CA_DAYS_DEFAULT), |text| days("ca_days", text))?;
    if make.nodes.is_empty() {
        make.nodes.push(Target::default());
    }
    Ok(make)
}

/// The words of `muster certs node`.
pub fn node(words: &Words) -> Result<Make, String> {
    let make = made(words, words.truth("renew")?)?;
    match make.nodes.is_empty() {
        true => Err("for which node? expected --name=NAME or --node_id=ID".to_owned()),
        false => Ok(make),
    }
}

/// The words of `muster certs revoke`.
pub fn revoke(words: &Words) -> Result<Revoke, String> {
    let files = words.given().iter().filter(|given| given.option.name == "file");
    let files = files.map(|given| PathBuf::from(&given.value)).collect();
    Ok(Revoke { folder: path(words, "DIR")?, nodes: targets(words)?, files })
}

fn made(words: &Words, renew: bool) -> Result<Make, String> {
    Ok(Make {
        folder: path(words, "DIR")?,
        nodes: targets(words)?,
        hosts: hosts(words)?,
        days: words.value("days").map_or(Ok(DAYS_DEFAULT), |text| days("days", text))?,
        ca_days: CA_DAYS_DEFAULT,
        form: words.value("format").map(form).transpose()?,
        password_file: words.value("password_file").map(str::to_owned),
        renew,
    })
}

/// The one operand, which has to be there.
pub fn path(words: &Words, called: &str) -> Result<PathBuf, String> {
    let kind = if called == "DIR" { "folder" } else { "file" };
    match words.operands.first() {
        Some(word) if !word.is_empty() => Ok(PathBuf::from(word)),
        _ => Err(format!("{called} is missing: expected the path of a {kind}")),
    }
}

/// The nodes that are named, in the order of the command line.
fn targets(words: &Words) -> Result<Vec<Target>, String> {
    let mut found: Vec<Target> = Vec::new();
    for given in words.given() {
        let target = match given.option.name {
            "name" => Target::named(&given.value)?,
            "node_id" => Target::of_id(&given.value)?,
            _ => continue,
        };
        if found.iter().any(|other| other.folder == target.folder) {
            return Err(format!("{} {:?} is given twice", given.written, given.value));
        }
        found.push(target);
    }
    Ok(found)
}

/// The hosts that are named, each once.
fn hosts(words: &Words) -> Result<Vec<GeneralName>, String> {
    let mut found: Vec<GeneralName> = Vec::new();
    for given in words.given().iter().filter(|given| given.option.name == "host") {
        for host in given.value.split(',') {
            let host = names::host(host)?;
            if !found.contains(&host) {
                found.push(host);
            }
        }
    }
    Ok(found)
}

fn days(name: &str, text: &str) -> Result<u32, String> {
    let number = whole(text).and_then(|days| u32::try_from(days).ok()).filter(|days| (1..=DAYS_MAX).contains(days));
    number.ok_or_else(|| format!("--{name} is {text:?}; it must be a whole number of days from 1 to {DAYS_MAX}"))
}

fn form(text: &str) -> Result<Form, String> {
    match text {
        "pem" => Ok(Form::Pem),
        "p12" => Ok(Form::Pkcs12),
        _ => Err(format!("--format is {text:?}; it must be pem or p12")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::words::{read, Asked};
    use std::ffi::OsString;

    fn words(command: &'static Command, line: &str) -> Result<Words, String> {
        match read(command, line.split_whitespace().map(OsString::from).collect())? {
            Asked::With(words) => Ok(words),
            Asked::Help => Err("help".to_owned()),
        }
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let make = new(&words(&NEW, "certs").unwrap()).unwrap();
        assert_eq!((make.days, make.ca_days, make.form, make.renew), (365, 3650, None, false));
        assert_eq!(make.nodes, [Target { folder: "node".to_owned(), name: "node".to_owned(), id: None }]);
        let make = new(&words(&NEW, "certs --name a --node-id=7 --days 9 --ca-days=99 --format p12").unwrap()).unwrap();
        assert_eq!((make.days, make.ca_days, make.form), (9, 99, Some(Form::Pkcs12)));
        let nodes: Vec<_> = make.nodes.iter().map(|node| (&node.folder[..], node.id.as_deref())).collect();
        assert_eq!(nodes, [("a", None), ("7", Some("7"))]);
        assert!(node(&words(&NODE, "certs --name a --renew").unwrap()).unwrap().renew);
    }

    #[test]
    fn hosts_are_names_or_addresses_each_once() {
        let made = |line| new(&words(&NEW, line).unwrap()).map(|make| make.hosts);
        let hosts = made("certs --host a.b,10.0.0.1 --host=::1 --host a.b").unwrap();
        let shown: Vec<_> = hosts.iter().filter_map(names::shown_host).collect();
        assert_eq!(shown, ["a.b", "10.0.0.1", "::1"]);
        let of_many = ["224.0.0.1", "255.255.255.255", "ff02::1", "::ffff:224.0.0.1", "::ffff:0.0.0.0", "::"];
        for wrong in ["", "a b", "0.0.0.0", "fe80::1%eth0", "*", "ü"].into_iter().chain(of_many) {
            let why = names::host(wrong).unwrap_err();
            assert!(why.starts_with(&format!("--host is {wrong:?}; it must be")), "{why}");
        }
        assert!(names::host("*.example.org").is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let made = |line| new(&words(&NEW, line).unwrap()).unwrap_err();
        assert_eq!(made(""), "DIR is missing: expected the path of a folder");
        assert_eq!(made("certs --days 0"), "--days is \"0\"; it must be a whole number of days from 1 to 36500");
        assert_eq!(made("certs --days +9"), "--days is \"+9\"; it must be a whole number of days from 1 to 36500");
        assert!(made("certs --ca_days=soon").starts_with("--ca_days is \"soon\"; it must be a whole number"));
        assert_eq!(made("certs --format=jks"), "--format is \"jks\"; it must be pem or p12");
        assert_eq!(made("certs --name a --name a"), "--name \"a\" is given twice");
        assert_eq!(made("certs --name 7 --node-id 7"), "--node-id \"7\" is given twice");
        let node = node(&words(&NODE, "certs").unwrap()).unwrap_err();
        assert_eq!(node, "for which node? expected --name=NAME or --node_id=ID");
        let renew = words(&NODE, "certs --renew yes --name b").unwrap_err();
        assert_eq!(renew, "--renew yes: \"yes\" is no value here; write --renew=True for what it may mean");
        assert!(words(&NEW, "certs more").unwrap_err().starts_with("\"more\" is not expected"));
    }
}
