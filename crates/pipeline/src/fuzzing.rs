//! Access for the fuzz targets to private functions: any bytes in, no panic out. Not part of the
//! public interface.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, memfd_create};

pub use crate::native::files::fuzzing::{csv, ndjson, parquet};
#[cfg(feature = "mongodb")]
pub use crate::native::mongodb::fuzzing::extended_json;

/// Reads any text as a pipeline file in which every name is its own value.
///
/// # Panics
/// If a fault has no position in the file, or one outside of it: a bug.
pub fn pipeline_file(text: &str) {
    use crate::config::{LoadError, load};
    let (_file, path) = in_memory(text.as_bytes());
    match load(path.as_ref(), &|name| Ok(name.to_owned())) {
        Ok(file) => assert!(!file.source.streams.is_empty(), "a pipeline of nothing"),
        Err(LoadError::Invalid { line, .. }) => {
            // YAML ends lines with either of the two.
            let ends = text.bytes().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
            assert!(line <= ends as u64 + 1, "line {line}");
        }
        Err(_) => {}
    }
}

/// A file with these bytes, and the path to open it.
pub(crate) fn in_memory(bytes: &[u8]) -> (File, String) {
    let mut file: File = memfd_create("input", MemfdFlags::CLOEXEC).expect("a file").into();
    file.write_all(bytes).expect("room for an input");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    (file, path)
}
