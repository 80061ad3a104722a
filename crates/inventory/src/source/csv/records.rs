//! Records of a CSV stream, one at a time, with a maximum length.

use std::io::{self, Read};

use csv_core::{ReadRecordResult, Reader};

/// Bytes read at once.
const BUFFER_SIZE: usize = 64 << 10;
/// Maximum size of a record in bytes.
pub(crate) const RECORD_SIZE_MAX: usize = 1 << 20;
/// Maximum number of fields of a record.
const FIELDS_MAX: usize = 4096;

/// Reads records and skips empty lines.
pub(crate) struct Records<R> {
    input: R,
    reader: Reader,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    content: Vec<u8>,
    /// End of each field in `content`.
    ends: Vec<usize>,
    fields: usize,
    /// Number of records read.
    pub(crate) count: u64,
}

/// Why there is no next record.
pub(crate) enum NoRecord {
    /// There are no more.
    End,
    /// The next is too long.
    TooLong,
    /// The stream cannot be read.
    Io(io::Error),
}

impl<R: Read> Records<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            reader: Reader::new(),
            buffer: vec![0; BUFFER_SIZE],
            at: 0,
            filled: 0,
            content: vec![0; 4096],
            ends: vec![0; 64],
            fields: 0,
            count: 0,
        }
    }

    /// Reads a record; its fields are then available.
    pub(crate) fn next(&mut self) -> Result<(), NoRecord> {
        let (mut size, mut fields) = (0, 0);
        loop {
            if self.at == self.filled {
                self.fill().map_err(NoRecord::Io)?;
            }
            let input = self.buffer.get(self.at..self.filled).unwrap_or_default();
            let (content, ends) = (self.content.get_mut(size..), self.ends.get_mut(fields..));
            let (result, read, written, ended) = self.reader.read_record(
                input,
                content.unwrap_or_default(),
                ends.unwrap_or_default(),
            );
            self.at += read;
            size += written;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.content.len() < RECORD_SIZE_MAX => {
                    self.content.resize((self.content.len() * 2).min(RECORD_SIZE_MAX), 0);
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < FIELDS_MAX => {
                    self.ends.resize(self.ends.len() * 2, 0);
                }
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(NoRecord::TooLong);
                }
                ReadRecordResult::Record => {
                    self.fields = fields;
                    self.count += 1;
                    return Ok(());
                }
                ReadRecordResult::End => return Err(NoRecord::End),
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.at = 0;
        self.filled = 0;
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(filled) => {
                    self.filled = filled;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Number of fields of the last record.
    pub(crate) fn fields(&self) -> usize {
        self.fields
    }

    /// A field of the last record.
    #[inline]
    pub(crate) fn field(&self, at: usize) -> Option<&[u8]> {
        if at >= self.fields {
            return None;
        }
        let start = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.content.get(start..*self.ends.get(at)?)
    }

    /// The stream, which may not have been read to its end.
    pub(crate) fn into_input(self) -> R {
        self.input
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8]) -> Vec<Vec<String>> {
        let mut records = Records::new(text);
        let mut rows = Vec::new();
        while records.next().is_ok() {
            let fields = (0..records.fields()).map(|at| records.field(at).unwrap());
            rows.push(fields.map(|field| String::from_utf8_lossy(field).into_owned()).collect());
        }
        rows
    }

    #[test]
    fn quoted_fields_may_hold_anything() {
        let text = b"\"a,b\",\"c\"\"d\",\"e\nf\"\r\n\n1,,3\nlast";
        assert_eq!(rows(text), [vec!["a,b", "c\"d", "e\nf"], vec!["1", "", "3"], vec!["last"]]);
    }

    #[test]
    fn records_longer_than_every_buffer_are_read_up_to_the_limit() {
        let long = "x".repeat(RECORD_SIZE_MAX - 10);
        assert_eq!(rows(format!("{long},b\n").as_bytes()), [vec![long.as_str(), "b"]]);
        let wide = "1,".repeat(1000);
        assert_eq!(rows(wide.as_bytes())[0].len(), 1001);
        let open = format!("a\n\"{}", "x".repeat(2 * RECORD_SIZE_MAX));
        let mut records = Records::new(open.as_bytes());
        assert!(records.next().is_ok());
        assert!(matches!(records.next(), Err(NoRecord::TooLong)));
        let mut records = Records::new(&[b','; 5000][..]);
        assert!(matches!(records.next(), Err(NoRecord::TooLong)));
    }
}
