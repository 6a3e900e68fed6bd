//! Text from outside, as people may see it. A character that would not show, or would change how the rest shows,
//! becomes an escape.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character shows nothing by itself: it controls, joins, turns the direction of what follows, or is a blank that
/// looks like another.
pub fn is_hidden(c: char) -> bool {
    let is_blank = c != ' ' && c.is_whitespace();
    let is_mark = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..
    );
    is_blank || is_mark || c.is_control()
}

/// The text, in which each hidden character stands as `\u{1b}` does for the escape character.
pub fn shown(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte);
    if text.bytes().all(is_plain) || !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hidden(c) {
            true => drop(write!(escaped, "{}", c.escape_unicode())),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_show_is_escaped_and_nothing_else() {
        for (text, expected) in [
            ("host-7 (pid 3)", "host-7 (pid 3)"),
            ("Größe 数 é 😀", "Größe 数 é 😀"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\rb\nc\td\0", "a\\u{d}b\\u{a}c\\u{9}d\\u{0}"),
            ("\u{7f}\u{9b}2J", "\\u{7f}\\u{9b}2J"),
            ("gnp.\u{202e}exe", "gnp.\\u{202e}exe"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("a\u{a0}b\u{2028}", "a\\u{a0}b\\u{2028}"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
