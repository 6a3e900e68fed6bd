//! The rules that look at the house as a whole, and the two types that may break one of them.

use super::shape::{calls, circles, large, parts_of_the_command, rooms, uses, Arrows, FIELDS_MAX, METHODS_MAX};
use super::source::Source;

/// The runtime's rooms, from the ground up. `collectives` and `messages` are two engines side by side.
pub const ROOMS: &[&str] =
    &["base", "memory", "state", "scheduler", "links", "collectives", "messages", "groups", "node"];

/// Types that may be larger: what a user sets, and what a node says of itself, are as long as the lists of them.
const KNOWN_LARGE: &[&str] = &["config::Settings", "wire::Register"];

/// Arrows between the runtime's rooms that point up, or between the two engines.
pub fn upwards(sources: &[Source]) -> Vec<String> {
    let height = |room: &str| ROOMS.iter().position(|known| room.strip_prefix("runtime/") == Some(known));
    let is_wrong = |from: &str, to: &str| match (height(from), height(to)) {
        (Some(from), Some(to)) => to > from || (ROOMS[from], ROOMS[to]) == ("messages", "collectives"),
        _ => true,
    };
    let arrows = rooms(sources);
    let all = arrows.iter().flat_map(|(from, tos)| tos.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| is_wrong(from, to)).map(|(from, to)| format!("{from} names {to}")).collect()
}

/// What is wrong by these rules that is not known, and what is known and not wrong any more.
pub fn broken(sources: &[Source]) -> Vec<String> {
    let mut broken = upwards(sources);
    broken.extend(compare("use each other in a circle", &firsts(&uses(sources)), &[]));
    let parts = firsts(&parts_of_the_command(sources));
    broken.extend(compare("are parts of the command that name each other in a circle", &parts, &[]));
    broken.extend(compare("call each other in a circle", &firsts(&calls(sources)), &[]));
    let large = large(sources);
    let what = format!("is beyond {FIELDS_MAX} fields or {METHODS_MAX} methods");
    let names = large.iter().map(|large| (large.name.clone(), format!("{large:?}"))).collect::<Vec<_>>();
    broken.extend(compare(&what, &names, KNOWN_LARGE));
    broken
}

/// Each circle by its first, and as a whole.
fn firsts(arrows: &Arrows) -> Vec<(String, String)> {
    circles(arrows).into_iter().map(|circle| (circle[0].clone(), circle.join(", "))).collect()
}

fn compare(what: &str, found: &[(String, String)], known: &[&str]) -> Vec<String> {
    let news = found.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    let over = known.iter().filter(|name| !found.iter().any(|(found, _)| found == *name));
    let news = news.map(|(_, all)| format!("{all}: {what}"));
    news.chain(over.map(|name| format!("{name} is listed, and no longer so: strike it"))).collect()
}

/// The picture of the runtime's rooms, as `docs/architecture/runtime.md` shows it.
pub fn picture(sources: &[Source]) -> String {
    let arrows = rooms(sources);
    let mut drawn = String::from(
        "# The rooms of the runtime\n\nEach arrow says that a room uses another. `tests/house.rs` makes this page from the code. \
         The test fails\nif the page does not match the code any more; `MUSTER_BLESS=1 cargo test --test house` makes it anew. No arrow points up.\n\n\
         ```mermaid\nflowchart TD\n",
    );
    for from in ROOMS.iter().rev() {
        let tos = arrows.get(&format!("runtime/{from}")).into_iter().flatten();
        let tos: Vec<&str> = tos.filter_map(|to| to.strip_prefix("runtime/")).collect();
        match tos.is_empty() {
            true => drawn += &format!("    {from}\n"),
            false => drawn += &format!("    {from} --> {}\n", tos.join(" & ")),
        }
    }
    drawn + "```\n"
}

#[cfg(test)]
mod planted {
    use super::super::shape::imports;
    use super::*;

