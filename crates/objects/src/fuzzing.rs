//! Access for the fuzz targets to private functions: any bytes in, no panic out. Not part of the
//! public interface.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, memfd_create};

pub use crate::connector::fuzzing::{csv, ndjson, parquet};

/// A file with these bytes, and the path to open it.
pub(crate) fn in_memory(bytes: &[u8]) -> (File, String) {
    let mut file: File = memfd_create("input", MemfdFlags::CLOEXEC).expect("a file").into();
    file.write_all(bytes).expect("room for an input");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    (file, path)
}
