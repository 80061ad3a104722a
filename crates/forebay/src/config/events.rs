//! Value types and limits of the event store's settings.

use forebay_events::format::system::is_reserved;
use forebay_events::input::{Mapping, Mappings};
use forebay_events::segment::Compression;
use forebay_events::store::Retention;

use super::error::Fault;
use super::settings::Events;
use super::value::{Value, words};

words! {
    /// Defaults of the event store's settings.
    Preset, "balanced, max-throughput or max-durability" {
        /// Synced, compressed and searchable.
        Balanced = "balanced",
        /// The highest rate of events.
        MaxThroughput = "max-throughput",
        /// One event for each commit.
        MaxDurability = "max-durability",
    }
}

impl Value for Compression {
    const EXPECTED: &'static str = "none, lz4, zstd or zstd:1 to zstd:19";

    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "not a compression".to_owned())
    }
}

/// Fields of records, by stream: of streams without their own, and of single ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByStream(pub(crate) Vec<(Option<String>, String)>);

impl Value for ByStream {
    const EXPECTED: &'static str = "fields such as ts or ts,audit=meta.time";

    fn parse(text: &str) -> Result<Self, String> {
        let mut fields: Vec<(Option<String>, String)> = Vec::new();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let (stream, field) = match rule.split_once('=') {
                Some((stream, field)) => (Some(stream.trim().to_owned()), field.trim()),
                None => (None, rule),
            };
            if stream.as_deref() == Some("") {
                return Err(format!("{rule:?} names no stream"));
            }
            if stream.as_deref().is_some_and(is_reserved) {
                return Err(format!("{rule:?} names a stream of the store itself"));
            }
            if field.is_empty() {
                return Err(format!("{rule:?} names no field"));
            }
            if fields.iter().any(|(known, _)| *known == stream) {
                return Err(format!("{rule:?} is a second rule for the same stream"));
            }
            fields.push((stream, field.to_owned()));
        }
        Ok(Self(fields))
    }
}

/// Zones of times without an offset, by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zones(pub(crate) ByStream);

impl Value for Zones {
    const EXPECTED: &'static str = "zones such as Europe/Paris or UTC,audit=+02:00";

    fn parse(text: &str) -> Result<Self, String> {
        let zones = ByStream::parse(text)?;
        for (_, zone) in &zones.0 {
            Mapping::zone(zone).map_err(|error| error.to_string())?;
        }
        Ok(Self(zones))
    }
}

/// Returns where the fields of the records of each stream are.
pub(crate) fn mappings(events: &Events) -> Mappings {
    let mut mappings = Mappings::default();
    let mut each = |rules: &ByStream, set: &dyn Fn(&mut Mapping, &str)| {
        for (stream, value) in &rules.0 {
            let mapping = match stream {
                None => &mut mappings.default,
                Some(stream) => mappings.streams.entry(stream.clone()).or_default(),
            };
            set(mapping, value);
        }
    };
    each(&events.time_field, &|mapping, field| mapping.time_field = Some(field.to_owned()));
    each(&events.host_field, &|mapping, field| mapping.host_field = Some(field.to_owned()));
    each(&events.type_field, &|mapping, field| mapping.type_field = Some(field.to_owned()));
    // The setting was checked when it was read.
    each(&events.time_zone.0, &|mapping, zone| mapping.zone = Mapping::zone(zone).ok());
    mappings
}

/// How long events are kept, by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retentions(pub(crate) Vec<Retention>);

impl Value for Retentions {
    const EXPECTED: &'static str = "times such as 30d or 30d,audit=365d,debug=12h";

    fn parse(text: &str) -> Result<Self, String> {
        let mut rules: Vec<Retention> = Vec::new();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let (stream, time) = match rule.split_once('=') {
                Some((stream, time)) => (Some(stream.trim().to_owned()), time.trim()),
                None => (None, rule),
            };
            if stream.as_deref() == Some("") {
                return Err(format!("{rule:?} names no stream"));
            }
            if stream.as_deref().is_some_and(is_reserved) {
                return Err(format!("{rule:?} names a stream of the store itself, which is kept"));
            }
            if rules.iter().any(|known| known.stream == stream) {
                return Err(format!("{rule:?} is a second rule for the same stream"));
            }
            let keep_ns =
                age_ns(time).ok_or_else(|| format!("{time:?} is not a retention time"))?;
            rules.push(Retention { stream, keep_ns });
        }
        Ok(Self(rules))
    }
}

