//! Access for the fuzz targets to private functions: any bytes in, no panic out. Not part of the
//! public interface.

use forebay_sdk::registry::Registry;

use crate::config::{LoadError, parse};

/// Reads any text as a pipeline file in which every name is its own value.
///
/// * `registry`: the connectors that it can name.
///
/// # Panics
/// If a fault has no position in the file, or one outside of it: a bug.
pub fn pipeline_file(text: &str, registry: &Registry) {
    match parse(text, "pipeline.yaml".as_ref(), registry, &|name| Ok(name.to_owned())) {
        Ok(file) => assert!(!file.source.streams.is_empty(), "a pipeline of nothing"),
        Err(LoadError::Invalid { line, .. }) => {
            // YAML ends lines with either of the two.
            let ends = text.bytes().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
            assert!(line <= ends as u64 + 1, "line {line}");
        }
        Err(_) => {}
    }
}
