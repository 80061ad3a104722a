//! The keys of JSON records that are used, in any format.
//!
//! A key is recognised nested (`{"event":{"kind":..}}`) and dotted (`{"event.kind":..}`).

/// A value that is kept while a record is read, by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Slot {
    Agent,
    AlertSeverity,
    At,
    AtTimestamp,
    AtType,
    ClassName,
    ClassUid,
    Client,
    ClientIp,
    Computer,
    Date,
    Datetime,
    DestinationIp,
    DeviceHost,
    DeviceIp,
    DeviceName,
    DstEndpointIp,
    DstIp,
    EventCreated,
    EventId,
    EventKind,
    EventType,
    FlowId,
    Host,
    HostIp,
    HostName,
    Hostname,
    Id,
    IdOrigHost,
    IdRespHost,
    IdUnderscore,
    Ip,
    Kind,
    Level,
    LogLevel,
    LogLogger,
    Logger,
    MetadataUid,
    MetadataVersion,
    NodeName,
    ObserverName,
    ObserverProduct,
    ObserverVendor,
    Path,
    Proc,
    Product,
    ProductName,
    ProductVendor,
    Program,
    RemoteAddress,
    RemoteIp,
    Sensor,
    SensorName,
    Severity,
    SeverityId,
    Source,
    SourceIp,
    SourceIpAddress,
    Src,
    SrcEndpointIp,
    SrcHost,
    SrcIp,
    Stats,
    SystemName,
    Time,
    Timestamp,
    Ts,
    Type,
    TypeName,
    TypeUid,
    Uid,
    Vendor,
}

/// Number of slots.
pub(super) const SLOTS: usize = Slot::Vendor as usize + 1;

/// An object whose keys are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Record,
    Agent,
    Alert,
    Client,
    Device,
    DstEndpoint,
    Event,
    Host,
    Id,
    Log,
    Metadata,
    Observer,
    Product,
    Source,
    SrcEndpoint,
}

/// What is done with a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// It is ignored.
    Skip,
    /// A text or a number is kept.
    Keep(Slot),
    /// The keys of the object are used.
    Enter(Group),
    /// The keys of an object are used; a text or a number is kept.
    Either(Slot, Group),
}

/// Returns what is done with the value of `key` in an object of `group`.
pub(super) fn want(group: Group, key: &str) -> Want {
    use Slot as S;
    let slot = match group {
        Group::Record => return of_record(key),
        Group::Metadata => match key {
            "product" => return Want::Enter(Group::Product),
            "uid" => S::MetadataUid,
            "version" => S::MetadataVersion,
            _ => return Want::Skip,
        },
        Group::Event => match key {
            "id" => S::EventId,
            "kind" => S::EventKind,
            "created" => S::EventCreated,
            _ => return Want::Skip,
        },
        Group::Device => match key {
            "hostname" => S::DeviceHost,
            "ip" => S::DeviceIp,
            "name" => S::DeviceName,
            _ => return Want::Skip,
        },
        Group::Host => match key {
            "name" | "hostname" => S::HostName,
            "ip" => S::HostIp,
            _ => return Want::Skip,
        },
        Group::Observer => match key {
            "name" => S::ObserverName,
            "product" => S::ObserverProduct,
            "vendor" => S::ObserverVendor,
            _ => return Want::Skip,
        },
        Group::SrcEndpoint => match key {
            "ip" => S::SrcEndpointIp,
            "hostname" => S::SrcHost,
            _ => return Want::Skip,
        },
        Group::Id => match key {
            "orig_h" => S::IdOrigHost,
            "resp_h" => S::IdRespHost,
            _ => return Want::Skip,
        },
        Group::Log => match key {
            "level" => S::LogLevel,
            "logger" => S::LogLogger,
            _ => return Want::Skip,
        },
        Group::Product => match key {
            "name" => S::ProductName,
            "vendor_name" => S::ProductVendor,
            _ => return Want::Skip,
        },
        Group::Agent => match key {
            "type" | "name" => S::Agent,
            _ => return Want::Skip,
        },
        Group::Alert if key == "severity" => S::AlertSeverity,
        Group::Client if key == "ip" => S::Client,
        Group::DstEndpoint if key == "ip" => S::DstEndpointIp,
        Group::Source if key == "ip" => S::Source,
        Group::Alert | Group::Client | Group::DstEndpoint | Group::Source => return Want::Skip,
    };
    Want::Keep(slot)
}

