//! A witness for the logs of others, driven by the requests of C2SP tlog-witness; and a store that has
//! its checkpoints cosigned.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_base::waiting::Gone;
use forebay_events::checkpoint::{
    AddCheckpoint, Checkpoint, CosignerKey, CosigningKey, NoteSignature, SignedNote, SigningKey,
};
use forebay_events::merkle::{Hash, LeafHashes, Tree, leaf_hash};
use forebay_events::store::{
    AnchorError, Kept, Verified, Witness, WitnessAnswer, WitnessTransport, verify_kept,
};
use forebay_events::witness::{WitnessError, WitnessRefusal, WitnessService};
use forebay_events::{Options, Store};
use parking_lot::Mutex;

use crate::store_model::{DIR, START_MS};
use crate::store_online::{append, faults, open_with, options};
use crate::store_tamper::{read, write};

const WITNESS_DIR: &str = "/witness";
const ORIGIN: &str = "log.example/events";

/// A log of numbered leaves.
struct Log {
    key: SigningKey,
    leaves: Vec<Hash>,
}

impl LeafHashes for Log {
    type Error = String;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, String> {
        let first = usize::try_from(first).unwrap();
        Ok(self.leaves[first..first + count].to_vec())
    }
}

impl Log {
    fn new(kind: u8, count: u32) -> Self {
        let leaves = (0..count)
            .map(|number| leaf_hash(&[&[kind], number.to_le_bytes().as_slice()].concat()));
        Self { key: SigningKey::from_seed(ORIGIN, [7; 32]).unwrap(), leaves: leaves.collect() }
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        tree.push(&self.leaves);
        tree
    }

    fn note(&self, size: u64, key: &SigningKey) -> SignedNote {
        let root = self.tree().root_at(size, self).unwrap();
        let origin = key.verifier().name().to_owned();
        Checkpoint { origin, size, root, extensions: Vec::new() }.sign(key).unwrap()
    }

    fn request(&self, old: u64, size: u64) -> AddCheckpoint {
        let proof = match old {
            0 => Vec::new(),
            old => self.tree().consistency_path(old, size, self).unwrap(),
        };
        AddCheckpoint { old, proof, note: self.note(size, &self.key) }
    }
}

fn service(disk: &SimFs) -> Result<WitnessService, WitnessError> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let clock = Arc::new(ManualClock::new(START_MS));
    let log = Log::new(0, 0).key.verifier().clone();
    WitnessService::open(fs, clock, Path::new(WITNESS_DIR), "witness.example/w1", vec![log])
}

/// Sends a request, and checks a cosignature.
fn add(witness: &WitnessService, request: &AddCheckpoint) -> Result<(), WitnessRefusal> {
    let line = witness.add_checkpoint(request.encode().as_bytes())?;
    let mut note = request.note.clone();
    note.add(NoteSignature::parse(line.strip_suffix('\n').unwrap()).unwrap()).unwrap();
    assert_eq!(witness.key().verify(&note), Ok(START_MS / 1_000));
    Ok(())
}

