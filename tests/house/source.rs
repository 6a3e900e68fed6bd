//! One Rust file as the house rules see it: which names it uses, what is unsafe in it, its functions and its statics.
//!
//! Works on tokens, so that code inside macros counts like any other, and comments and strings never do. Names are made
//! absolute: through `crate`, `self` and `super`, through inline modules, and through what `use` binds them to. What it
//! does not see: names that a macro of another crate makes up.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::collections::HashMap;

/// A name with at least two parts, or one that a `use` brought in.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// Absolute: the first part is `crate` or that of another crate; a path within the file's own module stays relative.
    pub parts: Vec<String>,
    pub line: usize,
    column: usize,
    /// Whether it stands in code for tests.
    pub test: bool,
    /// Whether it is the path of a `use`.
    pub imported: bool,
    /// Whether that `use` is `pub`, so that it lists the name for others.
    pub listed: bool,
    /// Whether it is followed by arguments.
    pub called: bool,
}

impl Name {
    pub fn text(&self) -> String {
        self.parts.join("::")
    }
}

#[derive(Clone, Debug)]
pub struct Unsafe {
    pub line: usize,
    /// Line and column at which it begins and ends, where it is a block.
    block: Option<[(usize, usize); 2]>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
    pub test: bool,
}

#[derive(Clone, Debug)]
pub struct Static {
    pub name: String,
    pub line: usize,
    pub mutable: bool,
    pub test: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Source {
    /// From the root of the repository, with `/`.
    pub path: String,
    pub text: String,
    pub names: Vec<Name>,
    pub unsafes: Vec<Unsafe>,
    pub functions: Vec<Function>,
    pub statics: Vec<Static>,
    /// The modules for tests within the file: their first line, and how many lines they have.
    pub test_modules: Vec<(usize, usize)>,
    /// Every identifier, with its line.
    pub words: Vec<(String, usize)>,
    /// What `#[path = ".."]` attributes and `include!` name.
    pub included: Vec<(String, usize)>,
}

/// Where the walk is.
#[derive(Clone)]
struct ModuleContext {
    module: Vec<String>,
    test: bool,
}

impl Source {
    pub fn parse(path: &str, text: &str) -> Source {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
        let mut source = Source { path: path.into(), text: text.into(), ..Source::default() };
        let context = ModuleContext { module: module_of(path), test: source.is_test() };
        source.walk(&trees(tokens), &context);
        source.expand_imports();
        source
    }

    /// Whether the whole file is for tests.
    pub fn is_test(&self) -> bool {
        self.path.ends_with("_test.rs") || self.path.starts_with("src/sim/") || self.path.starts_with("src/fuzz/")
    }

    /// `wire` for `src/wire/frame.rs`, `bin` for the command; empty for `src/lib.rs`.
    pub fn room(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split_once('/').map_or("", |(room, _)| room)
    }

    /// Its own module, from the crate on.
    pub fn module(&self) -> Vec<String> {
        module_of(&self.path)
    }

