//! What `--bind_core` and `--bind_numa` say: words become [`Binds`]. `binding.rs` looks later whether the host has
//! these cores and nodes.

use super::number_set::NumberSet;
use crate::cli::words::boolean;
use muster::config::parse_json;
use muster::net::file;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// The longest file of `--bind_numa`, in bytes: far more than the devices of a host need.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// How the cores, or the memory, are divided among what is started here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// Nothing is bound.
    #[default]
    Off,
    /// The workers share what the host has.
    Shared,
    /// These processes are bound to these numbers; the others are not bound.
    ByHand(BTreeMap<BindTarget, NumberSet>),
}

/// A process that can be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BindTarget {
    /// The scheduler.
    Scheduler,
    /// The worker of this device.
    Device(u32),
}

/// All that is to be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binds {
    /// The cores that a process has.
    pub cores: Bind,
    /// The NUMA nodes whose cores a process has, if `cores` does not say.
    pub core_nodes: Bind,
    /// The NUMA nodes whose memory a process has.
    pub memory: Bind,
}

/// The option that is read, as complaints name it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    option: &'a str,
    example: &'a str,
}

const CORES: Asked<'_> = Asked { option: "--bind_core", example: r#"{"device0":"0-3","device1":"4-7"}"# };
const NODES: Asked<'_> = Asked { option: "--bind_numa", example: r#"{"device0":"0","device1":"1"}"# };

impl Binds {
    /// What these values of `--bind_core` and `--bind_numa` mean.
    pub fn read(cores: Option<&str>, nodes: Option<&str>) -> Result<Binds, String> {
        let cores = cores.map_or(Ok(Bind::Off), |text| CORES.bind(text))?;
        let Some(nodes) = nodes else { return Ok(Binds { cores, ..Binds::default() }) };
        if nodes.ends_with(".json") {
            return of_file(nodes, cores);
        }
        let nodes = NODES.bind(nodes)?;
        Ok(Binds { cores, core_nodes: nodes.clone(), memory: nodes })
    }

    /// Whether anything is to be bound.
    pub fn any(&self) -> bool {
        *self != Binds::default()
    }
}

impl Asked<'_> {
    fn bind(self, text: &str) -> Result<Bind, String> {
        match boolean(OsStr::new(text)) {
            Some(true) => return Ok(Bind::Shared),
            Some(false) => return Ok(Bind::Off),
            None => {}
        }
        let Asked { option, example } = self;
        let value = parse_json(text.as_bytes());
        let value = value.map_err(|why| {
            format!(
                "{option} is {text:?}, which {why}. It must be True, False, or JSON in single quotes, so that the shell leaves its \
                 own quotes alone: {option}='{example}'"
            )
        })?;
        match value {
            Value::Object(entries) => self.by_hand(&entries, |_, value| Ok(Some(value))),
            _ => Err(format!("{option} is {text:?}; it must be True, False, or a JSON object: '{example}'")),
        }
    }

    /// The numbers of each process; `of` finds the value with the numbers in the value of the process.
    fn by_hand<'v>(
        self,
        entries: &'v Map<String, Value>,
        of: impl Fn(&str, &'v Value) -> Result<Option<&'v Value>, String>,
    ) -> Result<Bind, String> {
        let mut places = BTreeMap::new();
        for (key, value) in entries {
            let place = place(key).ok_or_else(|| {
                format!("{} has {key:?}: expected scheduler, or device0, device1 and so on", self.option)
            })?;
            let numbers = match of(key, value)? {
                Some(value) => numbers(value).map_err(|why| format!("{}: {key} {why}", self.option))?,
                None => NumberSet::default(),
            };
            places.insert(place, numbers);
        }
        Ok(Bind::ByHand(places))
    }
}

fn place(key: &str) -> Option<BindTarget> {
    if key == "scheduler" {
        return Some(BindTarget::Scheduler);
    }
    let number: u32 = key.strip_prefix("device")?.parse().ok()?;
    // One spelling for one device: no sign, and no zeros before it.
    (key == format!("device{number}")).then_some(BindTarget::Device(number))
}

/// The numbers that a value lists: a text, a number, or a list of these. An error's words follow the key.
fn numbers(value: &Value) -> Result<NumberSet, String> {
    match value {
        Value::String(text) => NumberSet::parse(text),
        Value::Number(number) => NumberSet::parse(&number.to_string()),
        Value::Array(list) if list.iter().all(|one| one.is_string() || one.is_number()) => {
            list.iter().map(numbers).try_fold(NumberSet::default(), |all, one| Ok(all.joined(&one?)))
        }
        other => Err(format!("is {other}: expected a text or a list of texts, as in \"0-3,8\" or [\"0-3\",\"8\"]")),
    }
}