/// A whole number of seconds, minutes, hours, days or weeks, in nanoseconds; not zero.
fn age_ns(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let age = number.parse::<i64>().ok()?.checked_mul(seconds)?.checked_mul(1_000_000_000)?;
    (age > 0).then_some(age)
}

/// Checks the settings of the event store.
///
/// # Errors
/// The first setting that is not allowed, with what is allowed.
pub(super) fn check(events: &Events) -> Result<(), Fault> {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let outside = |value: Option<u64>, least: u64, most: u64| {
        value.is_some_and(|value| !(least..=most).contains(&value))
    };
    let size = |size: Option<forebay_base::bytes::ByteSize>| size.map(|size| size.0);
    let number = |number: Option<u32>| number.map(u64::from);
    let wrong = [
        ("batch_events", outside(number(events.batch_events), 1, 65_000), "1 to 65000"),
        (
            "log_segment_size",
            outside(size(events.log_segment_size), MIB, 64 * GIB),
            "1MiB to 64GiB",
        ),
        (
            "memory_table_events",
            outside(number(events.memory_table_events), 1, u64::MAX),
            "at least 1",
        ),
        (
            "memory_table_size",
            outside(size(events.memory_table_size), MIB, 64 * GIB),
            "1MiB to 64GiB",
        ),
        ("block_size", outside(size(events.block_size), 4 * KIB, MIB), "4KiB to 1MiB"),
        ("filter_bits_per_key", outside(number(events.filter_bits_per_key), 1, 64), "1 to 64"),
        (
            "block_cache_size",
            outside(size(events.block_cache_size), 0, 1024 * GIB),
            "at most 1024GiB",
        ),
        (
            "retention_size",
            outside(size(events.retention_size), 16 * MIB, u64::MAX),
            "at least 16MiB",
        ),
        ("body_size_max", events.body_size_max.0 == 0, "at least 1"),
        ("body_memory_max", events.body_memory_max.0 < 4 * MIB, "at least 4MiB"),
        ("followers_max", !(1..=100_000).contains(&events.followers_max), "1 to 100000"),
        ("appends_max", !(1..=256).contains(&events.appends_max), "1 to 256"),
        ("reads_max", !(1..=256).contains(&events.reads_max), "1 to 256"),
    ];
    let names = [
        ("origin", events.origin.as_deref().unwrap_or("x")),
        ("witness_name", &events.witness_name),
    ];
    let bad = |name: &str| {
        name.is_empty()
            || name.contains('+')
            || name.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    if let Some((key, _)) = names.into_iter().find(|(_, name)| bad(name)) {
        let problem = "must not be empty or contain spaces, control characters or plus signs";
        return Err(Fault::of(format!("events.{key}"), problem));
    }
    let witnesses = events.witnesses.0.len();
    if witnesses > 0 && !(1..=witnesses).contains(&(events.witness_quorum as usize)) {
        let keys = ["events.witness_quorum", "events.witnesses"];
        let problem = format!("witness_quorum must be 1 to {witnesses}, the number of witnesses");
        return Err(Fault::between(&keys, problem));
    }
    match wrong.into_iter().find(|(_, wrong, _)| *wrong) {
        Some((key, _, allowed)) => {
            Err(Fault::of(format!("events.{key}"), format!("must be {allowed}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_zones_are_read_by_stream() {
        let rule =
            |stream: Option<&str>, field: &str| (stream.map(str::to_owned), field.to_owned());
        let read = |text| ByStream::parse(text).map(|rules| rules.0);
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(
            read("ts, audit = meta.time"),
            Ok(vec![rule(None, "ts"), rule(Some("audit"), "meta.time")])
        );
        for wrong in ["=ts", "audit=", "ts,when", "a=b,a=c", "_forebay=ts"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(Zones::parse("UTC,audit=+02:00").is_ok());
        assert!(Zones::parse("audit=Mars/Phobos").is_err());
    }

    #[test]
    fn retention_is_read_by_stream() {
        let rule = |stream: Option<&str>, days: i64| Retention {
            stream: stream.map(str::to_owned),
            keep_ns: days * 86_400_000_000_000,
        };
        let read = |text| Retentions::parse(text).map(|rules| rules.0);
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("30d"), Ok(vec![rule(None, 30)]));
        assert_eq!(
            read(" 2w , audit=365d,debug = 24h"),
            Ok(vec![rule(None, 14), rule(Some("audit"), 365), rule(Some("debug"), 1)])
        );
        for wrong in ["d", "30", "-1d", "0d", "1y", "=3d", "a=", "1d,2d", "a=1d,a=2d", "1.5d"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
