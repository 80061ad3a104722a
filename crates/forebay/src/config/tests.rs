//! Claims about precedence, provenance and refusals.

use std::path::Path;

use super::resolve::{Flags, Origin, Resolved, config_file};
use super::settings::SETTINGS;
use super::{file, template};

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn with_file(text: &str) -> (tempfile::TempDir, Flags) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("forebay.toml");
    std::fs::write(&path, text).unwrap();
    (dir, Flags::with_file(Some(path)))
}

fn origin_of(resolved: &Resolved, key: &str) -> (String, Origin) {
    let (_, text, origin) = resolved.iter().find(|(s, ..)| s.key == key).unwrap();
    (text.to_owned(), origin.clone())
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let (dir, mut flags) = with_file("threads = 3\n\n[server]\nlisten = '127.0.0.1:1'\n");
    let path = dir.path().join("forebay.toml");
    let key = "server.listen";
    let load = |flags: &Flags, pairs: &[(&str, &str)]| {
        origin_of(&Resolved::load(flags, &env(pairs)).unwrap(), key)
    };
    let none = Flags::with_file(Some(dir.path().join("empty.toml")));
    std::fs::write(dir.path().join("empty.toml"), "").unwrap();
    assert_eq!(load(&none, &[]), ("127.0.0.1:8090".to_owned(), Origin::Default));
    assert_eq!(load(&flags, &[]), ("127.0.0.1:1".to_owned(), Origin::File { path, line: 4 }));
    let variable = ("FOREBAY_SERVER_LISTEN", "127.0.0.1:2");
    assert_eq!(
        load(&flags, &[variable]),
        ("127.0.0.1:2".to_owned(), Origin::Env(variable.0.into()))
    );
    flags.note(key, "--listen", Some("127.0.0.1:3".to_owned()));
    let won = load(&flags, &[variable]);
    assert_eq!(won, ("127.0.0.1:3".to_owned(), Origin::Flag("--listen".to_owned())));
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_key() {
    let text =
        "data = 'x'\n[server]\nlisten = '127.0.0.1:1'\nidle_timout = '5s'\n[sever]\nlisten = 1\n";
    let error = file::parse(Path::new("f.toml"), text).unwrap_err().to_string();
    assert!(error.contains("f.toml:4: unknown key \"server.idle_timout\""), "{error}");
    assert!(error.contains("did you mean server.idle_timeout?"), "{error}");
    assert!(error.contains("f.toml:5: unknown section [sever]"), "all faults at once: {error}");
}

#[test]
fn a_wrong_value_names_its_source_and_what_was_expected() {
    let (_dir, flags) = with_file("[server]\nconnections_max = -4\n");
    let error = Resolved::load(&flags, &[]).unwrap_err().to_string();
    assert!(error.contains("forebay.toml:2: server.connections_max = \"-4\""), "{error}");
    assert!(error.contains("expected a whole number"), "{error}");
    let error = Resolved::load(&flags, &env(&[("FOREBAY_SERVER_CONNECTIONS_MAX", "many")]));
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("environment FOREBAY_SERVER_CONNECTIONS_MAX"), "{error}");
}

#[test]
fn broken_toml_names_the_line() {
    let error = file::parse(Path::new("f.toml"), "data = 'x'\nthreads = = 2\n").unwrap_err();
    assert!(error.to_string().starts_with("f.toml:2:"), "{error}");
}

#[test]
fn a_table_where_a_value_belongs_is_refused() {
    let error = file::parse(Path::new("f.toml"), "[data]\nx = 1\n").unwrap_err().to_string();
    assert!(error.contains("f.toml:1: data must be a path"), "{error}");
}

#[test]
fn set_takes_any_key_and_corrects_a_slip() {
    let mut flags = Flags::default();
    flags.set("server.idle_timeout=5s").unwrap();
    let error = flags.set("server.idle_timeot=5s").unwrap_err().to_string();
    assert!(error.contains("did you mean server.idle_timeout?"), "{error}");
    assert!(flags.set("nonsense").unwrap_err().to_string().contains("KEY=VALUE"));
}

#[test]
fn the_template_is_a_configuration_that_changes_nothing() {
    let active: String = template()
        .lines()
        .filter_map(|line| {
            let setting =
                line.strip_prefix('#').filter(|l| l.contains(" = ") && !l.starts_with(' '));
            setting
                .or_else(|| line.starts_with('[').then_some(line))
                .map(|line| format!("{line}\n"))
        })
        .collect();
    let entries = file::parse(Path::new("f.toml"), &active).unwrap();
    assert_eq!(entries.len(), SETTINGS.len(), "every setting is in the template: {active}");
    for entry in entries {
        let setting = super::settings::find(entry.key).unwrap();
        assert_eq!(entry.text, setting.default, "{}", entry.key);
    }
}

