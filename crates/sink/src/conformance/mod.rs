//! What every sink promises, as one suite that every sink passes.
//!
//! A sink is brought in as a [`DocumentSubject`] or [`RowSubject`]: a place that can be opened again
//! and again and read back. Each [`Case`] gets a separate empty place:
//!
//! ```
//! use forebay_sink::conformance::{DOCUMENT_CASES, DocumentSubject, check};
//!
//! fn keeps_the_promises_of_documents<S: DocumentSubject + 'static>(make: impl Fn() -> S) {
//!     check(DOCUMENT_CASES, || Box::new(make()));
//! }
//! ```
//!
//! `tests/it/conformance.rs` of `forebay-sqlite` is the shortest example of a subject.
//!
//! [`lives`] compares random lives of a sink with a model. [`ServerSubject`] is a server that can be
//! killed, and [`Proxy`] a connection to it that can be cut.
//!
//! A case answers with a [`Failure`] instead of panicking, so that it can run anywhere.

mod changes;
mod documents;
mod model;
mod names;
mod proxy;
mod rows;
mod servers;
mod stored;

use std::collections::BTreeMap;
use std::error::Error;

use forebay_base::error_chain::chain;

use crate::error::SinkError;
use crate::sink::{DocumentSink, RowSink, StoredDocument};

pub use changes::CHANGE_CASES;
pub use documents::{DOCUMENT_CASES, HOSTILE_DOCUMENTS};
pub use model::lives;
pub use names::key;
pub use proxy::{Cut, Proxy};
pub use rows::ROW_CASES;
pub use servers::{
    ServerSubject, a_killed_server_loses_and_doubles_nothing,
    the_position_shows_whether_a_lost_commit_happened,
};
pub use stored::Stored;

/// A promise, and how to find out whether it is kept.
pub struct Case<S: ?Sized> {
    /// The promise.
    pub claim: &'static str,
    /// Tries it in a place where nothing was written yet.
    pub run: fn(&S) -> Result<(), Failure>,
}

/// Runs every case in a new place.
///
/// # Panics
/// If one fails, with its claim and its failure.
pub fn check<S: ?Sized>(cases: &[Case<S>], make: impl Fn() -> Box<S>) {
    for case in cases {
        if let Err(failure) = (case.run)(&*make()) {
            panic!("{}: {}", case.claim, chain(&failure));
        }
    }
}

/// Why a case failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The sink failed where it should not have.
    #[error("unexpected error")]
    Sink(#[from] SinkError),
    /// The subject could not be opened or read back.
    #[error("open or read back")]
    Other(#[source] Box<dyn Error + Send + Sync>),
    /// The sink did something else than it promises.
    #[error("{what}: found {found}, expected {expected}")]
    Broken {
        /// What was looked at.
        what: &'static str,
        /// What it was.
        found: String,
        /// What it should have been.
        expected: String,
    },
}

impl Failure {
    /// Wraps an error of opening or reading back.
    pub fn other(error: impl Error + Send + Sync + 'static) -> Failure {
        Failure::Other(Box::new(error))
    }
}

/// A place for documents.
pub trait DocumentSubject {
    /// Opens the sink, as a new process would; everything uncommitted is to be gone.
    ///
    /// # Errors
    /// When that fails.
    fn open(&self) -> Result<Box<dyn DocumentSink>, Failure>;

    /// The committed documents of `namespace`, by id; none when it does not exist.
    ///
    /// # Errors
    /// When that fails.
    fn read(&self, namespace: &str) -> Result<Vec<StoredDocument>, Failure>;
}

/// A place for rows that carry documents.
pub trait RowSubject {
    /// Whether a text column can hold the character U+0000. In one that cannot, such a text is a conflict.
    fn keeps_nul(&self) -> bool {
        true
    }

    /// Whether a column that was added locks its table for readers until the transaction ends.
    fn locks_new_columns(&self) -> bool {
        false
    }

    /// Opens the sink, as a new process would; everything uncommitted is to be gone.
    ///
    /// # Errors
    /// When that fails.
    fn open(&self) -> Result<Box<dyn RowSink>, Failure>;

    /// The committed rows of `namespace`, by id; none when it does not exist.
    ///
    /// # Errors
    /// When that fails.
    fn read(&self, namespace: &str) -> Result<Vec<ReadRow>, Failure>;
}

/// A row read back.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRow {
    /// Its id.
    pub id: u64,
    /// When it was received, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// The document it was made from.
    pub document: Option<Vec<u8>>,
    /// The values that are not NULL as text, by their fields' paths: booleans as 0 and 1, doubles
    /// in Rust's shortest form, decimals in any notation of their value, bytes as hexadecimal digits.
    pub values: BTreeMap<String, String>,
}

/// A JSON number in the one notation that all of its notations have in common: what counts of its digits,
/// and the power of ten of the last of them. Anything else as it is.
fn plain_number(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (plain, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let digits = format!("{whole}{fraction}");
    let fraction_length = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let (Ok(exponent), true) =
        (exponent.parse::<i64>(), digits.bytes().all(|byte| byte.is_ascii_digit()))
    else {
        return text.to_owned();
    };
    let cut = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - cut.len()).unwrap_or(0);
    let kept = cut.trim_start_matches('0');
    if kept.is_empty() {
        return "0".to_owned();
    }
    format!("{sign}{kept}e{}", exponent - fraction_length + zeros)
}

fn equal<T: PartialEq + std::fmt::Debug>(
    what: &'static str,
    found: T,
    expected: T,
) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let shown = |value: &T| {
        let mut text = format!("{value:?}");
        if text.len() > 1000 {
            let end = (0..=1000).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(end);
        }
        text
    };
    Err(Failure::Broken { what, found: shown(&found), expected: shown(&expected) })
}

/// Holds when `result` is an error that `matches`.
fn refused<T: std::fmt::Debug>(
    what: &'static str,
    result: Result<T, SinkError>,
    matches: fn(&SinkError) -> bool,
) -> Result<(), Failure> {
    match result {
        Err(error) if matches(&error) => Ok(()),
        other => Err(Failure::Broken {
            what,
            found: format!("{other:?}"),
            expected: "a particular error".to_owned(),
        }),
    }
}
