//! What the house as a whole looks like: which rooms and files name which, how large types are, and how their methods call.

use super::source::{has_test_attribute, is_punct, trees, word, Source};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// From each to those that it names or calls.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// One `impl` block of a type.
struct Methods {
    of: String,
    /// Whether the methods are the type's own, and no trait's.
    inherent: bool,
    file: String,
    names: Vec<String>,
    /// The methods of the type that it calls: on `self`, or by the type's name.
    calls: BTreeSet<String>,
}

/// A type with more than the house allows.
#[derive(Debug, PartialEq)]
pub struct Large {
    pub name: String,
    pub fields: usize,
    pub methods: usize,
}

pub const FIELDS_MAX: usize = 15;
pub const METHODS_MAX: usize = 40;

/// `runtime/links` for a file there; `wire` for one of `src/wire`; `bin/muster/run` for one of the launcher's. Files right in `src/runtime` are tests, or list the rooms.
pub fn room_of(path: &str) -> String {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let parts: Vec<&str> = inside.split('/').collect();
    let depth = match parts[0] {
        "runtime" if parts.len() > 2 => 3,
        "bin" => 4,
        _ => 2,
    };
    parts[..parts.len().min(depth) - 1].join("/")
}

/// The file that holds the longest part of a name, if one of these does.
fn file_of(parts: &[String], files: &BTreeMap<String, String>) -> Option<String> {
    let longest =
        (1..=parts.len()).rev().map(|end| parts[..end].join("::")).find(|module| files.contains_key(module))?;
    files.get(&longest).cloned()
}

fn product(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| !source.is_test())
}

fn files(sources: &[Source]) -> BTreeMap<String, String> {
    product(sources).map(|source| (source.module().join("::"), source.path.clone())).collect()
}

/// Where names stand that are brought in: from `crate::wire::Message` to `crate::wire::message::Message`, if the room's `mod.rs`
/// says `pub use message::Message`, or uses it itself: its children may take it from there.
struct Detours {
    files: BTreeMap<String, String>,
    bound: BTreeMap<String, HashMap<String, Vec<String>>>,
}

impl Detours {
    fn of(sources: &[Source]) -> Detours {
        let bound = product(sources).map(|source| (source.module().join("::"), source.bindings(false)));
        Detours { files: files(sources), bound: bound.collect() }
    }

    /// The file in which a name stands that is used in this module.
    fn file_of(&self, name: &[String], module: &[String]) -> Option<String> {
        let child = [module, &name[..1]].concat();
        let mut parts = match self.files.contains_key(&child.join("::")) {
            true => [module, name].concat(),
            false => name.to_vec(),
        };
        for _ in 0..8 {
            let end = (1..=parts.len()).rev().find(|end| self.files.contains_key(&parts[..*end].join("::")))?;
            let (module, rest) = parts.split_at(end);
            let next = rest.first().and_then(|first| self.bound.get(&module.join("::"))?.get(first));
            match next {
                Some(path) if path[..] != parts[..=end] => {
                    let is_relative = self.files.contains_key(&[module, &path[..1]].concat().join("::"));
                    let base = if is_relative { module } else { &[] };
                    parts = [base, &path[..], &rest[1..]].concat();
                }
                _ => break,
            }
        }
        file_of(&parts, &self.files)
    }
}

/// Which of the runtime's rooms name which.
pub fn rooms(sources: &[Source]) -> Arrows {
    let mut arrows = Arrows::new();
    for source in product(sources).filter(|source| source.path.starts_with("src/runtime/")) {
        let own = room_of(&source.path);
        if own == "runtime" {
            continue; // it lists the rooms
        }
        let named = source
            .names
            .iter()
            .filter(|name| !name.test && name.parts.starts_with(&["crate".into(), "runtime".into()]));
        let others = named.filter_map(|name| name.parts.get(2)).map(|room| format!("runtime/{room}"));
        arrows.entry(own.clone()).or_default().extend(others.filter(|room| *room != own));
    }
    arrows
}

/// Which files of a room name which others of it, also through the room's `mod.rs`. What that only lists, by `pub use`, is no use
/// of it.
pub fn imports(sources: &[Source]) -> Arrows {
    let detours = Detours::of(sources);
    let mut arrows = Arrows::new();
    for source in product(sources) {
        let (is_list, module) = (source.path.ends_with("/mod.rs"), source.module());
        // `pub(super)` names no item.
        let named = source.names.iter().filter(|name| name.imported || !module.starts_with(&name.parts));
        let named = named.filter(|name| !(name.test || is_list && name.listed));
        let others = named.filter_map(|name| detours.file_of(&name.parts, &module));
        let others = others.filter(|file| *file != source.path && room_of(file) == room_of(&source.path));
        arrows.entry(source.path.clone()).or_default().extend(others);
    }
    arrows
}

/// Methods whose calls say nothing: types of the standard library have them too.
const AMBIGUOUS: &[&str] = &["entry"];

