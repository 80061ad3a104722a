//! Keys, notes and checkpoints: published examples, forgeries, and arbitrary bytes.

use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, SimFs};
use proptest::prelude::*;
use std::path::Path;

use super::*;
use crate::merkle::proof::{ConsistencyProof, InclusionProof, ProofError};
use crate::merkle::{Hash, LeafHashes, Tree, leaf_hash};

// The example of Go's `sumdb/note`, on which C2SP signed-note is based.
const SIGNER: &str =
    "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
const VERIFIER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const OTHER: &str = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop";
const TEXT: &str = "If you think cryptography is the answer to your problem,\n\
    then you don't know what your problem is.\n";
const LINE: &str = "\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
const OTHER_LINE: &str = "\u{2014} EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n";

fn verifier() -> VerifierKey {
    VERIFIER.parse().unwrap()
}

fn parse(note: &str) -> Result<SignedNote, NoteError> {
    SignedNote::parse(note.as_bytes())
}

#[test]
fn the_published_key_makes_the_published_signature() {
    let key: SigningKey = SIGNER.parse().unwrap();
    assert_eq!(key.verifier().to_string(), VERIFIER);
    assert_eq!(key.to_secret_text(), SIGNER);
    assert!(!format!("{key:?}").contains("AYEK"), "the seed is not shown");
    let note = SignedNote::sign(TEXT.to_owned(), &key).unwrap();
    assert_eq!(note.to_string(), format!("{TEXT}\n{LINE}"));
    assert_eq!(parse(&note.to_string()).unwrap(), note);
    assert_eq!(note.verify(&verifier()), Ok(TEXT));
}

#[test]
fn the_published_note_of_two_signers_is_verified_by_either() {
    let note = parse(&format!("{TEXT}\n{LINE}{OTHER_LINE}")).unwrap();
    assert_eq!(note.signatures().len(), 2);
    assert_eq!(note.verify(&verifier()), Ok(TEXT));
    assert_eq!(note.verify(&OTHER.parse().unwrap()), Ok(TEXT));
    let stranger = SigningKey::from_seed("stranger", [3; 32]).unwrap();
    let not_signed = note.verify(stranger.verifier());
    assert!(matches!(not_signed, Err(NoteError::NotSigned { .. })), "{not_signed:?}");
    // The name is the same but the id is not: a different key.
    let namesake = SigningKey::from_seed("PeterNeumann", [3; 32]).unwrap();
    assert!(matches!(note.verify(namesake.verifier()), Err(NoteError::NotSigned { .. })));
}

#[test]
fn a_signature_of_another_text_is_wrong() {
    let note = parse(&format!("{}\n{LINE}", TEXT.replace("answer", "Answer"))).unwrap();
    assert!(matches!(note.verify(&verifier()), Err(NoteError::Signature { .. })));
    let twice = parse(&format!("{TEXT}\n{LINE}{}", LINE.replace("nAM=", "nAA="))).unwrap();
    assert!(matches!(twice.verify(&verifier()), Err(NoteError::Signature { .. })));
}

