//! Access for the fuzz targets to extended JSON: any text in, no panic out, and a lossless round
//! trip.

use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Bson, Document};

use super::extjson::{self, Layout};
use crate::settings::Style;

/// Reads any text as extended JSON, writes the value and reads it again.
///
/// # Panics
/// If the values differ: a bug.
pub fn extended_json(text: &str) {
    let Ok(value) = extjson::read(text) else { return };
    for (style, spaced) in [(Style::Canonical, false), (Style::Relaxed, true)] {
        let written = write(&value, Layout { style, spaced });
        let again = extjson::read(&written).expect("what was written is read");
        if style == Style::Canonical {
            let once_more = write(&again, Layout { style, spaced });
            assert_eq!(once_more, written, "from {text:?}");
        }
    }
}

fn write(value: &Bson, layout: Layout) -> String {
    let mut document = Document::new();
    document.insert("v", value.clone());
    let raw = RawDocumentBuf::try_from(&document).expect("what was read is BSON");
    let value = raw.get("v").expect("it is sound").expect("it is there");
    let mut out = Vec::new();
    extjson::write(value, layout, &mut out).expect("what was read can be written");
    String::from_utf8(out).expect("JSON is text")
}
