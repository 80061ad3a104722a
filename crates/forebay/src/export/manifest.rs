//! The contents of an export, as JSON beside its parts.

use forebay_events::query::Query;
use forebay_events::render;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FORMAT_VERSION, Format, Options, Partition, Signed};

/// Its name, below the target.
pub(crate) const MANIFEST: &str = "_forebay_export.json";

/// A complete export.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format_version: u32,
    pub(crate) format: Format,
    pub(crate) partition: Partition,
    /// The conditions of the exported events.
    pub(crate) query: Value,
    /// The signed note that covers every row; absent if the store has no proofs.
    pub(crate) checkpoint: Option<String>,
    pub(crate) verifier_key: Option<String>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// The lowest position among the rows.
    pub(crate) first_seq: Option<u64>,
    /// The highest position among the rows.
    pub(crate) last_seq: Option<u64>,
    /// In order of time.
    pub(crate) parts: Vec<Entry>,
}

/// One part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Path below the target, with slashes.
    pub(crate) path: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Digest of the file, in hexadecimal.
    pub(crate) sha256: String,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
}

impl Manifest {
    pub(crate) fn new(options: &Options, query: &Query, signed: Option<&Signed>) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            format: options.format,
            partition: options.partition,
            query: asked(query),
            checkpoint: signed.map(|signed| signed.checkpoint.clone()),
            verifier_key: signed.map(|signed| signed.verifier_key.clone()),
            rows: 0,
            bytes: 0,
            first_seq: None,
            last_seq: None,
            parts: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, part: Entry) {
        self.rows += part.rows;
        self.bytes += part.bytes;
        let first = self.first_seq.map_or(part.first_seq, |seq| seq.min(part.first_seq));
        self.first_seq = Some(first);
        self.last_seq = self.last_seq.max(Some(part.last_seq));
        self.parts.push(part);
    }

    pub(crate) fn to_text(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Returns the conditions of a query, under the names of the command line's flags.
fn asked(query: &Query) -> Value {
    let mut asked = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        value.map(|value| asked.insert(name.to_owned(), value));
    };
    put("from", query.from_ns.map(|time| render::time(time).into()));
    put("to", query.to_ns.map(|time| render::time(time).into()));
    put("stream", query.stream.clone().map(Into::into));
    put("type", query.kind.clone().map(Into::into));
    put("host", query.host.clone().map(Into::into));
    let ips: Vec<_> = query.ips.iter().map(ToString::to_string).collect();
    put("ip", (!ips.is_empty()).then(|| json!(ips)));
    put("severity", query.severity_min.map(|least| least.name().into()));
    let contains: Vec<_> =
        query.contains.iter().map(|text| String::from_utf8_lossy(text)).collect();
    put("contains", (!contains.is_empty()).then(|| json!(contains)));
    let words: Vec<_> = query.words.iter().map(|text| String::from_utf8_lossy(text)).collect();
    put("word", (!words.is_empty()).then(|| json!(words)));
    put("regex", query.regex.as_ref().map(|regex| regex.as_str().into()));
    asked.into()
}
