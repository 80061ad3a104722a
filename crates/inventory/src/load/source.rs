//! A generated inventory as a source, without a file.

use std::sync::Arc;

use super::Load;
use crate::object::{Batch, ClassId, Classes, Kind, Object};
use crate::source::{BadRow, Part, Provenance, RowSink, Source, SourceError};

/// Objects passed on at once.
const BATCH_ROWS: usize = 8192;

/// The first objects of a [`Load`], in parts.
#[derive(Debug, Clone)]
pub struct MadeUpSource {
    /// The inventory.
    pub load: Load,
    /// Number of objects.
    pub objects: u64,
    /// Number of parts that can be read in parallel.
    pub parts: u64,
    /// The classes of the build.
    pub classes: Arc<Classes>,
}

struct MadeUpPart {
    name: String,
    source: MadeUpSource,
    first: u64,
    end: u64,
}

impl Source for MadeUpSource {
    fn provenance(&self) -> Provenance {
        let Load { shape, seed } = self.load;
        Provenance {
            source: format!("made-up:{}:{seed}", shape.name()),
            format: "made-up".to_owned(),
            rows: Some(self.objects),
            ..Provenance::default()
        }
    }

    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError> {
        let share = self.objects.div_ceil(self.parts.max(1)).max(1);
        let part = |number| {
            let first: u64 = number * share;
            let end = (first + share).min(self.objects);
            let name = format!("objects {first} to {end}");
            Box::new(MadeUpPart { name, source: self.clone(), first, end }) as Box<dyn Part>
        };
        Ok((0..self.objects.div_ceil(share)).map(part).collect())
    }
}

impl Part for MadeUpPart {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let MadeUpSource { load, classes, .. } = &self.source;
        let (mut batch, mut key) = (Batch::default(), Vec::new());
        let mut last = ("", ClassId::STANDARD);
        for i in self.first..self.end {
            let made_up = load.object(i, &mut key);
            let fault = |field: &str, reason: String| BadRow {
                part: self.name.clone(),
                row: i + 1 - self.first,
                field: field.to_owned(),
                reason,
            };
            if made_up.class != last.0 {
                match classes.id(made_up.class) {
                    Ok(id) => last = (made_up.class, id),
                    Err(error) => {
                        sink.bad_row(fault("class", error.to_string()))?;
                        continue;
                    }
                }
            }
            let modified = made_up.month();
            let (size, class) = (made_up.size, last.1);
            let object = Object { size, version: 0, modified, class, kind: Kind::Current };
            if let Err(error) = batch.push(&key, object) {
                sink.bad_row(fault("key", error.to_string()))?;
            }
            if batch.len() == BATCH_ROWS {
                sink.rows(&mut batch)?;
            }
        }
        if !batch.is_empty() {
            sink.rows(&mut batch)?;
        }
        Ok(())
    }
}
