//! Directory trees: what is in them and what is not an object.

use std::fs;
use std::path::Path;

use super::PARTS_MIN;
use crate::object::{ClassId, Kind, Month};
use crate::source::testing::{read, settings};
use crate::source::{Spec, open};

fn spec(dir: &Path) -> String {
    format!("fs:{}", dir.display())
}

#[test]
fn every_file_of_a_tree_is_an_object_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for i in 0..3 * PARTS_MIN {
        let name = format!("a{}/b{i}/c/file {i}", i % 5);
        let path = dir.path().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; i]).unwrap();
        expected.push((name.into_bytes(), i as u64));
    }
    for name in ["top", "a1/middle", "a1/b1/low"] {
        fs::write(dir.path().join(name), "xyz").unwrap();
        expected.push((name.as_bytes().to_vec(), 3));
    }
    fs::create_dir(dir.path().join("empty")).unwrap();
    expected.sort();
    let parts = open(&[spec(dir.path()).parse::<Spec>().unwrap()], &settings()).unwrap();
    assert!(parts.parts().unwrap().len() > PARTS_MIN);
    let kept = read(&spec(dir.path()), &settings()).unwrap();
    let found: Vec<_> = kept.objects.iter().map(|(key, o)| (key.clone(), o.size)).collect();
    assert_eq!(found, expected);
    let object = kept.objects[0].1;
    assert_eq!((object.class, object.kind, object.version), (ClassId::STANDARD, Kind::Current, 0));
    assert!(object.modified > Month::from_unix_ms(1_700_000_000_000));
    assert!(kept.bad.is_empty());
}

#[cfg(unix)]
#[test]
fn names_are_bytes_and_links_are_not_followed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let dir = tempfile::tempdir().unwrap();
    let strange = dir.path().join(OsStr::from_bytes(b"\xff\xfe"));
    fs::create_dir(&strange).unwrap();
    fs::write(strange.join("x"), "1").unwrap();
    fs::hard_link(strange.join("x"), dir.path().join("y")).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
    std::os::unix::fs::symlink(strange.join("x"), dir.path().join("link")).unwrap();
    let kept = read(&spec(dir.path()), &settings()).unwrap();
    let keys: Vec<&[u8]> = kept.objects.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"y"[..], b"\xff\xfe/x"]);
}

#[test]
fn what_is_no_directory_is_an_error_and_one_that_is_gone_a_bad_row() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read(&spec(&dir.path().join("nothing")), &settings()).is_err());
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let source = open(&[spec(dir.path()).parse::<Spec>().unwrap()], &settings()).unwrap();
    let parts = source.parts().unwrap();
    fs::remove_dir_all(dir.path().join("a")).unwrap();
    let mut kept = crate::source::testing::Kept::default();
    for part in parts {
        part.read(&mut kept).unwrap();
    }
    assert!(kept.bad.iter().any(|bad| bad.row == 0 && bad.part.ends_with("/a")), "{:?}", kept.bad);
}

#[cfg(unix)]
#[test]
fn a_directory_that_is_made_a_link_while_the_tree_is_read_is_not_followed() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
    for path in ["a/b/c", "d/e", "f"] {
        fs::create_dir_all(inside.join(path)).unwrap();
        fs::create_dir_all(outside.join(path)).unwrap();
        fs::write(inside.join(path).join("known"), "1").unwrap();
        fs::write(outside.join(path).join("secret"), "1").unwrap();
    }
    let within = crate::source::Within::new(vec![inside.clone()], Vec::new());
    let settings = crate::source::Settings { within, ..settings() };
    let source = open(&[spec(&inside).parse::<Spec>().unwrap()], &settings).unwrap();
    let parts = source.parts().unwrap();
    // One that is read itself, and one on the way to others.
    for name in ["f", "a"] {
        fs::rename(inside.join(name), dir.path().join(format!("{name}-before"))).unwrap();
        symlink(outside.join(name), inside.join(name)).unwrap();
    }
    let mut kept = crate::source::testing::Kept::default();
    for part in parts {
        part.read(&mut kept).unwrap();
    }
    let keys: Vec<_> = kept.objects.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect();
    assert_eq!(keys, ["d/e/known"], "{:?}", kept.bad);
    assert!(kept.bad.iter().any(|bad| bad.reason.contains("replaced by a link")), "{:?}", kept.bad);
}
