//! The command line of `muster bench`: words become [`Options`], and every complaint names the option, its value, and what
//! would be right.

use super::plot::Plot;
use crate::cli::table::{option, Command, Operands, Opt, Takes};
use crate::cli::words::{Given, Words};
use muster::config::whole;
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

const OPS: [(&str, ReduceOp); 5] = [
    ("sum", ReduceOp::Sum),
    ("min", ReduceOp::Min),
    ("max", ReduceOp::Max),
    ("avg", ReduceOp::Avg),
    ("sum_exact", ReduceOp::SumExact),
];

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
    /// Each rank in turn.
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
    /// Whether a barrier follows each call, and its time counts.
    pub barrier: bool,
    pub format: Format,
    pub plot: Option<Plot>,
}

/// `muster bench`.
pub const COMMAND: Command = Command {
    name: "muster bench",
    operands: Operands::One {
        called: "collective",
        among: &[
            "allgather",
            "allreduce",
            "alltoall",
            "barrier",
            "broadcast",
            "gather",
            "reduce",
            "reduce_scatter",
            "scatter",
            "sendrecv",
            "bootstrap",
            "forming",
            "iallreduce",
            "store",
        ],
    },
    summary: "time a collective",
    about: "Times a collective, size by size, and checks its result against a computed one. Collectives: allgather, \
            allreduce, alltoall, barrier, broadcast, gather, reduce, reduce_scatter, scatter, sendrecv (each rank to the \
            next).",
    options: &OPTIONS,
    notes: "A size is what one rank contributes; for alltoall, scatter and reduce_scatter what it has for each rank. \
            p50 and p95 are the times per call of the slowest rank. algbw is the data of the whole operation by p50. busbw \
            is what each rank's link carries of it at least, as nccl-tests counts; it can be compared between numbers of \
            ranks. One rank moves nothing, and has no bandwidth.",
    exit_codes: &[
        ("0", "all is measured, and no result is wrong"),
        ("1", "a rank failed, a result has wrong elements, or a picture, or standard output, cannot be written"),
        USAGE,
    ],
    ..Command::BLANK
};

/// With what a benchmark ends that cannot begin.
pub const USAGE: (&str, &str) = ("2", "usage, or, with --worker_num, a setting of the environment that is wrong");

/// Whether results are text or something that a program reads.
pub const FORMAT: Opt = option("format", Takes::OneOf(&["text", "csv", "json"]), "text", "how results are printed");

/// How many ranks are started here.
pub const WORKER_NUM: Opt = option(
    "worker_num",
    Takes::Value("N"),
    "",
    "start N ranks on this host; without it this process is one rank of the cluster that its environment describes \
     (under muster run, mpirun, srun, torchrun), or alone",
);

/// The smallest size.
pub const BEGIN: Opt =
    option("begin", Takes::Value("BYTES"), "8", "the smallest size; K, M and G stand for 1024, 1024^2, 1024^3")
        .letter('b');
/// The largest size.
pub const END: Opt =
    option("end", Takes::Value("BYTES"), "64M", "the largest size, which is measured in any case").letter('e');
/// The factor between sizes.
pub const FACTOR: Opt = option("factor", Takes::Value("N"), "4", "from one size to the next").letter('f');
/// A list of sizes, in place of the three options above.
pub const SIZES: Opt = option("sizes", Takes::Value("A,B,..."), "", "exactly these sizes");

/// How often each size is timed.
pub const ITERS: Opt = option(
    "iters",
    Takes::Value("N"),
    "as often as takes about 0.25 s, 5 to 20000 times",
    "how often each size is timed",
)
.letter('n');
/// How often each size is called before it is timed.
pub const WARMUP: Opt =
    option("warmup", Takes::Value("N"), "5", "how often it is called before; then come two rounds of 0.05 s")
        .letter('w');

/// The type of an element.
pub const DTYPE: Opt = option(
    "dtype",
    Takes::OneOf(&["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8"]),
    "float32",
    "the type of an element",
)
.letter('d');

