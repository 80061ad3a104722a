//! A ledger that is lost or damaged, and files that are: nothing is removed.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_sdk::settings::WriteMode;

use super::super::ledger::Ledger;
use super::chain;
use super::interrupted::{Fault, Trial, scratch};

/// All files below a directory and their contents, but not the lock.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    files
}

/// The only file that a first load shows, by its name, and the ledger's path.
fn paths(directory: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let shown = std::fs::read_dir(directory.join("t")).unwrap().next().unwrap().unwrap().path();
    (shown, directory.join("_forebay/t/ledger.json"))
}

/// Removes the checksum, as in the ledgers of earlier builds.
fn without_checksum(ledger: &str) -> String {
    let (before, _) = ledger.split_once(",\"checksum\"").unwrap();
    format!("{before}}}")
}

/// Runs another load, which fails with the words and changes no file.
async fn is_refused(trial: &Trial, directory: &Path, words: &[&str]) {
    let before = files(directory);
    let error = chain(&trial.run("second", &Fault::never()).await.unwrap_err());
    for words in words {
        assert!(error.contains(words), "{error} has no {words:?}");
    }
    assert_eq!(files(directory).keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(files(directory) == before, "a file was changed");
}

#[tokio::test]
async fn a_changed_bit_anywhere_in_a_ledger_is_detected() {
    let directory = scratch();
    let trial = Trial::new(directory.path(), WriteMode::Append);
    trial.run("first", &Fault::never()).await.unwrap();
    let (_, path) = paths(directory.path());
    let ledger = std::fs::read(&path).unwrap();
    Ledger::decode(&ledger, "it").unwrap();
    for at in 0..ledger.len() {
        for bit in 0..8 {
            let mut changed = ledger.clone();
            changed[at] ^= 1 << bit;
            assert!(Ledger::decode(&changed, "it").is_err(), "bit {bit} of byte {at}");
        }
    }
    for length in 0..ledger.len() {
        assert!(Ledger::decode(&ledger[..length], "it").is_err(), "cut at {length}");
    }
    assert!(Ledger::decode(&[&ledger[..], b"\n"].concat(), "it").is_err());
}

#[tokio::test]
async fn a_ledger_of_an_earlier_build_is_read_and_gets_a_checksum() {
    let directory = scratch();
    let trial = Trial::new(directory.path(), WriteMode::Append);
    trial.run("first", &Fault::never()).await.unwrap();
    let (_, path) = paths(directory.path());
    let ledger = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, without_checksum(&ledger)).unwrap();
    trial.run("second", &Fault::never()).await.unwrap();
    assert_eq!(trial.content().await, trial.hash(&["first", "second"]));
    assert!(std::fs::read_to_string(&path).unwrap().contains(",\"checksum\":\""));
}

#[tokio::test]
async fn a_ledger_with_a_wrong_file_name_removes_nothing() {
    let directory = scratch();
    let trial = Trial::new(directory.path(), WriteMode::Append);
    trial.run("first", &Fault::never()).await.unwrap();
    let (shown, path) = paths(directory.path());
    let name = shown.file_name().unwrap().to_str().unwrap();
    let other = match name.as_bytes()[8] {
        b'0' => format!("{}1{}", &name[..8], &name[9..]),
        _ => format!("{}0{}", &name[..8], &name[9..]),
    };
    let ledger = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, ledger.replace(name, &other)).unwrap();
    is_refused(&trial, directory.path(), &["/t", "do not match its checksum", "Restore"]).await;
    // An earlier build's ledger has no checksum: its files are compared.
    std::fs::write(&path, without_checksum(&ledger.replace(name, &other))).unwrap();
    is_refused(&trial, directory.path(), &[&other, "no such file exists", "Restore"]).await;
}

#[tokio::test]
async fn files_without_a_ledger_are_refused_and_kept_by_every_kind_of_load() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        let directory = scratch();
        let mut trial = Trial::new(directory.path(), write_mode);
        trial.run("first", &Fault::never()).await.unwrap();
        std::fs::remove_dir_all(directory.path().join("_forebay")).unwrap();
        let words = ["/t/part-", "the ledger that lists it does not", "`_forebay/t`"];
        is_refused(&trial, directory.path(), &words).await;
        trial.settings.pipeline = "another".into();
        is_refused(&trial, directory.path(), &words).await;
    }
}

#[tokio::test]
async fn waiting_files_and_dead_letters_without_a_ledger_are_kept() {
    for room in ["next", "dead"] {
        let directory = scratch();
        let own = directory.path().join("_forebay/t").join(room);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("left"), b"rows").unwrap();
        let trial = Trial::new(directory.path(), WriteMode::Append);
        is_refused(&trial, directory.path(), &[&format!("{room}/left")]).await;
    }
}

#[tokio::test]
async fn a_listed_file_of_another_size_is_refused_by_an_append_and_replaced_by_a_replace() {
    for is_removed in [false, true] {
        let directory = scratch();
        let trial = Trial::new(directory.path(), WriteMode::Append);
        trial.run("first", &Fault::never()).await.unwrap();
        let (shown, _) = paths(directory.path());
        match is_removed {
            true => std::fs::remove_file(&shown).unwrap(),
            false => std::fs::write(&shown, b"PAR1").unwrap(),
        }
        let name = shown.file_name().unwrap().to_str().unwrap();
        is_refused(&trial, directory.path(), &[name, "no such file exists"]).await;
        let trial = Trial::new(directory.path(), WriteMode::Replace);
        trial.run("second", &Fault::never()).await.unwrap();
        assert_eq!(trial.content().await, trial.hash(&["second"]));
        trial.check_files().await;
    }
}

#[tokio::test]
async fn a_file_that_a_replace_prepared_and_that_is_lost_is_not_committed() {
    // The last steps of the load, in which its files wait or are shown.
    let mut was_refused = false;
    for at in 8..40 {
        let directory = scratch();
        let trial = Trial::new(directory.path(), WriteMode::Replace);
        trial.run("first", &Fault::never()).await.unwrap();
        if trial.run("second", &Fault::at(at)).await.is_ok() {
            break;
        }
        let ledger = std::fs::read_to_string(directory.path().join("_forebay/t/ledger.json"));
        let ledger: serde_json::Value = serde_json::from_str(&ledger.unwrap()).unwrap();
        let Some(name) = ledger["next"]["files"][0]["name"].as_str() else { continue };
        for room in ["t", "_forebay/t/next"] {
            let path = directory.path().join(room).join(name);
            if path.exists() {
                std::fs::remove_file(path).unwrap();
            }
        }
        is_refused(&trial, directory.path(), &[name, "no such file exists"]).await;
        was_refused = true;
    }
    assert!(was_refused);
}
