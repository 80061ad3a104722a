//! Any bytes as a leaf: an error, or an event whose encoding is the same bytes.
#![no_main]

use forebay_events::event::Draft;
use forebay_events::format::{leaf, tree};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = leaf::decode(data) else { return };
    let draft = Draft {
        id: Some(event.id),
        timestamp_ns: Some(event.timestamp_ns),
        stream: event.tags.stream.into(),
        kind: event.tags.kind.into(),
        host: event.tags.host.into(),
        ip: event.tags.ip,
        collector: event.tags.collector.into(),
        format: event.tags.format.into(),
        severity: event.tags.severity,
        time_source: event.tags.time_source,
        raw: event.raw.into(),
        attributes: event.attributes.iter().map(|(key, value)| (key.into(), value)).collect(),
    };
    let mut again = Vec::new();
    // Large leaves of earlier versions have no mark; a writer gives them one.
    if data.len() > tree::ENTRY_SIZE_MAX {
        leaf::rebuild(&event, event.attributes.as_bytes(), &mut again).expect("it was decoded");
        return assert_eq!(again, data);
    }
    leaf::encode(&draft, event.id, event.timestamp_ns, "", &mut again).expect("it was decoded");
    assert_eq!(again, data);
});