    fn walk(&mut self, tokens: &[TokenTree], context: &ModuleContext) {
        let mut at = 0;
        while at < tokens.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                self.walk(&trees(group.stream()), context);
                at += 1;
                continue;
            }
            let Some(word) = word(tokens, at) else {
                at += 1;
                continue;
            };
            let line = tokens[at].span().start().line;
            self.words.push((word.clone(), line));
            at = match word.as_str() {
                "use" if !is_punct(tokens, at + 1, '<') => self.take_use(tokens, at + 1, context),
                "mod" => self.take_module(tokens, at, context),
                "unsafe" => self.take_unsafe(tokens, at),
                "fn" => self.take_function(tokens, at, context),
                "extern" if self::word(tokens, at + 1).as_deref() == Some("crate") => {
                    self.take_use(tokens, at + 1, context)
                }
                "static" if !is_punct(tokens, at.wrapping_sub(1), '\'') => self.take_static(tokens, at, context),
                "path" if at == 0 && is_punct(tokens, 1, '=') => self.take_included(tokens.get(at + 2), at, line),
                "include" if is_punct(tokens, at + 1, '!') => self.take_included(tokens.get(at + 2), at, line),
                _ => self.take_name(tokens, at, context),
            };
        }
    }

    /// A path that begins here.
    fn take_name(&mut self, tokens: &[TokenTree], start: usize, context: &ModuleContext) -> usize {
        let (parts, end) = path_at(tokens, start);
        for (offset, part) in parts.iter().enumerate().skip(1) {
            self.words.push((part.clone(), tokens[start + 3 * offset].span().start().line));
        }
        let called =
            matches!(tokens.get(end), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        let is_member = is_punct(tokens, start.wrapping_sub(1), '.') && !is_punct(tokens, start.wrapping_sub(2), '.');
        if !is_member {
            let begin = tokens[start].span().start();
            let parts = absolute(parts, &context.module);
            let (line, column) = (begin.line, begin.column);
            self.names.push(Name { parts, line, column, test: context.test, imported: false, listed: false, called });
        }
        end
    }

    /// A `use` tree, up to its semicolon.
    fn take_use(&mut self, tokens: &[TokenTree], start: usize, context: &ModuleContext) -> usize {
        let end = (start..tokens.len()).find(|at| is_punct(tokens, *at, ';')).unwrap_or(tokens.len());
        let listed = is_listed(tokens, start - 1);
        for (parts, bound, line) in use_tree(&tokens[start..end], &[]) {
            for part in &parts {
                self.words.push((part.clone(), line));
            }
            let parts = absolute(parts, &context.module);
            let (test, imported, called) = (context.test, true, false);
            self.names.push(Name { parts, line, column: 0, test, imported, listed, called });
            if let Some(bound) = bound {
                self.words.push((bound, line));
            }
        }
        end
    }

    fn take_module(&mut self, tokens: &[TokenTree], at: usize, context: &ModuleContext) -> usize {
        let (Some(name), Some(TokenTree::Group(body))) = (word(tokens, at + 1), tokens.get(at + 2)) else {
            return at + 1;
        };
        let mut module = context.module.clone();
        module.push(name);
        let is_test = has_test_attribute(tokens, at);
        if is_test && !context.test {
            let (first, last) = (tokens[at].span().start().line, body.span_close().end().line);
            self.test_modules.push((first, last + 1 - first));
        }
        let inner = ModuleContext { module, test: context.test || is_test };
        self.walk(&trees(body.stream()), &inner);
        at + 3
    }

    fn take_unsafe(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let line = tokens[at].span().start().line;
        let block = match tokens.get(at + 1) {
            // `#[unsafe(no_mangle)]` and the type `unsafe extern "C" fn(..)` do nothing unsafe.
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => return at + 1,
            Some(TokenTree::Group(group)) => Some([group.span_open().start(), group.span_close().end()]),
            _ if is_function_type(tokens, at + 1) => return at + 1,
            _ => None,
        };
        let block = block.map(|ends| ends.map(|end| (end.line, end.column)));
        self.unsafes.push(Unsafe { line, block });
        at + 1
    }

    fn take_function(&mut self, tokens: &[TokenTree], at: usize, context: &ModuleContext) -> usize {
        let Some(name) = word(tokens, at + 1) else { return at + 1 };
        let line = tokens[at].span().start().line;
        for token in &tokens[at + 2..] {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let lines = group.span_close().end().line - line + 1;
                    self.functions.push(Function { name, line, lines, test: context.test });
                    break;
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                _ => {}
            }
        }
        at + 2
    }

    fn take_static(&mut self, tokens: &[TokenTree], at: usize, context: &ModuleContext) -> usize {
        let mutable = word(tokens, at + 1).is_some_and(|word| word == "mut");
        let named = at + 1 + usize::from(mutable);
        if let (Some(name), true) = (word(tokens, named), is_punct(tokens, named + 1, ':')) {
            let line = tokens[at].span().start().line;
            self.statics.push(Static { name, line, mutable, test: context.test });
        }
        named
    }

    fn take_included(&mut self, what: Option<&TokenTree>, at: usize, line: usize) -> usize {
        if let Some(what) = what {
            self.included.push((what.to_string().trim_matches(['"', '(', ')', ' ']).to_owned(), line));
        }
        at + 1
    }

    /// What the imports bind, by name; with those of its tests, or without.
    pub fn bindings(&self, with_tests: bool) -> HashMap<String, Vec<String>> {
        let mut bound = HashMap::new();
        let tokens: TokenStream = self.text.parse().expect("it parsed before");
        collect_bindings(&trees(tokens), &module_of(&self.path), with_tests, &mut bound);
        bound
    }

    fn expand_imports(&mut self) {
        let (of_product, of_all) = (self.bindings(false), self.bindings(true));
        for name in &mut self.names {
            let bound = if name.test { &of_all } else { &of_product };
            for _ in 0..8 {
                let Some(path) = bound.get(&name.parts[0]) else { break };
                if path[0] == name.parts[0] {
                    break;
                }
                name.parts = path.iter().chain(&name.parts[1..]).cloned().collect();
            }
        }
        self.names.retain(|name| name.imported || name.parts.len() > 1);
    }

    /// How many functions of libc an unsafe block calls, by whatever name; none where it is no block.
    pub fn libc_calls(&self, of: &Unsafe) -> Option<usize> {
        let [begin, end] = of.block?;
        let inside = |name: &&Name| (begin..end).contains(&(name.line, name.column));
        Some(self.names.iter().filter(inside).filter(|name| name.called && name.parts[0] == "libc").count())
    }
}

/// Whether `pub`, or `pub(..)`, stands before the `use` at `at`.
fn is_listed(tokens: &[TokenTree], at: usize) -> bool {
    let before = match at.checked_sub(1).map(|before| &tokens[before]) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => at.wrapping_sub(2),
        _ => at.wrapping_sub(1),
    };
    word(tokens, before).as_deref() == Some("pub")
}

