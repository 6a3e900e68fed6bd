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

const DTYPES: [(&str, DType); 8] = [
    ("float16", DType::Float16),
    ("bfloat16", DType::Bfloat16),
    ("float32", DType::Float32),
    ("float64", DType::Float64),
    ("int32", DType::Int32),
    ("int64", DType::Int64),
    ("int8", DType::Int8),
    ("uint8", DType::Uint8),
];

const OPS: [(&str, ReduceOp); 4] =
    [("sum", ReduceOp::Sum), ("min", ReduceOp::Min), ("max", ReduceOp::Max), ("avg", ReduceOp::Avg)];

const FORMATS: [(&str, Format); 3] = [("text", Format::Text), ("csv", Format::Csv), ("json", Format::Json)];

/// How the results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Csv,
    Json,
}

/// The root.
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

const HELP_BEGINS: &str = "\
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
";

const HELP_ENDS: &str = "
A size is what one rank contributes; for alltoall, scatter and reduce_scatter what it has for each rank. Columns: p50 and p95 are
the times per call of the slowest rank, algbw is the data of the whole operation by p50, busbw what each rank's link
carries of it at least, as nccl-tests counts: it can be compared between numbers of ranks. One rank moves nothing, and has
no bandwidth.
";

/// An option of a command whose options become a `T`.
pub struct Spec<T> {
    /// Its names; the last is the one by which others call it.
    pub names: &'static [&'static str],
    /// How the help calls its value.
    pub value: &'static str,
    /// What the help says of it, in lines.
    pub doc: &'static str,
    /// For which collectives it means something.
    pub of: fn(Collective) -> bool,
    /// Takes its value.
    pub take: fn(&mut T, &str, &str) -> Result<(), String>,
}

/// One that is never left without a meaning, and that the help has elsewhere.
pub const fn plain<T>(names: &'static [&'static str], take: fn(&mut T, &str, &str) -> Result<(), String>) -> Spec<T> {
    Spec { names, value: "", doc: "", of: always, take }
}

/// Takes these words, and gives the options that were among them.
pub fn take<T>(
    specs: &'static [Spec<T>],
    words: &[String],
    command: &str,
    into: &mut T,
) -> Result<Vec<&'static Spec<T>>, String> {
    let mut given = Vec::new();
    for pair in words.chunks(2) {
        let Some(spec) = specs.iter().find(|spec| spec.names.contains(&pair[0].as_str())) else {
            return Err(format!("{} is no option of {command}: muster bench --help lists them", pair[0]));
        };
        let [option, value] = pair else {
            return Err(format!("option {} wants a value: muster bench --help tells which", pair[0]));
        };
        (spec.take)(into, option, value)?;
        given.push(spec);
    }
    Ok(given)
}

fn always(_: Collective) -> bool {
    true
}

/// Whether it reduces.
pub fn reduces(collective: Collective) -> bool {
    matches!(collective, Collective::Allreduce | Collective::Reduce | Collective::ReduceScatter)
}

/// Whether one rank is the root.
pub fn has_root(collective: Collective) -> bool {
    matches!(collective, Collective::Broadcast | Collective::Gather | Collective::Reduce | Collective::Scatter)
}

fn has_data(collective: Collective) -> bool {
    collective != Collective::Barrier
}

fn may_be_in_place(collective: Collective) -> bool {
    matches!(collective, Collective::Allreduce | Collective::Reduce)
}

/// The options, and what becomes of them only when all are known.
struct Draft {
    options: Options,
    begin: u64,
    end: u64,
    factor: u64,
}

