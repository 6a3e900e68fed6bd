//! What the fuzzer has found once, and right input with many small changes. Everything follows from a seed.

use super::TARGETS;
use crate::wire::encode_frame;
use std::path::Path;

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

/// Right input for a target, or what comes near it.
fn right(target: &str) -> Vec<Vec<u8>> {
    let messages = crate::wire::golden_messages();
    let framed = |kind: u8, payload: &[u8]| {
        let mut bytes = Vec::new();
        encode_frame(kind, 0, payload, &mut bytes);
        bytes
    };
    match target {
        "frames" => messages.iter().map(|message| framed(message.kind(), &message.encode())).collect(),
        "messages" => messages.iter().map(|message| [&[message.kind()][..], &message.encode()].concat()).collect(),
        "links" => (0..8).map(|which| [&[which][..], &[1; 80]].concat()).collect(),
        "rank_table" => vec![br#"{"version": "1.0", "server_count": "1", "status": "completed", "server_list": [{"server_id":
            "10.0.0.1", "device": [{"device_id": "0", "device_ip": "192.168.0.1", "rank_id": "0"}], "host_nic_ip": "reserve"}]}"#.to_vec()],
        "tls_file" => vec![br#"{"server_cert_path": "s", "client_cert_path": "c", "ca_cert_path": "a", "crl_path": "", "cipher_list":
            "A:B", "cert_expire_warning_time_in_day": 90}"#.to_vec()],
        "ciphers" => vec![b"ECDHE-RSA-AES128-GCM-SHA256:ECDHE-R SA-AES128-GCM-SHA256::TLS_AES_128_GCM_SHA256".to_vec()],
        "proof" => vec![
            [&[100][..], &framed(80, &[1; 32]), &framed(1, &[2; 90]), &framed(82, &[3; 32])].concat(),
            [&[100][..], &framed(81, &[1; 32]), &framed(2, &[2; 90]), &framed(82, &[3; 32])].concat(),
        ],
        _ => vec![vec![0; 64]],
    }
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, target) in TARGETS {
        let mut inputs = right(name);
        if let Ok(found) = std::fs::read_dir(folder.join(name)) {
            inputs.extend(found.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()));
        }
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for input in inputs {
            target(&input);
            for _ in 0..CHANGES {
                target(&changed(&mut random, &input));
            }
        }
    }
}
