//! The command line of `muster status`, and the environment for what it does not say. After that nobody checks an
//! option again. Every complaint names the option or the variable, its value, and what would be right.

use crate::cli::table::{option, Command, Opt, Takes};
use crate::cli::words::{read, Asked, Words};
use muster::config::{Assignment, Config, Key, Setting, Value, DEFAULT_PORT};
use muster::error::Result as Settled;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `muster status`.
pub const COMMAND: Command = Command {
    name: "muster status",
    summary: "ask a live scheduler how its job is: nodes, and which node waits for which",
    about: "Asks a live scheduler how its job is, and prints the answer: how far the job is; each node, with its state, when \
            it was last heard, and the collectives in which it was at its last heartbeat; and for each group in which \
            members wait, the members that have not come. (Heartbeats come five times in MS_NODE_TIMEOUT.) To ask costs the \
            job nothing. Where the job has neither a secret nor TLS, anyone that reaches the scheduler's port may ask. Where it has \
            one, the command needs the variables of a node.",
    options: &[
        SCHED_HOST,
        SCHED_PORT,
        TIMEOUT,
        option(
            "format",
            Takes::OneOf(&["text", "json", "prometheus"]),
            "text",
            "text; json: one object on one line; prometheus: metrics in its text format",
        ),
        option("watch", Takes::Value("SECONDS"), "ask once", "ask again every so many seconds, fractions allowed"),
        option("output", Takes::Value("FILE"), "standard output", "write each answer to this file, whole and at once"),
    ],
    exit_codes: &[
        ("0", "a scheduler has answered, however its job is"),
        ("1", "--output, or standard output, cannot be written"),
        ("2", "usage"),
        (
            "4",
            "no scheduler has answered: nothing listens there, something else does, it speaks another protocol, it takes too \
             long, it refuses (another secret, TLS), its host's name is not found, or the variables of secret or TLS are wrong",
        ),
    ],
    ..Command::BLANK
};

/// The options of every command that asks a scheduler: which one, and how long that may take.
pub const SCHED_HOST: Opt = option(
    "sched_host",
    Takes::Value("ADDRESS"),
    "MUSTER_SCHED_HOST or MS_SCHED_HOST, else 127.0.0.1",
    "the scheduler's address or host name",
);
pub const SCHED_PORT: Opt =
    option("sched_port", Takes::Value("PORT"), "MUSTER_SCHED_PORT or MS_SCHED_PORT, else 8118", "the scheduler's port");
pub const TIMEOUT: Opt =
    option("timeout", Takes::Value("SECONDS"), "5", "how long all of it may take, fractions allowed");

/// A millisecond. What is far shorter would be no time at all once it is a number of nanoseconds.
const SECONDS_MIN: f64 = 0.001;
/// A day.
const SECONDS_MAX: f64 = 86_400.0;

/// How the answer is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Prometheus,
}

/// Which scheduler to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whom {
    /// Its address or host name.
    pub host: String,
    /// Its port; never 0.
    pub port: u16,
    /// How long question and answer may take.
    pub timeout: Duration,
}

impl Whom {
    /// The scheduler that the words of a command name which has [`SCHED_HOST`], [`SCHED_PORT`] and [`TIMEOUT`]. What
    /// they do not say comes from the environment.
    pub fn of(words: &Words, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Whom, String> {
        let (host, port) = scheduler(words.value("sched_host"), words.value("sched_port"), environment)?;
        let timeout = words.value("timeout").map_or(Ok(Duration::from_secs(5)), |text| seconds("timeout", text))?;
        Ok(Whom { host, port, timeout })
    }
}

/// Which scheduler to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub whom: Whom,
    pub format: Format,
    /// How often to ask; if it is not set, once.
    pub every: Option<Duration>,
    /// The file to which the answers go; if it is not set, standard output.
    pub output: Option<PathBuf>,
}

/// Reads the words after `muster status`, and the environment.
pub fn parse(
    words: Vec<OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Asked<Options>, String> {
    read(&COMMAND, words)?.then(|words| {
        let whom = Whom::of(&words, environment)?;
        let format = words.value("format").map_or(Ok(Format::Text), shape)?;
        let every = words.value("watch").map(|text| seconds("watch", text)).transpose()?;
        let output = words.file("output")?;
        Ok(Options { whom, format, every, output })
    })
}

fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (SECONDS_MIN..=SECONDS_MAX).contains(number));
    let right = format!("seconds from {SECONDS_MIN} to {SECONDS_MAX}");
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("--{option} is {text:?}; it must be {right}"))
}

fn shape(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        "prometheus" => Ok(Format::Prometheus),
        _ => Err(format!("--format is {text:?}; it must be text, json or prometheus")),
    }
}