fn collect_bindings(
    tokens: &[TokenTree],
    module: &[String],
    with_tests: bool,
    into: &mut HashMap<String, Vec<String>>,
) {
    let mut at = 0;
    while at < tokens.len() {
        if let TokenTree::Group(group) = &tokens[at] {
            let mut inner = module.to_vec();
            if let (Some(name), Some("mod")) =
                (word(tokens, at.wrapping_sub(1)), word(tokens, at.wrapping_sub(2)).as_deref())
            {
                if !with_tests && has_test_attribute(tokens, at - 2) {
                    at += 1;
                    continue;
                }
                inner.push(name);
            }
            collect_bindings(&trees(group.stream()), &inner, with_tests, into);
        } else if word(tokens, at).as_deref() == Some("use") {
            let end = (at..tokens.len()).find(|end| is_punct(tokens, *end, ';')).unwrap_or(tokens.len());
            for (parts, bound, _) in use_tree(&tokens[at + 1..end], &[]) {
                if let Some(bound) = bound {
                    into.insert(bound, absolute(parts, module));
                }
            }
            at = end;
        }
        at += 1;
    }
}

/// Paths, what each is bound to, and its line.
fn use_tree(tokens: &[TokenTree], prefix: &[String]) -> Vec<(Vec<String>, Option<String>, usize)> {
    let mut found = Vec::new();
    for tree in tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')) {
        let start = if is_punct(tree, 0, ':') { 2 } else { 0 };
        let Some(first) = tree.get(start) else { continue };
        let line = first.span().start().line;
        let (mut parts, mut end) = path_at(tree, start);
        if parts.is_empty() {
            end = start;
        } else if is_punct(tree, end, ':') {
            end += 2;
        }
        let mut path = prefix.to_vec();
        path.append(&mut parts);
        match tree.get(end) {
            Some(TokenTree::Group(group)) => found.extend(use_tree(&trees(group.stream()), &path)),
            Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => {
                path.push("*".into());
                found.push((path, None, line));
            }
            other => {
                if path.len() > 1 && path.last().is_some_and(|part| part == "self") {
                    path.pop();
                }
                let renamed = other.is_some().then(|| word(tree, end + 1)).flatten();
                let bound = renamed.or_else(|| path.last().cloned());
                found.push((path, bound, line));
            }
        }
    }
    found
}

/// The parts of the path that begins at `start`, and where it ends; a part takes one token, a `::` two.
fn path_at(tokens: &[TokenTree], start: usize) -> (Vec<String>, usize) {
    let (mut parts, mut at) = (Vec::new(), start);
    while let Some(part) = word(tokens, at) {
        if !parts.is_empty() && part == "as" {
            break;
        }
        parts.push(part);
        at += 1;
        if !is_double_colon(tokens, at) || word(tokens, at + 2).is_none() {
            break;
        }
        at += 2;
    }
    (parts, at)
}

fn absolute(parts: Vec<String>, module: &[String]) -> Vec<String> {
    let mut base: Vec<String> = module.to_vec();
    let mut rest = parts.as_slice();
    match rest.first().map(String::as_str) {
        Some("crate") => return [&module[..1], &rest[1..]].concat(),
        Some("muster") => return [&["crate".to_owned()], &rest[1..]].concat(),
        Some("self") => rest = &rest[1..],
        Some("super") => {}
        _ => return parts,
    }
    while rest.first().is_some_and(|part| part == "super") {
        if base.len() > 1 {
            base.pop();
        }
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    base
}

/// `crate::wire::frame` for `src/wire/frame.rs`. The command is a crate of its own: its names begin with `command`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    let mut parts: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|part| ["mod", "lib", "main"].contains(&part.as_str())) {
        parts.pop();
    }
    if parts.first().is_some_and(|part| part == "bin") {
        return [&["command".to_owned()], &parts[parts.len().min(2)..]].concat();
    }
    [&["crate".to_owned()], &parts[..]].concat()
}

fn is_function_type(tokens: &[TokenTree], mut at: usize) -> bool {
    if word(tokens, at).as_deref() == Some("extern") {
        at += 1;
        if matches!(tokens.get(at), Some(TokenTree::Literal(_))) {
            at += 1;
        }
    }
    word(tokens, at).as_deref() == Some("fn") && word(tokens, at + 1).is_none()
}

/// Whether one of the attributes before the item whose keyword is at `at` is `#[cfg(test)]`.
pub fn has_test_attribute(tokens: &[TokenTree], at: usize) -> bool {
    for before in (0..at).rev() {
        match &tokens[before] {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                let attribute: String = group.stream().to_string().split_whitespace().collect();
                if attribute.starts_with("cfg(") && attribute.contains("test") && !attribute.contains("not(test") {
                    return true;
                }
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {}
            TokenTree::Punct(punct) if punct.as_char() == '#' => {}
            TokenTree::Ident(word) if *word == "pub" => {}
            _ => return false,
        }
    }
    false
}

pub fn trees(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

pub fn word(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

pub fn is_punct(tokens: &[TokenTree], at: usize, sign: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint)
        && is_punct(tokens, at + 1, ':')
}
