//! The lines of a spill segment; `docs/formats/spill.md` describes them.
//!
//! ```text
//! {"format":"forebay-spill","version":2,"log":"<32 hex digits>","after":<position>}
//! {"_commit":<position>,"_namespace":"orders","_target":"table","_first_id":7,"_count":1,
//!  "_received_ms":1700000000000,"_columns":[["a","integer"]],"_reshapes":false}    (one line)
//! {"_position":<position>,"_namespace":"orders","_id":7,"_received_ms":1700000000000,"_document":{"a": 1}}
//! {"_end":<position>,"_crc32c":"0123abcd"}
//! ```
//!
//! Invariants: pure; a document's bytes are returned unchanged; decoding accepts any bytes and
//! returns an error for those that are none of these lines.

use forebay_base::checksum::extend;
use forebay_log::Lsn;
use forebay_sink::{ColumnType, Document, StoredDocument, ndjson};
use serde::{Deserialize, Serialize};

use crate::documents::write::Head;
use crate::documents::{column_code, column_type};
use crate::format::{AddedColumn, TargetCode};

const FORMAT: &str = "forebay-spill";
const VERSION: u32 = 2;
/// The oldest version that is read. Its commits reshape nothing.
const VERSION_MIN: u32 = 1;

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    format: String,
    version: u32,
    /// The log the documents came from.
    log: String,
    /// End of the commit before the segment's first one.
    pub(super) after: u64,
}

impl Header {
    pub(super) fn new(log: [u8; 16], after: Lsn) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, log: hex::encode(log), after: after.0 }
    }

    /// Reads a header for the given log; the error is the reason.
    pub(super) fn decode(line: &[u8], log: [u8; 16]) -> Result<Self, String> {
        let header: Self =
            serde_json::from_slice(line).map_err(|error| format!("invalid header: {error}"))?;
        let is_known = (VERSION_MIN..=VERSION).contains(&header.version);
        if header.format != FORMAT || !is_known {
            return Err(format!(
                "format {:?} version {}, expected {FORMAT:?} version {VERSION}",
                header.format, header.version
            ));
        }
        if header.log != hex::encode(log) {
            return Err(format!(
                "written for the log {:?}, but this log is {}",
                header.log,
                hex::encode(log)
            ));
        }
        Ok(header)
    }
}

/// The first line of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitLine {
    #[serde(rename = "_commit")]
    end: u64,
    #[serde(rename = "_namespace")]
    namespace: String,
    #[serde(rename = "_target")]
    target: String,
    #[serde(rename = "_first_id")]
    first_id: u64,
    #[serde(rename = "_count")]
    count: u64,
    #[serde(rename = "_received_ms")]
    received_ms: i64,
    #[serde(rename = "_columns")]
    columns: Vec<(String, String)>,
    /// Whether these are all columns, and the rows before are derived again.
    #[serde(rename = "_reshapes", default)]
    reshapes: bool,
}

/// A spilled commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spilled {
    pub(crate) end: Lsn,
    pub(crate) namespace: String,
    pub(crate) target: TargetCode,
    pub(crate) first_id: u64,
    pub(crate) count: u64,
    pub(crate) received_ms: i64,
    pub(crate) columns: Vec<AddedColumn>,
    pub(crate) reshapes: bool,
}

impl Spilled {
    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            end: self.end,
            namespace: &self.namespace,
            target: self.target,
            first_id: self.first_id,
            count: self.count,
            received_ms: self.received_ms,
            columns: &self.columns,
            reshapes: self.reshapes,
        }
    }

    /// Reads the first line of a commit.
    pub(super) fn decode(line: &[u8]) -> Option<Self> {
        let line: CommitLine = serde_json::from_slice(line).ok()?;
        let target = match line.target.as_str() {
            "table" => TargetCode::Table,
            "collection" => TargetCode::Collection,
            _ => return None,
        };
        let columns = line.columns.into_iter().map(|(path, ty)| {
            let type_code = column_code(ColumnType::from_name(&ty)?);
            Some(AddedColumn { path, type_code })
        });
        Some(Self {
            end: Lsn(line.end),
            namespace: line.namespace,
            target,
            first_id: line.first_id,
            count: line.count,
            received_ms: line.received_ms,
            columns: columns.collect::<Option<_>>()?,
            reshapes: line.reshapes,
        })
    }
}

/// Appends `value` as a separate line.
pub(super) fn push_json(line: &mut Vec<u8>, value: &impl Serialize) -> Result<(), String> {
    serde_json::to_writer(&mut *line, value).map_err(|error| error.to_string())?;
    line.push(b'\n');
    Ok(())
}

/// Appends the first line of a commit.
pub(super) fn push_commit(line: &mut Vec<u8>, head: &Head<'_>) -> Result<(), String> {
    let columns = head.columns.iter().map(|column| {
        let ty = column_type(column.type_code)
            .ok_or_else(|| format!("unknown column type code {}", column.type_code))?;
        Ok((column.path.clone(), ty.name().to_owned()))
    });
    let commit = CommitLine {
        end: head.end.0,
        namespace: head.namespace.to_owned(),
        target: match head.target {
            TargetCode::Table => "table".to_owned(),
            TargetCode::Collection => "collection".to_owned(),
        },
        first_id: head.first_id,
        count: head.count,
        received_ms: head.received_ms,
        columns: columns.collect::<Result<_, String>>()?,
        reshapes: head.reshapes,
    };
    push_json(line, &commit)
}

