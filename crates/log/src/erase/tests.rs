//! Erased frames written by early versions, one header each, are joined into runs.

use forebay_base::fs::{Access, FileSystem, sim::SimFs};

use super::*;
use crate::{Options, ReadError, format::frame_size};

const DIR: &str = "/log";
const PAYLOAD: [u8; 4096] = [7; 4096];

/// A log whose first segment is full and sealed, and the positions of the entries in it.
fn sealed_log(disk: &SimFs) -> (Log, Vec<Lsn>) {
    let options = Options { segment_size: 64 << 10, ..Options::default() };
    let (log, _) = Log::open(Arc::new(disk.clone()), Path::new(DIR), options).unwrap();
    let lsns: Vec<Lsn> = (0..20).map(|_| log.append(&[&PAYLOAD]).unwrap().lsn).collect();
    log.sync().unwrap();
    let end = log.segments().unwrap()[0].end;
    (log, lsns.into_iter().filter(|lsn| *lsn < end).collect())
}

/// Restores a separate header for every erased entry.
fn part(log: &Log, disk: &SimFs, lsns: &[Lsn]) {
    let path = log.shared.path(0);
    let file = disk.open(&path, Access::ReadWrite).unwrap();
    for lsn in lsns {
        let header =
            FrameHeader { kind: Kind::Erased, payload_len: 4096, payload_crc: 0, synced: lsn.0 };
        file.write_all_at(&header.encode(log.shared.seed, lsn.0), lsn.0).unwrap();
    }
}

#[test]
fn neighbours_erased_by_an_earlier_version_are_joined_by_the_next_erasure() {
    let disk = SimFs::new(0);
    let (log, lsns) = sealed_log(&disk);
    log.erase(Lsn(0), &mut |_| true).unwrap();
    part(&log, &disk, &lsns);
    let before = log.segments().unwrap()[0].disk_bytes;
    let verified = log.verify(&mut |damage| panic!("{damage}")).unwrap();
    assert_eq!(verified.erased, lsns.len() as u64);

    let erased = log.erase(Lsn(0), &mut |lsn| panic!("{lsn} is erased already")).unwrap();
    assert_eq!(erased, Erased::default());
    let after = log.segments().unwrap()[0].disk_bytes;
    assert_eq!((before, after), (4096 * lsns.len() as u64, 4096));
    assert_eq!(log.verify(&mut |damage| panic!("{damage}")).unwrap(), verified);
    for lsn in lsns {
        assert!(matches!(log.read(lsn), Err(ReadError::Erased { .. })));
    }
}

#[test]
fn nothing_dead_and_nothing_to_join_leaves_the_file_alone() {
    let disk = SimFs::new(0);
    let (log, lsns) = sealed_log(&disk);
    log.erase(Lsn(0), &mut |lsn| lsn == lsns[3] || lsn == lsns[4]).unwrap();
    let before = disk.operations();
    log.erase(Lsn(0), &mut |_| false).unwrap();
    let path = log.shared.path(0);
    assert!(disk.operations() > before && !disk.exists(&path.with_extension("log.erase")).unwrap());
    assert_eq!(disk.len(&path).unwrap(), lsns.len() as u64 * frame_size(4096) + 64);
}