    fn parsed(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::parse(path, text)).collect()
    }

    #[test]
    fn arrows_that_point_up_in_the_runtime_are_caught() {
        for (path, text) in [
            ("src/runtime/state/roster.rs", "use crate::runtime::groups::group::Group;"),
            ("src/runtime/state/roster.rs", "fn f(x: &super::super::links::link::Link) {}"),
            ("src/runtime/messages/mod.rs", "use crate::runtime::collectives::work;"),
            ("src/runtime/collectives/work.rs", "use crate::runtime::messages::Post;"),
            ("src/runtime/links/link.rs", "use crate::runtime::Group;"),
            ("src/runtime/base/log.rs", "use super::super::memory::buffer::Memory;"),
        ] {
            assert_eq!(upwards(&parsed(&[(path, text)])).len(), 1, "in {path}:\n{text}");
        }
        for (path, text) in [
            ("src/runtime/groups/group.rs", "use crate::runtime::{messages::Post, state::roster::Roster};"),
            ("src/runtime/state/roster.rs", "#[cfg(test)] mod tests { use crate::runtime::groups::group::Group; }"),
            ("src/runtime/state/roster_test.rs", "use crate::runtime::groups::group::Group;"),
        ] {
            assert_eq!(upwards(&parsed(&[(path, text)])), Vec::<String>::new(), "in {path}:\n{text}");
        }
    }

    #[test]
    fn files_that_name_each_other_are_caught() {
        let circle = [
            ("src/wire/a.rs", "use super::b::B;"),
            ("src/wire/b.rs", "fn f() { crate::wire::c::g() }"),
            ("src/wire/c.rs", "use super::{a::A, d::D};"),
            ("src/wire/d.rs", "#[cfg(test)] mod tests { use crate::wire::c::g; }"),
            ("src/wire/mod.rs", "mod a; pub use a::A;"),
        ];
        let found = circles(&imports(&parsed(&circle)));
        assert_eq!(found, [["src/wire/a.rs", "src/wire/b.rs", "src/wire/c.rs"]]);
        assert_eq!(circles(&imports(&parsed(&circle[..2]))), Vec::<Vec<String>>::new());
    }

    #[test]
    fn files_that_call_each_others_methods_are_caught() {
        let own = (
            "src/wire/a.rs",
            "use super::b::B; pub struct A; impl A { pub fn turn(&self, by: u8) {} fn entry(&self) {} }",
        );
        for (text, is_circle) in [
            ("pub struct B; fn f(all: &[T]) { all.iter().for_each(|one| { one.left.turn(1); }) }", true),
            ("pub struct B; impl B { fn f(&self) { self.left.turn(1) } }", true),
            ("pub struct B; fn f(one: T) { one.turn::<Vec<u8>>(1) }", true),
            ("pub struct B; fn f(one: T) { one.turn::<fn(u8) -> u8>; (1) }", false),
            ("pub struct B; impl B { fn f(&self) { self.turn(1) } }", false), // another rule's
            ("pub struct B; fn f(one: T) { one.turn; one.entry(1); 0..turn(1) }", false),
            ("pub struct B; fn f(one: T) { one.turn(1) } fn turn() {}", false),
            ("pub struct B; impl A { fn f(self: &Arc<A>) { self.clone().turn(1) } }", false),
            ("pub struct B; #[cfg(test)] mod tests { fn f(one: T) { one.turn(1) } }", false),
        ] {
            let found = circles(&uses(&parsed(&[own, ("src/wire/b.rs", text)])));
            assert_eq!(!found.is_empty(), is_circle, "{text}: {found:?}");
        }
        let other = ("src/agent/b.rs", "pub struct B; fn f(one: T) { one.turn(1) }");
        assert_eq!(circles(&uses(&parsed(&[own, other]))), Vec::<Vec<String>>::new());
    }

    #[test]
    fn parts_of_the_command_that_name_each_other_are_caught() {
        let main = ("src/bin/muster/main.rs", "mod cli; mod voice; const COMMANDS: u8 = crate::cli::table::COUNT;");
        for (path, text, is_circle) in [
            ("src/bin/muster/cli/mod.rs", "use crate::{voice, COMMANDS};", true),
            ("src/bin/muster/voice.rs", "fn f() { crate::cli::help::page() }", true),
            ("src/bin/muster/voice.rs", "#[cfg(test)] mod tests { use crate::cli::help::page; }", false),
            ("src/bin/muster/cli/help.rs", "use super::table::Command; use muster::config::Key;", false),
        ] {
            let user = ("src/bin/muster/cli/table.rs", "use crate::voice::tell;");
            let files = [main, user, ("src/bin/muster/voice.rs", ""), (path, text)];
            let found = circles(&parts_of_the_command(&parsed(&files)));
            assert_eq!(!found.is_empty(), is_circle, "in {path}:\n{text}: {found:?}");
        }
    }

    #[test]
    fn circles_through_a_list_are_caught() {
        // `a` takes from the room what `b` has, and `b` names `a`.
        for (list, named) in [
            ("mod a; mod b; pub use b::B;", "use super::B;"),
            ("mod a; mod b; pub use self::b::B;", "fn f(x: crate::wire::B) {}"),
            ("mod a; mod b; pub(crate) use b::{B as C};", "use crate::wire::{C};"),
            ("mod a; mod b; use b::B; #[cfg(test)] mod tests { use super::a::B; }", "fn f(x: &super::B) {}"),
        ] {
            let files = [
                ("src/wire/a.rs", named),
                ("src/wire/b.rs", "use super::a::A; pub struct B;"),
                ("src/wire/mod.rs", list),
            ];
            let found = circles(&imports(&parsed(&files)));
            assert_eq!(found, [["src/wire/a.rs", "src/wire/b.rs"]], "{list} {named}");
        }
    }

    #[test]
    fn circles_around_a_list_with_logic_are_caught() {
        // `a` uses what stands in the list itself, which uses `a`.
        for list in [
            "mod a; use a::A; const LIMIT: u8 = 1;",
            "mod a; const LIMIT: u8 = 1; fn f() { a::f() }",
            "mod a; pub use a::A; const LIMIT: u8 = 1; fn f(x: A) {}",
        ] {
            let files = [("src/wire/a.rs", "use super::LIMIT; pub(super) struct A;"), ("src/wire/mod.rs", list)];
            assert_eq!(circles(&imports(&parsed(&files))), [["src/wire/a.rs", "src/wire/mod.rs"]], "{list}");
        }
        for (list, child) in [
            ("mod a; pub use a::A; pub(crate) use self::a::B; const LIMIT: u8 = 1;", "use super::LIMIT;"),
            ("mod a; use a::A; const LIMIT: u8 = 1;", "pub(super) struct A;"),
        ] {
            let files = [("src/wire/a.rs", child), ("src/wire/mod.rs", list)];
            assert_eq!(circles(&imports(&parsed(&files))), Vec::<Vec<String>>::new(), "{list} {child}");
        }
    }

    #[test]
    fn methods_that_call_each_other_around_files_are_caught() {
        let files = [
            ("src/wire/a.rs", "struct T; impl<'a> T<'a> { fn a(&self) { if x { self.b(1) } } }"),
            ("src/wire/b.rs", "impl T<'_> { fn b(&self) { vec![Self::a(self)] } fn c(&self) { self.d } }"),
            ("src/wire/c.rs", "impl T<'_> { fn d(&self) {} } impl Clone for T<'_> { fn clone(&self) { self.a() } }"),
            ("src/wire/d.rs", "impl Other { fn a(&self) { self.b() } }"),
        ];
        let found = circles(&calls(&parsed(&files)));
        assert_eq!(found, [["T in src/wire/a.rs", "T in src/wire/b.rs"]]);
        let files = [
            ("src/wire/a.rs", "struct T; impl T { fn a(&self) {} } impl<A> From<A> for T where A: B { fn from(x: A) { x.f(self.b()) } }"),
            ("src/wire/b.rs", "impl T { fn b(&self) { T::a::<fn(u8) -> u8>(self) } }"),
        ];
        let found = circles(&calls(&parsed(&files)));
        assert_eq!(found, [["T in src/wire/a.rs", "T in src/wire/b.rs"]]);
    }

    #[test]
    fn what_is_listed_and_no_longer_so_is_caught() {
        let found = [("wire::A".to_owned(), "A".to_owned())];
        assert_eq!(compare("is large", &found, &["wire::A"]), Vec::<String>::new());
        assert_eq!(compare("is large", &found, &["wire::B"]).len(), 2, "A is news, and B is listed in vain");
    }

    #[test]
    fn a_new_arrow_changes_the_picture() {
        let files = [("src/runtime/groups/group.rs", "use crate::runtime::base::log::Logger;")];
        let more = [files[0], ("src/runtime/groups/handle.rs", "use crate::runtime::state::roster::Roster;")];
        assert!(picture(&parsed(&files)).contains("    groups --> base\n"));
        assert!(picture(&parsed(&more)).contains("    groups --> base & state\n"));
    }

    #[test]
    fn large_types_are_caught() {
        let fields =
            |count: usize| (0..count).map(|at| format!("pub f{at}: std::vec::Vec<(u8, a::B)>,")).collect::<String>();
        let methods =
            |count: usize| (0..count).map(|at| format!("pub(crate) fn m{at}(&self) {{}}")).collect::<String>();
        let text = |f, m| format!("pub struct T<A> {{ {} }} impl<A> T<A> {{ {} }}", fields(f), methods(m));
        for (f, m, is_large) in [(15, 40, false), (16, 0, true), (0, 41, true)] {
            let found = large(&parsed(&[("src/wire/a.rs", &text(f, m))]));
            assert_eq!(!found.is_empty(), is_large, "{found:?}");
            let within = format!("record! {{ {} }}", text(f, m));
            assert_eq!(!large(&parsed(&[("src/wire/a.rs", &within)])).is_empty(), is_large, "a macro makes it");
        }
        let spread = [("src/wire/a.rs", text(1, 30)), ("src/wire/b.rs", format!("impl T<u8> {{ {} }}", methods(11)))];
        let spread: Vec<(&str, &str)> = spread.iter().map(|(path, text)| (*path, text.as_str())).collect();
        assert_eq!(large(&parsed(&spread)).len(), 1);
    }
}