#[test]
fn every_default_is_a_valid_value() {
    let (_dir, flags) = with_file("");
    Resolved::load(&flags, &[]).unwrap().config().unwrap();
}

#[test]
fn a_certificate_without_its_key_is_refused() {
    let (_dir, flags) = with_file("[server]\ntls_cert = 'cert.pem'\n");
    let error = Resolved::load(&flags, &[]).unwrap().config().unwrap_err().to_string();
    assert!(error.contains("forebay.toml:2: server.tls_cert = \"cert.pem\": "), "{error}");
    assert!(error.contains("belong together"), "{error}");
}

#[test]
fn settings_that_are_not_allowed_are_named_with_their_sources() {
    let (_dir, mut flags) = with_file("[events]\norigin = 'a b'\n");
    let refused = |flags: &Flags, pairs: &[(&str, &str)]| {
        Resolved::load(flags, &env(pairs)).unwrap().config().unwrap_err().to_string()
    };
    let error = refused(&flags, &[]);
    assert!(error.contains("forebay.toml:2: events.origin = \"a b\": must not"), "{error}");
    let error = refused(&flags, &[("FOREBAY_EVENTS_ORIGIN", "a+b")]);
    assert!(error.starts_with("environment FOREBAY_EVENTS_ORIGIN: events.origin = "), "{error}");
    flags.set("events.origin=x").unwrap();
    flags.set("events.witness_name=").unwrap();
    let error = refused(&flags, &[]);
    assert!(error.starts_with("flag --set: events.witness_name = \"\": must not"), "{error}");
    flags.set("events.witness_name=w").unwrap();
    flags.set("intake.database.url=postgres://a:secret@h/d").unwrap();
    flags.set("intake.database.connections_max=0").unwrap();
    let error = refused(&flags, &[]);
    assert!(error.starts_with("flag --set: intake.database.connections_max = \"0\": "), "{error}");
}

#[test]
fn the_source_of_a_setting_can_be_named_when_it_is_used() {
    let (_dir, mut flags) = with_file("");
    flags.note("server.tls_key", "--tls-key", Some("key.pem".to_owned()));
    flags.set("server.tls_cert=cert.pem").unwrap();
    let config = Resolved::load(&flags, &[]).unwrap().config().unwrap();
    assert_eq!(config.sources.named("server.tls_key"), "server.tls_key (flag --tls-key)");
    assert_eq!(config.sources.named("server.listen"), "server.listen");
}

#[test]
fn a_key_that_is_set_twice_is_named_with_its_line() {
    let text = "[server]\nlisten = '127.0.0.1:1'\nlisten = '127.0.0.1:2'\n";
    let error = file::parse(Path::new("f.toml"), text).unwrap_err().to_string();
    assert!(error.starts_with("f.toml:3: listen is set twice"), "{error}");
    let text = "[server]\nauth = 'off'\n[server]\n";
    let error = file::parse(Path::new("f.toml"), text).unwrap_err().to_string();
    assert!(error.starts_with("f.toml:3: server is set twice"), "{error}");
}

#[test]
fn a_mistyped_section_is_answered_with_the_right_one() {
    for (typed, meant) in [
        ("servr", "did you mean [server]?"),
        ("intake.databse", "did you mean [intake.database]?"),
        ("completely_different", "`forebay config show` lists every key"),
    ] {
        let text = format!("[{typed}]\nlisten = '127.0.0.1:1'\n");
        let error = file::parse(Path::new("f.toml"), &text).unwrap_err().to_string();
        assert!(
            error.contains(&format!("f.toml:1: unknown section [{typed}]; {meant}")),
            "{error}"
        );
    }
}

#[test]
fn a_dangling_link_in_place_of_the_file_is_not_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let flags = Flags::default();
    assert_eq!(config_file(&flags, &[], dir.path()), None);
    let link = dir.path().join("forebay.toml");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert_eq!(config_file(&flags, &[], dir.path()), Some(link.clone()));
    let error = Resolved::load(&Flags::with_file(Some(link)), &[]).unwrap_err();
    assert!(error.to_string().contains("cannot read the configuration file"), "{error}");
}

#[test]
fn a_mistyped_variable_is_noticed() {
    let (_dir, flags) = with_file("");
    let resolved = Resolved::load(&flags, &env(&[("FOREBAY_SERVER_LISTN", "x")])).unwrap();
    let meant = Some("FOREBAY_SERVER_LISTEN".to_owned());
    assert_eq!(resolved.stray_env, [("FOREBAY_SERVER_LISTN".to_owned(), meant)]);
    let warnings: Vec<String> = resolved.warnings().collect();
    assert!(warnings[0].contains("did you mean FOREBAY_SERVER_LISTEN?"), "{warnings:?}");
}