#[test]
fn what_is_no_signed_note_is_refused() {
    let unfinished = &LINE[..LINE.len() - 1];
    let bad_name = LINE.replace("PeterNeumann", "Bad Name");
    let many = LINE.repeat(SIGNATURES_MAX + 1);
    let notes = [
        String::new(),
        "\n\n".to_owned(),
        TEXT.to_owned(),
        format!("{TEXT}\n"),
        format!("{TEXT}{LINE}"),
        format!("{TEXT}\n{unfinished}"),
        format!("\u{1}{TEXT}\n{LINE}"),
        format!("{TEXT}\r\n{LINE}"),
        format!("{TEXT}\n{bad_name}"),
        format!("{TEXT}\n{LINE}Another line.\n"),
        format!("{TEXT}\n{many}"),
        format!("{TEXT}\n{}", LINE.replace('\u{2014}', "-")),
        format!("{TEXT}\n\u{2014} a+b x08go/ZJ\n"),
        format!("{TEXT}\n\u{2014} name x08g\n"),
        format!("{TEXT}\n\u{2014} name x08gow==\n"),
        format!("{TEXT}\n\u{2014} name x08go/Z\n"),
        format!("{TEXT}\n\u{2014} name \n"),
    ];
    for note in &notes {
        parse(note).unwrap_err();
    }
    SignedNote::parse(b"\xff\n\n").unwrap_err();
    let huge = vec![b'a'; NOTE_SIZE_MAX + 1];
    assert!(matches!(SignedNote::parse(&huge), Err(NoteError::TooLarge { .. })));
    parse(&format!("{TEXT}\n{}", LINE.repeat(SIGNATURES_MAX))).unwrap();
    let key: SigningKey = SIGNER.parse().unwrap();
    for text in ["", "no newline", "a\tb\n"] {
        SignedNote::sign(text.to_owned(), &key).unwrap_err();
    }
}

#[test]
fn no_part_of_a_key_is_a_key_and_no_changed_one() {
    for text in [VERIFIER, SIGNER] {
        let is_key =
            |text: &str| text.parse::<VerifierKey>().is_ok() || text.parse::<SigningKey>().is_ok();
        assert!(is_key(text));
        // A part of the signing key is not a verifier key, though it has the same form.
        for start in 0..=text.len() {
            for end in start..=text.len() {
                assert!(end - start == text.len() || !is_key(&text[start..end]));
            }
        }
        for at in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[at] += 1;
            assert!(!is_key(str::from_utf8(&other).unwrap()), "{at}");
        }
    }
    let long = "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==";
    let kind = "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    long.parse::<VerifierKey>().unwrap_err();
    kind.parse::<VerifierKey>().unwrap_err();
    for name in ["", "a b", "a+b", "a\u{a0}b", "a\nb", "a\u{7f}"] {
        let error = SigningKey::generate(name).unwrap_err();
        assert!(matches!(error, KeyError::Name { .. }), "{name:?}");
    }
    let (a, b) = (SigningKey::generate("log").unwrap(), SigningKey::generate("log").unwrap());
    assert_ne!(a.verifier(), b.verifier());
}

fn checkpoint(size: u64, root: Hash) -> Checkpoint {
    Checkpoint { origin: "PeterNeumann".to_owned(), size, root, extensions: Vec::new() }
}

#[test]
fn a_checkpoint_has_the_form_of_the_specification() {
    // The body of the example of C2SP tlog-checkpoint.
    let text =
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
    let body = Checkpoint::parse(text).unwrap();
    assert_eq!(body.origin, "example.com/behind-the-sofa");
    assert_eq!(body.size, 20_852_163);
    assert_eq!(body.to_string(), text);
    let extended = format!("{text}an extension\nanother one\n");
    assert_eq!(Checkpoint::parse(&extended).unwrap().to_string(), extended);

    let root = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";
    for bad in [
        "",
        "\n",
        "a\n1\n",
        &format!("\n1\n{root}\n"),
        &format!("a\n1\n{root}"),
        &format!("a\n01\n{root}\n"),
        &format!("a\n+1\n{root}\n"),
        &format!("a\n-1\n{root}\n"),
        &format!("a\n \n{root}\n"),
        &format!("a\n18446744073709551616\n{root}\n"),
        &format!("a\n1\n{}\n", root.replace('=', "")),
        &format!("a\n1\n{root}\n\n"),
        &format!("a\n1\n{root}\n\nb\n"),
        "a\n1\nAAAA\n",
    ] {
        Checkpoint::parse(bad).unwrap_err();
    }
}

