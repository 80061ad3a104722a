//! `forebay connector new`: writes the project of a connector.
//!
//! The files of a project are those of `connector_new/`; the bindings and `connector.wit` are the ones that
//! this program was built with, so that they fit it.
//!
//! Invariant: a directory that exists is not written to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Coded, Exit};
use crate::out;

#[derive(clap::Args, Debug)]
pub(super) struct NewArgs {
    /// Name of the connector, and of the directory that is made.
    #[arg(value_name = "NAME")]
    name: String,
    /// Language of the project.
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t)]
    language: Language,
    /// Directory to make it in.
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum Language {
    /// Rust, with `cargo`.
    #[default]
    Rust,
    /// C, with the compiler of the Python package `ziglang`.
    C,
    /// Python, with the Python package `componentize-py`.
    Python,
}

/// A file of a project: path and content.
type File = (&'static str, &'static str);

/// The contract, which every project has.
const CONTRACT: File = ("wit/connector.wit", include_str!("../../../../wit/connector.wit"));

/// A pipeline that uses the connector.
const PIPELINE: &str = include_str!("connector_new/pipeline.yaml.template");

/// What a build and a run of the pipeline leave in the directory.
const IGNORED: File =
    (".gitignore", "/build\n/forebay-data\n/out\n/target\n/venv\n*.wasm\n__pycache__\n");

const RUST: [File; 7] = [
    CONTRACT,
    IGNORED,
    (".cargo/config.toml", include_str!("connector_new/rust/config.toml.template")),
    ("Cargo.toml", include_str!("connector_new/rust/Cargo.toml.template")),
    ("README.md", include_str!("connector_new/rust/README.md.template")),
    ("pipeline.yaml", PIPELINE),
    ("src/lib.rs", include_str!("connector_new/rust/lib.rs.template")),
];

/// The connector in C of this repository, which is tested with the others, under another name.
const C: [File; 8] = [
    CONTRACT,
    IGNORED,
    ("README.md", include_str!("connector_new/c/README.md.template")),
    (
        "bindings/source_connector.c",
        include_str!("../../../../connectors/ticks/bindings/source_connector.c"),
    ),
    (
        "bindings/source_connector.h",
        include_str!("../../../../connectors/ticks/bindings/source_connector.h"),
    ),
    ("build.sh", include_str!("../../../../connectors/ticks/build.sh")),
    ("connector.c", include_str!("../../../../connectors/ticks/connector.c")),
    ("pipeline.yaml", PIPELINE),
];

const PYTHON: [File; 6] = [
    CONTRACT,
    IGNORED,
    ("README.md", include_str!("connector_new/python/README.md.template")),
    ("build.sh", include_str!("connector_new/python/build.sh.template")),
    ("connector.py", include_str!("connector_new/python/connector.py.template")),
    ("pipeline.yaml", PIPELINE),
];

/// The type of the component, as `wit-bindgen` writes it for the linker: a file of WebAssembly.
const C_TYPE: (&str, &[u8]) = (
    "bindings/source_connector_component_type.o",
    include_bytes!("../../../../connectors/ticks/bindings/source_connector_component_type.o"),
);

/// Writes a project.
///
/// # Errors
/// The name is none, the directory exists, or it cannot be written.
pub(super) fn run(args: &NewArgs) -> anyhow::Result<Exit> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = args.name.bytes().all(fits)
        && args.name.bytes().next().is_some_and(|first| first.is_ascii_lowercase());
    if !is_name || args.name.len() > 64 {
        let wrong =
            anyhow::anyhow!("use up to 64 lower-case letters, digits and '-', a letter first");
        return Err(Coded::wrap(Exit::Usage, "invalid name", wrong));
    }
    let dir = args.into.join(&args.name);
    std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let (files, stream, binary): (&[File], _, _) = match args.language {
        Language::Rust => (&RUST, "numbers", None),
        Language::C => (&C, "ticks", Some(C_TYPE)),
        Language::Python => (&PYTHON, "numbers", None),
    };
    for (name, text) in files {
        let text = text.replace("@FILE@", &args.name.replace('-', "_"));
        let text = text.replace("@NAME@", &args.name).replace("@STREAM@", stream);
        write(&dir.join(name), text.as_bytes())?;
    }
    if let Some((name, bytes)) = binary {
        write(&dir.join(name), bytes)?;
    }
    out::line(format_args!("{}: see README.md there", dir.display()))?;
    Ok(Exit::Ok)
}

/// Writes a file, and the directories above it. A script can be run.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)
            .with_context(|| format!("cannot create {}", above.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    if path.extension().is_some_and(|end| end == "sh") {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} a program", path.display()))?;
    }
    Ok(())
}
