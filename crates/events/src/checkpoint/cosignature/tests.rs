//! Cosignatures, compared with those of transparency-dev/formats.

use super::*;
use crate::checkpoint::Checkpoint;

// Made by `NewSignerForCosignatureV1` of github.com/transparency-dev/formats v0.1.1 from the seed
// 0, 1, .. 31, over a note signed by golang.org/x/mod/sumdb/note with the seed 100, 101, .. 131.
const NOTE: &str = "log.example/events\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\
    forebay-prunings-are-recorded\n\n\
    \u{2014} log.example/events 1gjkeBtJOBEiOctB5Gy79zPOfJfGJNlW6giOxnHe+tTec5+EbnKap6ZV0MCa3g/+tN81Rh6pTdAbb7XpB9UIi9hf0wA=\n\
    \u{2014} witness.example/w1 519lMgAAAABrBLbbOUH+9c+R0AP8WeOVo2fZlgrBM6fllmyN1EdE7cNvlV90xZbpY7prIXn9NDGPd+X1NWtegcOj16/R6T3bnSLpDA==\n";
const WITNESS: &str = "witness.example/w1+e75f6532+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";
const LOG: &str = "log.example/events+d608e478+AQu8NGpXZnw4ASC9nH/X5R0sX9/qN80vW/QFssa/by14";
const TIME_S: u64 = 0x6b04_b6db;

fn seed() -> [u8; 32] {
    std::array::from_fn(|at| u8::try_from(at).unwrap())
}

fn note() -> SignedNote {
    SignedNote::parse(NOTE.as_bytes()).unwrap()
}

#[test]
fn the_same_key_makes_the_same_cosignature_as_other_code() {
    let key = CosigningKey::from_seed("witness.example/w1", seed()).unwrap();
    assert_eq!(key.cosigner().to_string(), WITNESS);
    assert_eq!(WITNESS.parse::<CosignerKey>().unwrap(), *key.cosigner());
    let signature = key.cosign(note().text(), TIME_S);
    assert_eq!(signature, note().signatures()[1]);
    assert_eq!(NOTE.lines().last(), Some(&*signature.to_string()));
    assert_eq!(key.cosigner().verify(&note()), Ok(TIME_S));
    assert!(Checkpoint::open(NOTE.as_bytes(), &LOG.parse().unwrap()).is_ok());
    assert!(!format!("{key:?}").contains("AAEC"), "the seed is not shown");
}

#[test]
fn a_cosignature_of_another_text_time_or_key_is_refused() {
    let key: CosignerKey = WITNESS.parse().unwrap();
    let other = SignedNote::parse(NOTE.replace("are-recorded", "are_recorded").as_bytes()).unwrap();
    assert!(matches!(key.verify(&other), Err(NoteError::Signature { .. })));
    for at in 0..72 {
        let mut note = note();
        let mut forged = note.signatures()[1].clone();
        forged.signature[at] ^= 1;
        note.add(forged.clone()).unwrap();
        assert!(matches!(key.verify(&note), Err(NoteError::Signature { .. })), "{at}");
        forged.signature.truncate(at);
        let mut short = SignedNote::parse(NOTE.as_bytes()).unwrap();
        short.add(forged).unwrap();
        assert!(matches!(key.verify(&short), Err(NoteError::Signature { .. })), "{at}");
    }
    let stranger = CosigningKey::from_seed("witness.example/w2", [3; 32]).unwrap();
    assert!(matches!(stranger.cosigner().verify(&note()), Err(NoteError::NotSigned { .. })));
    let late = stranger.cosign(note().text(), u64::MAX);
    let mut note = note();
    note.add(late).unwrap();
    assert!(matches!(stranger.cosigner().verify(&note), Err(NoteError::Signature { .. })));
}

#[test]
fn the_newest_of_several_cosignatures_counts_and_none_is_added_twice() {
    let key = CosigningKey::from_seed("witness.example/w1", seed()).unwrap();
    let mut note = note();
    for time_s in [TIME_S, TIME_S + 7, TIME_S + 3, TIME_S + 3] {
        let signature = key.cosign(note.text(), time_s);
        note.add(signature).unwrap();
    }
    assert_eq!(note.signatures().len(), 4);
    assert_eq!(key.cosigner().verify(&note), Ok(TIME_S + 7));
}

#[test]
fn keys_of_logs_and_of_witnesses_are_not_interchangeable() {
    assert!(LOG.parse::<CosignerKey>().is_err());
    assert!(WITNESS.parse::<VerifierKey>().is_err());
    // The bytes of one under the name and type of the other have another id.
    assert!(WITNESS.replace("+BA", "+AQ").parse::<VerifierKey>().is_err());
}

#[test]
fn a_stored_key_is_read_again() {
    let disk = forebay_base::fs::sim::SimFs::new(1);
    let (dir, path) = (Path::new("/w"), Path::new("/w/key"));
    disk.create_dir_all(dir).unwrap();
    assert!(CosigningKey::load(&disk, path).unwrap().is_none());
    let key = CosigningKey::generate("witness.example/w1").unwrap();
    key.create(&disk, path).unwrap();
    let read = CosigningKey::load(&disk, path).unwrap().unwrap();
    assert_eq!(read.cosigner(), key.cosigner());
    assert!(crate::checkpoint::load_key(&disk, path).is_err(), "it is not the key of a log");
}