const OPTIONS: [Opt; 16] = [
    WORKER_NUM,
    BEGIN,
    END,
    FACTOR,
    SIZES,
    ITERS,
    WARMUP,
    option("check", Takes::OneOf(&["0", "1"]), "1", "whether results are checked").letter('c'),
    DTYPE,
    option(
        "op",
        Takes::OneOf(&["sum", "min", "max", "avg", "sum_exact"]),
        "sum",
        "the reduction, where there is one; sum_exact is for floats",
    )
    .letter('o'),
    option("root", Takes::Value("RANK|round"), "0", "the root, or each rank in turn, where there is one").letter('r'),
    option(
        "in_place",
        Takes::OneOf(&["0", "1"]),
        "1",
        "allreduce and reduce only: one buffer for input and output",
    ),
    option(
        "barrier",
        Takes::OneOf(&["0", "1"]),
        "0",
        "a barrier behind each call, within its time: where data goes one way (broadcast, gather, reduce, scatter) a rank \
         that only sends does not wait for the others, and what is timed is a rate",
    ),
    FORMAT,
    option(
        "plot",
        Takes::Value("FILE,..."),
        "",
        "draw latency and bandwidth over size, of two sizes or more, into these pictures, .svg or .png, with Python's package \
         muster, from the wheel that came with this command, and matplotlib: python3 -m pip install matplotlib",
    ),
    option(
        "beside",
        Takes::Value("FILE,..."),
        "",
        "with --plot: draw these results, too, where they are of the same collective and number of ranks: what --format csv has \
         written, or make bench-peers (target/bench/raw.csv)",
    ),
];

/// Whether an option means something for this collective.
fn is_for(option: &str, collective: Collective) -> bool {
    match option {
        "begin" | "end" | "factor" | "sizes" | "check" | "dtype" | "barrier" | "plot" | "beside" => {
            collective != Collective::Barrier
        }
        "op" => reduces(collective),
        "root" => has_root(collective),
        "in_place" => matches!(collective, Collective::Allreduce | Collective::Reduce),
        _ => true,
    }
}

/// Whether this collective reduces.
pub fn reduces(collective: Collective) -> bool {
    matches!(collective, Collective::Allreduce | Collective::Reduce | Collective::ReduceScatter)
}

/// Whether one rank is the root.
pub fn has_root(collective: Collective) -> bool {
    matches!(collective, Collective::Broadcast | Collective::Gather | Collective::Reduce | Collective::Scatter)
}

/// The largest size: 16G.
const SIZE_MAX: u64 = 16 << 30;

/// The options that the words after `bench` ask for.
pub fn parse(words: &Words) -> Result<Options, String> {
    let Some(name) = words.operands.first() else {
        return Err("which collective? muster bench --help lists them".to_owned());
    };
    let (name, collective) = named("collective", &name.to_string_lossy(), &COLLECTIVES)?;
    meaningful(name, collective, words)?;
    let given = |name, most| words.get(name).map(|given| number(given, 1, most).map(|it| it as u32)).transpose();
    let yes = |name, otherwise| words.get(name).map_or(Ok(otherwise), |given| number(given, 0, 1).map(|it| it == 1));
    let options = Options {
        collective,
        name,
        worker_num: given("worker_num", 1024)?,
        sizes: Vec::new(),
        iterations: given("iters", 1_000_000)?,
        warmup: count(words, "warmup", 5, 1_000_000)? as u32,
        check: yes("check", true)?,
        dtype: dtype(words)?,
        op: words.get("op").map_or(Ok(ReduceOp::Sum), |given| one_of(given, &OPS))?,
        root: words.get("root").map_or(Ok(Root::Fixed(0)), root)?,
        in_place: yes("in_place", true)?,
        barrier: yes("barrier", false)?,
        format: format(words)?,
        plot: plot(words)?,
    };
    if let (Some(worker_num), Root::Fixed(root)) = (options.worker_num, options.root) {
        if root >= worker_num {
            return Err(format!("--root is {root}: expected 0 to {}, or round", worker_num - 1));
        }
    }
    if !options.op.is_for(options.dtype) {
        return Err(format!("--op is {}, and --dtype {}: expected a float type", options.op, options.dtype));
    }
    let options = Options { sizes: sizes(words, collective)?, ..options };
    check_elements(&options)?;
    check_plot(&options)?;
    Ok(options)
}

/// Whether there is a line to draw, if a picture is wanted.
fn check_plot(options: &Options) -> Result<(), String> {
    let Some((first, others)) = options.sizes.split_first().filter(|_| options.plot.is_some()) else { return Ok(()) };
    match others.iter().any(|size| size != first) {
        true => Ok(()),
        false => {
            Err(format!("--plot draws over size, and the only size is {first}: expected two different ones or more"))
        }
    }
}

/// Whether each size is of whole elements.
pub fn check_elements(options: &Options) -> Result<(), String> {
    let (dtype, element) = (options.dtype, options.dtype.size() as u64);
    match options.sizes.iter().find(|bytes| *bytes % element != 0) {
        Some(bytes) => Err(format!("size {bytes} is no multiple of {element}, the size of an element of {dtype}")),
        None => Ok(()),
    }
}

