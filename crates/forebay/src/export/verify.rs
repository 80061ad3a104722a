//! Verifies an export: files against the manifest, rows against their hashes, the signature.

use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path};

use anyhow::Context as _;
use arrow::array::{
    Array as _, AsArray as _, BinaryArray, DictionaryArray, FixedSizeBinaryArray, RecordBatch,
    StringArray,
};
use arrow::datatypes::{Int32Type, TimestampNanosecondType, UInt64Type};
use forebay_base::error_chain::chain;
use forebay_events::checkpoint::{Checkpoint, VerifierKey};
use forebay_events::event::{Event, Tags};
use forebay_events::format::tree;
use forebay_events::{Severity, TimeSource};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sha2::{Digest as _, Sha256};

use super::manifest::Entry;
use super::{FORMAT_VERSION, Format, MANIFEST, Manifest, columns, rebuild};

/// Maximum number of faults named for the rows of one part.
const FAULTS_MAX: usize = 20;
/// Number of rows read at a time; each may be as large as a leaf.
const BATCH_ROWS: usize = 128;

/// The result of a verification.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    pub(crate) files: u64,
    pub(crate) rows: u64,
    /// Rows whose leaf was rebuilt and hashed.
    pub(crate) leaves: u64,
    /// Whether there is a checkpoint with a valid signature.
    pub(crate) signed: bool,
    pub(crate) faults: Vec<String>,
}

/// Verifies the export in `dir`.
///
/// * `key`: verifies its checkpoint; `None`: the manifest's own key does.
///
/// # Errors
/// The manifest cannot be read. Anything else is a fault.
pub(crate) fn verify(
    dir: &Path,
    key: Option<&VerifierKey>,
    progress: &dyn Fn(u64),
) -> anyhow::Result<Verified> {
    let path = dir.join(MANIFEST);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}; without it an export is incomplete", path.display())
    })?;
    let manifest: Manifest = serde_json::from_str(&text)
        .with_context(|| format!("{} is not the manifest of an export", path.display()))?;
    if manifest.format_version != FORMAT_VERSION {
        let found = manifest.format_version;
        anyhow::bail!(
            "{} has version {found}; only version {FORMAT_VERSION} is supported",
            path.display()
        );
    }
    let mut verified = Verified::default();
    let size = verified.check_signature(&manifest, key);
    let mut rows = 0u64;
    for part in &manifest.parts {
        verified.files += 1;
        rows = rows.saturating_add(part.rows);
        let faults = verified.faults.len();
        if let Err(error) = verified.check_part(dir, &manifest, part, size, progress) {
            verified.faults.truncate(faults + FAULTS_MAX);
            verified.faults.push(format!("{}: {}", part.path, chain(error.as_ref())));
        }
    }
    if rows != manifest.rows {
        let listed = manifest.rows;
        verified.faults.push(format!("the manifest lists {listed} rows, its parts {rows}"));
    }
    Ok(verified)
}

impl Verified {
    /// Verifies the checkpoint; returns its size.
    fn check_signature(&mut self, manifest: &Manifest, key: Option<&VerifierKey>) -> Option<u64> {
        let Some(note) = &manifest.checkpoint else {
            if key.is_some() {
                self.faults.push("the export has no checkpoint".to_owned());
            }
            return None;
        };
        let own = manifest.verifier_key.as_ref().and_then(|text| text.parse().ok());
        let Some(key) = key.or(own.as_ref()) else {
            self.faults.push("the manifest has no verifier key".to_owned());
            return None;
        };
        match Checkpoint::open(note.as_bytes(), key) {
            Ok(checkpoint) => {
                self.signed = true;
                Some(checkpoint.size)
            }
            Err(error) => {
                self.faults.push(format!("the checkpoint is not valid: {}", chain(&error)));
                None
            }
        }
    }

