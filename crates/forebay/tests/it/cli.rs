//! The command line and the configuration.

use serde_json::Value;

use crate::support::{forebay, run, run_ok, stderr};

#[test]
fn config_show_prints_the_source_of_each_value() {
    let dir = tempfile::tempdir().unwrap();
    let text = "data = \"here\"\n\n[server]\nidle_timeout = \"5s\"\nconnections_max = 7\n";
    std::fs::write(dir.path().join("forebay.toml"), text).unwrap();
    let output = forebay(&dir)
        .args(["config", "show", "--json", "--listen", "127.0.0.1:1", "--set", "threads=2"])
        .env("FOREBAY_SERVER_CONNECTIONS_MAX", "9")
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of =
        |key: &str| (shown[key]["value"].as_str().unwrap(), shown[key]["source"].as_str().unwrap());
    assert_eq!(of("server.listen"), ("127.0.0.1:1", "flag"));
    assert_eq!(of("threads"), ("2", "flag"));
    assert_eq!(of("server.connections_max"), ("9", "environment"));
    assert_eq!(of("server.idle_timeout"), ("5s", "file"));
    assert_eq!(shown["server.idle_timeout"]["line"], 4);
    assert_eq!(of("server.shutdown_limit"), ("30s", "default"));
    let human = run_ok(&dir, &["config", "show"]);
    assert!(
        human.lines().any(|line| line.starts_with("data ") && line.ends_with("# forebay.toml:1"))
    );
}

#[test]
fn what_config_show_and_config_init_print_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    for printed in [run_ok(&dir, &["config", "init"]), run_ok(&dir, &["config", "show"])] {
        std::fs::write(dir.path().join("again.toml"), printed).unwrap();
        run_ok(&dir, &["config", "show", "--config", "again.toml"]);
    }
}

#[test]
fn a_mistyped_key_is_refused_with_file_line_and_the_nearest_key() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("forebay.toml"), "[server]\n\nlisen = \"x\"\n").unwrap();
    let output = run(&dir, &["serve"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("forebay.toml:3") && text.contains("did you mean server.listen?"),
        "{text}"
    );
}

#[test]
fn a_missing_named_configuration_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&dir, &["serve", "--config", "nowhere.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nowhere.toml"), "{}", stderr(&output));
}

#[test]
fn a_mistyped_flag_is_a_usage_error_that_names_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&dir, &["serve", "--lisen", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--listen"), "{}", stderr(&output));
}

#[test]
fn help_has_examples_and_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let help = run_ok(&dir, &["--help"]);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    assert!(run_ok(&dir, &["serve", "--help"]).contains("Examples:"));
}

#[test]
fn completions_and_manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(run_ok(&dir, &["completions", shell]).contains("forebay"), "{shell}");
    }
    run_ok(&dir, &["man", "pages/man1"]);
    let page = std::fs::read_to_string(dir.path().join("pages/man1/forebay-serve.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("listen"));
    let version: Value = serde_json::from_str(&run_ok(&dir, &["version", "--json"])).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn output_that_cannot_be_written_is_an_error_but_a_closed_pipe_is_not() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["--help"][..], &["help", "serve"], &["-V"], &["version"], &["config", "init"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = forebay(&dir).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains("cannot write to standard output"), "{args:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = forebay(&dir).args(args).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_variable_that_names_no_setting_is_reported_by_config_show() {
    let dir = tempfile::tempdir().unwrap();
    let mut show = forebay(&dir);
    let output = show.args(["config", "show"]).env("FOREBAY_SERVER_LISTN", "x").output().unwrap();
    assert!(output.status.success());
    assert!(stderr(&output).contains("did you mean FOREBAY_SERVER_LISTEN?"), "{}", stderr(&output));
}

#[test]
fn a_password_file_that_is_missing_is_named_with_its_setting_and_source() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[intake.database]\nurl = 'postgres://a@127.0.0.1:9/d'\npassword_file = 'missing'\n";
    std::fs::write(dir.path().join("forebay.toml"), text).unwrap();
    let cache = ["--set", "cache.enabled=false"];
    let output = run(&dir, &[&["serve", "--listen", "127.0.0.1:0"][..], &cache].concat());
    assert_eq!(output.status.code(), Some(2));
    let named = "intake.database.password_file (forebay.toml:3): cannot read missing";
    assert!(stderr(&output).contains(named), "{}", stderr(&output));
    let cache = ["cache", "serve", "--no-persist", "--resp", "127.0.0.1:0", "--text", ""];
    let output = run(&dir, &[&cache[..], &["--password-file", "missing"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let named = "cache.password_file (flag --password-file): cannot read missing";
    assert!(stderr(&output).contains(named), "{}", stderr(&output));
}
