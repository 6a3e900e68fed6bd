//! The command line of `muster bench`: words become [`Options`], and every complaint names the option, its value, and what
//! would be right.

use muster::types::{DType, ReduceOp};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    Allgather,
    Allreduce,
    Alltoall,
    Barrier,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
    Sendrecv,
}

/// Every collective, by the name that the command line has for it.
pub const COLLECTIVES: [(&str, Collective); 10] = [
    ("allgather", Collective::Allgather),
    ("allreduce", Collective::Allreduce),
    ("alltoall", Collective::Alltoall),
    ("barrier", Collective::Barrier),
    ("broadcast", Collective::Broadcast),
    ("gather", Collective::Gather),
    ("reduce", Collective::Reduce),
    ("reduce_scatter", Collective::ReduceScatter),
    ("scatter", Collective::Scatter),
    ("sendrecv", Collective::Sendrecv),
];

const DTYPES: [(&str, DType); 5] = [
    ("float32", DType::Float32),
    ("float64", DType::Float64),
    ("int32", DType::Int32),
    ("int64", DType::Int64),
    ("uint8", DType::Uint8),
];

const OPS: [(&str, ReduceOp); 3] = [("sum", ReduceOp::Sum), ("min", ReduceOp::Min), ("max", ReduceOp::Max)];

const FORMATS: [(&str, Format); 3] = [("text", Format::Text), ("csv", Format::Csv), ("json", Format::Json)];

/// How the results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Csv,
    Json,
}

/// Who the root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// This rank, always.
    Fixed(u32),
    /// Each in turn.
    Round,
}

/// What to measure, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub collective: Collective,
    pub name: &'static str,
    /// How many processes to start here; none: this process is a rank of the cluster that its environment describes.
    pub worker_num: Option<u32>,
    /// In bytes: what one rank contributes, or what goes from one rank to another.
    pub sizes: Vec<u64>,
    /// How often each size is timed; none: for about a quarter of a second.
    pub iterations: Option<u32>,
    pub warmup: u32,
    pub check: bool,
    pub dtype: DType,
    pub op: ReduceOp,
    pub root: Root,
    pub in_place: bool,
    /// Whether a barrier stands behind each call, and counts.
    pub barrier: bool,
    pub format: Format,
}

/// What `muster bench --help` prints.
pub const HELP: &str = "\
Usage: muster bench collective [options]
       muster bench bootstrap [--worker_num N] [--iters N] [--format text|csv|json]
       muster bench forming [--nodes N] [--processes N] [--iters N] [--format text|csv|json]

Times a collective, size by size, and checks its result against a computed one. Collectives: allgather, allreduce,
alltoall, barrier, broadcast, gather, reduce, reduce_scatter, scatter, sendrecv (each rank to the next).
`bootstrap` times starting N processes with `muster run` until all have passed one barrier and ended; a start before
those that are timed makes the files of their logs. `forming` times a scheduler alone: N nodes (1000) that a few
processes (2) hold, one connection each, from the processes' start until each node has its place, and how the
scheduler's resident memory grows meanwhile (the kernel's for its sockets not counted).

Options:
  --worker_num N       start N ranks on this host; without it this process is one rank of the cluster that its
                       environment describes (under muster run, mpirun, srun, torchrun)
  -b, --begin BYTES    the smallest size (8); K, M and G stand for 1024, 1024^2, 1024^3
  -e, --end BYTES      the largest (64M)
  -f, --factor N       from one size to the next (4)
  --sizes A,B,...      exactly these sizes
  -n, --iters N        how often each size is timed (as often as takes about 0.25 s, 5 to 20000 times)
  -w, --warmup N       how often it is called before (5)
  -c, --check 0|1      whether results are checked (1)
  -d, --dtype TYPE     float32 (the default), float64, int32, int64, uint8
  -o, --op OP          sum (the default), min, max
  -r, --root RANK|round  the root, or each rank in turn (0)
  --in_place 0|1       allreduce and reduce only: one buffer for input and output (1)
  --barrier 0|1        a barrier behind each call, within its time (0): where data goes one way (broadcast, gather, reduce,
                       scatter) who only sends does not wait for the others, and what is timed is a rate
  --format FORMAT      text (the default), csv, json