fn size_of(refused: Result<(), WitnessRefusal>) -> u64 {
    match refused {
        Err(WitnessRefusal::Conflict { size }) => size,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_witness_cosigns_what_extends_the_checkpoint_before_and_nothing_else() {
    let disk = SimFs::new(1);
    let (log, fork) = (Log::new(0, 700), Log::new(1, 700));
    let witness = service(&disk).unwrap();
    add(&witness, &log.request(0, 300)).unwrap();
    add(&witness, &log.request(300, 300)).unwrap();
    // A wrong old size, also after a restart: the answer is the right one.
    let witness = service(&disk).unwrap();
    assert_eq!(size_of(add(&witness, &log.request(0, 400))), 300);
    assert_eq!(size_of(add(&witness, &log.request(299, 400))), 300);
    assert_eq!(size_of(add(&witness, &log.request(200, 250))), 300, "a rollback");
    // Another tree, of the same size and of a larger one, with a matching proof.
    assert_eq!(size_of(add(&witness, &fork.request(300, 300))), 300);
    let forked = add(&witness, &fork.request(300, 400));
    assert!(matches!(forked, Err(WitnessRefusal::Inconsistent)), "{forked:?}");
    let mut cut = log.request(300, 400);
    cut.proof.pop();
    assert!(matches!(add(&witness, &cut), Err(WitnessRefusal::Inconsistent)));
    let mut long = log.request(300, 300);
    long.proof.push(Hash([0; 32]));
    assert!(matches!(add(&witness, &long), Err(WitnessRefusal::Inconsistent)));
    add(&witness, &log.request(300, 700)).unwrap();
    assert_eq!(witness.counts(), (1, 7));
}

#[test]
fn who_signed_is_checked_before_anything_else() {
    let disk = SimFs::new(1);
    let log = Log::new(0, 20);
    let witness = service(&disk).unwrap();
    let stranger = SigningKey::from_seed("other.example", [8; 32]).unwrap();
    let unknown = AddCheckpoint { note: log.note(9, &stranger), ..log.request(0, 9) };
    assert!(matches!(add(&witness, &unknown), Err(WitnessRefusal::UnknownLog { .. })));
    let namesake = SigningKey::from_seed(ORIGIN, [9; 32]).unwrap();
    let forged = AddCheckpoint { note: log.note(9, &namesake), ..log.request(5, 9) };
    assert!(matches!(add(&witness, &forged), Err(WitnessRefusal::NotSigned)));
    let mut larger = log.request(0, 9);
    larger.old = 10;
    assert!(matches!(add(&witness, &larger), Err(WitnessRefusal::Malformed { .. })));
    let refused = witness.add_checkpoint(b"old 0\n\nhello\n");
    assert!(matches!(refused, Err(WitnessRefusal::Malformed { .. })));
    assert_eq!(witness.counts(), (0, 4));
    add(&witness, &log.request(0, 9)).unwrap();
}

#[test]
fn a_stored_checkpoint_that_was_changed_keeps_the_witness_closed() {
    let disk = SimFs::new(1);
    let log = Log::new(0, 20);
    add(&service(&disk).unwrap(), &log.request(0, 9)).unwrap();
    let dir = Path::new(WITNESS_DIR);
    let names = disk.list(dir).unwrap();
    let name = names.iter().find(|it| it.name.to_string_lossy().ends_with(".checkpoint")).unwrap();
    let path = dir.join(&name.name);
    let text = String::from_utf8(read(&disk, &path)).unwrap();
    write(&disk, &path, text.replace("\n9\n", "\n8\n").as_bytes());
    assert!(matches!(service(&disk), Err(WitnessError::Damaged { .. })));
    let damages = |disk: &SimFs| {
        let found = forebay_events::witness::check(disk, dir).unwrap();
        found.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(damages(&disk), std::slice::from_ref(&path));
    let key = dir.join("key");
    write(&disk, &path, text.as_bytes());
    assert!(damages(&disk).is_empty());
    let other = dir.join("other.checkpoint");
    disk.rename(&path, &other).unwrap();
    assert_eq!(damages(&disk), std::slice::from_ref(&other));
    disk.rename(&other, &path).unwrap();
    let bytes = read(&disk, &key);
    write(&disk, &key, b"x");
    assert_eq!(damages(&disk), std::slice::from_ref(&key));
    write(&disk, &key, &bytes);
    write(&disk, &path, b"");
    assert!(matches!(service(&disk), Err(WitnessError::Damaged { .. })));
}

#[test]
fn whenever_the_disk_stops_no_two_contradicting_checkpoints_are_cosigned() {
    let (log, fork) = (Log::new(0, 40), Log::new(1, 40));
    let run = |disk: &SimFs, cosigned: &mut u64| -> Option<()> {
        let witness = service(disk).ok()?;
        for (old, size) in [(0, 10), (10, 20), (20, 40)] {
            add(&witness, &log.request(old, size)).ok()?;
            *cosigned = size;
        }
        Some(())
    };
    let whole = SimFs::new(1);
    run(&whole, &mut 0).unwrap();
    for at in 0..whole.operations() {
        for fault in [Fault::Stop, Fault::Io, Fault::Full] {
            let disk = SimFs::new(at);
            disk.plan(at, fault);
            let mut cosigned = 0;
            run(&disk, &mut cosigned);
            for left in [disk.power_off(at), disk.kill()] {
                let witness = service(&left).unwrap();
                // The size it has is at least what it cosigned; a fork from before is refused.
                let found = match add(&witness, &log.request(0, 40)) {
                    Ok(()) => 0,
                    refused => size_of(refused),
                };
                assert!(found >= cosigned, "{at} {fault:?}: {found} of {cosigned}");
                for old in [1, 10, 20, 40].into_iter().filter(|&old| old <= found.max(1)) {
                    assert!(add(&witness, &fork.request(old, 40)).is_err(), "{at} {fault:?}");
                }
            }
        }
    }
}

/// A witness in this process. What it answers can be replaced.
#[derive(Debug)]
struct Local {
    service: WitnessService,
    answer: Mutex<Option<WitnessAnswer>>,
    requests: Mutex<Vec<String>>,
}

impl Local {
    fn new(name: &str, log: &Store) -> Arc<Self> {
        let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new(9));
        let clock = Arc::new(ManualClock::new(START_MS));
        let logs = vec![log.verifier_key().unwrap()];
        let dir = Path::new(WITNESS_DIR);
        let service = WitnessService::open(fs, clock, dir, name, logs).unwrap();
        Arc::new(Self { service, answer: Mutex::default(), requests: Mutex::default() })
    }

    fn of(local: &Arc<Self>) -> Witness {
        let key = local.service.key().clone();
        Witness { transport: Arc::clone(local) as Arc<dyn WitnessTransport>, key }
    }
}

impl WitnessTransport for Local {
    fn address(&self) -> String {
        format!("https://{}", self.service.key().name())
    }

    fn add_checkpoint(&self, body: String) -> Result<WitnessAnswer, AnchorError> {
        let added = self.service.add_checkpoint(body.as_bytes());
        self.requests.lock().push(body);
        if let Some(answer) = self.answer.lock().clone() {
            return Ok(answer);
        }
        let (status, body) = match added {
            Ok(line) => (200, line),
            Err(WitnessRefusal::Conflict { size }) => (409, format!("{size}\n")),
            Err(WitnessRefusal::Inconsistent) => (422, String::new()),
            Err(error) => (400, chain(&error).to_string()),
        };
        Ok(WitnessAnswer { status, body: body.into_bytes() })
    }
}

/// Options with witnesses and without places.
fn witnessed(witnesses: &[&Arc<Local>], quorum: usize) -> Options {
    Options {
        anchors: Vec::new(),
        witnesses: witnesses.iter().map(|local| Local::of(local)).collect(),
        witness_quorum: quorum,
        ..options()
    }
}

fn check(disk: &SimFs, witnesses: &[&CosignerKey], quorum: usize) -> Verified {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let witnesses = witnesses.iter().map(|&key| key.clone()).collect();
    let kept = Kept { witnesses, quorum, ..Kept::default() };
    verify_kept(&fs, Path::new(DIR), &kept, &|_| ()).unwrap()
}

/// A store with 400 events, and two witnesses that know it.
fn store() -> (SimFs, Arc<Local>, Arc<Local>) {
    let disk = SimFs::new(1);
    let store = open_with(&disk, witnessed(&[], 1));
    append(&store, 400);
    let (one, two) = (Local::new("w1", &store), Local::new("w2", &store));
    store.close().unwrap();
    (disk, one, two)
}

#[test]
fn a_store_has_its_checkpoints_cosigned_and_serves_and_verifies_them() {
    let (disk, one, two) = store();
    for round in 0..3 {
        let store = open_with(&disk, witnessed(&[&one, &two], 2));
        append(&store, 30);
        store.publish_checkpoint().unwrap();
        let size = store.len();
        assert_eq!(store.cosigned_size(), Some(size));
        let note = store.served_checkpoint().unwrap();
        let note = SignedNote::parse(note.as_bytes()).unwrap();
        for witness in [&one, &two] {
            assert_eq!(witness.service.key().verify(&note), Ok(START_MS / 1_000));
            // After a restart the size that a witness has is learnt by one request more.
            let requests = std::mem::take(&mut *witness.requests.lock());
            assert_eq!(requests.len(), if round == 0 { 1 } else { 2 });
        }
        assert_eq!(store.stats().cosigned, 2);
        let online = store.verify(&[], &Gone::default()).unwrap();
        assert_eq!(faults(&online), [""; 0]);
        assert_eq!(online.witnessed.map(|it| (it.events, it.witnesses)), Some((size, 2)));
        store.close().unwrap();
    }
    let keys = [one.service.key(), two.service.key()];
    assert_eq!(faults(&check(&disk, &keys, 2)), [""; 0]);
    assert_eq!(faults(&check(&disk, &[], 0)), [""; 0]);
    let stranger = CosigningKey::from_seed("w3", [3; 32]).unwrap();
    let found = faults(&check(&disk, &[keys[0], stranger.cosigner()], 2));
    assert!(found.len() == 1 && found[0].contains("by 1 of the given"), "{found:?}");
}

#[test]
fn a_quorum_without_witnesses_expects_nothing() {
    let (disk, ..) = store();
    assert_eq!(faults(&check(&disk, &[], 1)), [""; 0]);
    let store = open_with(&disk, witnessed(&[], 1));
    assert_eq!(faults(&store.verify(&[], &Gone::default()).unwrap()), [""; 0]);
}

#[test]
fn a_checkpoint_without_a_quorum_is_not_served_as_cosigned() {
    let (disk, one, two) = store();
    let store = open_with(&disk, witnessed(&[&one, &two], 2));
    store.publish_checkpoint().unwrap();
    append(&store, 10);
    *two.answer.lock() = Some(WitnessAnswer { status: 500, body: Vec::new() });
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::Refused { .. })));
    assert_eq!((store.cosigned_size(), store.stats().witness_failures), (Some(400), 1));
    let failing = store.anchors().into_iter().find(|it| it.failure.is_some()).unwrap();
    assert_eq!((&*failing.address, failing.witness), ("https://w2", true));
    *two.answer.lock() = None;
    store.publish_checkpoint().unwrap();
    assert_eq!(store.cosigned_size(), Some(410));
    assert!(store.anchors().iter().all(|it| it.failure.is_none()));
}

