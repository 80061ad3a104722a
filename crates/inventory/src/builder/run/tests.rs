//! Runs are read back as written, and damaged ones are refused.

use forebay_base::fs::RealFs;

use super::*;

fn leaf(i: u64) -> Leaf {
    Leaf {
        hash: i.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        check: !i,
        size: i * i,
        modified: Month::from_number(u16::try_from(i % 700).unwrap()),
        class: ClassId(u8::try_from(i % 7).unwrap()),
        kind: [Kind::Current, Kind::Noncurrent, Kind::DeleteMarker][(i % 3) as usize],
    }
}

#[test]
fn a_run_comes_back_from_memory_and_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let fs = RealFs;
    for memory_max in [0, usize::MAX] {
        let path = dir.path().join(format!("run-{memory_max}"));
        let mut writer = RunWriter::new(&fs, path, memory_max);
        let counts = (0..2000_u64).map(|i| if i == 700 { 20_000 } else { i % 4 + 1 });
        let mut expected = Vec::new();
        for (i, count) in counts.enumerate() {
            let name = format!("data/{i:06}/").into_bytes();
            let leaves: Vec<Leaf> = (0..count).map(|n| leaf(n + i as u64)).collect();
            writer.push(&name, leaves.iter().copied()).unwrap();
            expected.extend(leaves.into_iter().map(|leaf| (name.clone(), leaf)));
        }
        let run = writer.finish().unwrap();
        assert_eq!(matches!(run, Run::File(..)), memory_max == 0);
        let mut reader = RunReader::new(run);
        let mut found = Vec::new();
        while reader.next_entry(&fs).unwrap() {
            while let Some(leaf) = reader.next_leaf().unwrap() {
                found.push((reader.dir().to_vec(), leaf));
            }
        }
        assert!(found == expected);
    }
}

/// A run in a file, and where its blocks start.
fn run_in(path: &Path) -> (u64, Vec<usize>) {
    let mut writer = RunWriter::new(&RealFs, path.to_owned(), 0);
    for i in 0..40_000 {
        writer.push(format!("{i:06}/").as_bytes(), [leaf(i)].into_iter()).unwrap();
    }
    let size = writer.finish().unwrap().size();
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, size);
    let mut starts = vec![0];
    while let Some(len) = bytes.get(starts[starts.len() - 1]..).unwrap().first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        starts.push(starts[starts.len() - 1] + HEAD_SIZE + len);
    }
    assert!(starts.len() > 3, "{} blocks", starts.len() - 1);
    (size, starts)
}

/// Number of objects, or the error.
fn read_all(run: Run) -> Result<usize, BuildError> {
    let (mut reader, mut count) = (RunReader::new(run), 0);
    while reader.next_entry(&RealFs)? {
        while reader.next_leaf()?.is_some() {
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn a_shortened_run_is_an_error_also_where_a_block_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let (size, starts) = run_in(&path);
    assert_eq!(read_all(Run::File(path.clone(), size)).unwrap(), 40_000);
    let good = std::fs::read(&path).unwrap();
    let ends = starts.iter().flat_map(|&at| [at.saturating_sub(1), at, at + 3, at + HEAD_SIZE]);
    for len in ends.filter(|&len| len < good.len()) {
        std::fs::write(&path, &good[..len]).unwrap();
        let error = read_all(Run::File(path.clone(), size)).unwrap_err();
        assert!(matches!(error, BuildError::Spool { .. }), "{len} bytes: {error}");
    }
    std::fs::remove_file(&path).unwrap();
    let error = read_all(Run::File(path, size)).unwrap_err();
    assert!(matches!(error, BuildError::Io { act: "read", .. }), "{error}");
}

#[test]
fn a_changed_byte_of_a_run_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let (size, starts) = run_in(&path);
    let good = std::fs::read(&path).unwrap();
    let heads = starts.iter().flat_map(|&at| at..at + HEAD_SIZE + 2);
    for at in heads.chain((0..good.len()).step_by(50_021)).filter(|&at| at < good.len()) {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&path, &changed).unwrap();
        let error = read_all(Run::File(path.clone(), size)).unwrap_err();
        assert!(matches!(error, BuildError::Spool { .. }), "byte {at}: {error}");
    }
}

#[test]
fn the_largest_block_that_is_written_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut writer = RunWriter::new(&RealFs, path, 0);
    let modified = Month::from_number(u16::MAX);
    let large = Leaf { size: u64::MAX, modified, ..leaf(0) };
    for i in 0..4000 {
        let mut name = vec![b'a'; crate::format::KEY_SIZE_MAX];
        name.extend_from_slice(format!("{i:06}/").as_bytes());
        let count = if i % 3 == 0 { OBJECTS_MAX } else { 1 };
        writer.push(&name, std::iter::repeat_n(large, count)).unwrap();
    }
    assert_eq!(read_all(writer.finish().unwrap()).unwrap(), 1334 * OBJECTS_MAX + 2666);
}
