//! The mapping from the values of a JSON record to the fields of an event, for each format.

use std::borrow::Cow;
use std::net::IpAddr;

use super::keys::Slot;
use super::{Fields, Value};
use crate::event::{Draft, EventId, Severity};
use crate::input::severity;
use crate::input::text::{address, fitting};
use crate::input::time::{self, Unit};

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

    /// The first of these that is an address.
    fn address(&self, slots: &[Slot]) -> Option<IpAddr> {
        slots.iter().filter_map(|slot| self.text(*slot)).find_map(|text| address(&text))
    }

    /// The first of these that is a time.
    fn time(&self, slots: &[Slot], unit: Unit) -> Option<i64> {
        slots.iter().filter_map(|slot| self.value(*slot)).find_map(|value| match value {
            Value::Text(text) => time::text(&text, None),
            Value::Number(digits) => time::epoch(digits, unit),
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

/// OCSF: its times are milliseconds.
pub(super) fn ocsf<'a>(fields: &Fields<'a>) -> Draft<'a> {
    let code = fields.text(Slot::SeverityId);
    Draft {
        id: fields.id(&[Slot::MetadataUid]),
        timestamp_ns: fields.time(&[Slot::Time], Unit::Millis),
        kind: fields.first(&[Slot::ClassName, Slot::TypeName, Slot::ClassUid, Slot::TypeUid]),
        host: fields.first(&[Slot::DeviceHost, Slot::DeviceName, Slot::SrcHost]),
        ip: fields.address(&[Slot::SrcEndpointIp, Slot::DeviceIp, Slot::DstEndpointIp]),
        collector: fields.first(&[Slot::ProductName, Slot::ProductVendor]),
        severity: code
            .and_then(|code| severity::ocsf(&code))
            .or_else(|| fields.text(Slot::Severity).and_then(|word| severity::any(&word)))
            .unwrap_or_default(),
        ..Draft::default()
    }
}

/// Zeek: its times are seconds with a fraction unless it was configured otherwise. The `host` of
/// some of its logs is the one that a client requested, not the one that reports.
pub(super) fn zeek<'a>(fields: &Fields<'a>) -> Draft<'a> {
    Draft {
        timestamp_ns: fields.time(&[Slot::Ts], Unit::Guess),
        kind: fields.first(&[Slot::Path]),
        host: fields.first(&[Slot::SystemName, Slot::NodeName]),
        ip: fields.address(&[Slot::IdOrigHost, Slot::Src, Slot::IdRespHost]),
        collector: fields.first(&[Slot::SensorName, Slot::Proc]),
        ..Draft::default()
    }
}

/// Suricata's EVE; its `host` is the sensor's name if one is configured.
pub(super) fn suricata<'a>(fields: &Fields<'a>) -> Draft<'a> {
    let severity = fields.text(Slot::AlertSeverity);
    Draft {
        timestamp_ns: fields.time(&[Slot::Timestamp], Unit::Guess),
        kind: fields.first(&[Slot::EventType]),
        host: fields.first(&[Slot::Host, Slot::HostName, Slot::Hostname]),
        ip: fields.address(&[Slot::SrcIp, Slot::DstIp]),
        collector: fields.first(&[Slot::SensorName, Slot::Sensor]),
        severity: severity.map_or(Severity::Unknown, |code| severity::suricata(&code)),
        ..Draft::default()
    }
}

/// Any object: the customary names, the more specific first.
pub(super) fn ndjson<'a>(fields: &Fields<'a>) -> Draft<'a> {
    use Slot as S;
    let times = [
        S::Timestamp,
        S::AtTimestamp,
        S::Time,
        S::Ts,
        S::Datetime,
        S::EventCreated,
        S::At,
        S::Date,
    ];
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
        S::Agent,
        S::Program,
        S::Proc,
        S::Logger,
        S::LogLogger,
    ];
    Draft {
        id: fields.id(&[S::Id, S::IdUnderscore, S::EventId, S::Uid]),
        timestamp_ns: fields.time(&times, Unit::Guess),
        kind: fields.first(&[S::Type, S::EventType, S::Kind, S::EventKind, S::AtType]),
        host: fields.first(&[
            S::Host,
            S::HostName,
            S::Hostname,
            S::Computer,
            S::DeviceHost,
            S::DeviceName,
        ]),
        ip: fields.address(&addresses),
        collector: fields.first(&collectors),
        severity: [S::Severity, S::SeverityId, S::Level, S::LogLevel]
            .iter()
            .filter_map(|slot| fields.text(*slot))
            .find_map(|text| severity::any(&text))
            .unwrap_or_default(),
        ..Draft::default()
    }
}
