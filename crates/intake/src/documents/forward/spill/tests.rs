//! Every byte of a segment counts, and every end of it is a whole commit.

use forebay_base::fs::sim::SimFs;

use super::*;
use crate::format::{AddedColumn, TargetCode};

const LOG: [u8; 16] = [9; 16];

fn dir() -> &'static Path {
    Path::new("/intake/spill")
}

fn open(disk: &SimFs) -> Result<Spill, SpillError> {
    Spill::open(Arc::new(disk.clone()), dir(), LOG, 1 << 20)
}

fn add(spill: &mut Spill, after: u64, end: u64, documents: &[&[u8]]) -> Spilling {
    let columns = [AddedColumn { path: "a".into(), type_code: 2 }];
    let head = Head {
        end: Lsn(end),
        namespace: "n",
        target: TargetCode::Table,
        first_id: after + 1,
        count: documents.len() as u64,
        received_ms: 5,
        columns: &columns,
        reshapes: false,
    };
    let added = spill.append::<SpillError>(Lsn(after), &head, |each| {
        each(after + 1, &mut documents.iter().copied())
    });
    added.unwrap()
}

/// The ends of whole commits and their documents; `None` in the end where something is damaged.
fn read(spill: &Spill, from: Lsn) -> Vec<Option<(u64, Vec<Vec<u8>>)>> {
    let (mut found, mut at, mut documents) = (Vec::new(), from, Vec::new());
    while let Some(mut reader) = spill.reader(at).unwrap() {
        loop {
            match reader.next() {
                Ok(Some(Item::Commit(_))) => documents.clear(),
                Ok(Some(Item::Document(document))) => documents.push(document.raw),
                Ok(Some(Item::End(end))) => {
                    found.push(Some((end.0, std::mem::take(&mut documents))));
                    at = end;
                }
                Ok(None) => break,
                Err(_) => {
                    found.push(None);
                    return found;
                }
            }
        }
    }
    found
}

/// A disk with three commits in one segment.
fn spilled() -> SimFs {
    let disk = SimFs::new(4);
    let mut spill = open(&disk).unwrap();
    assert_eq!(add(&mut spill, 10, 20, &[b"{\"a\":1}", b"{\n\"a\": 2}"]), Spilling::Done);
    assert_eq!(add(&mut spill, 20, 30, &[b"{}"]), Spilling::Done);
    assert_eq!(add(&mut spill, 30, 44, &[b"{\"a\":\"\xc3\xa4\"}"]), Spilling::Done);
    spill.sync().unwrap();
    assert_eq!((spill.range(), spill.documents()), (Some((Lsn(10), Lsn(44))), 4));
    disk
}

fn file(disk: &SimFs) -> (PathBuf, Vec<u8>) {
    let path = dir().join(format!("{:016x}.ndjson", 10));
    let file = disk.open(&path, Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    (path, bytes)
}

#[test]
fn a_segment_cut_anywhere_is_its_whole_commits_and_continues() {
    let disk = spilled();
    let whole = read(&open(&disk.fork()).unwrap(), Lsn(0));
    assert_eq!(whole.len(), 3);
    let (path, bytes) = file(&disk);
    for size in 0..bytes.len() {
        let cut = disk.fork();
        cut.open(&path, Access::ReadWrite).unwrap().set_len(size as u64).unwrap();
        let mut spill = open(&cut).unwrap();
        let left = read(&spill, Lsn(0));
        assert_eq!(left, whole[..left.len()], "cut at {size}");
        let end = spill.range().map_or(10, |(_, end)| end.0);
        assert_eq!(add(&mut spill, end, 90, &[b"{}"]), Spilling::Done);
        spill.sync().unwrap();
        let again = read(&open(&cut.power_off(1)).unwrap(), Lsn(0));
        assert_eq!(again.len(), left.len() + 1, "cut at {size}");
    }
}

#[test]
fn a_byte_that_changed_is_never_read_as_another_document() {
    let disk = spilled();
    let whole = read(&open(&disk.fork()).unwrap(), Lsn(0));
    let (path, bytes) = file(&disk);
    for offset in 0..bytes.len() as u64 {
        let changed = disk.fork();
        changed.corrupt(&path, offset, 0x01).unwrap();
        let spill = open(&changed).unwrap();
        let left = read(&spill, Lsn(0));
        assert!(left.len() < 3 && left == whole[..left.len()], "byte {offset}: {left:?}");
        // With another segment after it, nothing of it may be missing.
        let changed = disk.fork();
        let mut spill = open(&changed).unwrap();
        add(&mut spill, 44, 50, &[b"{}"]);
        spill.sync().unwrap();
        changed.corrupt(&path, offset, 0x01).unwrap();
        assert!(matches!(open(&changed), Err(SpillError::Damaged { .. })), "byte {offset}");
    }
}

#[test]
fn a_commit_that_does_not_fit_leaves_nothing_and_others_may_follow_when_there_is_room() {
    let disk = SimFs::new(4);
    let mut spill = Spill::open(Arc::new(disk.clone()), dir(), LOG, 2_000).unwrap();
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1_200));
    assert_eq!(add(&mut spill, 1, 2, &[large.as_bytes()]), Spilling::Done);
    let size = spill.size();
    assert_eq!(add(&mut spill, 2, 3, &[b"{}", large.as_bytes()]), Spilling::Full);
    spill.sync().unwrap();
    assert_eq!((spill.size(), spill.range()), (size, Some((Lsn(1), Lsn(2)))));
    spill.remove_through(Lsn(2)).unwrap();
    assert_eq!((spill.size(), spill.range(), disk.list(dir()).unwrap().len()), (0, None, 0));
    assert_eq!(add(&mut spill, 2, 3, &[b"{}", large.as_bytes()]), Spilling::Done);
    spill.sync().unwrap();
    assert_eq!(read(&open(&disk.power_off(3)).unwrap(), Lsn(0)).len(), 1);
}
