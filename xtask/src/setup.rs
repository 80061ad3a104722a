//! `cargo xtask setup`: what tests and checks need beyond the Rust toolchain.
//!
//! Tests and benchmarks of the cache compare it with a Redis server, which they start and stop
//! themselves, and unmodified clients in several languages run against it; a test that finds none
//! says so and is left out. The benchmark of the cache also compares it with Valkey. Tests of pipelines
//! and sinks start their own PostgreSQL, MariaDB and FerretDB (which speaks the protocol of MongoDB). FerretDB
//! and `cargo-deny`, which the checks need, are built once into a directory outside the checkout.
//! Without a network none of them can be installed; `ci` then runs everything else and fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, say, works};

/// Where tools are kept: `$FOREBAY_TOOLS`, else the user's cache directory.
pub(crate) fn tools() -> PathBuf {
    if let Some(dir) = std::env::var_os("FOREBAY_TOOLS") {
        return dir.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("forebay").join("tools")
}

/// Checks everything, and installs what is missing if that is possible.
fn check() {
    for component in ["fmt", "clippy"] {
        if !works(cargo().args([component, "--version"])) {
            say(format_args!("cargo {component} is missing: rustup component add {component}"));
        }
    }
    if cargo_deny().is_none() {
        let install = install_cargo_deny();
        say(format_args!("cargo-deny is missing and cargo xtask ci requires it; {install}"));
    }
    install_missing();
    for (programs, what) in [
        (&["redis-server", "redis-benchmark"][..], "comparison with Redis"),
        (&["tclsh", "curl", "redis-cli", "python3", "node", "npm"], "a client of the cache"),
    ] {
        for program in programs.iter().filter(|program| !is_there(program)) {
            say(format_args!("{program} is missing: tests will be skipped ({what})"));
        }
    }
    if !is_there(BROWSER) {
        // By itself: a system that has no such package would install none of the others with it.
        install(&[BROWSER]);
    }
    if !is_there(BROWSER) {
        say(format_args!("{BROWSER} is missing: the checks that need a browser will be skipped"));
    }
    if !Path::new(MARIADB).is_file() {
        say("MariaDB is missing: tests of pipelines from it will be skipped");
    }
    if !has_postgresql() {
        say("PostgreSQL is missing: tests of pipelines with a database will be skipped");
    }
    if !crate::connectors::can_build() {
        install(&crate::connectors::PACKAGES);
    }
    if !crate::connectors::can_build() {
        say(
            "there is no compiler for WebAssembly: tests of connectors in a sandbox will be skipped",
        );
    }
    for tool in crate::connectors::TOOLS.iter().filter(|tool| !tool.is_there()) {
        if let Err(error) = tool.install() {
            say(format_args!("{error:#}; tests of {} will be skipped", tool.purpose));
        }
    }
    crate::valkey::install();
    crate::ferretdb::install();
    crate::versitygw::install();
}

/// The browser that visits hostile pages, and its package.
const BROWSER: &str = "chromium-headless-shell";

/// Programs, and the packages of Debian that have them.
const PACKAGES: [(&str, &[&str]); 9] = [
    ("redis-server", &["redis-server"]),
    ("redis-cli", &["redis-tools"]),
    ("tclsh", &["tcl"]),
    ("curl", &["curl"]),
    ("nc", &["netcat-openbsd"]),
    ("python3", &["python3", "python3-venv"]),
    ("node", &["nodejs"]),
    ("npm", &["npm"]),
    ("s3fs", &["s3fs"]),
];

/// The server of MariaDB, which Debian keeps off the path of most users.
const MARIADB: &str = "/usr/sbin/mariadbd";

/// A description that the package of locales has: tests of PostgreSQL's `money` use it.
const LOCALE: &str = "/usr/share/i18n/locales/ja_JP";

/// Installs what is missing with the system's package manager, if there is one.
fn install_missing() {
    let missing = PACKAGES.iter().filter(|(program, _)| !is_there(program));
    let mut packages: Vec<&str> =
        missing.flat_map(|(_, packages)| packages.iter().copied()).collect();
    if !has_postgresql() {
        packages.push("postgresql");
    }
    if !Path::new(MARIADB).is_file() {
        packages.push("mariadb-server");
    }
    if !Path::new(LOCALE).is_file() {
        packages.push("locales");
    }
    if !packages.is_empty() {
        install(&packages);
    }
}

/// Whether a PostgreSQL is installed: Debian keeps its programs off the path.
fn has_postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.map(|version| version.path()).any(|version| version.join("bin/initdb").is_file())
}

/// What keeps packages of Debian from starting the services they bring.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs Debian packages without starting their services. Prints errors; what needs the packages
/// fails later.
pub(crate) fn install(packages: &[&str]) {
    let is_ours = !Path::new(POLICY).exists() && forbid_services().is_ok();
    let apt_get = |arguments: &[&str]| {
        let mut apt_get = Command::new("apt-get");
        apt_get.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        crate::command::run(&mut apt_get)
    };
    let arguments = [&["install", "-y", "--no-install-recommends"], packages].concat();
    // The lists may be old, or not be there.
    let installed =
        apt_get(&arguments).or_else(|_| apt_get(&["update"]).and_then(|()| apt_get(&arguments)));
    if let Err(error) = installed {
        say(format_args!("{error:#}"));
    }
    if is_ours && let Err(error) = std::fs::remove_file(POLICY) {
        say(format_args!("cannot remove {POLICY}: {error}"));
    }
}

/// Writes the policy; who is not root cannot, nor install anything.
fn forbid_services() -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
    std::fs::set_permissions(POLICY, std::fs::Permissions::from_mode(0o755))
}

/// Whether a program is on the path.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The task.
///
/// # Errors
/// None at present: what is missing is said, and what needs it says so again.
pub(crate) fn run() -> anyhow::Result<()> {
    check();
    say("setup: done");
    Ok(())
}

/// A `cargo-deny` that runs: the one on the path, the one kept with the tools, or one built now.
pub(crate) fn cargo_deny() -> Option<Command> {
    let kept = tools().join("bin").join("cargo-deny");
    for program in [PathBuf::from("cargo-deny"), kept.clone()] {
        if works(Command::new(&program).arg("--version")) {
            return Some(Command::new(program));
        }
    }
    match install_crate(&["cargo-deny"]) {
        Ok(()) => Some(Command::new(kept)),
        Err(error) => {
            say(format_args!("{error:#}"));
            None
        }
    }
}

/// Builds the program of a crate into the directory of the tools.
///
/// * `args`: the name of the crate, and further arguments of `cargo install`.
///
/// # Errors
/// There is no network, or it does not compile. Nothing was installed.
pub(crate) fn install_crate(args: &[&str]) -> anyhow::Result<()> {
    let tools = tools();
    say(format_args!(
        "installing {} into {}; this is done once and can take a few minutes",
        args.join(" "),
        tools.display()
    ));
    let build = tools.join("build");
    let mut install = cargo();
    // Its own target directory: what this workspace built does not help it, nor it this.
    install
        .arg("install")
        .args(args)
        .args(["--locked", "--root"])
        .arg(&tools)
        .env("CARGO_TARGET_DIR", &build);
    crate::command::run(&mut install)?;
    if let Err(error) = std::fs::remove_dir_all(&build) {
        say(format_args!("cannot remove {}: {error}", build.display()));
    }
    Ok(())
}

/// The command that installs `cargo-deny` where it is looked for, for a person.
pub(crate) fn install_cargo_deny() -> String {
    let tools = tools();
    format!("install it with: cargo install cargo-deny --locked --root {}", tools.display())
}
