//! Any bytes as the beginning of a file, under any name: a media type that is one.
#![no_main]

use forebay_intake::classify::{HEAD_SIZE, category_of, classify, is_active};
use forebay_intake::names::FileName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, rest)) = data.split_first() else { return };
    let Some((name, head)) = rest.split_at_checked(usize::from(size)) else { return };
    let Some(name) = std::str::from_utf8(name).ok().and_then(|name| FileName::parse(name).ok())
    else {
        return;
    };
    let found = classify(head, &name);
    assert!(found.mime.contains('/') && found.mime.is_ascii(), "{found:?}");
    assert_eq!(found, classify(head, &name), "the same twice");
    let cut = head.get(..HEAD_SIZE).unwrap_or(head);
    assert_eq!(found, classify(cut, &name), "what comes after the head does not count");
    let _ = (category_of(found.mime), is_active(found.mime));
});
