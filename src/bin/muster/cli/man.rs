//! The manual page muster(1), in roff with the macros of man(7).

use super::help::{described, names};
use super::table::Command;

/// The page of these commands.
pub fn page(commands: &[&Command]) -> String {
    let mut text = format!(".TH MUSTER 1 \"\" \"muster {}\"\n", env!("CARGO_PKG_VERSION"));
    text.push_str(".SH NAME\nmuster \\- turns a set of processes into a cluster\n.SH SYNOPSIS\n");
    for command in commands {
        text.push_str(&format!(".B {}\n.br\n", escaped(&command.usage(command.name))));
    }
    for command in commands {
        text.push_str(&section(command));
    }
    text.push_str(
        ".SH ENVIRONMENT\nThe settings of a cluster come from the environment.\n.B muster scheduler \\-\\-help\nlists them.\n",
    );
    text
}

fn section(command: &Command) -> String {
    let mut text = format!(".SH \"{}\"\n{}", escaped(&command.name.to_uppercase()), paragraphs(command.about));
    for (heading, option) in command.headed_options() {
        text.extend(heading.map(|heading| format!(".SS \"{}\"\n", escaped(heading))));
        text.push_str(&tagged(&names(option), &described(option)));
    }
    if !command.notes.is_empty() {
        text.push_str(&format!(".PP\n{}", paragraphs(command.notes)));
    }
    if !command.examples.is_empty() {
        text.push_str(".SS \"Examples\"\n");
        let call = |words| format!("{} {words}", command.name);
        text.extend(command.examples.iter().map(|(words, what)| tagged(&call(words), what)));
    }
    if !command.exit_codes.is_empty() {
        text.push_str(".PP\nIt exits with:\n");
        text.extend(command.exit_codes.iter().map(|(code, when)| tagged(code, when)));
    }
    text
}

/// A paragraph behind a tag.
fn tagged(tag: &str, text: &str) -> String {
    format!(".TP\n.B {}\n{}\n", escaped(tag), escaped(text))
}

fn paragraphs(text: &str) -> String {
    let paragraphs: Vec<String> = text.split("\n\n").map(|paragraph| format!("{}\n", escaped(paragraph))).collect();
    paragraphs.join(".PP\n")
}

/// The text as roff takes it: no character of it is an escape, a hyphen that breaks, or a request.
fn escaped(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COMMANDS;

    #[test]
    fn no_text_becomes_a_request_or_an_escape() {
        assert_eq!(escaped(".so x"), "\\&.so x");
        assert_eq!(escaped("a\\n  --b \"c\""), "a\\en \\-\\-b \\(dqc\\(dq");
    }

    #[test]
    fn every_option_of_every_command_is_in_it() {
        let page = page(&COMMANDS);
        for command in COMMANDS {
            assert!(page.contains(&format!(".SH \"{}\"\n", escaped(&command.name.to_uppercase()))), "{page}");
            for option in command.options {
                assert!(page.contains(&tagged(&names(option), &described(option))), "{}: {page}", option.name);
                assert!(
                    page.contains(&format!(".SS \"{}\"\n", escaped(option.group))) || option.group.is_empty(),
                    "{page}"
                );
            }
            for (words, what) in command.examples {
                assert!(page.contains(&tagged(&format!("{} {words}", command.name), what)), "{words}: {page}");
            }
        }
    }
}
