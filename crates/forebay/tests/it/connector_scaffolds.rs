//! Projects that `connector new` writes: each is built, tested by `connector test`, installed, and its pipeline run.

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_testing::tool;
use serde_json::Value;
use tempfile::TempDir;

use super::support::{forebay, run, run_ok, stderr};

/// What is built is kept beside the components of this repository, so that a later build is quick.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().join("connectors")
}

/// The directory of rustup's compiler, and that of its linkers.
fn rust() -> Option<(PathBuf, PathBuf)> {
    let said = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim_end());
    let platforms = std::fs::read_dir(sysroot.join("lib/rustlib")).ok()?.flatten();
    let mut linkers = platforms.map(|platform| platform.path().join("bin"));
    let linkers = linkers.find(|bin| bin.join("wasm-component-ld").is_file());
    if linkers.is_none() {
        forebay_testing::left_out("there is no linker of components: rustup brings it");
    }
    Some((sysroot, linkers?))
}

/// Runs a step of a build.
fn step(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", stderr(&done));
}

/// Writes a project in a new directory.
fn project(language: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    run_ok(&dir, &["connector", "new", "my-rows", "--language", language]);
    dir
}

/// Tests the component that was built, installs it and runs its pipeline.
fn works(dir: &TempDir) {
    let project = dir.path().join("my-rows");
    let here = |args: &[&str]| {
        // Compiled in a debug build, a component of Python takes its time.
        let done = forebay(dir).current_dir(&project).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{args:?}: {said}{}", stderr(&done));
        said
    };
    let config = r#"{"rows": 5000, "rows_per_unit": 1200}"#;
    let tested = here(&["connector", "test", "my_rows.wasm", "--settings", config, "--json"]);
    let tested: Value = serde_json::from_str(&tested).unwrap();
    assert_eq!((&tested["failed"], &tested["skipped"]), (&0.into(), &0.into()), "{tested}");
    here(&["connector", "install", "my_rows.wasm", "--name", "my-rows"]);
    here(&["pipeline", "run", "pipeline.yaml"]);
    assert_eq!(lines(&project.join("out")), 10_000);
}

/// The number of lines of all files of rows in a directory.
fn lines(dir: &Path) -> usize {
    let count = |path: PathBuf| match path.is_dir() {
        true => lines(&path),
        false if path.extension().is_some_and(|end| end == "ndjson") => {
            std::fs::read_to_string(&path).unwrap().lines().count()
        }
        false => 0,
    };
    std::fs::read_dir(dir).unwrap().map(|entry| count(entry.unwrap().path())).sum()
}

#[test]
fn a_new_project_in_rust_builds_and_keeps_its_promises() {
    let Some((sysroot, linkers)) = rust() else { return };
    let target = "wasm32-unknown-unknown";
    let has_target = sysroot.join("lib/rustlib").join(target).is_dir();
    let sources = Path::new("/usr/lib/rustlib/src/rust/library");
    if !has_target && !sources.is_dir() {
        forebay_testing::left_out("there is no compiler for WebAssembly: cargo xtask setup");
        return;
    }
    let dir = project("rust");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = vec![linkers.clone()];
    paths.extend(std::env::split_paths(&path));
    let mut cargo = Command::new(if has_target { "cargo" } else { "/usr/bin/cargo" });
    cargo
        .current_dir(dir.path().join("my-rows"))
        .args(["build", "--release", "--target", target])
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("CARGO_TARGET_DIR", built().join("scaffold"));
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER"] {
        cargo.env_remove(name);
    }
    if !has_target {
        // Debian's compiler, with the sources of its standard library.
        let linker = linkers.join("gcc-ld/wasm-ld");
        cargo
            .arg("-Zbuild-std=std,panic_abort")
            .env("RUSTC", "/usr/bin/rustc")
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", format!("-Clink-arg=--wasm-ld-path={}", linker.display()));
    }
    step(&mut cargo);
    let component = built().join("scaffold").join(target).join("release/my_rows.wasm");
    std::fs::copy(component, dir.path().join("my-rows/my_rows.wasm")).unwrap();
    works(&dir);
}