/// The options of a collective.
const SPECS: [Spec<Draft>; 14] = [
    Spec {
        names: &["--worker_num"],
        value: "N",
        doc: "start N ranks on this host; without it this process is one rank of the cluster that its\n\
              environment describes (under muster run, mpirun, srun, torchrun), or alone",
        of: always,
        take: |draft, option, value| {
            number(option, value, 1, 1024).map(|it| draft.options.worker_num = Some(it as u32))
        },
    },
    Spec {
        names: &["-b", "--begin"],
        value: "BYTES",
        doc: "the smallest size (8); K, M and G stand for 1024, 1024^2, 1024^3",
        of: has_data,
        take: |draft, option, value| bytes(option, value).map(|it| draft.begin = it),
    },
    Spec {
        names: &["-e", "--end"],
        value: "BYTES",
        doc: "the largest (64M), which is measured in any case",
        of: has_data,
        take: |draft, option, value| bytes(option, value).map(|it| draft.end = it),
    },
    Spec {
        names: &["-f", "--factor"],
        value: "N",
        doc: "from one size to the next (4)",
        of: has_data,
        take: |draft, option, value| number(option, value, 2, 1 << 20).map(|it| draft.factor = it),
    },
    Spec {
        names: &["--sizes"],
        value: "A,B,...",
        doc: "exactly these sizes",
        of: has_data,
        take: |draft, option, value| {
            draft.options.sizes = value.split(',').map(|size| bytes(option, size)).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Spec {
        names: &["-n", "--iters"],
        value: "N",
        doc: "how often each size is timed (as often as takes about 0.25 s, 5 to 20000 times)",
        of: always,
        take: |draft, option, value| {
            number(option, value, 1, 1_000_000).map(|it| draft.options.iterations = Some(it as u32))
        },
    },
    Spec {
        names: &["-w", "--warmup"],
        value: "N",
        doc: "how often it is called before (5)",
        of: always,
        take: |draft, option, value| number(option, value, 1, 1_000_000).map(|it| draft.options.warmup = it as u32),
    },
    Spec {
        names: &["-c", "--check"],
        value: "0|1",
        doc: "whether results are checked (1)",
        of: has_data,
        take: |draft, option, value| number(option, value, 0, 1).map(|it| draft.options.check = it == 1),
    },
    Spec {
        names: &["-d", "--dtype"],
        value: "TYPE",
        doc: "float32 (the default), float64, float16, bfloat16, int32, int64, int8, uint8",
        of: has_data,
        take: |draft, option, value| named(option, value, &DTYPES).map(|it| draft.options.dtype = it.1),
    },
    Spec {
        names: &["-o", "--op"],
        value: "OP",
        doc: "sum (the default), min, max, avg: where something is reduced",
        of: reduces,
        take: |draft, option, value| named(option, value, &OPS).map(|it| draft.options.op = it.1),
    },
    Spec {
        names: &["-r", "--root"],
        value: "RANK|round",
        doc: "the root, or each rank in turn (0): where there is one",
        of: has_root,
        take: |draft, option, value| {
            draft.options.root = match value {
                "round" => Root::Round,
                _ => Root::Fixed(number(option, value, 0, 1023)? as u32),
            };
            Ok(())
        },
    },
    Spec {
        names: &["--in_place"],
        value: "0|1",
        doc: "allreduce and reduce only: one buffer for input and output (1)",
        of: may_be_in_place,
        take: |draft, option, value| number(option, value, 0, 1).map(|it| draft.options.in_place = it == 1),
    },
    Spec {
        names: &["--barrier"],
        value: "0|1",
        doc: "a barrier behind each call, within its time (0): where data goes one way (broadcast, gather, reduce,\n\
              scatter) who only sends does not wait for the others, and what is timed is a rate",
        of: has_data,
        take: |draft, option, value| number(option, value, 0, 1).map(|it| draft.options.barrier = it == 1),
    },
    Spec {
        names: &["--format"],
        value: "FORMAT",
        doc: "text (the default), csv, json",
        of: always,
        take: |draft, option, value| format_named(option, value).map(|it| draft.options.format = it),
    },
];

/// Those that say which sizes there are where `--sizes` does not.
const SPAN: [&str; 3] = ["--begin", "--end", "--factor"];

/// What `muster bench --help` prints.
pub fn help() -> String {
    let lines = SPECS.iter().map(|spec| {
        let begin = format!("  {} {}", spec.names.join(", "), spec.value);
        let gap = if begin.len() > 22 { format!("\n{:23}", "") } else { String::new() };
        format!("{begin:23}{gap}{}\n", spec.doc.replace('\n', &format!("\n{:23}", "")))
    });
    format!("{HELP_BEGINS}{}{HELP_ENDS}", lines.collect::<String>())
}

/// What the words after `bench` mean.
pub fn parse(words: &[String]) -> Result<Options, String> {
    let Some((name, rest)) = words.split_first() else {
        return Err("which collective? muster bench --help lists them".to_owned());
    };
    let (name, collective) = named("collective", name, &COLLECTIVES)?;
    let options = Options {
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
    let mut draft = Draft { options, begin: 8, end: 64 << 20, factor: 4 };
    let given = take(&SPECS, rest, "bench", &mut draft)?;
    meaningful(name, collective, &given)?;
    if let (Some(worker_num), Root::Fixed(root)) = (draft.options.worker_num, draft.options.root) {
        if root >= worker_num {
            return Err(format!("--root is {root}: expected 0 to {}, or round", worker_num - 1));
        }
    }
    let sizes = match (collective, draft.options.sizes.is_empty()) {
        (Collective::Barrier, _) => vec![0],
        (_, true) => span(&draft)?,
        (_, false) => draft.options.sizes,
    };
    let options = Options { sizes, ..draft.options };
    let element = options.dtype.size() as u64;
    if let Some(bytes) = options.sizes.iter().find(|bytes| *bytes % element != 0) {
        let dtype = options.dtype;
        return Err(format!("size {bytes} is no multiple of {element}, the size of an element of {dtype}"));
    }
    Ok(options)
}

/// Refuses options that would change nothing.
fn meaningful(name: &str, collective: Collective, given: &[&Spec<Draft>]) -> Result<(), String> {
    let called = |spec: &Spec<Draft>| spec.names[spec.names.len() - 1];
    for spec in given {
        let option = called(spec);
        if !(spec.of)(collective) {
            let takers = COLLECTIVES.iter().filter(|(_, other)| (spec.of)(*other)).map(|(name, _)| *name);
            let takers: Vec<&str> = takers.collect();
            return Err(format!("{option} means nothing to {name}: it is for {}", takers.join(", ")));
        }
        if SPAN.contains(&option) && given.iter().any(|other| called(other) == "--sizes") {
            return Err(format!(
                "{option} means nothing beside --sizes, which lists all sizes: leave one of the two out"
            ));
        }
    }
    Ok(())
}

/// From the smallest size by the factor to the largest, which is one of them.
fn span(draft: &Draft) -> Result<Vec<u64>, String> {
    let Draft { begin, end, factor, .. } = *draft;
    if begin == 0 {
        return Err("--begin is 0 bytes: expected 1 or more, for the sizes after it are its multiples (--sizes 0 is \
                    nothing at all)"
            .to_owned());
    }
    if begin > end {
        return Err(format!("--begin is {begin} bytes: expected at most --end, which is {end}"));
    }
    let larger = |size: &u64| size.checked_mul(factor).filter(|next| next > size);
    let below = std::iter::successors(Some(begin), larger).take_while(|size| *size < end);
    Ok(below.chain([end]).collect())
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
#[path = "options_test.rs"]
mod tests;