/// By length first: most keys of a record are none of these, and are rejected immediately.
#[expect(clippy::too_many_lines, reason = "a table")]
fn of_record(key: &str) -> Want {
    use Slot as S;
    let slot = match key.len() {
        2 => match key {
            "ts" => S::Ts,
            "id" => return Want::Either(S::Id, Group::Id),
            "ip" => S::Ip,
            "@t" => S::At,
            _ => return Want::Skip,
        },
        3 => match key {
            "_id" => S::IdUnderscore,
            "log" => return Want::Enter(Group::Log),
            "src" => S::Src,
            "uid" => S::Uid,
            _ => return Want::Skip,
        },
        4 => match key {
            "date" => S::Date,
            "host" => return Want::Either(S::Host, Group::Host),
            "kind" => S::Kind,
            "proc" => S::Proc,
            "time" => S::Time,
            "type" => S::Type,
            _ => return Want::Skip,
        },
        5 => match key {
            "@type" => S::AtType,
            "_path" => S::Path,
            "_time" => S::Time,
            "agent" => return Want::Either(S::Agent, Group::Agent),
            "alert" => return Want::Enter(Group::Alert),
            "event" => return Want::Enter(Group::Event),
            "level" => S::Level,
            "stats" => S::Stats,
            _ => return Want::Skip,
        },
        6 => match key {
            "client" => return Want::Enter(Group::Client),
            "device" => return Want::Enter(Group::Device),
            "dst_ip" => S::DstIp,
            "logger" => S::Logger,
            "sensor" => S::Sensor,
            "source" => return Want::Enter(Group::Source),
            "src_ip" => S::SrcIp,
            "vendor" => S::Vendor,
            _ => return Want::Skip,
        },
        7 => match key {
            "dest_ip" => S::DstIp,
            "flow_id" => S::FlowId,
            "host.ip" => S::HostIp,
            "product" => S::Product,
            "program" => S::Program,
            _ => return Want::Skip,
        },
        8 => match key {
            "Computer" | "computer" => S::Computer,
            "clientip" => S::ClientIp,
            "datetime" => S::Datetime,
            "event.id" | "event_id" => S::EventId,
            "hostname" => S::Hostname,
            "metadata" => return Want::Enter(Group::Metadata),
            "observer" => return Want::Enter(Group::Observer),
            "severity" => S::Severity,
            "type_uid" => S::TypeUid,
            _ => return Want::Skip,
        },
        9 => match key {
            "class_uid" => S::ClassUid,
            "client.ip" => S::Client,
            "client_ip" => S::ClientIp,
            "host.name" => S::HostName,
            "id.orig_h" => S::IdOrigHost,
            "id.resp_h" => S::IdRespHost,
            "log.level" => S::LogLevel,
            "remote_ip" => S::RemoteIp,
            "source.ip" => S::Source,
            "source_ip" => S::SourceIp,
            "timestamp" => S::Timestamp,
            "type_name" => S::TypeName,
            _ => return Want::Skip,
        },
        10 => match key {
            "@timestamp" => S::AtTimestamp,
            "agent.type" | "agent.name" => S::Agent,
            "class_name" => S::ClassName,
            "event.kind" => S::EventKind,
            "event_type" => S::EventType,
            "log.logger" => S::LogLogger,
            "_node_name" => S::NodeName,
            _ => return Want::Skip,
        },
        11 => match key {
            "remote_addr" => S::RemoteAddress,
            "sensor_name" => S::SensorName,
            "severity_id" => S::SeverityId,
            _ => return Want::Skip,
        },
        _ => match key {
            "_system_name" => S::SystemName,
            "destination.ip" => S::DestinationIp,
            "dst_endpoint" => return Want::Enter(Group::DstEndpoint),
            "event.created" => S::EventCreated,
            "host.hostname" => S::HostName,
            "metadata.uid" => S::MetadataUid,
            "observer.name" => S::ObserverName,
            "observer.product" => S::ObserverProduct,
            "observer.vendor" => S::ObserverVendor,
            "sourceIPAddress" => S::SourceIpAddress,
            "src_endpoint" => return Want::Enter(Group::SrcEndpoint),
            _ => return Want::Skip,
        },
    };
    Want::Keep(slot)
}
