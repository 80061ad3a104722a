//! The mapping from the values of a JSON record to the fields of an event, for each format.

use std::borrow::Cow;
use std::net::IpAddr;

use super::Fields;
use super::keys::Slot;
use crate::event::{Draft, EventId, Severity, TimeSource};
use crate::input::severity;
use crate::input::text::{address, fitting};
use crate::input::time::{self, Unit, When};

/// The times of a record, the best first: those of one product, then those that any may have.
const TIMES: [Slot; 32] = [
    Slot::Flow,
    Slot::TimeCreated,
    Slot::MetadataCreation,
    Slot::RequestReceived,
    Slot::StageTimestamp,
    Slot::Realtime,
    Slot::SourceRealtime,
    Slot::EdgeStart,
    Slot::IsoTimestamp,
    Slot::UtcTime,
    Slot::UtcTimestamp,
    Slot::EventTime,
    Slot::EventCreateDate,
    Slot::Properties,
    Slot::TimestampDetected,
    Slot::Timestamp,
    Slot::AtTimestamp,
    Slot::CalendarTime,
    Slot::UnixTime,
    Slot::Time,
    Slot::SplunkTime,
    Slot::Ts,
    Slot::Dt,
    Slot::T,
    Slot::Datetime,
    Slot::Date,
    Slot::When,
    Slot::Epoch,
    Slot::InstantSeconds,
    Slot::TimeLocal,
    Slot::LogTimestamp,
    Slot::IdTime,
];
/// Times that are less certain than a date and a time of day in two fields.
const LATER: [Slot; 25] = [
    Slot::Updated,
    Slot::CreationTime,
    Slot::Published,
    Slot::ActivityDateTime,
    Slot::CreatedDateTime,
    Slot::TimeGenerated,
    Slot::DevTime,
    Slot::Occurred,
    Slot::EventCreationTime,
    Slot::ContextTimestamp,
    Slot::MessageTime,
    Slot::ThreatTime,
    Slot::QueryTime,
    Slot::DetectionTime,
    Slot::ClientTime,
    Slot::AccessTime,
    Slot::Attributes,
    Slot::Created,
    Slot::Recorded,
    Slot::DataEventTime,
    Slot::WinlogUtcTime,
    Slot::Received,
    Slot::EventStart,
    Slot::Start,
    Slot::EventCreated,
];
/// Of these, times without an offset are UTC by their product's documentation: Office 365's
/// `CreationTime`, Sysmon's `UtcTime`, osquery's `calendarTime`, and names that say so.
const UTC: [Slot; 5] = [
    Slot::CreationTime,
    Slot::UtcTime,
    Slot::WinlogUtcTime,
    Slot::UtcTimestamp,
    Slot::CalendarTime,
];

/// Sets a draft's time.
pub(super) fn stamp(draft: &mut Draft<'_>, when: Option<When>) {
    draft.timestamp_ns = when.map(|when| when.ns);
    draft.time_source = when.map_or(TimeSource::Unknown, When::source);
}

/// Adds what the line in a record's message has and the record does not.
pub(super) fn merge<'a>(draft: &mut Draft<'a>, inner: Draft<'static>) {
    if draft.timestamp_ns.is_none() {
        draft.timestamp_ns = inner.timestamp_ns;
        draft.time_source = inner.time_source;
    }
    let fill = |to: &mut Cow<'a, str>, from: Cow<'static, str>| {
        if to.is_empty() {
            *to = from;
        }
    };
    fill(&mut draft.kind, inner.kind);
    fill(&mut draft.host, inner.host);
    fill(&mut draft.collector, inner.collector);
    draft.ip = draft.ip.or(inner.ip);
    if draft.severity == Severity::Unknown {
        draft.severity = inner.severity;
    }
}

impl<'a> Fields<'a> {
    /// Returns the first of these that is a text or a number that fits an event's field.
    fn first(&self, slots: &[Slot]) -> Cow<'a, str> {
        slots
            .iter()
            .filter_map(|slot| self.text(*slot))
            .map(fitting)
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// The first of these that is an address, or a list of them.
    fn address(&self, slots: &[Slot]) -> Option<IpAddr> {
        slots.iter().find_map(|slot| match self.text(*slot) {
            Some(text) => address(&text),
            None => {
                let list = self.json(*slot).filter(|value| value.starts_with('['))?;
                let list: Vec<Cow<'_, str>> = serde_json::from_str(list).ok()?;
                list.iter().find_map(|text| address(text))
            }
        })
    }

    /// The first of these that is a time.
    fn time(&self, slots: &[Slot]) -> Option<When> {
        slots.iter().find_map(|slot| {
            let text = self.text(*slot)?;
            // A number may be of bytes or messages.
            if *slot == Slot::Received && text.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let text = match *slot {
                // Logs of security groups have seconds there, and milliseconds in their own time.
                Slot::Flow => text.split_once(',').filter(|(when, _)| when.len() == 13)?.0,
                _ => &text,
            };
            let when = time::text(text, Some(self.now_ms))?;
            Some(if UTC.contains(slot) { When::exact(when.ns) } else { when })
        })
    }

