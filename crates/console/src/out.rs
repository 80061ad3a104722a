//! Output of commands: results on standard output, errors on standard error.
//!
//! Invariant: nothing printed here contains a code for a terminal: of control characters only line
//! ends and tabs are not escaped. Commands escape those in names (`printable`).
//!
//! A reader that closes the pipe (`forebay config show | head -1`) is not an error.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};

use forebay_base::error_chain;
use forebay_base::printable;

pub use forebay_base::bytes::size;
pub use forebay_base::push_line;

/// Writes `text` and a line end to standard output, flushed.
///
/// # Errors
/// Standard output cannot be written, for another reason than a closed pipe.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    let text = text.to_string();
    let text = printable::lines(&text);
    let mut stdout = std::io::stdout().lock();
    written(writeln!(stdout, "{text}").and_then(|()| stdout.flush()))
}

/// Writes `bytes` to standard output as they are, flushed: content that a user asked for.
///
/// # Errors
/// As [`line()`].
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Returns the result of writing to standard output. A closed pipe is not an error.
///
/// # Errors
/// As [`line()`].
pub fn written(result: std::io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes `value` to standard output as indented JSON.
///
/// # Errors
/// As [`line()`].
pub fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    line(format_args!("{value:#}"))
}

/// Prints a note for the user on standard error. A failure to do so is ignored.
pub fn note(text: impl Display) {
    let text = text.to_string();
    writeln!(std::io::stderr().lock(), "{}", printable::lines(&text)).unwrap_or_default();
}

/// Prints `error` with its whole chain of causes, once.
pub fn error(error: &anyhow::Error) {
    note(format_args!("error: {}", error_chain::lines(error.as_ref())));
}
