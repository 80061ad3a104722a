//! Exports events from the store to files for other programs (`docs/formats/event-export.md`).
//!
//! Invariants:
//! - One part is open at a time, in a temporary file; the memory in use does not grow with the
//!   number of events.
//! - A part has its final name only when it is complete, and existing files are never replaced.
//! - The manifest is written last: if it exists, the export is complete.
//! - Every exported event is covered by the exported checkpoint, so each can be proven.

mod columns;
mod manifest;
mod part;
mod partition;
mod rebuild;
pub(crate) mod target;
mod verify;

use anyhow::Context as _;
use forebay_events::checkpoint::Checkpoint;
use forebay_events::format::tree;
use forebay_events::merkle::Hash;
use forebay_events::query::Query;
use forebay_events::{ReadError, Record, Store};

pub(crate) use manifest::{MANIFEST, Manifest};
pub(crate) use partition::Partition;
pub(crate) use verify::verify;

use part::Part;
use target::Target;

/// Version of the format of an export, its columns and its manifest.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Format of the parts.
#[derive(
    clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Columns, compressed.
    Parquet,
    /// One JSON object per line.
    Ndjson,
}

impl Format {
    /// Returns the extension of its files.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Ndjson => "ndjson",
        }
    }
}

/// How an export is divided into files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Format of the parts.
    pub(crate) format: Format,
    /// Which events share a directory.
    pub(crate) partition: Partition,
    /// Maximum number of rows of a part.
    pub(crate) rows_max: u64,
}

/// The checkpoint that covers the exported events.
#[derive(Debug, Clone)]
pub(crate) struct Signed {
    /// The signed note.
    pub(crate) checkpoint: String,
    /// The key that verifies it.
    pub(crate) verifier_key: String,
}

/// An event to be exported.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) record: Record,
    pub(crate) leaf_hash: Hash,
}

/// Exports the events that match `query`, the oldest first, and returns what was written.
///
/// * `progress`: called with the number of further rows written.
///
/// # Errors
/// The store is damaged, the target has an export already, or it cannot be written. Complete parts
/// are kept, without a manifest.
pub(crate) fn run(
    store: &Store,
    query: Query,
    target: &Target,
    options: &Options,
    progress: &dyn Fn(u64),
) -> anyhow::Result<Manifest> {
    target.check_free()?;
    let (signed, end) = sign(store)?;
    let mut manifest = Manifest::new(options, &query, signed.as_ref());
    let mut numbers = partition::Numbers::default();
    let mut open: Option<Part> = None;
    let mut scan = store.scan(query);
    while let Some(record) = scan.next().context("cannot continue reading the event store")? {
        if record.seq() >= end {
            continue;
        }
        let directory = options.partition.directory(record.event().timestamp_ns);
        let mut part = match open.take() {
            Some(part) if part.fits(&directory, options.rows_max) => part,
            full => {
                full.map_or(Ok(()), |part| finish(part, target, &mut manifest))?;
                let path = numbers.next(&directory, options.format);
                Part::begin(target.stage()?, directory, path, options.format, signed.as_ref())?
            }
        };
        let leaf_hash = tree::hash(record.leaf());
        part.push(Row { record, leaf_hash })?;
        progress(1);
        open = Some(part);
    }
    open.map_or(Ok(()), |part| finish(part, target, &mut manifest))?;
    let mut staged = target.stage()?;
    staged.write_whole(&manifest.to_text()?).context("cannot write the manifest")?;
    target.put(staged, MANIFEST)?;
    Ok(manifest)
}

/// Returns the checkpoint of the export, and the first position that it does not cover.
fn sign(store: &Store) -> anyhow::Result<(Option<Signed>, u64)> {
    let checkpoint = match store.checkpoint() {
        Ok(note) => note,
        Err(ReadError::NoProofs) => return Ok((None, store.len())),
        Err(error) => return Err(error).context("cannot sign a checkpoint"),
    };
    let key = store.verifier_key().context("cannot sign a checkpoint")?;
    let size = Checkpoint::open(checkpoint.as_bytes(), &key)
        .context("cannot read the signed checkpoint")?
        .size;
    Ok((Some(Signed { checkpoint, verifier_key: key.to_string() }), size))
}

fn finish(part: Part, target: &Target, manifest: &mut Manifest) -> anyhow::Result<()> {
    let (staged, entry) = part.finish()?;
    target.put(staged, &entry.path)?;
    manifest.add(entry);
    Ok(())
}