    /// The time of any record as it was written.
    pub(super) fn written_time(&self) -> Option<When> {
        self.time(&TIMES).or_else(|| self.date_and_time()).or_else(|| self.time(&LATER))
    }

    /// The time of any record, with the offset of another field if it has none.
    pub(super) fn any_time(&self) -> Option<When> {
        let when = self.written_time()?;
        if when.zoned {
            return Some(when);
        }
        let Some(zone) = self.text(Slot::Zone) else { return Some(when) };
        when.in_zone(&zone)
    }

    /// A date and a time of day in two fields.
    fn date_and_time(&self) -> Option<When> {
        let date = self.text(Slot::Date)?;
        [Slot::Time, Slot::TimeOfDay, Slot::EventTime, Slot::LogTimestamp].iter().find_map(|slot| {
            let clock = self.text(*slot).filter(|clock| clock.contains(':'))?;
            time::text(&format!("{date} {clock}"), None)
        })
    }

    /// The first of these that is an id.
    fn id(&self, slots: &[Slot]) -> Option<EventId> {
        slots.iter().filter_map(|slot| self.text(*slot)).find_map(|text| match text.len() {
            26 | 32 | 36 => text.parse().ok(),
            _ => None,
        })
    }
}

/// OCSF: its times are milliseconds; some producers write seconds or microseconds.
pub(super) fn ocsf<'a>(fields: &Fields<'a>) -> Draft<'a> {
    let code = fields.text(Slot::SeverityId);
    let mut draft = Draft {
        id: fields.id(&[Slot::MetadataUid]),
        kind: fields.first(&[Slot::ClassName, Slot::TypeName, Slot::ClassUid, Slot::TypeUid]),
        host: fields.first(&[Slot::DeviceHost, Slot::DeviceName, Slot::SrcHost]),
        ip: fields.address(&[Slot::SrcEndpointIp, Slot::DeviceIp, Slot::DstEndpointIp]),
        collector: fields.first(&[Slot::ProductName, Slot::ProductVendor]),
        severity: code
            .and_then(|code| severity::ocsf(&code))
            .or_else(|| fields.text(Slot::Severity).and_then(|word| severity::any(&word)))
            .unwrap_or_default(),
        ..Draft::default()
    };
    stamp(&mut draft, fields.time(&[Slot::Time, Slot::IsoTimestamp]));
    draft
}

/// Zeek: its times are seconds with a fraction unless it was configured otherwise. The `host` of
/// some of its logs is the one that a client requested, not the one that reports.
pub(super) fn zeek<'a>(fields: &Fields<'a>) -> Draft<'a> {
    let mut draft = Draft {
        kind: fields.first(&[Slot::Path]),
        host: fields.first(&[Slot::SystemName, Slot::NodeName]),
        ip: fields.address(&[Slot::IdOrigHost, Slot::Src, Slot::IdRespHost]),
        collector: fields.first(&[Slot::SensorName, Slot::Proc]),
        ..Draft::default()
    };
    let seconds = fields.text(Slot::Ts).and_then(|text| time::epoch(&text, Unit::Seconds));
    stamp(&mut draft, fields.time(&[Slot::Ts]).or_else(|| seconds.map(When::exact)));
    draft
}

/// Suricata's EVE; its `host` is the sensor's name if one is configured.
pub(super) fn suricata<'a>(fields: &Fields<'a>) -> Draft<'a> {
    let severity = fields.text(Slot::AlertSeverity);
    let mut draft = Draft {
        kind: fields.first(&[Slot::EventType]),
        host: fields.first(&[Slot::Host, Slot::HostName, Slot::Hostname]),
        ip: fields.address(&[Slot::SrcIp, Slot::DstIp]),
        collector: fields.first(&[Slot::SensorName, Slot::Sensor]),
        severity: severity.map_or(Severity::Unknown, |code| severity::suricata(&code)),
        ..Draft::default()
    };
    stamp(&mut draft, fields.time(&[Slot::Timestamp]));
    draft
}

