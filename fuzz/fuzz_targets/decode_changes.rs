//! Any bytes as a unit of changes from a component: an error, or a unit that fits its feed and is the same when it
//! crosses again.
#![no_main]

use forebay_sdk::changes::encoded::{decode, encode};
use forebay_sdk::changes::feed::{FeedStream, Redefinition};
use forebay_sdk::component::feed_column;
use forebay_sdk::settings::FeedForm;
use libfuzzer_sys::fuzz_target;

fn stream(has_key: bool) -> FeedStream {
    let column = |name: &str, is_key| {
        feed_column(name.to_owned(), "text".to_owned(), is_key, 1, Some("text")).expect("a column")
    };
    let columns = vec![column("a", has_key), column("b", false)];
    FeedStream { stream: "t".to_owned(), columns, from: None, known_by: Vec::new() }
}

fuzz_target!(|data: &[u8]| {
    let Some((form, bytes)) = data.split_first() else { return };
    let form = match form % 3 {
        0 => FeedForm::Apply,
        1 => FeedForm::Mark,
        _ => FeedForm::Log,
    };
    let streams = [stream(true), stream(false)];
    let Ok(unit) = decode(bytes, &streams, form) else { return };
    let redefined: Vec<(usize, Redefinition)> = unit.redefined.clone();
    let again = encode(&unit).expect("it was one");
    let second = decode(&again, &streams, form).expect("it was decoded before");
    assert_eq!(second.redefined, redefined);
    assert_eq!(encode(&second).expect("it was one"), again);
});
