//! What the fuzzer has found once, and right input with many small changes. Everything follows from a seed.

use super::TARGETS;
use crate::journal::fuzz::{identity_file, journal_of};
use crate::tls::testing::{Files, Folder};
use crate::wire::{encode_frame, golden, LinkKind};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// How long a record's head is, and where an identity file's body begins.
const RECORD_HEAD_BYTES: usize = 24;
const IDENTITY_BODY: usize = 20;

/// How often each right input is changed.
const CHANGES: usize = 400;

/// xorshift64: the same numbers from the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(kind, 0, payload, &mut bytes);
    bytes
}

/// Right input for a target: each kind that there is.
fn right(target: &str) -> Vec<Vec<u8>> {
    let messages = golden::messages();
    match target {
        "frames" => messages.iter().map(|message| framed(message.kind(), &message.encode())).collect(),
        "messages" => messages.iter().map(|message| [&[message.kind()][..], &message.encode()].concat()).collect(),
        "links" => links(),
        "records" => golden::records().into_iter().filter(|record| record.len() < 10_000).collect(),
        "journal" => {
            let records: Vec<Vec<u8>> = right("records");
            let whole = journal_of(&records);
            let head = journal_of(&[]).len() - RECORD_HEAD_BYTES;
            vec![whole[head..].to_vec(), whole]
        }
        "identity" => {
            let whole = identity_file();
            vec![whole[IDENTITY_BODY..].to_vec(), whole]
        }
        "rank_table" => vec![br#"{"version": "1.0", "server_count": "1", "status": "completed", "server_list": [{"server_id":
            "10.0.0.1", "device": [{"device_id": "0", "device_ip": "192.168.0.1", "rank_id": "0"}], "host_nic_ip": "reserve"}]}"#.to_vec()],
        "host_lists" => vec![b"# all\n one:2\ntwo slots=4 max_slots=8\n[fe80::1]:3\n".to_vec(), b"rack[07-09,12]-a,login".to_vec()],
        "host_slots" => vec![
            b"# all\n me@one:2\ntwo slots=4 max_slots=8\n[fe80::1]:3\n".to_vec(),
            b"one:4,me@two,[fd77::1]:8,fd77::2".to_vec(),
        ],
        "tls_file" => vec![br#"{"server_cert_path": "s", "client_cert_path": "c", "ca_cert_path": "a", "crl_path": "", "cipher_list":
            "A:B", "cert_expire_warning_time_in_day": 90}"#.to_vec()],
        "pem" => pem_files(),
        "pkcs12" => key_files(),
        "ciphers" => vec![b"ECDHE-RSA-AES128-GCM-SHA256:ECDHE-R SA-AES128-GCM-SHA256::TLS_AES_128_GCM_SHA256".to_vec()],
        "proof" => vec![
            [&[100][..], &framed(80, &[1; 32]), &framed(1, &[2; 90]), &framed(82, &[3; 32])].concat(),
            [&[100][..], &framed(81, &[1; 32]), &framed(2, &[2; 90]), &framed(82, &[3; 32])].concat(),
        ],
        "rings" => vec![ring_steps()],
        other => panic!("{other} has no right input: give it some here"),
    }
}

/// The payloads of a link's frames, each behind the number that its target knows it by.
fn links() -> Vec<Vec<u8>> {
    let kinds =
        [LinkKind::Hello, LinkKind::Accept, LinkKind::Reject, LinkKind::Revoke, LinkKind::Beat, LinkKind::Suspect];
    let number =
        |kind: &LinkKind| kinds.iter().position(|known| known == kind).expect("its target knows each kind") as u8;
    // These begin with one of the headers below, or have no payload.
    let others = [LinkKind::Data, LinkKind::Message, LinkKind::Leave, LinkKind::KeepAlive];
    let payloads = golden::links().into_iter().filter(|(kind, _)| !others.contains(kind));
    let frames = payloads.map(|(kind, payload)| (number(&kind), payload));
    let headers = (6..).zip(golden::headers());
    frames.chain(headers).map(|(number, payload)| [&[number][..], &payload].concat()).collect()
}

