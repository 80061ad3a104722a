//! An event is found by each address that it names: in memory, in segments, after compaction, and
//! in segments of version 1, whose filters have one address of each event.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::input::{Format, Parser};
use forebay_events::query::Query;
use forebay_events::store::verify;
use forebay_events::{Batch, Draft, Options, ReadError, Store, Value};

use crate::store_model::{DIR, START_MS, now_ns};
use crate::store_tamper::damage_first_block;

/// Events of several products, each with all addresses that it names.
const PRODUCTS: [(&str, &[&str]); 10] = [
    (
        // CloudTrail
        r#"{"eventTime":"2024-01-01T00:00:00Z","sourceIPAddress":"203.0.113.5","requestParameters":{"cidrIp":"10.9.0.0/16"},"responseElements":{"privateIp":"10.9.1.1"}}"#,
        &["203.0.113.5", "10.9.0.0", "10.9.1.1"],
    ),
    (
        // OCSF
        r#"{"class_uid":4001,"time":1700000000000,"src_endpoint":{"ip":"10.1.0.1","intermediate_ips":["10.1.0.2"]},"dst_endpoint":{"ip":"2001:db8::7"},"metadata":{"version":"1.1.0"}}"#,
        &["10.1.0.1", "10.1.0.2", "2001:db8::7"],
    ),
    (
        // ECS
        r#"{"@timestamp":"2024-01-01T00:00:00Z","source":{"ip":"10.2.0.1","nat":{"ip":"198.51.100.2"}},"destination":{"ip":"10.2.0.2"},"host":{"ip":["10.2.0.3","fe80::2%eth0"]}}"#,
        &["10.2.0.1", "198.51.100.2", "10.2.0.2", "10.2.0.3", "fe80::2"],
    ),
    (
        // Zeek, JSON
        r#"{"ts":1700000000.5,"uid":"C1","id.orig_h":"10.3.0.1","id.resp_h":"::ffff:10.3.0.2","answers":["10.3.0.3"]}"#,
        &["10.3.0.1", "10.3.0.2", "10.3.0.3"],
    ),
    (
        // Windows
        "<Event><System><EventID>4624</EventID><Channel>Security</Channel><Computer>dc1</Computer></System><EventData><Data Name='IpAddress'>10.4.0.1</Data></EventData></Event>",
        &["10.4.0.1"],
    ),
    (
        // FortiGate
        "date=2024-01-01 time=00:00:00 devname=\"fw\" srcip=10.5.0.1 dstip=192.0.2.5 transip=198.51.100.5",
        &["10.5.0.1", "192.0.2.5", "198.51.100.5"],
    ),
    (
        // ASA
        "<166>Jan  1 00:00:00 asa %ASA-6-302013: Built TCP connection 1 for outside:192.0.2.6/443 (192.0.2.66/443) to inside:10.6.0.1/5000 (198.51.100.6/5000)",
        &["192.0.2.6", "192.0.2.66", "10.6.0.1", "198.51.100.6"],
    ),
    (
        // CEF
        "CEF:0|V|P|1|1|n|5|src=10.7.0.1 dst=10.7.0.2 c6a2=2001:db8:7::1 sourceTranslatedAddress=198.51.100.7",
        &["10.7.0.1", "10.7.0.2", "2001:db8:7::1", "198.51.100.7"],
    ),
    (
        // VPC flow log
        "2 123456789010 eni-1235b8ca 10.8.0.1 10.8.0.2 20641 22 6 20 4249 1418530010 1418530070 ACCEPT OK",
        &["10.8.0.1", "10.8.0.2"],
    ),
    (
        // An access log with a forwarded-for list
        "10.0.9.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1 \"-\" \"Chrome/120.0.0.0\" \"203.0.113.9, 10.0.9.2\"",
        &["10.0.9.1", "203.0.113.9", "10.0.9.2"],
    ),
];

fn open(disk: &SimFs, text_filter: bool) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START_MS));
    let mut options = crate::store_model::options("sync".parse().unwrap());
    options.memory_table_events = 100_000;
    options.segment.text_filter = text_filter;
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (store, _) = Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap();
    (store, clock)
}

