//! Access for the fuzz targets to private functions. Not part of the public interface.

use mongodb::bson::Document;

use crate::sink::json;

/// Reads any bytes as a JSON document that may be converted to BSON.
///
/// # Panics
/// If a converted document is printed differently: a bug.
pub fn bson_from_json(data: &[u8]) {
    let Some(parsed) = json::parse(data) else { return };
    let document = Document::try_from(parsed).expect("what was made is BSON");
    let printed = json::print(&document).expect("what was made can be printed");
    assert_eq!(printed, data, "{:?}", String::from_utf8_lossy(data));
}
