//! What the logs are called.

use super::part::Part;
use std::net::IpAddr;

/// What stands before the number in the names of workers' logs.
pub const WORKER: &str = "worker";
/// The name of the scheduler's log.
pub const SCHEDULER: &str = "scheduler.log";
/// The longest name that a file can have, in bytes.
const NAME_LIMIT: usize = 255;
/// The longest end of a worker's log.
const END_LIMIT: usize = "_4294967295.log".len();

/// The names of a run's logs on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNames {
    stem: String,
}

impl LogNames {
    /// Names for workers' logs that begin so.
    pub fn new(stem: impl Into<String>) -> LogNames {
        LogNames { stem: stem.into() }
    }

    /// Names as `--worker_log_name` says. `{hostname}` and `{ip}` stand for this host's name and address.
    pub fn of_template(
        template: &str,
        host: impl FnOnce() -> Result<String, String>,
        address: impl FnOnce() -> Result<IpAddr, String>,
    ) -> Result<LogNames, String> {
        let mut stem = template.to_owned();
        if stem.contains("{hostname}") {
            stem = stem.replace("{hostname}", &host()?);
        }
        if stem.contains("{ip}") {
            stem = stem.replace("{ip}", &address()?.to_string());
        }
        Ok(LogNames::new(stem))
    }

    /// Checks that files can be called so. The error is a sentence for the user, about the template that they are made of.
    pub fn check_length(&self, template: &str) -> Result<(), String> {
        let (length, most) = (self.stem.len(), NAME_LIMIT - END_LIMIT);
        match length > most {
            true => Err(format!(
                "--worker_log_name is {template:?}, which makes a name of {length} bytes; it may have {most}"
            )),
            false => Ok(()),
        }
    }

    /// The part of the name before the number.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// The name of this process's log.
    pub fn of(&self, part: Part) -> String {
        part.number().map_or_else(|| SCHEDULER.to_owned(), |number| self.of_worker(number))
    }

    /// The name of the log of the worker that has this number.
    pub fn of_worker(&self, number: u32) -> String {
        format!("{}_{number}.log", self.stem)
    }
}

/// Checks that this is a template. The error is a sentence for the user.
pub fn check(template: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("--worker_log_name is {template:?}, {what}"));
    if template.contains('/') {
        return wrong("which has a slash: it is the name of a file in --log_dir");
    }
    if template.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return wrong("which has a space or a control character: expected the name of a file without them");
    }
    let mut rest = template;
    while let Some((_, behind)) = rest.split_once('{') {
        let Some((name, behind)) = behind.split_once('}') else { return Ok(()) };
        if !["ip", "hostname"].contains(&name) {
            return wrong(&format!(
                "and {{{name}}} stands for nothing: expected {{ip}} or {{hostname}}; the rank comes at the end by itself"
            ));
        }
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(template: &str) -> Result<String, String> {
        check(template)?;
        let names = LogNames::of_template(template, || Ok("node7".to_owned()), || Ok("fd00::7".parse().unwrap()))?;
        names.check_length(template)?;
        Ok(names.of(Part::Worker { index: 1, rank: Some(5) }))
    }

    #[test]
    fn the_rank_follows_the_name() {
        assert_eq!(named(WORKER), Ok("worker_5.log".to_owned()));
        assert_eq!(named("w_{ip}_{hostname}_test"), Ok("w_fd00::7_node7_test_5.log".to_owned()));
        assert_eq!(named("{ip}{hostname}{ip}"), Ok("fd00::7node7fd00::7_5.log".to_owned()));
        let names = LogNames::new("x");
        assert_eq!(names.of(Part::Scheduler), "scheduler.log");
        assert_eq!(names.of(Part::Worker { index: 1, rank: None }), "x_1.log");
        let error = LogNames::of_template("{ip}", || panic!("not asked"), || Err("no address".to_owned())).unwrap_err();
        assert_eq!(error, "no address");
    }

    #[test]
    fn what_is_no_name_is_said() {
        for (template, said) in [
            ("../worker", "which has a slash: it is the name of a file in --log_dir"),
            ("my worker", "which has a space"),
            ("a\nb", "which has a space or a control character"),
            ("w_{rank}", "{rank} stands for nothing: expected {ip} or {hostname}; the rank comes at the end by itself"),
            ("{}", "{} stands for nothing"),
        ] {
            let error = named(template).unwrap_err();
            assert!(error.starts_with("--worker_log_name is ") && error.contains(said), "{template}: {error}");
        }
        let long = format!("{}{{hostname}}", "x".repeat(236));
        let expected = format!("--worker_log_name is {long:?}, which makes a name of 241 bytes; it may have 240");
        assert_eq!((named(&long), named(&long[1..]).is_ok()), (Err(expected), true));
        assert_eq!(named("{open").unwrap(), "{open_5.log");
    }
}
