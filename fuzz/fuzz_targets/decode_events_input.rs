//! Any stream in any log format, and how it is cut into reads: the same records, the same drafts or
//! rejections, also of envelopes, and what is taken is canonical.
#![no_main]

use forebay_events::Batch;
use forebay_events::input::{Format, Parser, Record, Splitter};
use libfuzzer_sys::fuzz_target;

fn take(record: Record<'_>, parser: &mut Parser, out: &mut Vec<String>, batch: &mut Batch) {
    if let Some(fault) = record.fault {
        return out.push(format!("{} fault {fault}", record.line));
    }
    parser.parse_each(record.bytes, &mut |draft| match draft {
        Ok(draft) => {
            out.push(format!("{} {draft:?}", record.line));
            batch.push(&draft, 0).ok();
        }
        Err(reject) => out.push(format!("{} {reject}", record.line)),
    });
}

fn read(format: Format, limit: usize, body: &[u8], size: usize) -> Vec<String> {
    let mut splitter = Splitter::new(limit, format == Format::Syslog);
    let mut parser = Parser::at(format, 1_700_000_000_000);
    let (mut out, mut batch) = (Vec::new(), Batch::new("s"));
    for mut chunk in body.chunks(size.max(1)) {
        while let Some(record) = splitter.next(&mut chunk) {
            take(record, &mut parser, &mut out, &mut batch);
        }
    }
    if let Some(record) = splitter.finish() {
        take(record, &mut parser, &mut out, &mut batch);
    }
    for leaf in batch.leaves() {
        forebay_events::format::leaf::decode(leaf).expect("what a batch took is canonical");
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let [format, limit, size, body @ ..] = data else { return };
    let format = Format::ALL[usize::from(*format) % Format::ALL.len()];
    let limit = usize::from(*limit) * 16;
    let whole = read(format, limit, body, usize::MAX);
    assert_eq!(whole, read(format, limit, body, usize::from(*size)), "in pieces of {size}");
});
