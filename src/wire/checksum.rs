//! CRC-32 of what is short: headers, and the control plane's messages.
//!
//! `crc32fast` first asks the processor what it can do. In a virtual machine that takes longer than a process of a small
//! cluster spends on all its checksums; so only what is long is left to it, and the data plane's payloads.

/// The longest bytes that are summed up here.
const SHORT_BYTES: usize = 48 << 10;

/// The reflected polynomial of IEEE 802.3.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// `TABLES[k][b]`: what a byte `b` that stands `k` bytes before the end adds.
const TABLES: &[[u32; 256]; 8] = &tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[behind - 1][byte];
            tables[behind][byte] = before >> 8 ^ tables[0][before as usize & 0xff];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

/// The CRC-32 of these bytes.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    if bytes.len() > SHORT_BYTES {
        return crc32fast::hash(bytes);
    }
    let (eights, rest) = bytes.as_chunks::<8>();
    let sum = eights.iter().fold(!0, |sum: u32, eight| {
        let mut eight = *eight;
        for (byte, summed) in eight.iter_mut().zip(sum.to_le_bytes()) {
            *byte ^= summed;
        }
        TABLES.iter().rev().zip(eight).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
    });
    !rest.iter().fold(sum, |sum, byte| sum >> 8 ^ TABLES[0][(sum as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_as_for_what_is_long() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926, "the check value of the standard");
        let bytes: Vec<u8> = (0..SHORT_BYTES + 9).map(|i| (i * i / 7) as u8).collect();
        for length in (0..100).chain([1000, SHORT_BYTES - 3, SHORT_BYTES, SHORT_BYTES + 1, SHORT_BYTES + 9]) {
            assert_eq!(checksum(&bytes[..length]), crc32fast::hash(&bytes[..length]), "{length} bytes");
        }
    }
}