fn found(store: &Store, ips: &[&str]) -> Result<Vec<u64>, ReadError> {
    let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    let mut scan = store.scan(Query { ips, ..Query::default() });
    let mut found = Vec::new();
    while let Some(record) = scan.next()? {
        found.push(record.seq());
    }
    found.sort_unstable();
    Ok(found)
}

fn append_products(store: &Store, now_ns: i64) {
    let mut batch = Batch::new("net");
    let mut parser = Parser::at(Format::Auto, START_MS.try_into().unwrap());
    for (raw, _) in PRODUCTS {
        let draft = parser.parse(raw.as_bytes()).unwrap().unwrap();
        batch.push(&draft, now_ns).unwrap();
    }
    store.append(batch).unwrap();
}

fn every_address_finds_its_event(store: &Store) {
    for (seq, (raw, addresses)) in (0..).zip(PRODUCTS) {
        for address in addresses {
            assert_eq!(found(store, &[address]).unwrap(), [seq], "{address} of {raw}");
        }
        assert_eq!(found(store, addresses).unwrap(), [seq], "all of {raw}");
    }
    for absent in ["120.0.0.0", "10.0.0.1", "::1", "192.0.3.0/24"] {
        assert_eq!(found(store, &[absent]).unwrap(), [0; 0], "{absent}");
    }
    assert_eq!(found(store, &["10.1.0.0/16"]).unwrap(), [1]);
    assert_eq!(found(store, &["2001:db8::/32"]).unwrap(), [1, 7]);
    assert_eq!(found(store, &["198.51.100.0/24"]).unwrap(), [2, 5, 6, 7]);
    assert_eq!(found(store, &["198.51.100.4/30", "10.5.0.0/16"]).unwrap(), [5]);
    assert_eq!(found(store, &["10.0.0.0/8"]).unwrap().len(), PRODUCTS.len());
}

#[test]
fn an_event_of_any_product_is_found_by_each_address_it_names() {
    for text_filter in [true, false] {
        let disk = SimFs::new(3);
        let (store, clock) = open(&disk, text_filter);
        append_products(&store, now_ns(&clock));
        every_address_finds_its_event(&store);
        store.flush().unwrap();
        every_address_finds_its_event(&store);
        store.close().unwrap();
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let verified = verify(&fs, Path::new(DIR), &[], None, &|_| ()).unwrap();
        assert_eq!(verified.faults, []);
        let (store, _) = open(&disk, !text_filter);
        every_address_finds_its_event(&store);
    }
}

#[test]
fn addresses_in_fields_and_attributes_count_and_mapped_ones_are_the_same() {
    let disk = SimFs::new(4);
    let (store, clock) = open(&disk, true);
    let mut batch = Batch::new("net");
    let drafts = [
        Draft { ip: "::ffff:10.1.1.1".parse().ok(), ..Draft::default() },
        Draft { host: "10.1.1.2".into(), ..Draft::default() },
        Draft {
            attributes: vec![("host.ip".into(), Value::Text("[\"10.1.1.3\",\"fe80::1\"]".into()))],
            ..Draft::default()
        },
    ];
    for draft in drafts {
        let draft = Draft { raw: b"x"[..].into(), ..draft };
        batch.push(&draft, now_ns(&clock)).unwrap();
    }
    store.append(batch).unwrap();
    for flushed in [false, true] {
        if flushed {
            store.flush().unwrap();
        }
        for (ip, seq) in [
            ("10.1.1.1", 0),
            ("::ffff:10.1.1.1", 0),
            ("10.1.1.1:80", 0),
            ("10.1.1.2", 1),
            ("10.1.1.3", 2),
            ("fe80:0::1%7", 2),
        ] {
            assert_eq!(found(&store, &[ip]).unwrap(), [seq], "{ip}");
        }
    }
}