/// The type that `--dtype` asks for.
pub fn dtype(words: &Words) -> Result<DType, String> {
    words.get("dtype").map_or(Ok(DType::Float32), |given| one_of(given, &DTYPES))
}

/// Refuses options that would change nothing.
fn meaningful(name: &str, collective: Collective, words: &Words) -> Result<(), String> {
    for Given { option, .. } in words.given() {
        let option = option.name;
        if !is_for(option, collective) {
            let takers = COLLECTIVES.iter().filter(|(_, other)| is_for(option, *other)).map(|(name, _)| *name);
            let takers: Vec<&str> = takers.collect();
            return Err(format!("--{option} means nothing to {name}: it is for {}", takers.join(", ")));
        }
        if matches!(option, "begin" | "end" | "factor") && words.get("sizes").is_some() {
            return Err(format!(
                "--{option} means nothing beside --sizes, which lists all sizes: leave one of the two out"
            ));
        }
    }
    Ok(())
}

/// The pictures that are wanted.
fn plot(words: &Words) -> Result<Option<Plot>, String> {
    let beside: Vec<String> =
        words.value("beside").map_or(Vec::new(), |files| files.split(',').map(str::to_owned).collect());
    match words.value("plot") {
        Some(pictures) => Ok(Some(Plot { pictures: pictures.to_owned(), beside })),
        None if beside.is_empty() => Ok(None),
        None => Err("--beside means nothing without --plot, which names the picture".to_owned()),
    }
}

/// The sizes that are measured.
pub fn sizes(words: &Words, collective: Collective) -> Result<Vec<u64>, String> {
    if collective == Collective::Barrier {
        return Ok(vec![0]);
    }
    if let Some(given) = words.get("sizes") {
        let size = |size: &str| size_of(size).filter(|bytes| *bytes <= SIZE_MAX);
        let all: Option<Vec<u64>> = given.value.split(',').map(size).collect();
        let wrong = || {
            format!(
                "{} is {:?}: expected numbers of bytes up to 16G, as 4096 or 64K, with commas between",
                given.written, given.value
            )
        };
        return all.ok_or_else(wrong);
    }
    let size = |name, otherwise| words.get(name).map_or(Ok(otherwise), bytes);
    let factor = words.get("factor").map_or(Ok(4), |given| number(given, 2, 1 << 20))?;
    span(size("begin", 8)?, size("end", 64 << 20)?, factor)
}

fn root(given: &Given) -> Result<Root, String> {
    match given.value.as_str() {
        "round" => Ok(Root::Round),
        _ => number(given, 0, 1023).map(|rank| Root::Fixed(rank as u32)),
    }
}

/// The sizes from the smallest by the factor to the largest, which is one of them.
fn span(begin: u64, end: u64, factor: u64) -> Result<Vec<u64>, String> {
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

fn one_of<T: Copy>(given: &Given, known: &[(&'static str, T)]) -> Result<T, String> {
    named(&given.written, &given.value, known).map(|(_, found)| found)
}

/// A number within limits.
fn number(Given { written, value, .. }: &Given, least: u64, most: u64) -> Result<u64, String> {
    let found = whole(value).filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| format!("{written} is {value:?}: expected a number from {least} to {most}"))
}

/// The number of bytes that an option's value says.
fn bytes(Given { written, value, .. }: &Given) -> Result<u64, String> {
    let found = size_of(value).filter(|bytes| *bytes <= SIZE_MAX);
    found.ok_or_else(|| format!("{written} is {value:?}: expected a number of bytes up to 16G, as 4096 or 64K"))
}

/// The number of bytes that this says: digits, and perhaps a unit.
pub fn size_of(value: &str) -> Option<u64> {
    let (digits, unit) = match value.to_ascii_uppercase().as_str() {
        text if text.ends_with('K') => (value.len() - 1, 1u64 << 10),
        text if text.ends_with('M') => (value.len() - 1, 1 << 20),
        text if text.ends_with('G') => (value.len() - 1, 1 << 30),
        _ => (value.len(), 1),
    };
    whole(&value[..digits]).and_then(|number| number.checked_mul(unit))
}

/// The number from 1 to `most` that this option asks for; `otherwise` if it was not given.
pub fn count(words: &Words, name: &str, otherwise: u64, most: u64) -> Result<u64, String> {
    words.get(name).map_or(Ok(otherwise), |given| number(given, 1, most))
}

/// The format that `--format` asks for, here and in `bootstrap` and `forming`.
pub fn format(words: &Words) -> Result<Format, String> {
    words.get("format").map_or(Ok(Format::Text), |given| one_of(given, &FORMATS))
}

#[cfg(test)]
#[path = "options_test.rs"]
mod tests;