/// Appends a document's line.
pub(super) fn push_document(
    line: &mut Vec<u8>,
    end: Lsn,
    namespace: &str,
    document: &Document<'_>,
) {
    // Namespaces have no character that JSON escapes.
    line.extend_from_slice(
        format!("{{\"_position\":{},\"_namespace\":\"{namespace}\"", end.0).as_bytes(),
    );
    let at = line.len();
    ndjson::encode(document, line);
    // This comma replaces the opening brace of the document.
    if let Some(brace) = line.get_mut(at) {
        *brace = b',';
    }
}

/// The document in a line of the commit that ends at `end`.
pub(super) fn decode_document(
    line: &mut [u8],
    end: Lsn,
    namespace: &str,
) -> Option<StoredDocument> {
    let begin = format!("{{\"_position\":{},\"_namespace\":\"{namespace}\"", end.0);
    line.strip_prefix(begin.as_bytes())?.strip_prefix(b",")?;
    let own = line.get_mut(begin.len()..)?;
    *own.first_mut()? = b'{';
    ndjson::decode(own)
}

/// Appends the last line of a commit.
///
/// * `crc`: checksum of the segment's header and every line of the commit before this one.
pub(super) fn push_end(line: &mut Vec<u8>, end: Lsn, crc: u32) {
    line.extend_from_slice(
        format!("{{\"_end\":{},\"_crc32c\":\"{crc:08x}\"}}\n", end.0).as_bytes(),
    );
}

/// Whether this is the last line of the commit.
pub(super) fn is_end(line: &[u8], end: Lsn, crc: u32) -> bool {
    let mut expected = Vec::with_capacity(64);
    push_end(&mut expected, end, crc);
    line == expected
}

/// The initial checksum of a commit's lines: that of their segment's header.
pub(super) fn seed(header: &[u8]) -> u32 {
    extend(0, header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(columns: &[AddedColumn]) -> Head<'_> {
        Head {
            end: Lsn(4711),
            namespace: "a.b-c",
            target: TargetCode::Table,
            first_id: 3,
            count: 2,
            received_ms: 99,
            columns,
            reshapes: true,
        }
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let columns = [AddedColumn { path: "x.\"y".into(), type_code: 5 }];
        let mut line = Vec::new();
        push_commit(&mut line, &head(&columns)).unwrap();
        let spilled = Spilled::decode(&line).unwrap();
        assert_eq!((spilled.head().end, &spilled.columns[..]), (Lsn(4711), &columns[..]));
        assert!(spilled.reshapes);
        // Version 1 had no such member.
        let old = String::from_utf8(line).unwrap().replace(",\"_reshapes\":true", "");
        assert!(!Spilled::decode(old.as_bytes()).unwrap().reshapes);
        for raw in [&b"{\"a\": 1}"[..], b"{\r\n\t\"a\":\"\\u0000 }\"}", b" {}", b"\xff\x00"] {
            let mut line = Vec::new();
            let document = Document { id: 3, received_ms: 99, raw };
            push_document(&mut line, Lsn(4711), "a.b-c", &document);
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            assert!(serde_json::from_slice::<serde_json::Value>(&line).is_ok(), "{raw:?}");
            assert_eq!(decode_document(&mut line.clone(), Lsn(4711), "other"), None);
            let back = decode_document(&mut line, Lsn(4711), "a.b-c").unwrap();
            assert_eq!((back.id, back.received_ms, &back.raw[..]), (3, 99, raw));
        }
    }

    #[test]
    fn an_end_is_of_one_commit_and_one_checksum() {
        let mut line = Vec::new();
        push_end(&mut line, Lsn(7), 1);
        assert!(is_end(&line, Lsn(7), 1));
        assert!(!is_end(&line, Lsn(7), 2) && !is_end(&line, Lsn(8), 1));
    }

    #[test]
    fn a_header_of_another_log_or_version_is_refused() {
        let mut line = Vec::new();
        push_json(&mut line, &Header::new([1; 16], Lsn(5))).unwrap();
        assert_eq!(Header::decode(&line, [1; 16]).unwrap().after, 5);
        assert!(Header::decode(&line, [2; 16]).unwrap_err().contains("written for the log"));
        let line = String::from_utf8(line).unwrap();
        let older = line.replace("\"version\":2", "\"version\":1");
        assert_eq!(Header::decode(older.as_bytes(), [1; 16]).unwrap().after, 5);
        let newer = line.replace("\"version\":2", "\"version\":3");
        assert!(Header::decode(newer.as_bytes(), [1; 16]).unwrap_err().contains("version 3"));
        assert!(Header::decode(b"{}\n", [1; 16]).is_err());
    }
}