#[test]
fn one_witness_that_is_given_twice_is_not_a_quorum_of_two() {
    let (disk, one, _) = store();
    let store = open_with(&disk, witnessed(&[&one, &one], 2));
    store.publish_checkpoint().unwrap();
    assert_eq!(store.cosigned_size(), None);
    store.close().unwrap();
    let store = open_with(&disk, witnessed(&[&one], 1));
    append(&store, 1);
    store.publish_checkpoint().unwrap();
    assert_eq!(store.cosigned_size(), Some(401));
    store.close().unwrap();
    let key = one.service.key();
    assert_eq!(faults(&check(&disk, &[key], 1)), [""; 0]);
    let found = faults(&check(&disk, &[key, key], 2));
    assert!(found.len() == 1 && found[0].contains("by 1 of the given"), "{found:?}");
}

#[test]
fn a_witness_notices_a_store_that_was_rolled_back_or_made_again() {
    let (disk, one, _) = store();
    let earlier = disk.fork();
    let store = open_with(&disk, witnessed(&[&one], 1));
    append(&store, 10);
    store.publish_checkpoint().unwrap();
    store.close().unwrap();
    let store = open_with(&earlier, witnessed(&[&one], 1));
    let error = store.publish_checkpoint().unwrap_err();
    assert!(matches!(error, AnchorError::RolledBack { published: 410, found: 400, .. }), "{error}");
    // The same key, and other events.
    append(&store, 50);
    let error = store.publish_checkpoint().unwrap_err();
    assert!(error.to_string().contains("other events"), "{error}");
    drop(store);
    let found = faults(&check(&earlier, &[one.service.key()], 1));
    assert_eq!(found, ["checkpoint: no checkpoint was cosigned by witnesses"]);
}

