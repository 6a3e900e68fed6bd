//! `muster bench store`: how long calls on the store take. Each call is one question to the scheduler, and its answer.

use super::calls::{checked, Rank};
use super::ended::{read, Ended};
use super::options::{count, format, size_of, Format, FORMAT, USAGE};
use super::ranks;
use crate::cli::table::{option, Command as Described, Takes};
use crate::cli::words::{Given, Words};
use crate::voice::print;
use muster::ffi::{self, muster_bytes_t};
use std::ffi::{c_void, OsString};
use std::ptr::null_mut;
use std::time::Instant;

/// How many keys a call for several has.
const SEVERAL: usize = 8;
/// How long a key is: it has its rank and its number.
const KEY_BYTES: usize = 12;
/// How often each call is made before it is timed.
const WARMUP: usize = 100;

struct StoreOptions {
    worker_num: Option<u32>,
    iterations: usize,
    size: usize,
    format: Format,
}

/// `muster bench store`.
pub const COMMAND: Described = Described {
    name: "muster bench store",
    summary: "time calls on the store",
    about: "Times calls on the store, each on keys of the rank's own, by all ranks at a time. Prints the median and the 95th \
            percentile of the slowest rank, in microseconds.",
    options: &[
        option(
            "worker_num",
            Takes::Value("N"),
            "",
            "start N ranks on this host; without it this process is one rank of the cluster that its environment describes, \
             or alone",
        ),
        option("iters", Takes::Value("N"), "10000", "how often each call is timed").letter('n'),
        option("size", Takes::Value("BYTES"), "8", "how long a value is").letter('s'),
        FORMAT,
    ],
    notes: "multi_set, multi_get and check are calls for 8 keys. add keeps a number.",
    exit_codes: &[
        ("0", "all is measured"),
        ("1", "a rank failed, or standard output cannot be written"),
        USAGE,
    ],
    ..Described::BLANK
};

/// Runs it with the words after `store`.
pub fn command(words: Vec<OsString>) -> Result<(), Ended> {
    let words = read(&COMMAND, words)?;
    let options = parse(&words).map_err(Ended::usage)?;
    match options.worker_num {
        None => take_part(&options).map_err(Ended::failed),
        Some(worker_num) => ranks::start(worker_num, &ranks::of_a_rank(Some("store"), &words)),
    }
}

fn parse(words: &Words) -> Result<StoreOptions, String> {
    let size = words.get("size").map_or(Ok(8), |Given { written, value, .. }| {
        let found = size_of(value).filter(|size| (1..=1 << 20).contains(size));
        let right = format!("a number of bytes from 1 to 1M, of which {SEVERAL} fit into one call, as 4096 or 64K");
        found.ok_or_else(|| format!("{written} is {value:?}: expected {right}"))
    })?;
    let worker_num = words.get("worker_num").map(|_| count(words, "worker_num", 1, 1024)).transpose()?;
    Ok(StoreOptions {
        worker_num: worker_num.map(|number| number as u32),
        iterations: count(words, "iters", 10_000, 1_000_000)? as usize,
        size: size as usize,
        format: format(words)?,
    })
}

/// What this rank calls with: its keys, and a value.
struct Own {
    keys: Vec<[u8; KEY_BYTES]>,
    value: Vec<u8>,
}

impl Own {
    fn of(rank: usize, size: usize) -> Own {
        let key = |number: usize| {
            let mut key = *b"b\0\0\0\0\0\0\0\0\0\0\0";
            key[1..9].copy_from_slice(&(rank as u64).to_le_bytes());
            key[9] = number as u8;
            key
        };
        Own { keys: (0..=SEVERAL).map(key).collect(), value: vec![b'v'; size] }
    }

    fn several(&self) -> Vec<muster_bytes_t> {
        self.keys[..SEVERAL].iter().map(|key| muster_bytes_t { data: key.as_ptr().cast(), len: key.len() }).collect()
    }

    fn values(&self) -> Vec<muster_bytes_t> {
        vec![muster_bytes_t { data: self.value.as_ptr().cast(), len: self.value.len() }; SEVERAL]
    }
}

type Call = fn(*mut ffi::muster_cluster_t, &Own) -> i32;

