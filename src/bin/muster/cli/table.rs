//! How a command and its options are described.

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// True or False. True if neither follows.
    Flag,
    /// True or False as for a flag; or JSON, or a file of JSON (`*.json`). The help calls the value so.
    FlagOr(&'static str),
    /// Any value. The help calls it so.
    Value(&'static str),
    /// The path of a directory.
    Directory,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Takes {
    /// How the help calls the value.
    pub fn called(self) -> String {
        match self {
            Takes::Flag => "True|False".to_owned(),
            Takes::FlagOr(called) => format!("True|False|{called}"),
            Takes::Value(called) => called.to_owned(),
            Takes::Directory => "DIR".to_owned(),
            Takes::OneOf(words) => words.join("|"),
        }
    }

    /// Whether the option may stand without a value.
    pub fn may_stand_alone(self) -> bool {
        matches!(self, Takes::Flag | Takes::FlagOr(_))
    }

    /// The words that a shell offers for it.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Takes::Flag | Takes::FlagOr(_) => &["True", "False"],
            Takes::OneOf(words) => words,
            Takes::Value(_) | Takes::Directory => &[],
        }
    }
}

/// An option of a command.
#[derive(Debug)]
pub struct Opt {
    /// Its name, with underscores and without the dashes before it.
    pub name: &'static str,
    /// Its letter, if it has one.
    pub letter: Option<char>,
    /// What it takes.
    pub takes: Takes,
    /// What holds without the option, in words; empty if the description says so.
    pub default: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// The heading under which the help lists it, with the options beside it that have the same heading; empty if the
    /// command has no headings.
    pub group: &'static str,
}

/// An option without a letter.
pub const fn option(name: &'static str, takes: Takes, default: &'static str, doc: &'static str) -> Opt {
    Opt { name, letter: None, takes, default, doc, group: "" }
}

impl Opt {
    /// The same option with a letter.
    pub const fn letter(mut self, letter: char) -> Opt {
        self.letter = Some(letter);
        self
    }

    /// The same option under a heading.
    pub const fn under(mut self, group: &'static str) -> Opt {
        self.group = group;
        self
    }
}

/// What a command takes beside options.
#[derive(Clone, Copy, Debug)]
pub enum Operands {
    /// Nothing.
    None,
    /// One word.
    One {
        /// How the help calls it.
        called: &'static str,
        /// What it may be.
        among: &'static [&'static str],
    },
    /// A program and its arguments: the first word that is no option ends the options.
    Program,
}

/// A command.
#[derive(Debug)]
pub struct Command {
    /// How it is called.
    pub name: &'static str,
    /// What it takes beside options.
    pub operands: Operands,
    /// What it does, in a line.
    pub summary: &'static str,
    /// What it does. An empty line parts paragraphs, here and in `notes`.
    pub about: &'static str,
    /// Its options, in the order of the help.
    pub options: &'static [Opt],
    /// What else a user must know.
    pub notes: &'static str,
    /// The words behind the command's name, and what they do.
    pub examples: &'static [(&'static str, &'static str)],
    /// What it ends with, and when.
    pub exit_codes: &'static [(&'static str, &'static str)],
}

impl Command {
    /// A command that takes nothing and says nothing.
    pub const BLANK: Command = Command {
        name: "",
        operands: Operands::None,
        summary: "",
        about: "",
        options: &[],
        notes: "",
        examples: &[],
        exit_codes: &[],
    };

    /// Its options in their order, each with the heading that begins before it, if one does.
    pub fn headed_options(&self) -> impl Iterator<Item = (Option<&'static str>, &'static Opt)> {
        let groups = std::iter::once("").chain(self.options.iter().map(|option| option.group));
        let heads =
            self.options.iter().zip(groups).map(|(option, before)| (option.group != before).then_some(option.group));
        heads.zip(self.options)
    }

    /// Its call in a line.
    pub fn usage(&self, called: &str) -> String {
        let options = if self.options.is_empty() { "" } else { " [options]" };
        match self.operands {
            Operands::None => format!("{called}{options}"),
            Operands::One { called: operand, .. } => format!("{called} {operand}{options}"),
            Operands::Program => format!("{called}{options} program [arguments]"),
        }
    }
}
