//! How fast one thread seals and opens records of TLS's usual length with ring, and nothing else: a line `seal,GB/s,open,GB/s`. The
//! yardstick for TLS.

use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_256_GCM, NONCE_LEN};
use std::hint::black_box;
use std::time::Instant;

const RECORD: usize = 16 << 10;
/// What precedes a record, and is authenticated with it.
const HEADER: [u8; 5] = [23, 3, 3, 64, 17];
/// So many lie in the cache of one processor.
const BATCH: usize = 16;
const BATCHES: usize = 1000;

fn nonce(number: usize) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn main() {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("32 bytes are right"));
    let mut records = vec![vec![1_u8; RECORD]; BATCH];
    let (mut seal, mut open) = (0.0, 0.0);
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for (number, record) in records.iter_mut().enumerate() {
            key.seal_in_place_append_tag(nonce(number), Aad::from(HEADER), black_box(record))
                .expect("it is short enough");
        }
        let sealed = Instant::now();
        for (number, record) in records.iter_mut().enumerate() {
            key.open_in_place(nonce(number), Aad::from(HEADER), black_box(record))
                .expect("it was sealed with this key");
            record.truncate(RECORD);
        }
        seal += (sealed - begun).as_secs_f64();
        open += sealed.elapsed().as_secs_f64();
    }
    let rate = |seconds: f64| (RECORD * BATCH * BATCHES) as f64 / seconds / 1e9;
    println!("seal,{:.3},open,{:.3}", rate(seal), rate(open));
}
