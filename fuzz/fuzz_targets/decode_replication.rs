//! Any bytes as messages of logical replication, and as what a server sends during a log-in: an error, or messages
//! whose rows have as many values as they say.
#![no_main]

use forebay_postgres::replication::envelope::Envelope;
use forebay_postgres::replication::pgoutput::{Decoder, Message, Old, Tuple};
use forebay_postgres::replication::session::{Login, Session};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (mut decoder, mut rest) = (Decoder::default(), data);
    while let Some((size, after)) = rest.split_first_chunk::<2>() {
        let size = usize::from(u16::from_le_bytes(*size)).min(after.len());
        let (message, after) = after.split_at(size);
        rest = after;
        let change = match Envelope::decode(message) {
            Ok(Envelope::Data { data, .. }) => data,
            _ => message,
        };
        match decoder.decode(change).map(|decoded| decoded.message) {
            Ok(Message::Insert { new, .. }) => complete(new),
            Ok(Message::Update { new, old, .. }) => {
                complete(new);
                old.into_iter().for_each(old_row);
            }
            Ok(Message::Delete { old, .. }) => old_row(old),
            _ => {}
        }
    }
    let login = Login {
        user: "u".to_owned(),
        database: "d".to_owned(),
        password: Some(b"p".to_vec()),
        is_encrypted: true,
        settings: Vec::new(),
    };
    let mut session = Session::start(login).expect("names without a zero byte");
    session.received().extend_from_slice(data);
    while let Ok(Some(_)) = session.next_event() {
        // Refused unless the session is idle.
        let _refused = session.query("select").is_err();
    }
});

fn old_row(old: Old<'_>) {
    match old {
        Old::Key(tuple) | Old::Row(tuple) => complete(tuple),
    }
}

fn complete(tuple: Tuple<'_>) {
    assert_eq!(tuple.values().count(), tuple.len());
}
