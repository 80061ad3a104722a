//! A log's files are edited at will: opening, checking and reading must neither panic nor show an entry
//! that was not appended.
#![no_main]

use std::{path::Path, sync::Arc};

use forebay_base::{
    Durability,
    fs::{Access, FileSystem, sim::SimFs},
};
use forebay_log::{Log, Options, check};
use libfuzzer_sys::fuzz_target;

const DIR: &str = "/log";

fn options() -> Options {
    Options {
        segment_size: 1024,
        entry_size_max: 4096,
        buffer_size_max: 2048,
        durability: Durability::Sync,
        ..Options::default()
    }
}

/// Applies edits of six bytes each: file, kind, offset (2), length, value.
fn edit(disk: &SimFs, data: &[u8]) {
    let files = disk.list(Path::new(DIR)).expect("the directory is there");
    for step in data.chunks_exact(6) {
        let name = &files[usize::from(step[0]) % files.len()].name;
        let file = disk.open(&Path::new(DIR).join(name), Access::ReadWrite).expect("listed");
        let at = u64::from(u16::from_le_bytes([step[2], step[3]])) % 2048;
        let done = match step[1] % 4 {
            0 => file.set_len(at),
            1 => file.write_all_at(&vec![step[5]; usize::from(step[4])], at),
            2 => file.write_all_at(&[step[5]], at),
            _ => {
                // Bytes that are frames, put elsewhere.
                let mut moved = vec![0; usize::from(step[4])];
                let read = file.read_at(&mut moved, u64::from(step[5]) * 8);
                file.write_all_at(&moved[..read.expect("readable")], at)
            }
        };
        done.expect("the disk has no faults");
    }
}

fuzz_target!(|data: &[u8]| {
    let disk = SimFs::new(0);
    let mut appended = Vec::new();
    {
        let (log, _) = Log::open(Arc::new(disk.clone()), Path::new(DIR), options()).expect("new");
        for i in 0..12u8 {
            let payload = vec![i; usize::from(i) * 23];
            appended.push((log.append(&[&payload]).expect("room").lsn, payload));
            log.sync().expect("no faults");
        }
        for segment in log.segments().expect("no faults").iter().filter(|segment| segment.sealed) {
            let mut at = 0;
            log.erase(segment.base, &mut |_| {
                at += 1;
                at % 4 > 1
            })
            .expect("no faults");
        }
    }
    let disk = disk.kill();
    edit(&disk, data);
    check(&disk, Path::new(DIR), &mut |_| ()).expect("a disk without faults is read");
    if let Ok((log, _)) = Log::open(Arc::new(disk), Path::new(DIR), options()) {
        let mut reader = log.reader(log.start());
        while let Ok(Some(entry)) = reader.next() {
            assert!(
                appended.iter().any(|(lsn, bytes)| *lsn == entry.lsn && bytes == entry.payload)
            );
        }
        drop(reader);
        for (lsn, bytes) in &appended {
            if let Ok(found) = log.read(*lsn) {
                assert!(found == *bytes);
            }
            if let Ok(Some(entry)) = log.reader(*lsn).next() {
                assert!(entry.lsn >= *lsn);
            }
        }
        if let Ok(more) = log.append(&[b"more"]) {
            log.commit(more.end).expect("no faults");
            assert_eq!(log.read(more.lsn).expect("committed"), b"more");
        }
    }
});
