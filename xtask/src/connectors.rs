//! `cargo xtask connectors`: builds the connectors in `connectors/` as WebAssembly components.
//!
//! They are compiled by rustup's toolchain where it has the target `wasm32-unknown-unknown`. Where it has not, and cannot
//! get it, Debian's compiler does it with the sources of its standard library (`rustc-web`, `cargo-web`,
//! `rust-web-src`), which `cargo xtask setup` installs. Either way the linker is rustup's `wasm-component-ld`, which
//! makes a component.
//!
//! A connector in C is built by its own `build.sh`, with the compiler of the Python package `ziglang`, which `cargo xtask
//! setup` installs, as it does `componentize-py` for tests of connectors in Python, readers of Delta tables, and the engine of ClickHouse. Its `bindings/` are made by `wit-bindgen c ../../wit --world source-connector --out-dir bindings`
//! when `wit/connector.wit` changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command::{output, root, run as run_command, say, works};

/// The profile of components that are used or measured.
pub(crate) const RELEASE: &str = "release";
/// The profile of components that are tested.
pub(crate) const QUICK: &str = "quick";
/// The target.
const TARGET: &str = "wasm32-unknown-unknown";
/// Debian's packages, and the program that shows that they are there.
pub(crate) const PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// Debian's programs.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// Debian's sources of the standard library.
const DEBIAN_SOURCES: &str = "/usr/lib/rustlib/src/rust/library";

/// The connectors: package, and name of the component.
pub(crate) const CONNECTORS: [(&str, &str); 5] = [
    ("forebay-connector-clean", "clean"),
    ("forebay-connector-http-json", "http-json"),
    ("forebay-connector-postgres", "postgres"),
    ("forebay-connector-sequence", "sequence"),
    ("forebay-connector-trials", "trials"),
];

/// The connectors in C: directory in `connectors/`, and name of the component.
const IN_C: [&str; 1] = ["ticks"];

/// Arguments of the task.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Build only this connector.
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    only: Option<String>,
    /// Cargo profile for the build. `quick` is that of the tests.
    #[arg(long, default_value = RELEASE)]
    profile: String,
}

/// The names of all components.
fn names() -> impl Iterator<Item = &'static str> {
    CONNECTORS.into_iter().map(|(_, name)| name).chain(IN_C)
}

/// The task.
///
/// # Errors
/// There is no compiler for the target, or a connector does not compile.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    let chosen: Vec<_> = CONNECTORS.iter().filter(|(_, name)| wanted(name)).collect();
    if !chosen.is_empty() {
        build(&chosen, &args.profile)?;
    }
    let mut built: Vec<&str> = chosen.into_iter().map(|(_, name)| *name).collect();
    for name in IN_C.into_iter().filter(|name| wanted(name)) {
        if build_c(name)? {
            built.push(name);
        }
    }
    for name in built {
        let component = dir().join(format!("{name}.wasm"));
        let size = std::fs::metadata(&component).context("the component is missing")?.len();
        say(format_args!("{} ({size} bytes)", component.display()));
    }
    Ok(())
}

/// Builds all of them.
///
/// # Errors
/// As [`run`].
pub(crate) fn build_all(profile: &str) -> anyhow::Result<()> {
    run(&Args { only: None, profile: profile.to_owned() })
}

/// Where components are: beside what Cargo builds.
pub(crate) fn dir() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("connectors")
}

/// A tool of other languages than Rust: the directory that has it, its program, and its packages of PyPI.
pub(crate) struct Tool {
    dir: &'static str,
    program: &'static str,
    /// With these it succeeds if everything is installed.
    arguments: &'static [&'static str],
    packages: &'static [&'static str],
    /// What it is for.
    pub(crate) purpose: &'static str,
}

/// The compiler of C.
const ZIG: Tool = Tool {
    dir: "zig",
    program: "python-zig",
    arguments: &["--help"],
    packages: &["ziglang==0.17.1"],
    purpose: "connectors in C",
};
/// What makes components of Python.
const COMPONENTIZE: Tool = Tool {
    dir: "componentize",
    program: "componentize-py",
    arguments: &["--help"],
    packages: &["componentize-py==0.25.1"],
    purpose: "connectors in Python",
};
/// Readers of Delta tables that are not ours: delta-rs, DuckDB and Polars.
const DELTA: Tool = Tool {
    dir: "delta",
    program: "python",
    arguments: &[
        "-c",
        "import deltalake, duckdb, duckdb_extension_delta, duckdb_extension_parquet, polars",
    ],
    packages: &[
        "deltalake==1.6.6",
        "duckdb==1.5.5",
        "duckdb-extension-delta==1.5.5",
        "duckdb-extension-parquet==1.5.5",
        "polars==2.1.0",
    ],
    purpose: "Delta tables read by other programs",
};
/// The engine of ClickHouse as a library, behind which `crates/testing` has its HTTP interface.
const CLICKHOUSE: Tool = Tool {
    dir: "clickhouse",
    program: "python",
    arguments: &["-c", "import chdb, pyarrow"],
    packages: &["chdb==4.4.0", "chdb-core==26.9.0", "pyarrow>=13"],
    purpose: "pipelines into ClickHouse",
};
/// All of them.
pub(crate) const TOOLS: [Tool; 4] = [ZIG, COMPONENTIZE, DELTA, CLICKHOUSE];

