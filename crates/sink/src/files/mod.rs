//! Tables and documents in plain files, for use with other tools.
//!
//! [`NdjsonSink`] appends documents to one line-by-line JSON file a namespace; [`ParquetSink`]
//! writes record batches as Parquet files. Both keep a small manifest that says what is
//! committed; replacing it (write aside, flush, rename, flush the directory) is the commit.
//!
//! Invariants:
//! * Rows are on stable storage before the manifest that counts them, so a commit here survives
//!   the machine at once.
//! * A directory belongs to one sink: on opening, everything that the manifest does not list is
//!   removed.
//! * A namespace becomes a file name only after [`check_namespace`](crate::name::check_namespace).

mod ledger;
mod manifest;
pub mod ndjson;
mod parquet;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::error::{OpenError, SinkError};

pub use ndjson::NdjsonSink;
pub use parquet::ParquetSink;

/// The manifest's name in a sink's directory.
pub const MANIFEST: &str = "manifest.json";

/// A namespace as part of a file name. A leading dot would hide the file or name a directory.
fn file_name(namespace: &str) -> String {
    match namespace.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => namespace.to_owned(),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Writes `bytes` to `path` atomically: after a crash the file has either the new or the old
/// contents.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn sink_io(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SinkError + use<> {
    let path = path.to_owned();
    move |source| SinkError::Io { act, path, source }
}

fn open_io(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path: PathBuf = path.to_owned();
    move |source| OpenError::Io { act, path, source }
}