/// Where the scheduler is, as a worker would know it; but no other setting counts.
fn scheduler(
    host: Option<&str>,
    port: Option<&str>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(String, u16), String> {
    let ours = |name: &OsString| {
        let setting = name.to_str().and_then(Setting::of_variable);
        setting.is_some_and(|setting| matches!(setting.key, Key::SchedHost | Key::SchedPort))
    };
    let mut config = Config::new();
    config.load_env(environment.into_iter().filter(|(name, _)| ours(name)));
    for (key, given) in [(Key::SchedHost, host), (Key::SchedPort, port)] {
        let Some(given) = given else { continue };
        if key == Key::SchedPort && !matches!(key.setting().kind.parse(given), Some(Value::Whole(1..))) {
            let right = "a whole number from 1024 to 65535, the port on which the scheduler listens";
            return Err(format!("--sched_port is {given:?}: expected {right}"));
        }
        config.set(key.setting().name, given).map_err(|error| format!("--{error}"))?;
    }
    settle(&mut config).map_err(|error| error.to_string())
}

fn settle(config: &mut Config) -> Settled<(String, u16)> {
    let default_port = DEFAULT_PORT.to_string();
    for (key, default) in [(Key::SchedHost, "127.0.0.1"), (Key::SchedPort, &default_port)] {
        if config.get(key.setting().name)?.is_none() {
            config.set(key.setting().name, default)?;
        }
    }
    config.set(Key::Role.setting().name, "MS_WORKER")?;
    config.set(Key::WorkerNum.setting().name, "1")?;
    match config.settings()?.assignment {
        Assignment::Node { host, ports, .. } => Ok((host, ports[0])),
        Assignment::Alone { .. } | Assignment::Scheduler { .. } => unreachable!("the role is a worker's"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, environment: &[(&str, &str)]) -> Result<Asked<Options>, String> {
        let variables = environment.iter().map(|(name, value)| (name.into(), value.into()));
        parse(line.split_whitespace().map(OsString::from).collect(), variables.collect::<Vec<_>>())
    }

    fn asked(line: &str, environment: &[(&str, &str)]) -> Options {
        match parsed(line, environment) {
            Ok(Asked::With(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_beat_our_variables_which_beat_those_of_the_original_which_beat_the_launchers_defaults() {
        let place = |line: &str, environment: &[(&str, &str)]| {
            let Whom { host, port, .. } = asked(line, environment).whom;
            format!("{host} {port}")
        };
        assert_eq!(place("", &[]), "127.0.0.1 8118");
        let ms = [("MS_SCHED_HOST", "h1"), ("MS_SCHED_PORT", "2001")];
        assert_eq!(place("", &ms), "h1 2001");
        let own = [ms[0], ms[1], ("MUSTER_SCHED_HOST", "h2"), ("MUSTER_SCHED_PORT", "2002")];
        assert_eq!(place("", &own), "h2 2002");
        assert_eq!(place("--sched_host=h3 --sched-port 2003", &own), "h3 2003");
    }

    #[test]
    fn nothing_else_in_the_environment_counts() {
        let others =
            [("MS_ROLE", "MS_NOBODY"), ("RANK_ID", "7"), ("MS_NODE_TIMEOUT", "soon"), ("MUSTER_ENABLE_SSL", "1")];
        assert_eq!(asked("", &others), asked("", &[]));
    }

    #[test]
    fn time_and_format() {
        let options = asked("", &[]);
        assert_eq!((options.whom.timeout, options.format), (Duration::from_secs(5), Format::Text));
        assert_eq!(asked("--timeout 0.001", &[]).whom.timeout, Duration::from_millis(1));
        let options = asked("--timeout 0.25 --format=json", &[]);
        assert_eq!((options.whom.timeout, options.format), (Duration::from_millis(250), Format::Json));
        let options = asked("--format=prometheus --watch 15 --output a/b", &[]);
        let told = (options.format, options.every, options.output);
        assert_eq!(told, (Format::Prometheus, Some(Duration::from_secs(15)), Some("a/b".into())));
        assert_eq!(parsed("--format json --help", &[]), Ok(Asked::Help));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, environment, said) in [
            ("--sched_prot=1", &[][..], "there is no option --sched_prot; did you mean --sched_port?"),
            ("here", &[], "\"here\" is not expected"),
            ("--timeout", &[], "--timeout needs a value"),
            ("--timeout=0", &[], "--timeout is \"0\"; it must be seconds from 0.001 to 86400"),
            ("--timeout=1e-300", &[], "--timeout is \"1e-300\"; it must be seconds from 0.001"),
            ("--watch=1e-10", &[], "--watch is \"1e-10\"; it must be seconds from 0.001"),
            ("--timeout=nan", &[], "--timeout is \"nan\""),
            ("--watch=-1", &[], "--watch is \"-1\"; it must be seconds from 0.001"),
            ("--format=xml", &[], "--format is \"xml\"; it must be text, json or prometheus"),
            (
                "--sched_port=80x",
                &[],
                "--sched_port is \"80x\": expected a whole number from 1024 to 65535, the port on which",
            ),
            (
                "--sched_port=0",
                &[],
                "--sched_port is \"0\": expected a whole number from 1024 to 65535, the port on which",
            ),
            ("", &[("MS_SCHED_PORT", "80x")], "MS_SCHED_PORT is \"80x\": expected a whole number from 1024"),
            ("", &[("MUSTER_SCHED_PORT", "0")], "MUSTER_SCHED_PORT is \"0\": expected"),
            ("", &[("MS_SCHED_HOST", "a:1")], "MS_SCHED_HOST is \"a:1\": expected a host name"),
        ] {
            let error = parsed(line, environment).unwrap_err();
            assert!(error.starts_with(said), "{line}: {error}");
        }
    }
}
