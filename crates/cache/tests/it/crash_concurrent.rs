//! Snapshots taken while several threads change the data: with the log they lead to exactly what
//! was in memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_base::Durability;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_cache::persist::{FLUSH, Opened, snapshot};
use forebay_cache::store::Keyspace;

use crate::crash_model::{Op, dump, execute, reopen};

const NOW_MS: u64 = 1_000;

fn op(rng: &mut Rng, writer: usize) -> Op {
    let word = |text: String| text.into_bytes();
    let key = rng.below(200);
    let value = word(format!("{writer}.{}", rng.below(10_000)));
    let words = match rng.below(1_000) {
        0 => vec![FLUSH.to_vec()],
        1..=400 => vec![word("RPUSH".into()), word(format!("list:{key}")), value.clone(), value],
        401..=500 => vec![word("RPUSH".into()), word("long".into()), value],
        501..=800 => vec![word("APPEND".into()), word(format!("text:{key}")), value],
        801..=900 => {
            vec![word("ZINCR".into()), word(format!("zset:{}", key % 9)), value, word("1".into())]
        }
        _ => vec![word("DEL".into()), word(format!("list:{key}"))],
    };
    (0, words)
}

fn write(opened: &Opened<Keyspace>, writer: usize, stop: &AtomicBool) {
    let mut rng = Rng::new(writer as u64);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) || written < 500 {
        let ops: Vec<Op> = (0..1 + rng.below(3)).map(|_| op(&mut rng, writer)).collect();
        let end = execute(&opened.store, &opened.journal, NOW_MS, &ops).unwrap();
        opened.journal.commit(end).unwrap();
        written += 1;
    }
}

#[test]
fn snapshots_under_writers_and_the_log_lead_to_what_was_in_memory() {
    let durability: Durability = "os".parse().unwrap();
    let disk = SimFs::new(1);
    let mut opened = reopen(disk.clone(), durability).unwrap();
    let known = Cell::new(0);
    // Four rounds, and more until a snapshot met operations while it was taken.
    for round in (0..200).take_while(|round| *round < 4 || known.get() == 0) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (opened, stop) = (&opened, &stop);
                scope.spawn(move || write(opened, 10 * round + writer, stop));
            }
            for _ in 0..3 {
                let never = AtomicBool::new(false);
                snapshot(&opened.store, &opened.journal, NOW_MS, &never, &|_| ()).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let expected = dump(&opened.store, NOW_MS);
        drop(opened);
        opened = reopen(disk.clone(), durability).unwrap();
        assert!(opened.recovered.snapshot.is_some());
        known.set(known.get() + opened.recovered.known);
        let found = dump(&opened.store, NOW_MS);
        let differs = |key: &&(usize, Vec<u8>)| expected.get(*key) != found.get(*key);
        let differing = expected.keys().filter(differs).count();
        assert!(expected == found, "{} keys, {} differ", expected.len(), differing);
    }
    assert!(known.get() > 0, "some operations were in the snapshot already");
}
