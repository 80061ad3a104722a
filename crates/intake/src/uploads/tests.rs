//! What is read from files that were altered.

use forebay_base::clock::ManualClock;
use forebay_base::fs::RealFs;
use forebay_base::fs::sim::Rng;

use super::assemble::Parts;
use super::*;
use crate::error::IntakeError;
use crate::upload::Source;

struct Once(Option<bytes::Bytes>);

impl Source for Once {
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, IntakeError> {
        Ok(self.0.take())
    }
}

fn open(dir: &Path) -> Uploads {
    let options = IntakeOptions::new(dir);
    let clock = Arc::new(ManualClock::new(5));
    Uploads::open(Arc::new(RealFs), dir, clock, &options, Storing::default()).unwrap()
}

async fn append(uploads: &Uploads, id: UploadId, at: u64, bytes: &[u8], is_checked: bool) {
    let value = crate::digest::Digest::of(bytes).0.to_vec();
    let checksum = is_checked.then_some(Checksum { kind: ChecksumKind::Sha256, value });
    let mut source = Once(Some(bytes::Bytes::copy_from_slice(bytes)));
    uploads.append(id, at, &mut source, checksum).await.unwrap();
}

/// The bytes of an upload up to the first that cannot be read.
async fn read(uploads: &Uploads, id: UploadId, size: u64) -> Vec<u8> {
    let inner = Arc::clone(&uploads.inner);
    let mut parts = Parts { inner, parts: [(id, size)].into(), reader: None };
    let mut found = Vec::new();
    while let Ok(Some(bytes)) = parts.next().await {
        found.extend(bytes);
    }
    found
}

#[test]
fn an_id_has_one_spelling() {
    let id = UploadId::random().unwrap();
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in ["", "0", &"A".repeat(32), &"0".repeat(31), &"g".repeat(32), "../../../etc"] {
        assert_eq!(text.parse::<UploadId>(), Err(InvalidUploadId), "{text:?}");
    }
}