#[test]
fn answers_that_are_no_cosignature_of_the_witness_are_refused() {
    let (disk, one, two) = store();
    let other = {
        let store = open_with(&disk, witnessed(&[&two], 1));
        store.publish_checkpoint().unwrap();
        store.served_checkpoint().unwrap()
    };
    let lines = other.split_once("\n\n").unwrap().1;
    for (status, body) in [
        (200, String::new()),
        (200, "hello\n".to_owned()),
        (200, lines.to_owned()),
        (200, "\u{2014} w1 AAAA\n".repeat(3)),
        (409, String::new()),
        (409, "0\n".to_owned()),
        (409, "-1\n".to_owned()),
        (302, String::new()),
    ] {
        let store = open_with(&disk, witnessed(&[&one], 1));
        *one.answer.lock() = Some(WitnessAnswer { status, body: body.into_bytes() });
        assert!(store.publish_checkpoint().is_err());
        assert!(one.requests.lock().len() <= 4, "requests are limited");
        one.requests.lock().clear();
    }
    let rolled = Some(WitnessAnswer { status: 409, body: b"401\n".to_vec() });
    *one.answer.lock() = rolled;
    let store = open_with(&disk, witnessed(&[&one], 1));
    assert!(matches!(store.publish_checkpoint(), Err(AnchorError::RolledBack { .. })));
}

#[test]
fn a_changed_cosigned_checkpoint_is_reported() {
    let (disk, one, _) = store();
    let store = open_with(&disk, witnessed(&[&one], 1));
    store.publish_checkpoint().unwrap();
    store.close().unwrap();
    let path = Path::new(DIR).join("cosigned-checkpoint");
    let text = String::from_utf8(read(&disk, &path)).unwrap();
    let key = one.service.key();
    let without = text
        .lines()
        .filter(|line| !line.contains(" w1 "))
        .fold(String::new(), |text, line| text + line + "\n");
    for (changed, reason) in [
        (without, "cosigned by 0 of the given"),
        (text.replace("\n400\n", "\n399\n"), "is not valid"),
        ("x".to_owned(), "not a signed note"),
    ] {
        let disk = disk.fork();
        write(&disk, &path, changed.as_bytes());
        let found = faults(&check(&disk, &[key], 1));
        assert!(found.iter().any(|fault| fault.contains(reason)), "{reason}: {found:?}");
    }
}
