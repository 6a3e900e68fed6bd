//! JSON text, read strictly, as the standard has it. No key may stand twice in one object: one of its two values would be
//! ignored in silence. An error's words follow the file's name. The caller, which has read the file, adds that name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::shown::show;

/// The value that this text is.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("is not text from byte {} on: expected JSON in UTF-8", error.valid_up_to()))?;
    let value = serde_json::from_str(text).map_err(|error| format!("is not JSON as expected: {error}"))?;
    match repeated_key(text) {
        None => Ok(value),
        Some((key, line)) => {
            Err(format!("has the key {} in one object twice, on line {line} again: expected it once", show(&key)))
        }
    }
}

/// The first key that stands twice in an object of this text, and the line of the second. The text is known to be JSON.
fn repeated_key(text: &str) -> Option<(String, usize)> {
    let bytes = text.as_bytes();
    // The keys so far of every object that is open; a list that is open has none.
    let mut open: Vec<BTreeSet<String>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => open.push(BTreeSet::new()),
            b'}' | b']' => drop(open.pop()),
            b'"' => {
                let end = string_end(bytes, at);
                if text[end..].trim_start().starts_with(':') {
                    let key: String = serde_json::from_str(&text[at..end]).ok()?;
                    if !open.last_mut()?.insert(key.clone()) {
                        return Some((key, text[..at].matches('\n').count() + 1));
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where the string that begins here ends: after its closing quote.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_and_what_is_none_is_said_with_its_place() {
        assert_eq!(parse(br#"{"a": [1, "b"]}"#).unwrap()["a"][1], "b");
        for (text, place) in
            [("", "line 1"), ("{\"a\": 1,\n}", "line 2"), ("{} x", "column 4"), ("// no\n{}", "line 1")]
        {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.starts_with("is not JSON as expected: ") && error.contains(place), "{text:?}: {error}");
        }
        assert_eq!(parse(b"{}\xff").unwrap_err(), "is not text from byte 2 on: expected JSON in UTF-8");
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_err(), "depth is bounded");
    }

    #[test]
    fn a_key_stands_once_in_its_object() {
        let twice = "{\"a\": {\"b\": 1},\n \"c\": \"}\\\"\", \"b\": [{\"b\": 1}, {\"b\": 2}],\n \"\\u0061\" : 3}";
        assert_eq!(
            parse(twice.as_bytes()).unwrap_err(),
            "has the key \"a\" in one object twice, on line 3 again: expected it once"
        );
        for once in [r#"{"a": "a", "b": {"a": 1}, "c": ["a", "a", {"a": 1}]}"#, r#"["a", "a"]"#, r#""a:""#] {
            assert!(parse(once.as_bytes()).is_ok(), "{once}");
        }
    }
}
