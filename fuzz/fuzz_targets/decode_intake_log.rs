//! Any bytes as an entry of the intake's log: an error or an entry, never a panic; what decodes is
//! exactly what encoding it gives.
#![no_main]

use forebay_intake::format::{BlobPlace, Documents, Entry, encode_chunk_header, encode_documents};
use libfuzzer_sys::fuzz_target;

fn append(mut header: Vec<u8>, documents: &Documents<'_>) -> Vec<u8> {
    let mut count = 0;
    for document in documents.iter() {
        encode_documents(&mut header, document);
        count += 1;
    }
    assert_eq!(count, documents.len());
    header
}

fn count(documents: &Documents<'_>) -> u32 {
    u32::try_from(documents.len()).expect("a count is 32 bits wide")
}

fn encode(entry: &Entry<'_>) -> Vec<u8> {
    match entry {
        Entry::FilePut(put) => {
            let mut bytes = put.encode_header();
            if let BlobPlace::Inline(content) = put.place {
                bytes.extend_from_slice(content);
            }
            bytes
        }
        Entry::Delete(delete) => delete.encode(),
        Entry::FileMove(moved) => moved.encode(),
        Entry::Namespace(change) => change.encode(),
        Entry::VersionsErased(erased) => erased.encode(),
        Entry::NewestErased(erased) => erased.encode(),
        Entry::Amended(amended) => amended.encode(),
        Entry::DocumentChange(change) => {
            [change.encode_header(), change.document().to_vec()].concat()
        }
        Entry::DocumentsDropped(dropped) => dropped.encode(),
        Entry::DocumentChunk(chunk) => {
            append(encode_chunk_header(chunk.request, count(&chunk.documents)), &chunk.documents)
        }
        Entry::DocumentCommit(commit) => {
            append(commit.encode_header(count(&commit.documents)), &commit.documents)
        }
        Entry::Outcome(outcome) => outcome.encode(),
        Entry::DocumentExtents(extents) => extents.encode(),
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(entry) = Entry::decode(data) {
        assert_eq!(encode(&entry), data, "{entry:?}");
    }
});