A size is what one rank contributes; for alltoall, scatter and reduce_scatter what it has for each rank. Columns: p50 and p95 are
the times per call of the slowest rank, algbw is the data of the whole operation by p50, busbw what each rank's link
carries of it at least, as nccl-tests counts: it can be compared between numbers of ranks.
";

/// The options of a collective.
const NAMES: [&str; 23] = [
    "--worker_num",
    "-b",
    "--begin",
    "-e",
    "--end",
    "-f",
    "--factor",
    "--sizes",
    "-n",
    "--iters",
    "-w",
    "--warmup",
    "-c",
    "--check",
    "-d",
    "--dtype",
    "-o",
    "--op",
    "-r",
    "--root",
    "--in_place",
    "--barrier",
    "--format",
];

/// What is wrong with a last word, behind which no value stands, where these are the options.
pub fn alone(option: &str, names: &[&str], command: &str) -> String {
    match names.contains(&option) {
        true => format!("option {option} wants a value: muster bench --help tells which"),
        false => format!("{option} is no option of {command}: muster bench --help lists them"),
    }
}

/// What the words after `bench` mean.
pub fn parse(words: &[String]) -> Result<Options, String> {
    let Some((name, mut rest)) = words.split_first() else {
        return Err("which collective? muster bench --help lists them".to_owned());
    };
    let (name, collective) = named("collective", name, &COLLECTIVES)?;
    let mut options = Options {
        collective,
        name,
        worker_num: None,
        sizes: Vec::new(),
        iterations: None,
        warmup: 5,
        check: true,
        dtype: DType::Float32,
        op: ReduceOp::Sum,
        root: Root::Fixed(0),
        in_place: true,
        barrier: false,
        format: Format::Text,
    };
    let (mut begin, mut end, mut factor) = (8, 64 << 20, 4);
    while let Some((option, after)) = rest.split_first() {
        let Some((value, after)) = after.split_first() else {
            return Err(alone(option, &NAMES, "bench"));
        };
        rest = after;
        match option.as_str() {
            "--worker_num" => options.worker_num = Some(number(option, value, 1, 1024)? as u32),
            "-b" | "--begin" => begin = bytes(option, value)?,
            "-e" | "--end" => end = bytes(option, value)?,
            "-f" | "--factor" => factor = number(option, value, 2, 1 << 20)?,
            "--sizes" => {
                options.sizes = value.split(',').map(|size| bytes(option, size)).collect::<Result<_, _>>()?;
            }
            "-n" | "--iters" => options.iterations = Some(number(option, value, 1, 1_000_000)? as u32),
            "-w" | "--warmup" => options.warmup = number(option, value, 1, 1_000_000)? as u32,
            "-c" | "--check" => options.check = number(option, value, 0, 1)? == 1,
            "-d" | "--dtype" => options.dtype = named(option, value, &DTYPES)?.1,
            "-o" | "--op" => options.op = named(option, value, &OPS)?.1,
            "-r" | "--root" if value == "round" => options.root = Root::Round,
            "-r" | "--root" => options.root = Root::Fixed(number(option, value, 0, 1023)? as u32),
            "--in_place" => options.in_place = number(option, value, 0, 1)? == 1,
            "--barrier" => options.barrier = number(option, value, 0, 1)? == 1,
            "--format" => options.format = named(option, value, &FORMATS)?.1,
            _ => return Err(format!("{option} is no option of bench: muster bench --help lists them")),
        }
    }
    if let (Some(worker_num), Root::Fixed(root)) = (options.worker_num, options.root) {
        if root >= worker_num {
            return Err(format!("--root is {root}: expected 0 to {}, or round", worker_num - 1));
        }
    }
    if options.sizes.is_empty() {
        if begin == 0 {
            return Err(
                "--begin is 0 bytes: expected 1 or more, for the sizes after it are its multiples (--sizes 0 is \
                        nothing at all)"
                    .to_owned(),
            );
        }
        if begin > end {
            return Err(format!("--begin is {begin} bytes: expected at most --end, which is {end}"));
        }
        let larger = |size: &u64| size.checked_mul(factor).filter(|next| next > size);
        options.sizes = std::iter::successors(Some(begin), larger).take_while(|size| *size <= end).collect();
    }
    if collective == Collective::Barrier {
        options.sizes = vec![0];
    }
    let element = options.dtype.size() as u64;
    if let Some(bytes) = options.sizes.iter().find(|bytes| *bytes % element != 0) {
        let dtype = options.dtype;
        return Err(format!("size {bytes} is no multiple of {element}, the size of an element of {dtype}"));
    }
    Ok(options)
}