    fn check_part(
        &mut self,
        dir: &Path,
        manifest: &Manifest,
        part: &Entry,
        size: Option<u64>,
        progress: &dyn Fn(u64),
    ) -> anyhow::Result<()> {
        let path = Path::new(&part.path);
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            anyhow::bail!("the path leads outside the export");
        }
        let path = dir.join(path);
        let (bytes, sha256) = digest(&path)?;
        if (bytes, &sha256) != (part.bytes, &part.sha256) {
            self.faults.push(format!("{}: the file differs from the exported one", part.path));
        }
        if size.is_some_and(|size| part.last_seq >= size) {
            self.faults.push(format!("{}: the checkpoint does not cover all rows", part.path));
        }
        match manifest.format {
            Format::Ndjson => {
                self.rows = self.rows.saturating_add(part.rows);
                progress(part.rows);
                Ok(())
            }
            Format::Parquet => self.check_rows(&path, manifest, part, progress),
        }
    }

    fn check_rows(
        &mut self,
        path: &Path,
        manifest: &Manifest,
        part: &Entry,
        progress: &dyn Fn(u64),
    ) -> anyhow::Result<()> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
        if !columns::is_schema(builder.schema().fields()) {
            anyhow::bail!("its columns differ from those of an export");
        }
        let metadata = builder.metadata().file_metadata().key_value_metadata();
        let note = metadata
            .and_then(|all| all.iter().find(|entry| entry.key == "forebay.checkpoint"))
            .and_then(|entry| entry.value.as_ref());
        if note != manifest.checkpoint.as_ref() {
            self.faults.push(format!("{}: its checkpoint differs from the manifest's", part.path));
        }
        let before = self.faults.len();
        let (mut rows, mut first, mut last) = (0, u64::MAX, 0);
        let mut leaf = Vec::new();
        for batch in builder.with_batch_size(BATCH_ROWS).build()? {
            let batch = batch?;
            let read = Rows::new(&batch).context("its columns differ from those of an export")?;
            for row in 0..batch.num_rows() {
                let seq = read.seq(row);
                (first, last) = (seq.min(first), seq.max(last));
                // The columns do not say whether a large event has a digest in the tree.
                let same = [false, true].into_iter().any(|digested| {
                    leaf.clear();
                    read.leaf(row, digested, &mut leaf).is_ok_and(|()| {
                        (!digested || leaf.len() > tree::ENTRY_SIZE_MAX)
                            && tree::hash(&leaf).as_bytes().as_slice() == read.hashes.value(row)
                    })
                });
                if !same && self.faults.len() < before + FAULTS_MAX {
                    let fault = "its columns do not yield the hashed leaf";
                    self.faults.push(format!("{}: position {seq}: {fault}", part.path));
                }
                rows += 1;
            }
            progress(batch.num_rows() as u64);
        }
        self.rows += rows;
        self.leaves += rows;
        if (rows, first, last) != (part.rows, part.first_seq, part.last_seq) {
            self.faults
                .push(format!("{}: its rows differ from those listed in the manifest", part.path));
        }
        Ok(())
    }
}

/// Returns the size and digest of a file.
fn digest(path: &Path) -> anyhow::Result<(u64, String)> {
    let mut file = File::open(path).context("cannot open the file")?;
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).context("cannot read the file")?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            return Ok((bytes, hex::encode(sha256.finalize())));
        };
        sha256.update(chunk);
        bytes += read as u64;
    }
}

/// The columns of a batch from which a leaf is rebuilt.
struct Rows<'a> {
    batch: &'a RecordBatch,
    ids: &'a StringArray,
    raw: &'a BinaryArray,
    attributes: &'a BinaryArray,
    hashes: &'a FixedSizeBinaryArray,
}

impl<'a> Rows<'a> {
    fn new(batch: &'a RecordBatch) -> Option<Self> {
        Some(Self {
            batch,
            ids: batch.column_by_name("id")?.as_string_opt()?,
            raw: batch.column_by_name("raw")?.as_binary_opt()?,
            attributes: batch.column_by_name("attributes_canonical")?.as_binary_opt()?,
            hashes: batch.column_by_name("leaf_hash")?.as_fixed_size_binary_opt()?,
        })
    }

    fn seq(&self, row: usize) -> u64 {
        let column = self.batch.column_by_name("seq");
        column
            .and_then(|column| column.as_primitive_opt::<UInt64Type>())
            .map_or(u64::MAX, |column| column.value(row))
    }

    /// Returns a dictionary-encoded text; empty if it is null.
    fn tag(&self, name: &str, row: usize) -> Option<&'a str> {
        let column: &DictionaryArray<Int32Type> =
            self.batch.column_by_name(name)?.as_dictionary_opt()?;
        let texts = column.values().as_string_opt::<i32>()?;
        match column.key(row) {
            None => Some(""),
            Some(key) => (key < texts.len()).then(|| texts.value(key)),
        }
    }

    fn leaf(&self, row: usize, digested: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let times = self.batch.column_by_name("timestamp");
        let times = times.and_then(|column| column.as_primitive_opt::<TimestampNanosecondType>());
        let tag = |name| self.tag(name, row).context("a column is missing");
        let ip = tag("ip")?;
        let tags = Tags {
            severity: Severity::from_name(tag("severity")?).context("an unknown severity")?,
            stream: tag("stream")?,
            kind: tag("type")?,
            host: tag("host")?,
            ip: if ip.is_empty() { None } else { Some(ip.parse()?) },
            collector: tag("collector")?,
            format: tag("format")?,
            // Exports of earlier versions do not have this column.
            time_source: match self.tag("time_source", row).unwrap_or_default() {
                "" => TimeSource::Unknown,
                name => TimeSource::from_name(name).context("an unknown time source")?,
            },
            digested,
        };
        let event = Event {
            id: self.ids.value(row).parse()?,
            timestamp_ns: times.context("a column is missing")?.value(row),
            tags,
            raw: self.raw.value(row),
            attributes: forebay_events::event::Attributes::default(),
        };
        let attributes =
            if self.attributes.is_null(row) { &[] } else { self.attributes.value(row) };
        rebuild::leaf_of(&event, attributes, out)
    }
}