#[test]
fn a_signed_checkpoint_opens_with_its_key_and_no_other() {
    let key: SigningKey = SIGNER.parse().unwrap();
    let body = checkpoint(5, leaf_hash(b"root"));
    let note = body.sign(&key).unwrap().to_string();
    assert_eq!(Checkpoint::open(note.as_bytes(), &verifier()).unwrap(), body);
    // Signed by the right key for another log.
    let text = body.to_string().replace("PeterNeumann", "Enoch");
    let foreign = SignedNote::sign(text, &key).unwrap().to_string();
    let error = Checkpoint::open(foreign.as_bytes(), &verifier()).unwrap_err();
    assert!(matches!(error, CheckpointError::Origin { .. }), "{error}");
    let mut bad = body.clone();
    bad.extensions.push("two\nlines".to_owned());
    bad.sign(&key).unwrap_err();
    bad.origin = "Enoch".to_owned();
    assert!(matches!(bad.sign(&key), Err(CheckpointError::Origin { .. })));
    for at in 0..note.len() {
        for bit in 0..8 {
            let mut bytes = note.as_bytes().to_vec();
            bytes[at] ^= 1 << bit;
            Checkpoint::open(&bytes, &verifier()).unwrap_err();
        }
    }
}

struct Nowhere;

impl LeafHashes for Nowhere {
    type Error = std::convert::Infallible;

    fn leaf_hashes(&self, _: u64, _: usize) -> Result<Vec<Hash>, Self::Error> {
        Ok(Vec::new())
    }
}

fn log() -> (Tree, SigningKey) {
    let mut tree = Tree::new();
    tree.push(&[0_u8, 1, 2, 3, 4, 5, 6].map(|i| leaf_hash(&[i])));
    (tree, SIGNER.parse().unwrap())
}

fn signed(tree: &Tree, key: &SigningKey, size: u64) -> (Checkpoint, String) {
    let body = checkpoint(size, tree.root_at(size, &Nowhere).unwrap());
    let note = body.sign(key).unwrap().to_string();
    (body, note)
}

#[test]
fn a_proof_of_inclusion_stands_by_itself_and_fails_by_name() {
    let (tree, key) = log();
    let path = tree.inclusion_path(3, 7, &Nowhere).unwrap();
    let proof = InclusionProof::new(3, 7, &[3], path, signed(&tree, &key, 7).1);
    let json = serde_json::to_string(&proof).unwrap();
    let fields: serde_json::Value = serde_json::from_str(&json).unwrap();
    let names: Vec<&String> = fields.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert_eq!(fields["leaf_base64"], "Aw==");
    assert_eq!(fields["audit_path"][0], leaf_hash(&[2]).to_string());

    let read: InclusionProof = serde_json::from_str(&json).unwrap();
    assert_eq!(read.verify(&verifier()).unwrap().leaf, [3]);

    let with = |change: fn(&mut InclusionProof)| {
        let mut other = proof.clone();
        change(&mut other);
        other.verify(&verifier()).unwrap_err()
    };
    assert!(matches!(with(|p| p.tree_size = 8), ProofError::Size { proof: 8, checkpoint: 7 }));
    assert!(matches!(with(|p| p.leaf_index = 4), ProofError::Path(_)));
    assert!(matches!(with(|p| p.leaf_index = u64::MAX), ProofError::Path(_)));
    assert!(matches!(with(|p| p.leaf_hash.0[0] ^= 1), ProofError::Leaf { .. }));
    assert!(matches!(with(|p| p.leaf_base64 = "BA==".to_owned()), ProofError::Leaf { .. }));
    assert!(matches!(with(|p| p.leaf_base64 = "!".to_owned()), ProofError::LeafText));
    assert!(matches!(with(|p| p.audit_path[1].0[9] ^= 4), ProofError::Path(_)));
    assert!(matches!(with(|p| p.checkpoint.clear()), ProofError::Checkpoint(_)));
    let other = proof.verify(&OTHER.parse().unwrap()).unwrap_err();
    assert!(matches!(other, ProofError::Checkpoint(_)));
}

