//! `muster bench --plot`: Python's `muster.plot` draws the results, with matplotlib, so that the command needs neither.
//!
//! Before ranks are started here, the command says whether it can draw at all, so that nobody measures for minutes in
//! vain. Tested by `tests/python/test_plot.py`.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long it may take: matplotlib's first start on a machine reads all its fonts.
const LIMIT: Duration = Duration::from_secs(180);
/// How often its end is looked for.
const TURN: Duration = Duration::from_millis(20);

/// The pictures that are wanted, and what else is drawn in them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Files, parted by commas: .svg or .png.
    pub pictures: String,
    /// Files with results of peers, or of earlier runs.
    pub beside: Vec<String>,
}

impl Plot {
    /// Says what would keep results from being drawn.
    pub fn check(&self) -> Result<(), String> {
        draw_with(self, &["--check"], "")
    }

    /// Draws the results, which are a table as CSV.
    pub fn draw(&self, table: &str) -> Result<(), String> {
        draw_with(self, &["-"], table)
    }
}

fn draw_with(plot: &Plot, words: &[&str], table: &str) -> Result<(), String> {
    let python = python();
    let mut command = Command::new(&python);
    command.args(["-m", "muster.plot", "--out", &plot.pictures]).args(words).args(&plot.beside);
    let python = python.to_string_lossy();
    let cannot = |error: std::io::Error| {
        format!("--plot needs Python with the package muster and matplotlib: {python}: {error}")
    };
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(cannot)?;
    let (status, told) = finish(child, table).map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    let last = told.lines().last().unwrap_or("it said nothing");
    if last.contains("No module named 'muster'") || last.contains("No module named muster.plot") {
        return Err(format!(
            "--plot: {python} has no package muster that draws: install the wheel that came with this command, and matplotlib \
             ({python} -m pip install matplotlib)"
        ));
    }
    Err(format!("--plot: {}", last.strip_prefix("muster.plot: ").unwrap_or(last)))
}

/// Gives the child the table, and waits for its end and its words. These are few, so nobody need read them before.
fn finish(mut child: Child, table: &str) -> std::io::Result<(ExitStatus, String)> {
    if let Some(mut input) = child.stdin.take() {
        // If the child has ended early, its own words say why.
        let _ = input.write_all(table.as_bytes());
    }
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(TURN),
            None => {
                child.kill()?;
                child.wait()?;
                return Err(std::io::Error::other(format!("it has not ended after {} s", LIMIT.as_secs())));
            }
        }
    };
    let mut told = Vec::new();
    child.stderr.take().map_or(Ok(0), |mut errors| errors.read_to_end(&mut told))?;
    Ok((status, String::from_utf8_lossy(&told).into_owned()))
}

/// The interpreter of the environment into which the wheel has put this command; otherwise that of the PATH.
fn python() -> OsString {
    let beside = std::env::current_exe().ok().and_then(|path| path.parent().map(|folder| folder.join("python3")));
    beside.filter(|path: &PathBuf| path.exists()).map_or_else(|| OsString::from("python3"), PathBuf::into_os_string)
}
