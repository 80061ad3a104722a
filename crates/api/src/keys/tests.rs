//! Tests of tokens, the key file and the ring of a running server.

use std::os::unix::fs::PermissionsExt as _;

use super::error::KeyError;
use super::token::{Token, hash, hash_from_hex, id_of, same};
use super::{Area, Auth, Denied, KeyFile, KeyRing, Scope};

fn data() -> (tempfile::TempDir, KeyFile) {
    let dir = tempfile::tempdir().unwrap();
    let file = KeyFile::in_data_dir(&dir.path().join("data"));
    (dir, file)
}

#[test]
fn a_token_names_its_id_and_two_tokens_differ() {
    let (a, b) = (Token::generate().unwrap(), Token::generate().unwrap());
    assert_eq!(a.reveal().len(), 81);
    assert_eq!(id_of(a.reveal().as_bytes()).unwrap(), a.id().as_bytes());
    assert_ne!(a.reveal(), b.reveal());
    assert!(!same(&a.hash(), &b.hash()) && same(&a.hash(), &hash(a.reveal().as_bytes())));
}

#[test]
fn malformed_tokens_have_no_id() {
    let good = Token::generate().unwrap();
    let good = good.reveal().as_bytes();
    let longer = [good, b"0"].concat();
    let mut other_prefix = good.to_vec();
    other_prefix[0] = b'x';
    let mut no_separator = good.to_vec();
    no_separator[16] = b'0';
    for bad in [b"".as_slice(), b"fbk_", &good[..80], &longer, &other_prefix, &no_separator] {
        assert_eq!(id_of(bad), None);
    }
}

#[test]
fn hex_round_trips_and_rejects_a_sign() {
    let bytes = [0u8, 1, 127, 128, 255].repeat(6).into_iter().chain([3, 4]).collect::<Vec<_>>();
    assert_eq!(hash_from_hex(&hex::encode(&bytes)).unwrap().as_slice(), bytes);
    for bad in ["+1", "-1", " 1", "g0", "\u{e4}"] {
        assert_eq!(hash_from_hex(&bad.repeat(32)), None, "{bad:?}");
    }
    assert_eq!(hash_from_hex(&"aF".repeat(32)), Some([0xaf; 32]));
    assert_eq!(hash_from_hex("00"), None);
}

#[test]
fn the_file_is_private_and_holds_no_token() {
    let (_dir, file) = data();
    assert!(file.read().unwrap().is_none());
    let (token, record) = file.add("ci", &[Scope::Write, Scope::Read, Scope::Read], &[]).unwrap();
    assert_eq!(record.scopes, [Scope::Read, Scope::Write]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let secret = token.reveal().rsplit('_').next().unwrap();
    assert!(!text.contains(secret) && text.contains(token.id()));
    assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.read().unwrap().unwrap().len(), 1);
}

#[test]
fn names_that_would_garble_a_terminal_are_refused() {
    let (_dir, file) = data();
    for name in ["", "a\nb", "\u{1b}[31m", &"x".repeat(65)] {
        assert!(file.add(name, &[Scope::Read], &[]).is_err(), "{name:?}");
    }
}

#[test]
fn keys_made_at_the_same_time_are_all_kept() {
    let (_dir, file) = data();
    std::thread::scope(|threads| {
        for thread in 0..8 {
            let file = &file;
            threads.spawn(move || {
                file.add(&format!("k{thread}"), &[Scope::Read], &[]).map(drop).unwrap()
            });
        }
    });
    assert_eq!(file.read().unwrap().unwrap().len(), 8);
}

#[test]
fn revoking_takes_an_id_or_an_unambiguous_name() {
    let (_dir, file) = data();
    let (_, first) = file.add("one", &[Scope::Read], &[]).unwrap();
    let (_, second) = file.add("two", &[Scope::Read], &[]).unwrap();
    let (_, third) = file.add("two", &[Scope::Read], &[]).unwrap();
    assert!(file.revoke(&first.id).unwrap().revoked.is_some());
    assert!(file.revoke("one").unwrap().revoked.is_some(), "twice is fine");
    let ambiguous = file.revoke("two").unwrap_err().to_string();
    assert!(ambiguous.ends_with(&format!("{}, {}", second.id, third.id)), "{ambiguous}");
    file.revoke(&second.id).unwrap();
    assert_eq!(file.revoke("two").unwrap().id, third.id, "the other one is revoked");
    assert!(file.revoke("three").unwrap_err().to_string().contains("no key \"three\""));
}

