//! What `--help` prints.

use super::table::{Command, Opt};

/// How long a line may be.
const WIDTH: usize = 118;
/// What stands before a description.
const INDENT: &str = "        ";

/// The help of one command, called by this name.
pub fn page(command: &Command, called: &str) -> String {
    let mut text = format!("Usage: {}\n\n{}", command.usage(called), paragraphs(command.about));
    if !command.options.is_empty() {
        text.push_str("\nOptions:\n");
        for (heading, option) in command.headed_options() {
            if let Some(heading) = heading {
                text.push_str(&format!("\n{heading}:\n"));
            }
            text.push_str(&format!("  {}\n{}", names(option), wrapped(&described(option), INDENT)));
        }
        if command.options.iter().any(|option| !option.group.is_empty()) {
            text.push_str("\nHelp:\n");
        }
        text.push_str("  -h, --help\n        this text\n\n");
        text.push_str(
            "`--name value` works as `--name=value` does, and `-` for `_` in names. `--` ends the options.\n",
        );
    }
    if !command.notes.is_empty() {
        text.push_str(&format!("\n{}", paragraphs(command.notes)));
    }
    if !command.examples.is_empty() {
        text.push_str("\nExamples:\n");
        text.extend(
            command.examples.iter().map(|(words, what)| format!("  {called} {words}\n{}", wrapped(what, INDENT))),
        );
    }
    if !command.exit_codes.is_empty() {
        let codes: Vec<String> = command.exit_codes.iter().map(|(code, when)| format!("{code} {when}")).collect();
        text.push_str(&format!("\n{}", wrapped(&format!("Exit code: {}.", codes.join("; ")), "")));
    }
    text
}

/// The help of the command as a whole.
pub fn overview(commands: &[&Command]) -> String {
    let lines =
        commands.iter().map(|command| format!("  {}\n{INDENT}{}\n", command.usage(command.name), command.summary));
    format!(
        "muster: turns a set of processes into a cluster\n\nUsage:\n{}  muster --help | --version\n\nEach command explains \
         itself: `muster run --help`. `muster scheduler --help` lists the settings of the environment.\nCalled by the name \
         msrun it is muster run.\n",
        lines.collect::<String>()
    )
}

/// An option's names and what its value is called.
pub fn names(option: &Opt) -> String {
    let letter = option.letter.map_or_else(String::new, |letter| format!("-{letter}, "));
    format!("{letter}--{}={}", option.name, option.takes.called())
}

/// An option's description with its default.
pub fn described(option: &Opt) -> String {
    match option.default {
        "" => option.doc.to_owned(),
        default => format!("{} (default: {default})", option.doc),
    }
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| wrapped(paragraph, "")).collect::<Vec<_>>().join("\n")
}

/// The text in lines that are not too long, each after `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COMMANDS;

    #[test]
    fn each_page_has_every_option_and_no_long_line() {
        for command in COMMANDS {
            let page = page(command, command.name);
            let plain = page.split_whitespace().collect::<Vec<_>>().join(" ");
            for option in command.options {
                assert!(page.contains(&format!("\n  {}\n", names(option))), "{}: {page}", option.name);
                assert!(!option.doc.is_empty() && plain.contains(&described(option)), "{}: {page}", option.name);
            }
            for (words, what) in command.examples {
                assert!(
                    page.contains(&format!("\n  {} {words}\n", command.name)) && plain.contains(what),
                    "{words}: {page}"
                );
            }
            for (index, option) in command.options.iter().enumerate().filter(|(_, option)| !option.group.is_empty()) {
                let again = command.options[..index].iter().rposition(|before| before.group == option.group);
                assert!(
                    again.is_none_or(|before| before + 1 == index),
                    "{}: what has one heading stands together",
                    option.name
                );
                assert!(page.contains(&format!("\n\n{}:\n", option.group)), "{page}");
            }
            assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
            assert!(overview(&COMMANDS).contains(command.summary));
        }
    }
}