/// The binds in a file that says at once how cores and memory are bound.
fn of_file(path: &str, cores: Bind) -> Result<Binds, String> {
    let wrong = |why: &str| format!("--bind_numa is {path:?}, which {why}");
    if cores != Bind::Off {
        return Err(wrong("is a file that binds the cores, too: leave --bind_core out"));
    }
    let bytes = file::read(Path::new(path), FILE_MAX_BYTES).map_err(|why| wrong(&why))?;
    let value = parse_json(&bytes).map_err(|why| wrong(&why))?;
    let file = File { asked: Asked { option: &format!("--bind_numa: {path}"), example: "" }, value: &value };
    let mut binds = Binds::default();
    let (cpu_mode, memory_mode) =
        (file.mode("bind_cpu_mode", &["cpu", "numa", "none"])?, file.mode("bind_memory_mode", &["numa", "none"])?);
    let whole = |_: &str, value| Ok(Some(value));
    match cpu_mode {
        "cpu" => binds.cores = file.asked.by_hand(file.object("bind_cpu")?, main_threads)?,
        "numa" => binds.core_nodes = file.asked.by_hand(file.object("bind_cpu")?, whole)?,
        _ => {}
    }
    if memory_mode == "numa" {
        binds.memory = file.asked.by_hand(file.object("bind_memory")?, whole)?;
    }
    Ok(binds)
}

/// The cores of a process's main threads. MindSpore itself binds the other threads.
fn main_threads<'v>(key: &str, value: &'v Value) -> Result<Option<&'v Value>, String> {
    match value {
        Value::Object(threads) => Ok(threads.get("main")),
        other => Err(format!("--bind_numa: bind_cpu.{key} is {other}: expected an object, as in {{\"main\":\"0-3\"}}")),
    }
}

struct File<'a> {
    asked: Asked<'a>,
    value: &'a Value,
}

