//! x
use std::io::BufRead;
use forebay_events::input::{Format, Parser};
use forebay_events::input::sample::Samples;
fn main() {
    if std::env::args().nth(1).as_deref() == Some("bench") {
        for format in [Format::Zeek, Format::Suricata, Format::Ocsf, Format::Ndjson, Format::Syslog, Format::Cef] {
            let mut samples = Samples::new(format, 7);
            let lines: Vec<_> = (0..50_000).map(|_| samples.next_line()).collect();
            let mut best = 0f64;
            for _ in 0..5 {
                let mut parser = Parser::new(format);
                let start = std::time::Instant::now();
                for line in &lines { std::hint::black_box(parser.parse(line).unwrap()); }
                best = best.max(lines.len() as f64 / start.elapsed().as_secs_f64());
            }
            println!("{format} {best:.0}/s");
        }
        return;
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut parser = Parser::new(Format::Auto);
        parser.parse_each(line.as_bytes(), &mut |draft| match draft {
            Ok(d) => println!("{} {} host={} kind={} ip={:?} {} | {:.70}", d.time_source.name(), d.timestamp_ns.map_or("-".into(), |t| forebay_events::render::time(t)), d.host, d.kind, d.ip, d.format, line),
            Err(r) => println!("REJECT {r} | {line:.70}"),
        });
    }
}
