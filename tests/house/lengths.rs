//! How long the project's files in C, C++ and Python may be, and their functions. How a line begins tells where a function
//! begins and ends: C and C++ are laid out with their functions at the margin, and Python has no other way. Not seen: what
//! is defined within a class of C++, and what follows a text between ''' at the margin.

use super::rules::Broken;

pub const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// How the names of such files end.
pub const ENDINGS: &[&str] = &["c", "h", "cc", "cpp", "hpp", "py"];

/// Files that are longer, each with its reason.
pub const LONG: &[(&str, &str)] = &[
    ("include/muster.h", "generated: it is made from the Rust code"),
    ("bindings/cpp/muster.hpp", "a promise: a program needs one header, and copies it as it is"),
    ("abi/first/muster.h", "a fixture: the first header, as it was"),
];

/// A rule with its name: from a file's path and text to what breaks it.
pub type Rule = (&'static str, fn(&str, &str) -> Broken);

/// The rules.
pub const RULES: &[Rule] = &[("short_files", short_files), ("short_functions", short_functions)];

fn short_files(path: &str, text: &str) -> Broken {
    let lines = text.lines().count();
    match lines > FILE_LINES_MAX && !LONG.iter().any(|(known, _)| *known == path) {
        true => vec![(FILE_LINES_MAX + 1, format!("{lines} lines: {FILE_LINES_MAX} at most"))],
        false => Vec::new(),
    }
}

fn short_functions(path: &str, text: &str) -> Broken {
    let long = functions(path, text).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
    long.map(|(line, lines)| (line, format!("a function of {lines} lines: {FUNCTION_LINES_MAX} at most"))).collect()
}

/// Each function's first line, and how many it has.
pub fn functions(path: &str, text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    if path.ends_with(".py") {
        return of_python(&lines);
    }
    of_c(&lines)
}

/// From the last line at the margin with a parenthesis to a brace at the margin.
fn of_c(lines: &[&str]) -> Vec<(usize, usize)> {
    let (mut found, mut first) = (Vec::new(), None);
    for (at, line) in lines.iter().enumerate() {
        if *line == "}" {
            found.extend(first.take().map(|first| (first + 1, at + 1 - first)));
        } else if line.starts_with(|sign: char| sign.is_alphabetic() || sign == '_' || sign == '[')
            && !line.ends_with(':')
        {
            first = line.contains('(').then_some(at);
        }
    }
    found
}

/// From `def` to the last line that is further in.
fn of_python(lines: &[&str]) -> Vec<(usize, usize)> {
    let in_text = in_text(lines);
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (first, head) in lines.iter().enumerate() {
        let word = head.trim_start();
        if in_text[first] || !(word.starts_with("def ") || word.starts_with("async def ")) {
            continue;
        }
        let is_inside = |at: &usize| {
            let line = lines[*at];
            in_text[*at] || line.is_empty() || depth(line) > depth(head) || line.trim_start().starts_with(')')
        };
        let end = (first + 1..lines.len()).take_while(is_inside).filter(|at| !lines[*at].is_empty()).last();
        found.push((first + 1, end.unwrap_or(first) + 1 - first));
    }
    found
}

/// Whether each line begins within a text between three quotes.
fn in_text(lines: &[&str]) -> Vec<bool> {
    let mut within = false;
    let mut begins = |line: &&str| {
        let before = within;
        within ^= line.matches("\"\"\"").count() % 2 == 1;
        before
    };
    lines.iter().map(&mut begins).collect()
}

#[cfg(test)]
mod planted {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<&'static str> {
        RULES.iter().filter(|(_, check)| !check(path, text).is_empty()).map(|(name, _)| *name).collect()
    }

    #[test]
    fn long_files_are_caught() {
        for path in ["ctests/bits.c", "ctests/check.h", "ctests/nodes.hpp", "benches/peers/gloo.cc", "scripts/x.py"] {
            assert_eq!(broken(path, &"\n".repeat(601)), ["short_files"], "{path}");
            assert_eq!(broken(path, &"\n".repeat(600)), Vec::<&str>::new(), "{path}");
        }
        assert_eq!(broken("include/muster.h", &"\n".repeat(601)), Vec::<&str>::new());
    }

    #[test]
    fn long_functions_in_c_are_caught() {
        for head in [
            "int main(void) {",
            "[[nodiscard]] int f() {",
            "template <class T> void f(T x) {",
            "static void f(int a,\n    int b) {",
            "struct s *f(void)\n{",
        ] {
            let text = |lines: usize| {
                let more = head.lines().count() + 1;
                format!("struct s {{\n    int a;\n}};\n\n{head}\n{}}}\n", "    g();\n".repeat(lines - more))
            };
            assert_eq!(broken("ctests/bits.c", &text(71)), ["short_functions"], "{head}");
            assert_eq!(broken("ctests/nodes.hpp", &text(70)), Vec::<&str>::new(), "{head}");
        }
        let table =
            format!("void f(void);\nstatic int table[] = {{\n{}}};\nint g(void) {{\n}}\n", "    1,\n".repeat(80));
        assert_eq!(broken("ctests/bits.c", &table), Vec::<&str>::new(), "a table is no function");
    }

    #[test]
    fn long_functions_in_python_are_caught() {
        for head in [
            "def f():",
            "async def f():",
            "def f():\n    g()\n\n    def h():\n        g()",
            "def f(\n    a,\n) -> int:",
            "def f():\n    g(\"\"\"\nat the margin\n    \"\"\")",
            "    def f(self):",
        ] {
            let text = |lines: usize| {
                let more = lines - head.lines().count();
                format!("import x\n\n\n{head}\n{}\n\nx = 1\n", "        g()\n".repeat(more))
            };
            assert_eq!(broken("scripts/chaos.py", &text(71)), ["short_functions"], "{head}");
            assert_eq!(broken("scripts/chaos.py", &text(70)), Vec::<&str>::new(), "{head}");
        }
    }
}