impl<'a> File<'a> {
    fn object(&self, name: &str) -> Result<&'a Map<String, Value>, String> {
        let value = self.value.get(name).and_then(Value::as_object);
        value.ok_or_else(|| format!("{} has no object {name:?}", self.asked.option))
    }

    /// A mode of `bind_config`; it is `none` if it is not given.
    fn mode(&self, name: &str, known: &[&'static str]) -> Result<&'static str, String> {
        let given = self.object("bind_config")?.get(name);
        let text = given.map_or(Some("none"), Value::as_str).unwrap_or_default();
        let found = known.iter().find(|mode| mode.eq_ignore_ascii_case(text));
        found.copied().ok_or_else(|| {
            let given = given.unwrap_or(&Value::Null);
            format!("{} has bind_config.{name} {given}: expected {}", self.asked.option, known.join(", "))
        })
    }
}

impl fmt::Display for BindTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindTarget::Scheduler => f.write_str("scheduler"),
            BindTarget::Device(number) => write!(f, "device{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree_test::Tree;

    fn by_hand(entries: &[(BindTarget, &str)]) -> Bind {
        Bind::ByHand(entries.iter().map(|(place, text)| (*place, NumberSet::parse(text).unwrap())).collect())
    }

    fn cores(text: &str) -> Result<Bind, String> {
        Binds::read(Some(text), None).map(|binds| binds.cores)
    }

    #[test]
    fn values_of_every_kind() {
        let two = by_hand(&[(BindTarget::Device(0), "0-3"), (BindTarget::Device(1), "4-5,7")]);
        for text in
            [r#"{"device0":"0-3","device1":"4-5,7"}"#, r#" { "device1" : ["4", "5,7"], "device0": ["0-1", "2-3"] } "#]
        {
            assert_eq!(cores(text), Ok(two.clone()), "{text}");
        }
        assert_eq!(
            cores(r#"{"scheduler":0,"device10":[1,"2"]}"#),
            Ok(by_hand(&[(BindTarget::Scheduler, "0"), (BindTarget::Device(10), "1-2")]))
        );
        assert_eq!(
            cores(r#"{"device0":[]}"#),
            Ok(Bind::ByHand([(BindTarget::Device(0), NumberSet::default())].into()))
        );
        assert_eq!((cores("TRUE"), cores("false")), (Ok(Bind::Shared), Ok(Bind::Off)));
        assert!(!Binds::read(None, None).unwrap().any() && !Binds::read(Some("False"), Some("False")).unwrap().any());
        let nodes = Binds::read(None, Some(r#"{"device0":1}"#)).unwrap();
        assert_eq!(
            (nodes.cores, &nodes.core_nodes, &nodes.memory),
            (Bind::Off, &by_hand(&[(BindTarget::Device(0), "1")]), &nodes.core_nodes)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("{device0:0-3}", "--bind_core is \"{device0:0-3}\", which is not JSON as expected"),
            (
                "device1:4-7",
                "in single quotes, so that the shell leaves its own quotes alone: --bind_core='{\"device0\"",
            ),
            ("maybe", "It must be True, False, or JSON"),
            ("", "It must be True, False, or JSON"),
            ("1", "--bind_core is \"1\"; it must be True, False, or a JSON object"),
            (r#"{"devise0":"0"}"#, "--bind_core has \"devise0\": expected scheduler, or device0, device1"),
            (r#"{"device00":"0"}"#, "has \"device00\""),
            (r#"{"device+1":"0"}"#, "has \"device+1\""),
            (r#"{"device0":"0","device0":"1"}"#, "has the key \"device0\" in one object twice"),
            (r#"{"device0":"3-0"}"#, "--bind_core: device0 has the range 3-0: expected its lower number first"),
            (r#"{"device0":-1}"#, "--bind_core: device0 has \"\" where a number should be"),
            (r#"{"device0":1.5}"#, "device0 has \"1.5\" where"),
            (r#"{"device0":null}"#, "--bind_core: device0 is null: expected a text or a list of texts"),
            (r#"{"device0":[["0"]]}"#, "device0 is [[\"0\"]]: expected"),
            (r#"{"device0":{"main":"0"}}"#, "expected a text or a list of texts"),
        ] {
            let error = cores(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(Binds::read(None, Some("1")).unwrap_err().starts_with("--bind_numa is \"1\"; it must be"));
    }

    #[test]
    fn a_file_binds_cores_and_memory_at_once() {
        let read = |text: &str| {
            let tree = Tree::new(&[("bind.json", text)]);
            Binds::read(None, Some(&tree.path().join("bind.json").display().to_string()))
        };
        let both = r#"{"bind_config": {"bind_cpu_mode": "cpu", "bind_memory_mode": "numa", "actor_thread_fix_bind": true},
            "bind_cpu": {"scheduler": {"main": "7"}, "device0": {"main": "0-3", "runtime": "4-5"}, "device1": {"runtime": "6"}},
            "bind_memory": {"device0": 0, "device1": "0-1"}}"#;
        let mut cores = by_hand(&[(BindTarget::Scheduler, "7"), (BindTarget::Device(0), "0-3")]);
        if let Bind::ByHand(places) = &mut cores {
            places.insert(BindTarget::Device(1), NumberSet::default());
        }
        let memory = by_hand(&[(BindTarget::Device(0), "0"), (BindTarget::Device(1), "0-1")]);
        assert_eq!(read(both), Ok(Binds { cores, core_nodes: Bind::Off, memory }));
        let nodes = r#"{"bind_config": {"bind_cpu_mode": "NUMA"}, "bind_cpu": {"device0": 1}}"#;
        assert_eq!(read(nodes), Ok(Binds { core_nodes: by_hand(&[(BindTarget::Device(0), "1")]), ..Binds::default() }));
        for (text, said) in [
            ("{}", "has no object \"bind_config\""),
            ("[", "which is not JSON as expected"),
            (
                r#"{"bind_config": {"bind_cpu_mode": "core"}}"#,
                "has bind_config.bind_cpu_mode \"core\": expected cpu, numa, none",
            ),
            (r#"{"bind_config": {"bind_memory_mode": 1}}"#, "bind_memory_mode 1: expected numa, none"),
            (r#"{"bind_config": {"bind_cpu_mode": "cpu"}}"#, "has no object \"bind_cpu\""),
            (
                r#"{"bind_config": {"bind_cpu_mode": "cpu"}, "bind_cpu": {"device0": "0"}}"#,
                "bind_cpu.device0 is \"0\": expected",
            ),
            (
                r#"{"bind_config": {"bind_cpu_mode": "cpu"}, "bind_cpu": {"device0": {"main": "x"}}}"#,
                "device0 has \"x\" where",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("--bind_numa") && error.contains(said), "{text}: {error}");
        }
        assert!(Binds::read(None, Some("/no/such.json")).unwrap_err().contains("can't be read"));
        let endless = std::env::temp_dir().join(format!("muster-binds-{}.json", std::process::id()));
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        let error = Binds::read(None, endless.to_str()).unwrap_err();
        std::fs::remove_file(&endless).unwrap();
        assert!(error.ends_with("which is no file"), "{error}");
        assert!(Binds::read(Some("True"), Some("x.json")).unwrap_err().contains("leave --bind_core out"));
    }
}