fn named<T: Copy>(what: &str, value: &str, known: &[(&'static str, T)]) -> Result<(&'static str, T), String> {
    known.iter().find(|(name, _)| *name == value).copied().ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("{what} is {value:?}: expected one of {}", names.join(", "))
    })
}

/// A number within limits.
pub fn number(option: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    let found = value.parse().ok().filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| format!("{option} is {value:?}: expected a number from {least} to {most}"))
}

fn bytes(option: &str, value: &str) -> Result<u64, String> {
    let (digits, unit) = match value.to_ascii_uppercase().as_str() {
        text if text.ends_with('K') => (value.len() - 1, 1u64 << 10),
        text if text.ends_with('M') => (value.len() - 1, 1 << 20),
        text if text.ends_with('G') => (value.len() - 1, 1 << 30),
        _ => (value.len(), 1),
    };
    let found = value[..digits].parse().ok().and_then(|number: u64| number.checked_mul(unit));
    found
        .filter(|bytes| *bytes <= 16 << 30)
        .ok_or_else(|| format!("{option} is {value:?}: expected a number of bytes up to 16G, as 4096 or 64K"))
}

/// The format that the option of `bootstrap` or `forming` names.
pub fn format_named(option: &str, value: &str) -> Result<Format, String> {
    named(option, value, &FORMATS).map(|(_, format)| format)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn sizes_go_from_begin_to_end_by_factor_or_are_listed() {
        let sizes = |line: &str| parse(&words(line)).unwrap().sizes;
        assert_eq!(sizes("allreduce -b 8 -e 1K -f 4"), [8, 32, 128, 512]);
        assert_eq!(sizes("allreduce --sizes 8,64K,1M,2g"), [8, 65_536, 1 << 20, 2 << 30]);
        assert_eq!(sizes("allreduce -b 1k -e 1k"), [1024]);
        assert_eq!(sizes("barrier -b 8"), [0]);
        let options =
            parse(&words("broadcast --worker_num 4 -r round -n 7 -c 0 -d int64 -o max --barrier 1 --format csv"))
                .unwrap();
        assert_eq!((options.worker_num, options.root, options.iterations), (Some(4), Root::Round, Some(7)));
        assert_eq!((options.check, options.dtype, options.op), (false, DType::Int64, ReduceOp::Max));
        assert_eq!((options.name, options.barrier, options.format), ("broadcast", true, Format::Csv));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, told) in [
            ("", "which collective?"),
            ("allredcue", "collective is \"allredcue\": expected one of allgather, allreduce"),
            ("allreduce -b", "option -b wants a value"),
            ("allreduce --nonsense 5", "--nonsense is no option"),
            ("allreduce --nonsense", "--nonsense is no option"),
            ("allreduce -c 1 extra", "extra is no option"),
            ("allreduce -b 1T", "-b is \"1T\": expected a number of bytes"),
            ("allreduce -b 0", "--begin is 0 bytes: expected 1 or more"),
            ("allreduce -b 9 -e 8", "--begin is 9 bytes: expected at most --end, which is 8"),
            ("allreduce -n 0", "-n is \"0\": expected a number from 1"),
            ("allreduce -d float8", "-d is \"float8\": expected one of float32"),
            ("reduce --worker_num 4 -r 4", "--root is 4: expected 0 to 3, or round"),
            ("allreduce --sizes 8,7", "size 7 is no multiple of 4"),
            ("allreduce -b 4 -e 64 -d float64", "size 4 is no multiple of 8"),
            ("allreduce -c 2", "-c is \"2\": expected a number from 0 to 1"),
        ] {
            let error = parse(&words(line)).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