#[test]
fn a_proof_of_consistency_ties_an_old_checkpoint_to_a_new_one() {
    let (tree, key) = log();
    let (earlier, _) = signed(&tree, &key, 3);
    let (later, note) = signed(&tree, &key, 7);
    let proof = ConsistencyProof {
        first: 3,
        second: 7,
        path: tree.consistency_path(3, 7, &Nowhere).unwrap(),
        first_root: earlier.root,
        second_root: later.root,
        checkpoint: Some(note),
    };
    let json = serde_json::to_string(&proof).unwrap();
    let read: ConsistencyProof = serde_json::from_str(&json).unwrap();
    assert_eq!(read.verify(&verifier(), &earlier).unwrap(), later);

    // A log rewritten with access to the key does not match a checkpoint that was kept elsewhere.
    let mut kept = earlier.clone();
    kept.root = leaf_hash(b"what it was");
    let error = proof.verify(&verifier(), &kept).unwrap_err();
    assert!(matches!(error, ProofError::Root { .. }), "{error}");
    let forged = ConsistencyProof { first_root: kept.root, ..proof.clone() };
    let error = forged.verify(&verifier(), &kept).unwrap_err();
    assert!(matches!(error, ProofError::Path(_)), "{error}");
    let bare = ConsistencyProof { checkpoint: None, ..proof.clone() };
    assert_eq!(bare.verify(&verifier(), &earlier), Err(ProofError::NoCheckpoint));
    kept = earlier.clone();
    kept.origin = "Enoch".to_owned();
    proof.verify(&verifier(), &kept).unwrap_err();
    kept = earlier;
    kept.size = 4;
    assert!(matches!(proof.verify(&verifier(), &kept), Err(ProofError::Size { .. })));
}

#[test]
fn a_key_file_is_there_whole_or_not_at_all() {
    let path = Path::new("/key");
    let key: SigningKey = SIGNER.parse().unwrap();
    let disk = SimFs::new(1);
    assert!(load_key(&disk, path).unwrap().is_none());
    create_key(&disk, path, &key).unwrap();
    for at in 0..disk.operations() {
        for seed in 0..8 {
            let disk = SimFs::new(seed);
            disk.plan(at, Fault::Stop);
            create_key(&disk, path, &key).unwrap_err();
            let left = if seed % 2 == 0 { disk.power_off(seed) } else { disk.kill() };
            if let Some(found) = load_key(&left, path).unwrap() {
                assert_eq!(found.verifier(), key.verifier());
            }
            create_key(&left, path, &key).unwrap();
            let again = load_key(&left.power_off(seed), path).unwrap().unwrap();
            assert_eq!(again.to_secret_text(), SIGNER);
        }
    }
    for at in 0..disk.len(path).unwrap() {
        for bit in 0..8 {
            let other = disk.fork();
            other.corrupt(path, at, 1 << bit).unwrap();
            let error = load_key(&other, path).unwrap_err();
            assert!(matches!(error, KeyFileError::Key { .. }), "{at} {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..400_usize, text in "\\PC{0,80}") {
        if let Ok(note) = SignedNote::parse(&bytes) {
            prop_assert_eq!(note.to_string().into_bytes(), bytes.clone());
        }
        let mut mixed = format!("{TEXT}\n{LINE}").into_bytes();
        mixed.truncate(cut);
        mixed.extend(&bytes);
        if let Ok(note) = SignedNote::parse(&mixed) {
            prop_assert_eq!(note.to_string().into_bytes(), mixed);
        }
        let _: Option<Checkpoint> = Checkpoint::parse(&text).ok();
        let _: Option<Checkpoint> = Checkpoint::parse(&String::from_utf8_lossy(&bytes)).ok();
        let _: Option<VerifierKey> = text.parse().ok();
        let _: Option<SigningKey> = format!("PRIVATE+KEY+{text}").parse().ok();
        let _: Option<InclusionProof> = serde_json::from_slice(&bytes).ok();
    }
}