/// Each call by its name. The calls before it have made the keys that it needs.
const CALLS: [(&str, Call); 7] = [
    ("set", |cluster, own| {
        let (key, value) = (&own.keys[0], &own.value);
        // SAFETY: the cluster is live, and key and value are as long as they say.
        unsafe {
            ffi::muster_store_set_bytes(cluster, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len())
        }
    }),
    ("get", |cluster, own| {
        let (key, mut value, mut len) = (&own.keys[0], null_mut::<c_void>(), 0);
        // SAFETY: as above, and both outputs are writable; the value is freed once.
        unsafe {
            let status = ffi::muster_store_get_bytes(cluster, key.as_ptr().cast(), key.len(), -1, &mut value, &mut len);
            ffi::muster_free(value);
            status
        }
    }),
    ("add", |cluster, own| {
        let key = &own.keys[SEVERAL];
        // SAFETY: as above; the sum is not asked for.
        unsafe { ffi::muster_store_add_bytes(cluster, key.as_ptr().cast(), key.len(), 1, null_mut()) }
    }),
    ("compare_set", |cluster, own| {
        let (key, value) = (&own.keys[0], &own.value);
        let (value, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: as above; what is there then is not asked for.
        unsafe {
            ffi::muster_store_compare_set_bytes(
                cluster,
                key.as_ptr().cast(),
                key.len(),
                value,
                len,
                value,
                len,
                0,
                null_mut(),
                null_mut(),
            )
        }
    }),
    ("multi_set", |cluster, own| {
        let (keys, values) = (own.several(), own.values());
        // SAFETY: as above, for each entry.
        unsafe { ffi::muster_store_multi_set(cluster, keys.as_ptr(), values.as_ptr(), SEVERAL) }
    }),
    ("multi_get", |cluster, own| {
        let (keys, mut values) = (own.several(), null_mut());
        // SAFETY: as above; the block is freed once.
        unsafe {
            let status = ffi::muster_store_multi_get(cluster, keys.as_ptr(), SEVERAL, -1, &mut values);
            ffi::muster_free(values.cast());
            status
        }
    }),
    ("check", |cluster, own| {
        let (keys, mut exists) = (own.several(), [0; SEVERAL]);
        // SAFETY: as above, and there is an entry for each key.
        unsafe { ffi::muster_store_check(cluster, keys.as_ptr(), SEVERAL, exists.as_mut_ptr()) }
    }),
];

/// This process is one of the ranks.
fn take_part(options: &StoreOptions) -> Result<(), String> {
    let rank = Rank::join()?;
    let own = Own::of(rank.rank, options.size);
    let mut rows = Vec::new();
    for (name, call) in CALLS {
        let once = || checked(&format!("muster_store_{name}"), call(rank.cluster(), &own));
        for _ in 0..WARMUP.min(options.iterations) {
            once()?;
        }
        rank.barrier()?;
        let mut took = Vec::with_capacity(options.iterations);
        for _ in 0..options.iterations {
            let begun = Instant::now();
            once()?;
            took.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        took.sort_by(f64::total_cmp);
        let quantile = |per_cent: usize| took[(options.iterations * per_cent / 100).min(options.iterations - 1)];
        let all = rank.gather(&[quantile(50), quantile(95)])?;
        let slowest = |which: usize| all.iter().skip(which).step_by(2).copied().fold(0.0, f64::max);
        rows.push((name, slowest(0), slowest(1)));
    }
    let said = if rank.rank == 0 { print(&table(options, rank.size, &rows)) } else { Ok(()) };
    rank.leave()?;
    said
}

fn table(options: &StoreOptions, ranks: usize, rows: &[(&str, f64, f64)]) -> String {
    let (size, times) = (options.size, options.iterations);
    let row = |(name, p50, p95): &(&str, f64, f64)| match options.format {
        Format::Csv => format!("{name},{ranks},{size},{times},{p50:.2},{p95:.2}\n"),
        Format::Json => format!("{{\"call\":\"{name}\",\"p50_us\":{p50:.2},\"p95_us\":{p95:.2}}}"),
        Format::Text => format!("{name:>12} {p50:>10.2} {p95:>10.2}\n"),
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    match options.format {
        Format::Csv => format!("call,ranks,bytes,iterations,p50_us,p95_us\n{}", rows.concat()),
        Format::Json => {
            let rows = rows.join(",");
            format!("{{\"ranks\":{ranks},\"bytes\":{size},\"iterations\":{times},\"rows\":[{rows}]}}\n")
        }
        Format::Text => format!(
            "# muster store on {ranks} ranks, values of {size} bytes; times per call of the slowest rank, in us\n#{:>11} {:>10} {:>10}\n{}",
            "call",
            "p50",
            "p95",
            rows.concat()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_wrong_is_named_with_this_benchs_own_limit() {
        let parsed = |size: &str| {
            let words = read(&COMMAND, vec!["-s".into(), size.into()]).unwrap_or_else(|_| panic!("{size}"));
            parse(&words).map(|options| options.size)
        };
        assert_eq!((parsed("1M"), parsed("1")), (Ok(1 << 20), Ok(1)));
        for wrong in ["99999999999", "0", "1048577", "2x", ""] {
            let why = parsed(wrong).unwrap_err();
            assert!(why.starts_with(&format!("-s is {wrong:?}: expected a number of bytes from 1 to 1M")), "{why}");
        }
    }
}