/// What `imports` sees, and which files of a room call methods of others of it, on any value but `self`. A name alone tells the
/// method: so it counts only if the house has one function of that name. Among the files of one type, `calls` looks.
pub fn uses(sources: &[Source]) -> Arrows {
    let (mut once, mut twice) = (HashSet::new(), HashSet::new());
    for function in product(sources).flat_map(|source| &source.functions).filter(|function| !function.test) {
        if !once.insert(function.name.as_str()) {
            twice.insert(function.name.as_str());
        }
    }
    let mut homes = HashMap::new();
    for own in product(sources).flat_map(methods).filter(|own| own.inherent) {
        let told = own.names.into_iter().filter(|name| !twice.contains(name.as_str()) && !AMBIGUOUS.contains(&&**name));
        homes.extend(told.map(|name| (name, (own.of.clone(), own.file.clone()))));
    }
    let mut arrows = imports(sources);
    for source in product(sources) {
        let mut called = BTreeSet::new();
        collect_method_calls(&trees(source.text.parse().expect("it parsed before")), &mut called);
        let families: BTreeSet<String> = methods(source).into_iter().map(|own| own.of).collect();
        let others = called.iter().filter_map(|name| homes.get(name)).filter(|(of, _)| !families.contains(of));
        let others = others.map(|(_, file)| file).filter(|file| **file != source.path);
        let others = others.filter(|file| room_of(file) == room_of(&source.path));
        arrows.entry(source.path.clone()).or_default().extend(others.cloned());
    }
    arrows
}

/// Of the files that hold the methods of one type, which call which: from `Type in file`.
pub fn calls(sources: &[Source]) -> Arrows {
    let all: Vec<Methods> = product(sources).flat_map(methods).collect();
    let mut arrows = Arrows::new();
    for own in &all {
        let family = |other: &&Methods| other.of == own.of && room_of(&other.file) == room_of(&own.file);
        let called = all.iter().filter(family).filter(|other| other.file != own.file);
        let called = called.filter(|other| other.names.iter().any(|name| own.calls.contains(name)));
        let name = |methods: &Methods| format!("{} in {}", methods.of, methods.file);
        arrows.entry(name(own)).or_default().extend(called.map(name));
    }
    arrows
}

/// Which parts of the command name which: a folder of it, or a file beside these.
pub fn parts_of_the_command(sources: &[Source]) -> Arrows {
    const COMMAND: &str = "src/bin/muster/";
    let part = |path: &str| {
        let inside = path.strip_prefix(COMMAND)?;
        Some(inside.split('/').next()?.trim_end_matches(".rs").to_owned())
    };
    let parts: BTreeSet<String> = sources.iter().filter_map(|source| part(&source.path)).collect();
    let mut arrows = Arrows::new();
    for source in product(sources) {
        let Some(own) = part(&source.path) else { continue };
        let named = source.names.iter().filter(|name| !name.test && name.parts[0] == "command");
        let named = named.filter_map(|name| name.parts.get(1)).map(|other| match parts.contains(other) {
            true => other.clone(),
            false => "main".to_owned(),
        });
        arrows.entry(own.clone()).or_default().extend(named.filter(|other| *other != own));
    }
    arrows
}

/// The types that are larger than the house allows.
pub fn large(sources: &[Source]) -> Vec<Large> {
    let mut found: BTreeMap<String, Large> = BTreeMap::new();
    for source in product(sources) {
        let room = room_of(&source.path);
        let mut count = |of: &str, fields: usize, methods: usize| {
            let name = format!("{room}::{of}");
            let large = found.entry(name.clone()).or_insert(Large { name, fields: 0, methods: 0 });
            (large.fields, large.methods) = (large.fields + fields, large.methods + methods);
        };
        fields(source).iter().for_each(|(of, fields)| count(of, *fields, 0));
        methods(source).iter().filter(|own| own.inherent).for_each(|own| count(&own.of, 0, own.names.len()));
    }
    found.into_values().filter(|large| large.fields > FIELDS_MAX || large.methods > METHODS_MAX).collect()
}

/// Those that reach each other, each circle once; in order.
pub fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            next.extend(arrows.get(at).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|from| (from, reached(from))).collect();
    let mutual = |one: &String| -> Vec<String> {
        let mutual = all.keys().filter(|other| all[one].contains(**other) && all[*other].contains(one));
        mutual.map(|name| (*name).clone()).collect()
    };
    let circles: BTreeSet<Vec<String>> = arrows.keys().map(mutual).collect();
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

fn methods(source: &Source) -> Vec<Methods> {
    let mut found = Vec::new();
    items(source, &mut |tokens, at| {
        if word(tokens, at).as_deref() != Some("impl") {
            return;
        }
        let Some((of, inherent)) = implemented(&tokens[at + 1..]) else { return };
        let body = tokens[at..].iter().find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(trees(group.stream())),
            _ => None,
        });
        let Some(body) = body else { return };
        let names = (0..body.len()).filter(|at| word(&body, *at).as_deref() == Some("fn"));
        let names = names.filter(|at| !has_test_attribute(&body, *at)).filter_map(|at| word(&body, at + 1)).collect();
        let mut calls = BTreeSet::new();
        collect_calls(&body, &of, &mut calls);
        found.push(Methods { of, inherent, file: source.path.clone(), names, calls });
    });
    found
}