/// Any object: the customary names, the more specific first.
pub(super) fn ndjson<'a>(fields: &Fields<'a>) -> Draft<'a> {
    use Slot as S;
    let addresses = [
        S::SrcIp,
        S::IdOrigHost,
        S::SrcEndpointIp,
        S::Src,
        S::Source,
        S::SourceIp,
        S::SourceIpAddress,
        S::Client,
        S::ClientIp,
        S::CallerIp,
        S::RemoteIp,
        S::RemoteAddress,
        S::Ip,
        S::HostIp,
        S::DeviceIp,
        S::DstIp,
        S::DestinationIp,
        S::DstEndpointIp,
    ];
    let collectors = [
        S::ObserverProduct,
        S::ObserverVendor,
        S::ObserverName,
        S::ProductName,
        S::ProductVendor,
        S::Product,
        S::Vendor,
        S::SensorName,
        S::Sensor,
        S::EventSource,
        S::Agent,
        S::Program,
        S::Proc,
        S::Logger,
        S::LogLogger,
    ];
    // The machine of an event precedes the one that forwarded it.
    let hosts = [
        S::Computer,
        // Fortinet's firewalls have the host of a request in `hostname`.
        S::FortinetName,
        S::Host,
        S::HostName,
        S::Hostname,
        S::DeviceHost,
        S::DeviceName,
        S::DevName,
        S::AgentHost,
        S::HostIdentifier,
        S::LabelHost,
        S::Logsource,
    ];
    let mut draft = Draft {
        id: fields.id(&[S::Id, S::IdUnderscore, S::EventId, S::Uid]),
        kind: kind(fields),
        host: fields.first(&hosts),
        ip: fields.address(&addresses),
        collector: fields.first(&collectors),
        severity: level(fields),
        ..Draft::default()
    };
    let mut when = fields.any_time();
    if let (Some(when), Some(nanos)) = (&mut when, fields.text(S::InstantNanos))
        && when.ns % 1_000_000_000 == 0
        && let Some(nanos) = nanos.parse().ok().filter(|nanos| (0..1_000_000_000).contains(nanos))
    {
        when.ns = when.ns.saturating_add(nanos);
    }
    stamp(&mut draft, when);
    draft
}

/// The number of a Windows event; other sources have ids there.
fn event_code<'a>(fields: &Fields<'a>) -> Option<Cow<'a, str>> {
    let code = fields.text(Slot::EventCode).or_else(|| fields.text(Slot::EventId))?;
    (code.len() <= 8 && code.bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
}

/// Whether the record is a Windows event.
fn is_windows(fields: &Fields<'_>) -> bool {
    let named = fields.has(Slot::Channel) || fields.has(Slot::Computer);
    (named || fields.has(Slot::EventSource)) && event_code(fields).is_some()
}

/// The type: of a Windows event its channel and number, of a Kubernetes audit event the verb, of
/// others the name that says most.
fn kind<'a>(fields: &Fields<'a>) -> Cow<'a, str> {
    use Slot as S;
    if is_windows(fields)
        && let Some(code) = event_code(fields)
    {
        let channel = fields.first(&[S::Channel]);
        let kind = if channel.is_empty() { code } else { format!("{channel}/{code}").into() };
        return fitting(kind);
    }
    let first = if fields.has(S::RequestReceived) { S::Verb } else { S::EventName };
    let kind = fields.first(&[
        first,
        S::Type,
        S::EventType,
        S::Operation,
        S::SyslogIdentifier,
        S::Kind,
        S::EventKind,
        S::AtType,
        S::EventAction,
        S::Action,
        S::Verb,
        S::Category,
    ]);
    if !kind.is_empty() {
        return kind;
    }
    event_code(fields).unwrap_or_else(|| fields.first(&[S::Name]))
}

/// The severity. GELF's and journald's numbers are syslog's, Windows has its own; any other number
/// below 10 in `level` is on a scale that is not known.
fn level(fields: &Fields<'_>) -> Severity {
    use Slot as S;
    let text = |slot| fields.text(slot);
    let syslog = |slot| {
        let code = text(slot).and_then(|code| code.parse::<u8>().ok()).filter(|code| *code < 8);
        code.map(severity::syslog)
    };
    let gelf = fields.has(S::ShortMessage) && fields.has(S::Version);
    if gelf && let Some(severity) = syslog(S::Level) {
        return severity;
    }
    if (fields.has(S::Realtime) || fields.has(S::SourceRealtime) || fields.has(S::SyslogIdentifier))
        && let Some(severity) = syslog(S::Priority)
    {
        return severity;
    }
    if is_windows(fields)
        && let Some(level) = text(S::Level).and_then(|level| severity::windows(&level))
    {
        return level;
    }
    // Findings of GuardDuty have this version, and no other numbers.
    if text(S::SchemaVersion).is_some_and(|version| version == "2.0")
        && let Some(severity) = text(S::Severity).and_then(|text| severity::guard_duty(&text))
    {
        return severity;
    }
    let of = |slot: &Slot| {
        let text = fields.text(*slot)?;
        let number = text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_digit());
        if number && *slot == S::Level { None } else { severity::any(&text) }
    };
    let mongodb = || text(S::MongoSeverity).filter(|_| fields.has(S::T));
    [S::Severity, S::SeverityId, S::Level, S::LogLevel]
        .iter()
        .find_map(of)
        .or_else(|| text(S::RuleLevel).and_then(|level| severity::rule(&level)))
        .or_else(|| mongodb().and_then(|letter| severity::mongodb(&letter)))
        .unwrap_or_default()
}
