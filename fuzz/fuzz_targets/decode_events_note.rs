//! Any bytes as signed note, checkpoint, key, proof, and file of checkpoints: errors, never a panic, and
//! nothing verifies.
#![no_main]

use std::path::Path;

use forebay_base::fs::{FileSystem, sim::SimFs};
use forebay_events::checkpoint::{
    Checkpoint, History, SignedNote, SigningKey, VerifierKey, load_key,
};
use forebay_events::merkle::{ConsistencyProof, InclusionProof, TreeFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let key = SigningKey::from_seed("fuzz", [7; 32]).expect("a name").verifier().clone();
    if let Ok(note) = SignedNote::parse(data) {
        assert_eq!(note.to_string().as_bytes(), data);
        assert!(note.verify(&key).is_err());
        assert!(Checkpoint::open(data, &key).is_err());
    }
    let disk = SimFs::new(0);
    for name in ["/key", "/checkpoints", "/tree"] {
        let file = disk.create_new(Path::new(name)).expect("no faults");
        file.write_all_at(data, 0).expect("no faults");
    }
    load_key(&disk, Path::new("/key")).ok();
    if let Ok(notes) = History::read(&disk, Path::new("/checkpoints"), [0; 16]) {
        notes.for_each(drop);
    }
    TreeFile::read(&disk, Path::new("/tree"), [0; 16], data.len() as u64 / 36).ok();
    let Ok(text) = str::from_utf8(data) else { return };
    Checkpoint::parse(text).ok();
    if let Ok(key) = text.parse::<VerifierKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    if let Ok(proof) = serde_json::from_str::<InclusionProof>(text) {
        assert!(proof.verify(&key).is_err());
    }
    serde_json::from_str::<ConsistencyProof>(text).ok();
});
