//! `forebay:blobs`: the server's own files, each as an object with the key `namespace/name`.
//!
//! They are read from the catalogue page by page while the server runs: a file that is stored or
//! deleted meanwhile may be in the index or not, and no other is missed or counted twice.

use forebay_base::error_chain::chain;
use forebay_intake::Intake;
use forebay_inventory::object::{Batch, ClassId, Kind, Month, Object};
use forebay_inventory::source::{BadRow, Part, Provenance, RowSink, Source, SourceError, Stopped};

/// The name for clients.
pub(super) const BLOBS: &str = "forebay:blobs";
/// Number of files on a page.
const PAGE: usize = 1_000;

/// The files of an intake.
pub(super) struct Blobs {
    pub(super) intake: Intake,
    pub(super) now_ms: u64,
}

impl Source for Blobs {
    fn provenance(&self) -> Provenance {
        Provenance {
            source: BLOBS.to_owned(),
            format: "forebay".to_owned(),
            listed_at_ms: Some(self.now_ms),
            fields: ["key", "size", "last_modified"].map(str::to_owned).to_vec(),
            notes: vec![
                "every name counts the full size of its content, even if several names share it"
                    .to_owned(),
            ],
            ..Provenance::default()
        }
    }

    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError> {
        Ok(vec![Box::new(Files(self.intake.clone()))])
    }
}

struct Files(Intake);

impl Part for Files {
    fn name(&self) -> &str {
        BLOBS
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let mut after: Option<(String, String)> = None;
        let mut batch = Batch::default();
        let mut key = String::new();
        let mut row = 0;
        loop {
            let last = after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            let page = self.0.files_after(last, PAGE).map_err(|error| SourceError::List {
                location: BLOBS.to_owned(),
                reason: chain(&error).to_string(),
            })?;
            for file in &page {
                row += 1;
                key.clear();
                key.push_str(file.namespace.as_str());
                key.push('/');
                key.push_str(file.name.as_str());
                let object = Object {
                    size: file.size,
                    version: 0,
                    modified: Month::from_unix_ms(file.created_ms),
                    class: ClassId::STANDARD,
                    kind: Kind::Current,
                };
                if let Err(full) = batch.push(key.as_bytes(), object) {
                    sink.bad_row(bad(row, full.to_string()))?;
                }
            }
            send(&mut batch, sink)?;
            match page.last() {
                Some(file) if page.len() == PAGE => {
                    let name = file.name.as_str().to_owned();
                    after = Some((file.namespace.as_str().to_owned(), name));
                }
                _ => return Ok(()),
            }
        }
    }
}

fn bad(row: u64, reason: String) -> BadRow {
    BadRow { part: BLOBS.to_owned(), row, field: "key".to_owned(), reason }
}

fn send(batch: &mut Batch, sink: &mut dyn RowSink) -> Result<(), Stopped> {
    if batch.is_empty() { Ok(()) } else { sink.rows(batch) }
}