#[test]
fn a_new_project_in_c_builds_and_keeps_its_promises() {
    let Some(zig) = tool("zig", "python-zig") else { return };
    let Some((_, linkers)) = rust() else { return };
    let dir = project("c");
    step(
        Command::new(dir.path().join("my-rows/build.sh"))
            .env("ZIG", zig)
            .env("ZIG_GLOBAL_CACHE_DIR", built().join("c-cache"))
            .env("COMPONENT_LD", linkers.join("wasm-component-ld")),
    );
    works(&dir);
}

#[test]
fn a_new_project_in_python_builds_and_keeps_its_promises() {
    let Some(program) = tool("componentize", "componentize-py") else { return };
    let dir = project("python");
    step(Command::new(dir.path().join("my-rows/build.sh")).env("COMPONENTIZE", program));
    works(&dir);
}

#[test]
fn a_broken_promise_is_reported_and_is_the_exit_code() {
    let file = built().join("trials.wasm");
    if !file.exists() {
        forebay_testing::left_out("connectors are not built: cargo xtask connectors");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = file.to_str().unwrap();
    let test = ["connector", "test", file, "--role", "source", "--stream", "t", "--settings"];
    let of = |config: &str, json: &[&str]| run(&dir, &[&test[..], &[config], json].concat());
    let failed = of(r#"{"mode": "half-tuple"}"#, &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    let said = String::from_utf8(failed.stdout).unwrap();
    for expected in [
        "source t\n  passed  a stream opens",
        "  failed  reading a unit twice gives the same rows",
        "rows between the host and a component",
        "\"no_such_setting\" was accepted",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let failed = of(r#"{"mode": "good"}"#, &["--json"]);
    assert_eq!(failed.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&failed.stdout).unwrap();
    let checks = found["checks"].as_array().unwrap();
    let count = |outcome: &str| checks.iter().filter(|check| check["outcome"] == outcome).count();
    assert_eq!(found["failed"], count("failed"), "{found}");
    assert_eq!(found["passed"], count("passed"), "{found}");
    assert!(checks.iter().any(|check| check["stream"] == "t" && check["role"] == "source"));
    for (args, code, expected) in [
        (&["--settings", "[]"][..], 2, "it is not a JSON object"),
        (&["--settings", "{"], 2, "invalid --settings"),
        (&["--settings", "@/nowhere.json"], 2, "cannot read /nowhere.json"),
        (&["--settings", r#"{"mode": "${NO_SUCH_VARIABLE}"}"#], 2, "NO_SUCH_VARIABLE is not set"),
        (&["--role", "transform"], 2, "the component is no transform"),
        (&["--column", "id"], 2, "write NAME=TYPE"),
    ] {
        let refused = run(&dir, &[&["connector", "test", file][..], args].concat());
        assert_eq!(refused.status.code(), Some(code), "{args:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(expected), "{args:?}: {}", stderr(&refused));
    }
    let missing = run(&dir, &["connector", "test", "missing"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("no connector \"missing\" is installed"));
}

#[test]
fn an_installed_component_is_tested_by_its_name() {
    let file = built().join("clean.wasm");
    if !file.exists() {
        forebay_testing::left_out("connectors are not built: cargo xtask connectors");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run_ok(&dir, &["connector", "install", file.to_str().unwrap(), "--name", "tidy"]);
    let test = ["connector", "test", "tidy", "--settings", r#"{"columns": ["city"]}"#];
    assert_eq!(run(&dir, &test).status.code(), Some(1), "there is no such column");
    let columns = ["--column", "id=bigint", "--column", "city=text"];
    let said = run_ok(&dir, &[&test[..], &columns].concat());
    assert!(said.contains("9 passed, 0 failed, 0 skipped"), "{said}");
}
