//! Keeps a checkpoint of a store, appends to it, and verifies that the store still begins with what
//! the checkpoint signed. Then does the same with another store in its place, which is detected.
//!
//! `cargo run -p forebay-events --example detect_replacement`

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_events::checkpoint::Checkpoint;
use forebay_events::{Batch, Draft, Options, Store};

fn append(store: &Store, lines: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut batch = Batch::new("auth");
    for line in lines {
        let draft = Draft { raw: line.as_bytes().into(), ..Draft::default() };
        batch.push(&draft, 1_700_000_000_000_000_000)?;
    }
    store.append(batch)?;
    Ok(())
}

fn open(dir: &Path) -> Result<Store, Box<dyn Error>> {
    let clock = Arc::new(SystemClock::new());
    Ok(Store::open(Arc::new(RealFs), clock, dir, Options::balanced())?.0)
}

#[expect(clippy::print_stdout, reason = "an example prints what it found")]
fn main() -> Result<(), Box<dyn Error>> {
    let (dir, other_dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let store = open(dir.path())?;
    append(&store, &["ann logged in", "bob logged in"])?;

    // What an auditor keeps: the public key, and a signed checkpoint.
    let key = store.verifier_key()?;
    let kept = Checkpoint::open(store.checkpoint()?.as_bytes(), &key)?;

    append(&store, &["ann logged out"])?;
    let later = store.prove_consistency(kept.size, None)?.verify(&key, &kept)?;
    println!("the log of {} events begins with the {} that were signed", later.size, kept.size);

    let other = open(other_dir.path())?;
    append(&other, &["bob logged in", "ann logged in", "ann logged out"])?;
    // Its own key is accepted here, as if the key of the first store had been stolen.
    let stolen = other.verifier_key()?;
    match other.prove_consistency(kept.size, None)?.verify(&stolen, &kept) {
        Ok(_) => Err("a replaced log was not detected".into()),
        Err(error) => {
            println!("another log is detected: {error}");
            Ok(())
        }
    }
}
