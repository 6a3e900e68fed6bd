use super::*;
use std::collections::HashSet;

#[test]
fn rows_stand_at_their_keys_number() {
    for (index, setting) in TABLE.iter().enumerate() {
        assert_eq!(setting.key as usize, index, "{}", setting.name);
        assert!(std::ptr::eq(setting.key.setting(), setting));
    }
}

#[test]
fn defaults_are_valid_values() {
    for setting in &TABLE {
        if let Some(default) = setting.default {
            assert!(setting.kind.parse(default).is_some(), "{} has the default {default:?}", setting.name);
            assert!(!setting.secret, "{} is secret and has a default", setting.name);
        }
    }
}

#[test]
fn no_name_belongs_to_two_settings() {
    let mut names = HashSet::new();
    for setting in &TABLE {
        assert!(names.insert(setting.name.to_string()));
        assert!(names.insert(setting.variable()));
        for name in setting.ms.iter().chain(setting.others) {
            assert!(names.insert(name.to_string()), "{name} twice");
        }
    }
}

#[test]
fn keys_are_their_ms_names_without_the_prefix() {
    for setting in &TABLE {
        for name in setting.ms {
            assert_eq!(*name, format!("MS_{}", setting.name.to_uppercase()));
        }
    }
}

#[test]
fn every_name_finds_its_setting() {
    for setting in &TABLE {
        assert_eq!(Setting::named(setting.name).map(|found| found.key), Some(setting.key));
        let variables = setting.ms.iter().chain(setting.others).map(|name| name.to_string());
        for variable in variables.chain([setting.variable()]) {
            assert_eq!(Setting::of_variable(&variable).map(|found| found.key), Some(setting.key));
        }
    }
    assert!(Setting::named("MS_ROLE").is_none());
    assert!(Setting::of_variable("role").is_none());
    assert_eq!(Key::SchedPort.setting().variable(), "MUSTER_SCHED_PORT");
    assert_eq!(Key::SchedPort.setting().usual_variable(), "MS_SCHED_PORT");
    assert_eq!(Key::Timeout.setting().usual_variable(), "MUSTER_TIMEOUT");
}

#[test]
fn every_doc_is_a_sentence() {
    for setting in &TABLE {
        assert!(setting.doc.ends_with('.') && !setting.doc.contains('|'), "{}: {}", setting.name, setting.doc);
        assert!(!setting.doc.contains("  "), "{}: {}", setting.name, setting.doc);
        assert!(setting.more.is_empty() || setting.more.ends_with('.'), "{}: {}", setting.name, setting.more);
    }
}