impl Tool {
    /// The program, as `cargo xtask setup` installs it.
    fn program(&self) -> PathBuf {
        crate::setup::tools().join(self.dir).join("bin").join(self.program)
    }

    /// Whether it is installed.
    pub(crate) fn is_there(&self) -> bool {
        works(Command::new(self.program()).args(self.arguments))
    }

    /// Installs it into the directory of the tools.
    ///
    /// # Errors
    /// There is no Python, or no network.
    pub(crate) fn install(&self) -> anyhow::Result<()> {
        let dir = crate::setup::tools().join(self.dir);
        let mut venv = Command::new("python3");
        run_command(venv.args(["-m", "venv", "--clear"]).arg(&dir))?;
        let mut pip = Command::new(dir.join("bin").join("python"));
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]);
        pip.args(self.packages);
        run_command(&mut pip)
    }
}

/// Builds a connector in C. Without a compiler it is left out, and `false` is returned.
fn build_c(name: &str) -> anyhow::Result<bool> {
    if !ZIG.is_there() {
        let is_required = std::env::var_os("FOREBAY_REQUIRE_SERVICES").is_some_and(|it| it == "1");
        ensure!(!is_required, "there is no compiler of C for {name}: cargo xtask setup");
        say(format_args!("SKIPPED: there is no compiler of C for {name}: cargo xtask setup"));
        return Ok(false);
    }
    // The script works in its own directory.
    let dir = std::path::absolute(dir()).context("there is no working directory")?;
    let mut script = Command::new("sh");
    script
        .arg(root().join("connectors").join(name).join("build.sh"))
        .env("ZIG", ZIG.program())
        .env("COMPONENT_LD", tools_of_rust()?.join("wasm-component-ld"))
        .env("OUT", dir.join(format!("{name}.wasm")))
        .env("ZIG_GLOBAL_CACHE_DIR", dir.join("c-cache"))
        .env("BUILD", dir.join(format!("c-{name}")));
    run_command(&mut script)?;
    Ok(true)
}

/// The directory of rustup's linkers.
fn tools_of_rust() -> anyhow::Result<PathBuf> {
    Ok(sysroot()?.join("lib/rustlib").join(crate::command::platform()?).join("bin"))
}

/// A compiler for the target.
enum Compiler {
    /// The target is installed in rustup's toolchain.
    Rustup,
    /// Debian's, which compiles the standard library, too.
    Debian,
}

fn compiler() -> anyhow::Result<Compiler> {
    if sysroot()?.join("lib/rustlib").join(TARGET).is_dir() {
        return Ok(Compiler::Rustup);
    }
    ensure!(
        is_there(),
        "there is no compiler for {TARGET}: rustup target add {TARGET}, or apt-get install {}",
        PACKAGES.join(" ")
    );
    Ok(Compiler::Debian)
}

/// Whether Debian's compiler and sources are installed.
pub(crate) fn is_there() -> bool {
    Path::new(DEBIAN_SOURCES).is_dir()
        && works(Command::new(DEBIAN_CARGO).arg("--version"))
        && works(Command::new(DEBIAN_RUSTC).arg("--version"))
}

/// Whether components can be built here.
pub(crate) fn can_build() -> bool {
    compiler().is_ok()
}

fn sysroot() -> anyhow::Result<PathBuf> {
    Ok(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim_end().into())
}

/// Builds components, all at once, so that what they share is compiled once.
fn build(chosen: &[&(&str, &str)], profile: &str) -> anyhow::Result<()> {
    let tools = tools_of_rust()?;
    let workspace = root().join("connectors");
    let target = dir();
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .context("there is no home directory")?;
    // No path of this machine gets into the component. `daku` keeps a crate from asking a browser.
    let flags = [
        format!("-Clink-arg=--wasm-ld-path={}", tools.join("gcc-ld/wasm-ld").display()),
        "--cfg=getrandom_backend=\"custom\"".to_owned(),
        "--cfg=daku".to_owned(),
        "-Ctarget-feature=+simd128".to_owned(),
        format!("--remap-path-prefix={}=/src", root().display()),
        format!("--remap-path-prefix={}=/cargo", home.display()),
    ];
    let mut cargo = match compiler()? {
        Compiler::Rustup => {
            Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        }
        Compiler::Debian => {
            let mut cargo = Command::new(DEBIAN_CARGO);
            cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
            cargo
        }
    };
    cargo.args(["build", "--profile", profile, "--locked", "--target", TARGET]);
    for (package, _) in chosen {
        cargo.args(["--package", package]);
    }
    if matches!(compiler()?, Compiler::Debian) {
        cargo.arg("-Zbuild-std=std,panic_abort");
    }
    cargo
        .current_dir(&workspace)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", tools.join("wasm-component-ld"))
        // One flag may have a space.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("RUSTFLAGS");
    run_command(&mut cargo)?;
    for (package, name) in chosen {
        let built = format!("{}.wasm", package.replace('-', "_"));
        let built = target.join(TARGET).join(profile).join(built);
        std::fs::copy(&built, target.join(format!("{name}.wasm")))
            .with_context(|| format!("cannot copy {}", built.display()))?;
    }
    Ok(())
}