#[tokio::test]
async fn a_sealed_upload_is_complete_and_keeps_its_note_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let kind = UploadKind::Part { group: UploadId([1; 16]), number: 7 };
    let new = |length| NewUpload { kind, length, kept_ms: 1_000, attributes: BTreeMap::new() };
    let uploads = open(dir.path());
    let id = uploads.create(new(None)).await.unwrap();
    append(&uploads, id, 0, b"abc", false).await;
    let note = Note::new(&[9; NOTE_SIZE_MAX]).unwrap();
    uploads.seal(id, note).await.unwrap();
    let short = uploads.create(new(Some(3))).await.unwrap();
    append(&uploads, short, 0, b"ab", false).await;
    assert!(matches!(uploads.seal(short, note).await, Err(UploadError::Length { .. })));
    assert_eq!(Note::new(&[0; NOTE_SIZE_MAX + 1]), None);
    for uploads in [uploads, open(dir.path())] {
        let status = uploads.status(id).await.unwrap();
        assert!(status.is_complete());
        assert_eq!(status.note, note);
        assert_eq!(uploads.status(short).await.unwrap().note, Note::default());
        let mut bytes = uploads.bytes(id, 3);
        assert_eq!(bytes.next().await.unwrap().unwrap(), &b"abc"[..]);
        assert_eq!(bytes.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_flipped_bit_in_any_byte_is_refused_or_cut_back_and_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..900_u32).map(|n| n.to_le_bytes()[0] ^ 0x5A).collect();
    let new = |length| NewUpload {
        kind: UploadKind::Resumable,
        length,
        kept_ms: 1_000,
        attributes: [("filename".to_owned(), "a.txt".to_owned())].into(),
    };
    let uploads = open(dir.path());
    let unfinished = uploads.create(new(None)).await.unwrap();
    append(&uploads, unfinished, 0, &bytes[..300], false).await;
    append(&uploads, unfinished, 300, &bytes[300..600], true).await;
    append(&uploads, unfinished, 600, &bytes[600..], false).await;
    uploads.set_length(unfinished, 900).await.unwrap();
    let finished = uploads.create(new(Some(3))).await.unwrap();
    append(&uploads, finished, 0, b"abc", false).await;
    uploads.finish(finished, b"the result").await.unwrap();
    drop(uploads);
    let checked = check::check(&RealFs, dir.path()).unwrap();
    assert_eq!((checked.uploads, checked.bytes, checked.torn_bytes), (2, 900, 0), "{checked:?}");
    assert!(checked.findings.is_empty(), "{checked:?}");

    let mut rng = Rng::new(9);
    for id in [unfinished, finished] {
        let path = dir.path().join(DIR).join(id.to_string());
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << rng.below(8);
            std::fs::write(&path, &flipped).unwrap();
            let checked = check::check(&RealFs, dir.path()).unwrap();
            assert_eq!(checked.findings.len(), 1, "byte {at} of {id}: {checked:?}");
            let uploads = open(dir.path());
            match uploads.settle(id).await {
                Err(UploadError::Damaged { .. }) => {}
                Ok(status) if id == unfinished => {
                    assert!(status.result.is_none(), "byte {at}");
                    assert!(status.length.is_none_or(|length| length == 900), "byte {at}");
                    let found = read(&uploads, id, status.offset).await;
                    assert_eq!(found, bytes[..found.len()], "byte {at}");
                    if (found.len() as u64) < status.offset {
                        let refused = uploads.status(id).await.unwrap_err();
                        assert!(matches!(refused, UploadError::Damaged { .. }), "byte {at}");
                    }
                }
                other => panic!("byte {at} of {id}: {other:?}"),
            }
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

#[tokio::test]
async fn a_file_under_the_name_of_another_upload_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = open(dir.path());
    let attributes = BTreeMap::new();
    let new = NewUpload { kind: UploadKind::Partial, length: Some(3), kept_ms: 1_000, attributes };
    let (first, second) =
        (uploads.create(new.clone()).await.unwrap(), uploads.create(new).await.unwrap());
    append(&uploads, first, 0, b"abc", false).await;
    drop(uploads);
    let path = |id: UploadId| dir.path().join(DIR).join(id.to_string());
    std::fs::rename(path(first), path(second)).unwrap();
    let uploads = open(dir.path());
    let missing = uploads.status(first).await.unwrap_err();
    assert!(matches!(missing, UploadError::NotFound { .. }), "{missing}");
    let refused = uploads.status(second).await.unwrap_err();
    assert!(matches!(refused, UploadError::Damaged { .. }), "{refused}");
    uploads.remove(second).await.unwrap();
    assert!(!path(second).exists());
}

#[tokio::test]
async fn a_cut_off_end_is_no_damage_and_a_lost_sector_is_if_it_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = open(dir.path());
    let attributes = BTreeMap::new();
    let new = NewUpload { kind: UploadKind::Resumable, length: None, kept_ms: 1_000, attributes };
    let id = uploads.create(new).await.unwrap();
    for at in 0..3 {
        append(&uploads, id, at * 2_000, &[7; 2_000], at == 1).await;
    }
    drop(uploads);
    let path = dir.path().join(DIR).join(id.to_string());
    let whole = std::fs::read(&path).unwrap();
    let first =
        frame::HEADER_SIZE + u32::from_le_bytes(*whole[8..].first_chunk().unwrap()) as usize;
    let found = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        check::check(&RealFs, dir.path()).unwrap()
    };
    for cut in 0..whole.len() {
        let checked = found(&whole[..cut]);
        assert_eq!(checked.findings.len(), usize::from(cut < first), "{cut}: {checked:?}");
        assert!(checked.bytes <= 6_000 && checked.torn_bytes <= 4_100, "{cut}: {checked:?}");
    }
    // The last frame is all of the last request: nothing says that it was acknowledged.
    let last = whole.len() - 2_048;
    // Sectors before it and in it; one that begins before it has its header too.
    let sectors = (1..whole.len() / 512).map(|sector| sector * 512);
    for sector in sectors.filter(|sector| sector + 512 <= last || *sector >= last) {
        let mut bytes = whole.clone();
        bytes[sector..sector + 512].fill(0);
        let checked = found(&bytes);
        assert_eq!(checked.findings.is_empty(), sector >= last, "{sector}: {checked:?}");
        assert_eq!(checked.torn_bytes > 0, sector >= last, "{sector}: {checked:?}");
    }
}

#[tokio::test]
async fn parts_without_their_upload_and_foreign_files_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = open(dir.path());
    let new = |kind| NewUpload { kind, length: None, kept_ms: 1_000, attributes: BTreeMap::new() };
    let group = uploads.create(new(UploadKind::Multipart)).await.unwrap();
    let gone = UploadId([3; 16]);
    for (group, number) in [(group, 1), (gone, 1), (gone, 2)] {
        uploads.create(new(UploadKind::Part { group, number })).await.unwrap();
    }
    for name in ["notes.txt", "00112233445566778899aabbccddeeff.new"] {
        std::fs::write(dir.path().join(DIR).join(name), b"x").unwrap();
    }
    let checked = check::check(&RealFs, dir.path()).unwrap();
    assert_eq!((checked.uploads, checked.orphans, checked.leftovers), (4, 2, 2), "{checked:?}");
    assert!(checked.findings.is_empty(), "{checked:?}");
    assert_eq!(check::check(&RealFs, &dir.path().join("none")).unwrap().uploads, 0);
}