/// The type of an `impl`, from what stands behind that word, and whether no trait is implemented.
fn implemented(tokens: &[TokenTree]) -> Option<(String, bool)> {
    let (mut depth, mut name, mut inherent) = (0, None, true);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_punct(tokens, at.wrapping_sub(1), '-') => {
                depth -= 1
            }
            TokenTree::Ident(ident) if *ident == "for" && depth == 0 => inherent = false,
            TokenTree::Ident(ident) if *ident == "where" && depth == 0 => break,
            TokenTree::Ident(ident) if depth == 0 => name = Some(ident.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ => {}
        }
    }
    name.map(|name| (name, inherent))
}

/// The methods of this type that are called on `self`, or by the type's name.
fn collect_calls(tokens: &[TokenTree], of: &str, into: &mut BTreeSet<String>) {
    for at in 0..tokens.len() {
        if let TokenTree::Group(group) = &tokens[at] {
            collect_calls(&trees(group.stream()), of, into);
        }
        let method = match word(tokens, at).as_deref() {
            Some("self") if is_punct(tokens, at + 1, '.') => word(tokens, at + 2).map(|name| (name, at + 3)),
            Some(name) if ["Self", of].contains(&name) && is_punct(tokens, at + 1, ':') => {
                word(tokens, at + 3).map(|name| (name, at + 4))
            }
            _ => None,
        };
        into.extend(method.filter(|(_, end)| are_arguments(tokens, *end)).map(|(name, _)| name));
    }
}

/// Whether arguments stand here: `(…)` or `::<…>(…)`.
fn are_arguments(tokens: &[TokenTree], at: usize) -> bool {
    let mut end = at;
    if is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':') && is_punct(tokens, at + 2, '<') {
        end += 2;
        let mut depth = 0;
        while end < tokens.len() && (depth > 0 || end == at + 2) {
            let is_closing = is_punct(tokens, end, '>') && !is_punct(tokens, end - 1, '-');
            depth += i32::from(is_punct(tokens, end, '<')) - i32::from(is_closing);
            end += 1;
        }
    }
    matches!(tokens.get(end), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

/// The methods that the product code calls on anything but `self`.
fn collect_method_calls(tokens: &[TokenTree], into: &mut BTreeSet<String>) {
    for at in 0..tokens.len() {
        if let TokenTree::Group(group) = &tokens[at] {
            let item = at.wrapping_sub(2);
            if word(tokens, item).as_deref() != Some("mod") || !has_test_attribute(tokens, item) {
                collect_method_calls(&trees(group.stream()), into);
            }
        }
        let before = at.wrapping_sub(1);
        let is_dot = is_punct(tokens, at, '.') && !is_punct(tokens, before, '.');
        if is_dot && are_arguments(tokens, at + 2) && word(tokens, before).as_deref() != Some("self") {
            into.extend(word(tokens, at + 1));
        }
    }
}

/// The structs of a file, each with the number of its fields.
fn fields(source: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    items(source, &mut |tokens, at| {
        if word(tokens, at).as_deref() != Some("struct") {
            return;
        }
        let Some(name) = word(tokens, at + 1) else { return };
        let body =
            tokens[at..].iter().take_while(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';'));
        let body = body.filter_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(trees(group.stream())),
            _ => None,
        });
        found.extend(body.take(1).map(|body| (name.clone(), count_fields(&body))));
    });
    found
}

/// A field's name is the one word that a single colon follows, outside of angle brackets.
fn count_fields(body: &[TokenTree]) -> usize {
    let (mut depth, mut count) = (0, 0);
    for at in 0..body.len() {
        match &body[at] {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_punct(body, at.wrapping_sub(1), '-') => depth -= 1,
            TokenTree::Ident(_) if depth == 0 => {
                let is_path = is_punct(body, at + 2, ':')
                    || is_punct(body, at.wrapping_sub(1), ':') && is_punct(body, at.wrapping_sub(2), ':');
                count += usize::from(is_punct(body, at + 1, ':') && !is_path);
            }
            _ => {}
        }
    }
    count
}

/// Shows every token of the file's product code at the level of items, within modules and macros (`record! { pub struct … }`), too. What a macro
/// makes of other words (`thresholds! { … }`) is not seen.
fn items(source: &Source, show: &mut impl FnMut(&[TokenTree], usize)) {
    fn level(tokens: &[TokenTree], show: &mut impl FnMut(&[TokenTree], usize)) {
        for at in 0..tokens.len() {
            if has_test_attribute(tokens, at) {
                continue;
            }
            show(tokens, at);
            if let (Some(before), Some(TokenTree::Group(body))) = (word(tokens, at), tokens.get(at + 2)) {
                if before == "mod" || is_punct(tokens, at + 1, '!') {
                    level(&trees(body.stream()), show);
                }
            }
        }
    }
    let tokens: TokenStream = source.text.parse().expect("it parsed before");
    level(&trees(tokens), show);
}