#[test]
fn the_ring_lets_in_by_scope() {
    let (_dir, file) = data();
    let (reader, _) = file.add("r", &[Scope::Read], &[]).unwrap();
    let (admin, _) = file.add("a", &[Scope::Admin], &[]).unwrap();
    let ring = KeyRing::open(file, Auth::Auto).unwrap();
    let check = |token: &Token, scope| ring.check(Some(token.reveal().as_bytes()), scope);
    assert!(ring.required());
    assert_eq!(check(&reader, Scope::Read), Ok(()));
    assert_eq!(check(&reader, Scope::Write), Err(Denied::Scope(Scope::Write)));
    assert_eq!(check(&admin, Scope::Write), Ok(()));
    assert_eq!(ring.check(None, Scope::Read), Err(Denied::Missing));
    let stranger = Token::generate().unwrap();
    assert_eq!(check(&stranger, Scope::Read), Err(Denied::Unknown));
    let forged = format!("fbk_{}_{}", reader.id(), "0".repeat(64));
    assert_eq!(ring.check(Some(forged.as_bytes()), Scope::Read), Err(Denied::Unknown));
}

#[test]
fn a_ring_follows_the_file_and_never_opens_again() {
    let (_dir, file) = data();
    let ring = KeyRing::open(file.clone(), Auth::Auto).unwrap();
    assert!(!ring.required(), "no key was ever made");
    let (token, record) = file.add("k", &[Scope::Write], &[]).unwrap();
    assert!(ring.reload().unwrap() && !ring.reload().unwrap());
    assert!(ring.required());
    assert_eq!(ring.check(Some(token.reveal().as_bytes()), Scope::Write), Ok(()));
    file.revoke(&record.id).unwrap();
    ring.reload().unwrap();
    assert_eq!(ring.check(Some(token.reveal().as_bytes()), Scope::Write), Err(Denied::Unknown));
    std::fs::remove_file(file.path()).unwrap();
    assert!(ring.reload().is_err() && !ring.reload().unwrap(), "reported once");
    assert!(ring.required(), "a vanished file does not open the server");
}

#[test]
fn a_store_that_ever_had_keys_does_not_open_without_them() {
    let (_dir, file) = data();
    file.add("k", &[Scope::Read], &[]).unwrap();
    std::fs::remove_file(file.path()).unwrap();
    let refused = KeyRing::open(file.clone(), Auth::Auto).unwrap_err();
    assert!(matches!(refused, KeyError::Missing { .. }), "{refused}");
    assert!(KeyRing::open(file.clone(), Auth::Off).is_ok(), "the operator said so");
    file.add("new", &[Scope::Read], &[]).unwrap();
    assert_eq!(KeyRing::open(file, Auth::Auto).unwrap().len(), 1);
}

#[test]
fn a_store_of_an_older_version_is_marked_when_it_is_opened() {
    let (dir, file) = data();
    file.add("k", &[Scope::Read], &[]).unwrap();
    let marker = dir.path().join("data/keys.made");
    std::fs::remove_file(&marker).unwrap();
    KeyRing::open(file, Auth::Auto).unwrap();
    assert!(marker.exists());
}

#[test]
fn a_limited_key_reaches_only_what_it_names_and_an_appending_one_only_adds() {
    let (_dir, file) = data();
    let only = ["files:in".parse().unwrap(), "cache:job:".parse().unwrap()];
    let (token, _) = file.add("k", &[Scope::Append], &only).unwrap();
    let ring = KeyRing::open(file, Auth::Auto).unwrap();
    let grant = ring.grant(Some(token.reveal().as_bytes())).unwrap();
    assert!(grant.is_limited() && grant.permits(Area::Files, "in"));
    assert!(!grant.permits(Area::Files, "out") && !grant.reaches(Area::Events));
    assert_eq!(grant.names(Area::Cache).collect::<Vec<_>>(), ["job:"]);
    assert_eq!(grant.allow(Scope::Append), Ok(()));
    assert_eq!(grant.allow(Scope::Write), Err(Denied::Scope(Scope::Write)));
    assert_eq!(grant.allow(Scope::Read), Err(Denied::Scope(Scope::Read)));
}

#[test]
fn a_damaged_file_keeps_the_keys_known_before() {
    let (_dir, file) = data();
    let (token, _) = file.add("k", &[Scope::Read], &[]).unwrap();
    let ring = KeyRing::open(file.clone(), Auth::Auto).unwrap();
    std::fs::write(file.path(), "[[key]]\nid = 7\n").unwrap();
    assert!(ring.reload().is_err());
    assert!(!ring.reload().unwrap(), "reported once");
    assert_eq!(ring.check(Some(token.reveal().as_bytes()), Scope::Read), Ok(()));
    assert!(KeyRing::open(file, Auth::Auto).is_err(), "a server does not start on it");
}