/// What an end of rings in memory does, beside a peer that takes and puts what it may: it puts 50 bytes, of which 50 are taken, and
/// takes 10.
fn ring_steps() -> Vec<u8> {
    let step = |what: u8, value: u64| [&[what][..], &value.to_le_bytes()].concat();
    [step(1, 50), step(5, 50), step(4, 10), step(2, 0), step(0, 10), step(1, 64)].concat()
}

/// Certificates, a revocation list, and keys.
fn pem_files() -> Vec<Vec<u8>> {
    let files = Files::new();
    let list = files.list(&[7], SystemTime::now(), SystemTime::now() + Duration::from_secs(9));
    let sealed = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAMCAQA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let chain = fs::read_to_string(files.folder.join("server.pem")).unwrap();
    [chain, list, format!("words before it\r\n{sealed}")].map(String::into_bytes).to_vec()
}

/// PKCS#12 files as both generations of OpenSSL make them, and encrypted keys; few rounds, so that a file is tried in no time.
fn key_files() -> Vec<Vec<u8>> {
    const MAKES: [&str; 7] = [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 9 -subj /CN=x",
        "pkcs12 -export -inkey key.pem -in cert.pem -passout pass:password -iter 1 -out new.p12",
        "pkcs12 -export -inkey key.pem -in cert.pem -passout pass:password -iter 1 -legacy -out old.p12",
        "pkcs12 -export -inkey key.pem -in cert.pem -passout pass:password -iter 1 -legacy -certpbe PBE-SHA1-3DES \
         -keypbe PBE-SHA1-3DES -out triple.p12",
        "pkcs12 -export -inkey key.pem -in cert.pem -passout pass:password -nomac -certpbe NONE -keypbe NONE -out open.p12",
        "pkcs8 -topk8 -in key.pem -passout pass:password -iter 1 -v2 aes-256-cbc -outform DER -out new.p8",
        "pkcs8 -topk8 -in key.pem -passout pass:password -iter 1 -v1 PBE-SHA1-3DES -outform DER -out old.p8",
    ];
    let folder = Folder::new();
    for make in MAKES {
        let run = Command::new("openssl").args(make.split_ascii_whitespace()).current_dir(&*folder).output();
        let run = run.expect("the tests need the command openssl");
        assert!(run.status.success(), "openssl {make}: {}", String::from_utf8_lossy(&run.stderr));
    }
    ["new.p12", "old.p12", "triple.p12", "open.p12", "new.p8", "old.p8"]
        .map(|name| fs::read(folder.join(name)).unwrap())
        .to_vec()
}

fn changed(random: &mut Random, right: &[u8]) -> Vec<u8> {
    let mut bytes = right.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(at..at, std::iter::repeat_n(random.below(256) as u8, random.below(9)))),
            _ if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            _ => {}
        }
    }
    bytes
}

#[test]
fn every_decoder_returns_for_any_bytes() {
    for (name, target) in TARGETS {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for input in right(name) {
            target(&input);
            for _ in 0..CHANGES {
                target(&changed(&mut random, &input));
            }
        }
    }
}

/// With `MUSTER_FUZZ_SEEDS` set to a folder: writes there what the fuzzer begins with (`make fuzz`).
#[test]
fn the_fuzzer_has_right_input_of_each_target() {
    let folder = std::env::var_os("MUSTER_FUZZ_SEEDS");
    for (name, _) in TARGETS {
        let inputs = right(name);
        assert!(inputs.iter().all(|input| !input.is_empty()) && !inputs.is_empty(), "{name}");
        let Some(folder) = &folder else { continue };
        let folder = Path::new(folder).join(name);
        fs::create_dir_all(&folder).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(format!("right_{number}")), input).unwrap();
        }
    }
}
