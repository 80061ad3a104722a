//! Events out of the store into files for other programs (`docs/formats/event-export.md`).
//!
//! Invariants:
//! - One part is open at a time, in a temporary file; what is held in memory does not grow with the
//!   number of events.
//! - A part has its final name only when it is whole, and nothing that exists is replaced.
//! - The manifest is written last: where it is, the export is complete.
//! - Every exported event lies below the checkpoint that goes with it, so each can be proven.

mod columns;
mod manifest;
mod part;
mod partition;
mod rebuild;
pub(crate) mod target;
mod verify;

use anyhow::Context as _;
use forebay_events::checkpoint::Checkpoint;
use forebay_events::merkle::{Hash, leaf_hash};
use forebay_events::query::Query;
use forebay_events::{ReadError, Record, Store};

pub(crate) use manifest::{MANIFEST, Manifest};
pub(crate) use partition::Partition;
pub(crate) use verify::verify;

use part::Part;
use target::Target;

/// Version of the layout of an export, of its columns and its manifest.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// What the parts are.
#[derive(
    clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Columns, compressed.
    Parquet,
    /// One JSON object a line.
    Ndjson,
}

impl Format {
    /// What the names of its files end with.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Ndjson => "ndjson",
        }
    }
}

/// How an export is cut into files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// What the parts are.
    pub(crate) format: Format,
    /// Which events have a directory in common.
    pub(crate) partition: Partition,
    /// Most rows of one part.
    pub(crate) rows_max: u64,
}

/// What the exported events are proven under.
#[derive(Debug, Clone)]
pub(crate) struct Signed {
    /// The signed note.
    pub(crate) checkpoint: String,
    /// The key it is verified with.
    pub(crate) verifier_key: String,
}

/// An event on its way out.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) record: Record,
    pub(crate) leaf_hash: Hash,
}

/// Exports the events that answer `query`, the oldest first, and returns what was written.
///
/// * `progress`: is told each time how many more were written.
///
/// # Errors
/// The store is damaged, the target has an export already, or it cannot be written; parts that were
/// complete by then stay, without a manifest.
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
    while let Some(record) = scan.next().context("the event store cannot be read on")? {
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
        let leaf_hash = leaf_hash(record.leaf());
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

/// The checkpoint to export under, and the first position that is not covered by it.
fn sign(store: &Store) -> anyhow::Result<(Option<Signed>, u64)> {
    let checkpoint = match store.checkpoint() {
        Ok(note) => note,
        Err(ReadError::NoProofs) => return Ok((None, store.len())),
        Err(error) => return Err(error).context("no checkpoint can be signed"),
    };
    let key = store.verifier_key().context("no checkpoint can be signed")?;
    let size = Checkpoint::open(checkpoint.as_bytes(), &key)
        .context("the checkpoint that was signed cannot be read")?
        .size;
    Ok((Some(Signed { checkpoint, verifier_key: key.to_string() }), size))
}

fn finish(part: Part, target: &Target, manifest: &mut Manifest) -> anyhow::Result<()> {
    let (staged, entry) = part.finish()?;
    target.put(staged, &entry.path)?;
    manifest.add(entry);
    Ok(())
}