#[test]
fn blocks_whose_events_do_not_name_an_address_are_not_read() {
    let disk = SimFs::new(13);
    let (store, clock) = open(&disk, true);
    let mut batch = Batch::new("main");
    for number in 0..400 {
        let ip = if number == 300 { "10.77.1.1" } else { "192.0.2.1" };
        let raw = format!("flow {number} to {ip}:443").into_bytes().into();
        batch.push(&Draft { raw, ..Draft::default() }, now_ns(&clock) + number).unwrap();
    }
    store.append(batch).unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    // The first block cannot be read.
    damage_first_block(&disk);
    let (store, _) = open(&disk, true);
    for ip in ["10.77.1.1", "10.77.1.0/24", "10.77.0.0/20", "10.0.0.0/9"] {
        assert_eq!(found(&store, &[ip]).unwrap(), [300], "{ip}");
    }
    for ip in ["192.0.2.1", "192.0.2.0/24", "0.0.0.0/0"] {
        assert!(found(&store, &[ip]).is_err(), "{ip} is in the block");
    }
}

#[test]
fn an_event_with_very_many_addresses_is_found_by_each() {
    let disk = SimFs::new(5);
    let (store, clock) = open(&disk, true);
    let address = |number: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + number * 257);
    let raw: Vec<String> = (0..20_000).map(|number| address(number).to_string()).collect();
    let mut batch = Batch::new("main");
    let draft = Draft { raw: raw.join(" ").into_bytes().into(), ..Draft::default() };
    batch.push(&draft, now_ns(&clock)).unwrap();
    store.append(batch).unwrap();
    store.flush().unwrap();
    for number in [0, 1, 9_999, 19_999] {
        assert_eq!(found(&store, &[&address(number).to_string()]).unwrap(), [0]);
    }
    assert_eq!(found(&store, &["11.0.0.0/8"]).unwrap(), [0; 0]);
}

/// A copy of a store that an earlier version wrote: 200 events in one segment of version 1.
fn golden(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/segments-1");
    for name in [
        "arrivals",
        "checkpoints",
        "key",
        "manifest",
        "newest-checkpoint",
        "tree",
        "log/0000000000000000.log",
        "segments/0000000000000001.segment",
    ] {
        let to = to.join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from.join(name), to).unwrap();
    }
}

#[test]
fn a_store_with_segments_of_version_1_is_searched_verified_and_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    golden(dir.path());
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let open = || {
        let clock = Arc::new(ManualClock::new(START_MS + 1_000));
        let mut options = Options { log_segment_size: 1 << 16, ..Options::balanced() };
        options.segment.block_size = 4096;
        Store::open_quiet(Arc::clone(&fs), clock, dir.path(), options).unwrap().0
    };
    let verified = || {
        let verified = verify(&fs, dir.path(), &[], None, &|_| ()).unwrap();
        assert_eq!(verified.faults, []);
        verified.events
    };
    assert_eq!(verified(), 200);
    let check = |store: &Store, more: &[u64]| {
        assert_eq!(found(store, &["10.1.1.7"]).unwrap(), [57]);
        let sevens: Vec<u64> = (0..200).filter(|seq| seq % 7 == 3).chain(more.to_vec()).collect();
        assert_eq!(found(store, &["192.0.2.3"]).unwrap(), sevens, "the filters lack it");
        assert_eq!(found(store, &["10.1.3.0/24", "192.0.2.3"]).unwrap().len(), 8);
    };
    let version =
        |number: &str| std::fs::read(dir.path().join("segments").join(number)).unwrap()[7];
    let mut store = open();
    check(&store, &[]);
    // As many as compaction joins, of a similar size.
    for part in 0..3 {
        let mut batch = Batch::new("net");
        for number in 0..100 {
            let raw = if number == 0 { "to 192.0.2.3" } else { "to 198.51.100.1" };
            let draft = Draft { raw: raw.as_bytes().into(), ..Draft::default() };
            batch.push(&draft, 1_700_000_001_000_000_000 + part).unwrap();
        }
        store.append(batch).unwrap();
        store.flush().unwrap();
    }
    check(&store, &[200, 300, 400]);
    store.close().unwrap();
    assert_eq!(verified(), 500);
    assert_eq!(version("0000000000000001.segment"), b'1');
    store = open();
    store.compact().unwrap();
    check(&store, &[200, 300, 400]);
    store.close().unwrap();
    assert_eq!(verified(), 500);
    let names: Vec<_> = std::fs::read_dir(dir.path().join("segments")).unwrap().collect();
    assert_eq!(names.len(), 1);
    assert_eq!(version(names[0].as_ref().unwrap().file_name().to_str().unwrap()), b'2');
}
