//! Reading CSV: names from the header, types inferred from the first rows of the first file.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use forebay_pgcopy::Column;
use forebay_sdk::bridge::Give;
use forebay_sdk::error::ConnectorError;

use super::super::format::{Format, Part, Reading};
use super::super::opened::Opened;
use super::super::settings::{Compression, CsvSource};
use super::super::text::{Collecting, Seen, TextReader, check_given, typed};
use super::parse::Records;

/// CSV files.
#[derive(Debug, Clone)]
pub(in super::super) struct CsvFormat {
    pub(super) compression: Compression,
    pub(super) delimiter: u8,
    pub(super) has_header: bool,
    pub(super) null: String,
    pub(super) given: BTreeMap<String, String>,
    pub(super) sample_rows: u32,
    /// Names of columns in files without a header; numbered if there are none.
    pub(super) names: Vec<String>,
}

impl CsvFormat {
    pub(in super::super) fn new(settings: &CsvSource) -> Self {
        Self {
            compression: settings.compression,
            delimiter: settings.delimiter.0,
            has_header: settings.header,
            null: settings.null_text.clone(),
            given: settings.columns.clone(),
            sample_rows: settings.sample_rows.get(),
            names: Vec::new(),
        }
    }

    fn records<'a>(&self, file: &'a Opened) -> Result<Records<'a>, ConnectorError> {
        Ok(Records::new(TextReader::new(file, self.compression)?, self.delimiter))
    }

    /// Names of columns in a file without a header.
    fn numbered(&self, count: usize) -> Vec<String> {
        match self.names.is_empty() {
            true => (1..=count).map(|number| format!("column_{number}")).collect(),
            false => self.names.clone(),
        }
    }

    /// The names of a file's columns, as its header has them.
    fn header(&self, records: &mut Records<'_>) -> Result<Vec<String>, ConnectorError> {
        let Some(record) = records.next()? else {
            return Err(records.found("the file has no header"));
        };
        let names: Vec<String> = record.fields().map(|(name, _)| name.to_owned()).collect();
        match names.iter().position(String::is_empty) {
            Some(at) => Err(records.found(format!("column {} of the header has no name", at + 1))),
            None => Ok(names),
        }
    }
}

impl Format for CsvFormat {
    fn endings(&self) -> &'static [&'static str] {
        // A file of the other delimiter would be read as one column.
        match self.delimiter {
            b'\t' => &["tsv", "csv"],
            _ => &["csv"],
        }
    }

    fn columns(&self, file: &Opened, _wanted: &[String]) -> Result<Vec<Column>, ConnectorError> {
        let mut records = self.records(file)?;
        let mut names = match self.has_header {
            true => self.header(&mut records)?,
            false => Vec::new(),
        };
        let mut seen = vec![Seen::default(); names.len()];
        let mut rows = 0;
        while rows < self.sample_rows
            && let Some(record) = records.next()?
        {
            if record.is_blank() && names.len() != 1 {
                continue;
            }
            if names.is_empty() {
                names = self.numbered(record.len());
                seen.resize(names.len(), Seen::default());
            }
            rows += 1;
            for ((value, is_quoted), seen) in record.fields().zip(&mut seen) {
                if !value.is_empty() && (is_quoted || value != self.null) {
                    seen.look(value);
                }
            }
        }
        let found = names.into_iter().zip(seen).map(|(name, seen)| (name, seen.type_name()));
        let columns = typed(found.collect(), &self.given)?;
        check_given(&columns, &self.given, file)?;
        Ok(columns)
    }

    fn divide(&self, file: &Opened, _size: u64) -> Result<Vec<Part>, ConnectorError> {
        // Where a record starts is known only after everything before it was read.
        Ok(vec![Part::whole(file.size)])
    }

    fn read(&self, reading: &Reading<'_>, give: &mut Give<'_>) -> Result<(), ConnectorError> {
        let file = reading.file;
        let mut records = self.records(file)?;
        let mut columns = match self.has_header {
            true => Some(places(reading, &self.header(&mut records)?)?),
            false => None,
        };
        let mut collecting = Collecting::new(reading, &self.given);
        while let Some(record) = records.next()? {
            let count = columns.as_ref().map_or(0, Places::count);
            if record.is_blank() && count != 1 {
                continue;
            }
            let places = match &columns {
                Some(places) => places,
                None => columns.insert(places(reading, &self.numbered(record.len()))?),
            };
            if record.len() != places.count() {
                let (is, should) = (record.len(), places.count());
                return Err(records.found(format!("the record has {is} fields, expected {should}")));
            }
            let size = record.size();
            let mut refused = None;
            for ((value, is_quoted), place) in record.fields().zip(&places.of_field) {
                let Some(at) = *place else { continue };
                let is_null = !is_quoted && value == self.null;
                let taken =
                    if is_null { Ok(false) } else { collecting.text(at, value).map(|()| true) };
                match taken {
                    Ok(true) => {}
                    // Some programs quote everything: an empty field that is not a text is NULL.
                    Err(wanted) if !(value.is_empty() && is_quoted) => {
                        refused = refused.or(Some((at, wanted)));
                    }
                    _ => {
                        if let Some(builder) = collecting.builders.get_mut(at) {
                            builder.null();
                        }
                    }
                }
            }
            if let Some((at, wanted)) = refused {
                let name = reading.columns.get(at).map_or("", |column| &column.name);
                return Err(records.found(format!(
                    "column {name:?}: {wanted}; specify another type in `columns`"
                )));
            }
            for missing in &places.missing {
                if let Some(builder) = collecting.builders.get_mut(*missing) {
                    builder.null();
                }
            }
            if collecting.row(size) {
                give(collecting.take(file)?)?;
            }
        }
        give(collecting.take(file)?)
    }
}

/// The destination of each field of a file.
struct Places {
    /// The column of each field, if it is requested.
    of_field: Vec<Option<usize>>,
    /// The columns that the file lacks.
    missing: Vec<usize>,
}

impl Places {
    fn count(&self) -> usize {
        self.of_field.len()
    }
}

fn places(reading: &Reading<'_>, names: &[String]) -> Result<Places, ConnectorError> {
    let mut of_field: Vec<Option<usize>> = Vec::with_capacity(names.len());
    for name in names {
        let place = reading.column(name)?;
        if place.is_some() && of_field.contains(&place) {
            let file = reading.file.path.display().to_string();
            return Err(ConnectorError::data(
                file,
                format!("the file has two columns named {name:?}"),
            ));
        }
        of_field.push(place);
    }
    let mut missing = Vec::new();
    for (at, column) in reading.columns.iter().enumerate() {
        if !of_field.contains(&Some(at)) {
            reading.check_missing(column)?;
            missing.push(at);
        }
    }
    Ok(Places { of_field, missing })
}
