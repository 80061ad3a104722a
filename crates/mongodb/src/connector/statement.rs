//! Update statements for encoded documents.

#![deny(clippy::indexing_slicing)]

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mongodb::bson::RawDocumentBuf;
use mongodb::bson::raw::{CString, RawBsonRef, RawDocument};

use super::encode::{append_document, begin, end};

/// The fields of a document that identify it, as a document.
pub(super) fn key<'a>(
    document: &[u8],
    names: impl IntoIterator<Item = impl AsRef<str> + 'a>,
) -> Result<RawDocumentBuf> {
    let raw = raw(document)?;
    let mut key = RawDocumentBuf::new();
    for name in names {
        let name = name.as_ref();
        let Ok(Some(value)) = raw.get(name) else {
            return Err(broken(format!("it has no {name:?}")));
        };
        let name = CString::try_from(name.to_owned()).map_err(|error| broken(error.to_string()))?;
        key.append(name, value);
    }
    Ok(key)
}

/// A statement that updates the document with a key, or inserts it.
pub(super) fn upsert(
    key: &[u8],
    document: &[u8],
    sets: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    append_document("q", key, out);
    if sets {
        append_set(document, out)?;
    } else {
        append_document("u", document, out);
    }
    append_elements(mongodb::bson::rawdoc! { "upsert": true }.as_bytes(), out);
    Ok(())
}

/// Appends to a statement that the fields of a document are set.
pub(super) fn append_set(fields: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut update = Vec::new();
    let begun = begin(&mut update);
    append_document("$set", fields, &mut update);
    end(begun, &mut update)?;
    append_document("u", &update, out);
    Ok(())
}

/// Appends the elements of a document.
pub(super) fn append_elements(document: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(document.get(4..document.len().saturating_sub(1)).unwrap_or_default());
}

/// The id of a document.
pub(super) fn id_of(document: &RawDocument) -> Result<RawBsonRef<'_>> {
    let id = document.get("_id").map_err(|error| broken(error.to_string()))?;
    id.ok_or_else(|| broken("it has no id".to_owned()))
}

/// A document without its id, which an update may not set.
pub(super) fn without_id(document: &[u8]) -> Result<Vec<u8>> {
    let raw = raw(document)?;
    if !matches!(raw.get("_id"), Ok(Some(_))) {
        return Ok(document.to_vec());
    }
    let mut kept = RawDocumentBuf::new();
    for field in raw {
        let (name, value): (_, RawBsonRef<'_>) =
            field.map_err(|error| broken(error.to_string()))?;
        if name != "_id" {
            kept.append(name, value);
        }
    }
    Ok(kept.into_bytes())
}

pub(super) fn raw(document: &[u8]) -> Result<&RawDocument> {
    RawDocument::from_bytes(document).map_err(|error| broken(error.to_string()))
}

/// An error for an invalid document of our own.
pub(super) fn broken(found: String) -> ConnectorError {
    ConnectorError::data("an encoded document", found)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{doc, rawdoc};

    use super::*;

    #[test]
    fn an_update_sets_everything_but_the_id() {
        let document = rawdoc! { "_id": 1, "a": "x", "b": null };
        let key = key(document.as_bytes(), ["_id"]).unwrap();
        let set = without_id(document.as_bytes()).unwrap();
        let mut documents = super::super::bulk::Documents::default();
        documents.add(|out| upsert(key.as_bytes(), &set, true, out)).unwrap();
        let made = mongodb::bson::Document::try_from(raw(documents.get(0)).unwrap()).unwrap();
        let set = doc! { "$set": { "a": "x", "b": null } };
        assert_eq!(made, doc! { "q": { "_id": 1 }, "u": set, "upsert": true });
        assert!(super::key(document.as_bytes(), ["c"]).is_err());
        assert!(raw(b"no document").is_err());
    }
}
