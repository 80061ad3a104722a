//! The keys of JSON records that are used, in any format.
//!
//! A key is recognised nested (`{"event":{"kind":..}}`) and dotted (`{"event.kind":..}`), in any
//! case, and with or without `_`, `-` and spaces: `EventTime`, `eventTime` and `event_time` are one
//! key. The table of names is turned into a hash table at first use; a key costs one pass over its
//! bytes and, unless it is known, rarely a comparison.

use std::sync::LazyLock;

/// Maximum size of a known key in bytes, with the characters that do not count.
const KEY_SIZE_MAX: usize = 80;
/// Buckets of the hash table: a power of two, and several times the number of keys.
const BUCKETS: usize = 4096;

/// Declares the slots with the paths of their keys, in lower case and without `_`, `-` and spaces.
macro_rules! slots {
    ($($slot:ident = $($path:literal)+;)+) => {
        /// A value that is kept while a record is read, by its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Slot {
            $($slot,)+
        }

        const PATHS: &[(&str, Slot)] = &[$($(($path, Slot::$slot),)+)+];

        /// Number of slots.
        pub(super) const SLOTS: usize = [$(Slot::$slot),+].len();
    };
}

slots! {
    // Times, by how they are ranked in `map`.
    TimestampDetected = "timestampdetected";
    Timestamp = "timestamp" "timestamp.$date" "timestamp.seconds" "timestamp.value";
    AtTimestamp = "@timestamp";
    Time = "time" "time.$date" "time.seconds";
    SplunkTime = "result.time";
    Ts = "ts" "ts.$date";
    Dt = "dt";
    T = "t.$date" "@t";
    Datetime = "datetime" "date.time" "date/time" "logdatetime" "timedate";
    Date = "date" "logdate" "eventdate" "date.$date" "datestamp";
    When = "when" "whenoccurred" "whencreated" "at";
    Epoch = "epoch" "epochtime" "epochtimestamp" "epochms" "epochmillis" "unixtimestamp"
        "unixtimestampms" "timestampms" "timestampmillis" "timestampus" "timestampns"
        "timestampunix" "timems" "timens" "tsms" "tsns" "timemillis" "timenanos" "timeunix"
        "timeunixnano" "timestampnanos" "timestampmicros" "timestampnumber" "epochseconds"
        "epochsecond";
    UtcTimestamp = "utctimestamp" "timestamputc" "timeutc" "dateutc" "datetimeutc" "utcdatetime"
        "eventtimeutc" "utceventtime" "eventutctime" "gmttime" "utc" "vptime";
    InstantSeconds = "instant.epochsecond";
    InstantNanos = "instant.nanoofsecond" "timestamp.nanos";
    TimeLocal = "timelocal" "timeiso8601" "localtime" "msec" "requesttimestamp" "requestedat"
        "timestr" "timestampstr" "timestring" "datestr" "datetimestr" "eventtimestr" "timetext"
        "timeformatted" "timestampiso" "timestampiso8601" "isotime" "iso8601" "timestamplocal"
        "tstamp" "tsiso";
    IsoTimestamp = "timedt" "isotimestamp" "isodatetime" "isodate";
    Properties = "properties.timestamp" "properties.eventtimestamp";
    EventCreateDate = "@eventcreatedate" "eventcreatedate";
    EventTime = "eventtime" "event.time" "event.eventtime" "eventtimestamp" "event.timestamp"
        "eventdatetime" "event.datetime" "deviceeventtime" "eventoccurredat" "eventoccurredtime"
        "eventhappenedat" "eventts" "evttime" "eventtimelocal" "eventtimems" "eventtimestampms"
        "eventunixtime" "eventepoch" "detail.eventtime" "event.eventtimestamp" "event.ts"
        "event.securityevent.time" "attributes.eventdate";
    DataEventTime = "data.eventtime";
    TimeCreated = "timecreated" "timecreated.value" "timecreated.systemtime" "timecreated.@systemtime"
        "timecreated.#attributes.systemtime" "timecreated.attributes.systemtime"
        "system.timecreated" "system.timecreated.systemtime" "system.timecreated.@systemtime"
        "system.timecreated.#attributes.systemtime" "event.system.timecreated.systemtime"
        "event.system.timecreated.@systemtime" "event.system.timecreated.#attributes.systemtime"
        "event.system.timecreated" "winlog.timecreated" "winlog.systemtime" "@systemtime"
        "systemtime" "eventrecord.timecreated";
    // Of Azure's logs of virtual networks: the time of the flow, and more, separated by commas.
    Flow = "flow.0";
    UtcTime = "utctime" "eventdata.utctime" "event.eventdata.utctime";
    WinlogUtcTime = "winlog.eventdata.utctime";
    RequestReceived = "requestreceivedtimestamp";
    StageTimestamp = "stagetimestamp";
    SourceRealtime = "sourcerealtimetimestamp";
    Realtime = "realtimetimestamp";
    CreationTime = "creationtime" "creationtimeutc";
    Published = "published" "publishedat" "publishtime" "publishedtime";
    CreatedDateTime = "createddatetime" "properties.createddatetime"
        "eventdatetime.createddatetime";
    ActivityDateTime = "activitydatetime" "properties.activitydatetime" "activitytime"
        "activitydate" "activitytimestamp" "activityat" "activitydateutc";
    TimeGenerated = "timegenerated" "generatedtime" "timegeneratedutc" "generatedat"
        "generationtime" "generateddatetime" "generatedtimestamp" "gentime" "generationtimestamp"
        "dategenerated" "generateddate" "properties.timegenerated" "highresolutiontimestamp"
        "highrestimestamp" "timegenhires";
    EdgeStart = "edgestarttimestamp" "edgestarttime";
    LogTimestamp = "logtimestamp" "logtime" "log.timestamp" "log.time" "loggedat" "loggedtime"
        "loggeddate" "loggedon" "logts" "logdatetimeutc" "logcreated" "logtimeutc";
    UnixTime = "unixtime" "unixtimems" "unixtimeutc";
    CalendarTime = "calendartime";
    DevTime = "devtime" "devicetime" "devicetimestamp" "devicereceipttime" "rt" "devicedate"
        "devicelocaltime";
    Occurred = "occurred" "occured" "occurredat" "occuredat" "occurredon" "occurredtime"
        "occurrencetime" "occurrencedate" "occurredtimestamp" "occurreddatetime" "occurreddate"
        "occurtime" "happenedat" "happenedon" "dateoccurred" "timeoccurred" "timeofoccurrence";
    MetadataCreation = "metadata.eventcreationtime";
    EventCreationTime = "eventcreationtime" "event.eventcreationtime"
        "event.eventcreationtimestamp" "eventcreatedat" "eventcreatedtime" "eventcreateddate"
        "eventcreationdate" "eventcreated";
    ContextTimestamp = "contexttimestamp";
    MessageTime = "messagetime" "msgtime" "messagetimestamp" "messagedate" "mailtime" "emailtime"
        "emailtimestamp" "clicktime";
    ThreatTime = "threattime" "threatinfo.identifiedat" "threatinfo.createdat"
        "alertinfo.createdat" "alertinfo.reportedat";
    QueryTime = "querytimestamp" "querydatetime";
    DetectionTime = "detectiontime" "detecttime" "detectedat" "detectedtime" "detecttimeutc"
        "detectionutc" "detectiondate" "detectiontimestamp" "detecteddatetime" "detectedon"
        "alerttime" "alertedat" "alertdate" "alerttimestamp" "alertcreatedat" "alertcreatedtime"
        "alert.createdat" "alert.created" "alert.timestamp" "alert.createdtime" "alertdatetime"
        "incidenttime" "incidentdate" "attacktime" "attackdate" "attacktimestamp" "violationtime"
        "violationdate" "scantime" "scandate" "triggeredat" "triggertime" "triggeredtime"
        "triggeredon" "raisedtime" "raisedat" "raisedon" "issuedat" "issuetime" "findingtime"
        "threatdetectedat" "observedat" "observedtime" "blocktime" "quarantinetime" "analyzedat"
        "analysedat" "evaluatedat" "assessedat";
    ClientTime = "clienttimestamp" "details.clienttimestamp";
    AccessTime = "accesstime" "accessedat" "actiontime" "actiontimestamp" "actiondate"
        "actiondatetime" "audittime" "auditdate" "audittimestamp" "auditedat" "auditdatetime"
        "transactiontime" "transactiondate" "transactiontimestamp" "logintime" "logindate"
        "logintimestamp" "loginat" "logontime" "authtime" "authtimestamp" "signintime"
        "signindatetime" "reporttime" "reportedat" "reportedtime" "reporteddate" "reporttimestamp"
        "sentat" "senttime" "sentdate" "sentdatetime" "senttimestamp" "sentts"
        "operationtime" "operationdate" "operationtimestamp" "changetime" "changedat" "changedate"
        "requestdate" "requestdatetime" "requesttimeepoch" "executiontime" "executedat"
        "executiondate" "performedat" "performedon" "timestampderived" "servertime"
        "servertimestamp" "systemtimestamp" "systime" "sessiontime" "eventlogtime"
        "notificationtime" "notificationdate" "commandtime" "connectiontime" "conntime"
        "querydate" "visittime" "hittime";
    IdTime = "id.time";
    Created = "created" "createdat" "createtime" "createdtime" "createddate" "createdate"
        "creationdate" "createdon" "createdtimestamp" "createdts" "creationtimestamp" "createts"
        "createdms" "datecreated" "datecreate" "createtimestamp" "creationdatetime"
        "creationtimestampms" "createdutc" "createddatetimeutc" "inserttimestamp" "dateadded";
    Recorded = "recordedat" "recordtime" "recorddate" "recordtimestamp" "recordcreationtime"
        "timestamprecorded";
    EventCreated = "event.created" "event.createdat" "event.creationtime";
    Attributes = "attributes.createdat" "attributes.timestamp" "attributes.time"
        "attributes.eventtime" "attributes.created" "attributes.createtime" "data.createdat"
        "data.timestamp" "data.time" "data.created" "data.eventtimestamp" "data.date"
        "data.datetime" "data.ts" "payload.timestamp" "payload.time" "payload.createdat"
        "payload.eventtime" "payload.ts" "body.timestamp" "body.time" "record.timestamp"
        "record.time" "header.timestamp" "header.time" "properties.time" "properties.createdat"
        "properties.created" "properties.eventtime" "properties.date" "properties.datetime"
        "details.timestamp" "details.time" "detail.timestamp" "meta.timestamp" "meta.time"
        "metadata.timestamp" "metadata.time" "context.timestamp" "alert.time" "alert.date"
        "message.timestamp" "message.time" "audit.timestamp" "audit.time" "audit.datetime"
        "fields.timestamp" "fields.time" "info.timestamp" "info.time" "params.time" "request.time"
        "entry.timestamp" "entry.time" "source.time" "source.timestamp";
    Updated = "lastupdatetime" "modtime";
    Received = "received";
    EventStart = "event.start" "eventstart";
    Start = "start" "starttime" "starttimestamp" "startdate" "startedat" "startdatetime"
        "startedtime" "startedon" "startts" "startutc" "starttimeutc" "starttimems" "flowstart"
        "flowstarttime" "sessionstart" "sessionstarttime" "begintime" "begintimestamp" "begin"
        "startime" "startimestamp" "firstseen" "firsttime" "firstseenat" "firstoccurrence"
        "firstdetected" "firstactivity" "firsttimestamp" "firstseentime" "firstseentimestamp"
        "eventfirstseen" "eventstarttime" "eventstartdate" "eventstarttimestamp"
        "connectionstarttime" "datetimestart";
    TimeOfDay = "timeofday" "clock" "hour" "timepart" "eventtimeofday";
    Zone = "timezone" "tz" "zone" "utcoffset" "timezoneoffset" "devicetimezone" "gmtoffset"
        "offset" "tzoffset" "deviceoffset" "timestampoffset";
    // Machines.
    Computer = "computer" "computername" "scomputername" "winlog.computername" "system.computer"
        "event.system.computer" "machinename" "eventcomputer";
    Host = "host";
    HostName = "host.name" "host.hostname" "host.fqdn" "host.displayname";
    Hostname = "hostname" "hostfqdn" "fqdn" "dnshostname" "fullhostname" "computerdnsname";
    FortinetName = "devname";
    DevName = "devicename" "devicehostname" "dvchost" "dvchostname" "devicehost"
        "devicednsname" "devicefqdn" "devicedisplayname" "devicehostfqdn";
    DeviceHost = "device.hostname" "dvc.hostname" "devicedetail.displayname" "device.displayname"
        "device.devicename" "device.fqdn" "properties.devicename"
        "properties.devicedetail.displayname";
    DeviceName = "device.name" "dvc.name";
    AgentHost = "agentrealtimeinfo.agentcomputername" "agentcomputername"
        "agentdetectioninfo.agentcomputername" "agentinfo.hostname" "endpoint.hostname"
        "endpoint.name" "endpointname" "endpointhostname" "machine" "machine.name"
        "machine.hostname" "workstation" "workstationname" "clientname" "clienthostname"
        "client.hostname" "sourcehostname" "sourcehost" "srchost" "srchostname" "shost" "srcname"
        "source.hostname" "source.host" "event.computername" "data.computername" "data.devicename"
        "data.hostname" "data.host" "targethost" "affectedhost" "agenthostname"
        "hostinfo.hostname" "hostinfo.name" "asset.name" "asset.hostname" "assetname"
        "assethostname" "system.hostname" "systemhostname" "event.hostname" "event.host"
        "event.devicename" "event.devicehostname" "event.machinename" "data.machinename"
        "details.hostname" "properties.hostname" "properties.host" "properties.computername"
        "ownermachinename" "dhost";
    HostIdentifier = "hostidentifier" "hostid" "decorations.hostname";
    Logsource = "logsource" "reporter" "sysloghost" "sysloghostname" "sourcehost" "relay" "server"
        "servername" "server.name" "instance" "nodename" "node" "node.name" "appliance"
        "appliancename" "gateway" "firewallname" "firewall" "fw" "sensorhost" "resourcename"
        "vmname" "vhost";
    LabelHost = "resource.labels.instancename" "resource.labels.instanceid"
        "resource.labels.nodename" "resource.labels.clustername" "kubernetes.host"
        "kubernetes.nodename" "agent.hostname" "beat.hostname" "beat.name" "agent.name"
        "observer.hostname" "tags.host" "labels.host" "labels.hostname" "instanceid";
    NodeName = "@nodename";
    SystemName = "@systemname";
    // Types.
    Type = "type";
    Kind = "kind";
    EventKind = "event.kind";
    EventType = "eventtype" "event.type" "event.eventtype" "event.simplename" "eventsimplename"
        "event.eventsimplename" "metadata.eventtype";
    EventName = "eventname" "event.name" "detail.eventname";
    EventAction = "event.action" "eventaction";
    AtType = "@type";
    Operation = "operation" "operationname" "operationname.value" "properties.operationname"
        "protopayload.methodname" "activitydisplayname" "properties.activitydisplayname";
    Verb = "verb";
    Action = "action" "activity" "activityname" "activitytype";
    Category = "category" "logtype" "log.type" "eventcategory" "subtype" "recordtype"
        "messagetype" "alerttype" "threattype" "classification" "sourcetype" "event.category"
        "event.dataset" "eventclass" "dataset";
    Name = "name" "title" "rulename" "alertname" "signature" "threatname" "policyname";
    SyslogIdentifier = "syslogidentifier";
    RawXml = "properties.rawxml";
    EventCode = "properties.eventid" "eventcode" "event.code" "winlog.eventid" "system.eventid" "system.eventid.#text"
        "system.eventid.value" "event.system.eventid" "event.system.eventid.#text"
        "event.system.eventid.@text" "eventid.value" "eventid.#text" "eventid.id";
    Channel = "properties.channel" "channel" "winlog.channel" "system.channel" "event.system.channel" "logchannel";
    ClassName = "classname";
    ClassUid = "classuid";
    TypeName = "typename";
    TypeUid = "typeuid";
    Path = "@path";
    // Addresses.
    Client = "client.ip" "client.ipaddress" "client.address";
    ClientIp = "clientip" "clientipaddress" "clientaddress" "clientaddr" "cip" "client"
        "actoripaddress" "actorip" "actor.ip" "userip" "useripaddress" "remoteuserip";
    CallerIp = "callerip" "calleripaddress" "protopayload.requestmetadata.callerip"
        "properties.ipaddress" "httprequest.remoteip" "accessdevice.ip" "access.device.ip";
    DestinationIp = "destination.ip" "destinationip" "destinationaddress" "destinationipaddress"
        "destination.address" "dstaddr" "dstipaddr" "destipaddress" "serverip" "serveripaddress"
        "server.ip";
    DeviceIp = "device.ip" "dvc.ip" "deviceip" "deviceaddress" "dvc" "deviceipaddress";
    DstEndpointIp = "dstendpoint.ip";
    DstIp = "dstip" "destip" "dst" "dip" "destaddr" "destipaddress" "dstipaddress";
    HostIp = "host.ip" "hostip" "hostipaddress" "localip" "localipaddress" "localaddress"
        "endpointip" "endpoint.ip" "agentip" "agent.ip" "computerip" "machineip" "internalip"
        "privateip";
    IdOrigHost = "id.origh";
    IdRespHost = "id.resph";
    Ip = "ip" "ipaddress" "ipaddr" "ipv4" "address" "winlog.eventdata.ipaddress"
        "eventdata.ipaddress" "event.eventdata.ipaddress" "addr";
    RemoteAddress = "remoteaddr" "remoteaddress" "remotehost";
    RemoteIp = "remoteip" "remoteipaddress" "externalip" "publicip" "sourceipexternal";
    Source = "source.ip" "source.address" "source";
    SourceIp = "sourceip" "sourceipv4" "sourceaddress" "sourceaddr" "srcipaddr" "srcaddr"
        "srcaddress" "srcipaddress" "sip" "srcipv4";
    SourceIpAddress = "sourceipaddress" "sourceips";
    Src = "src";
    SrcEndpointIp = "srcendpoint.ip";
    SrcHost = "srcendpoint.hostname";
    SrcIp = "srcip";
    // Severities.
    AlertSeverity = "alert.severity";
    Level = "level" "winlog.level" "loglevel" "levelname" "severitylevel" "system.level"
        "event.system.level" "@l" "lvl";
    MongoSeverity = "s";
    RuleLevel = "rule.level";
    SchemaVersion = "schemaversion" "detail.schemaversion";
    LogLevel = "log.level";
    Priority = "priority";
    Severity = "severity" "severitytext" "alertseverity" "threatseverity" "severityname"
        "risklevel" "event.severity" "detail.severity";
    SeverityId = "severityid";
    // What collected it.
    Agent = "agent" "agent.type" "beat";
    EventSource = "eventsource" "detail.eventsource" "sourcename" "providername" "provider"
        "winlog.providername" "system.provider.name" "system.provider.@name"
        "system.provider.#attributes.name" "event.system.provider.name"
        "event.system.provider.@name" "event.system.provider.#attributes.name" "workload"
        "protopayload.servicename" "eventprovider";
    Logger = "logger" "loggername" "logname";
    LogLogger = "log.logger";
    ObserverName = "observer.name";
    ObserverProduct = "observer.product";
    ObserverVendor = "observer.vendor";
    Proc = "proc";
    Product = "product" "productname" "deviceproduct";
    ProductName = "metadata.product.name";
    ProductVendor = "metadata.product.vendorname";
    Program = "program" "appname" "application" "service";
    Sensor = "sensor" "sensorid";
    SensorName = "sensorname";
    Vendor = "vendor" "vendorname" "devicevendor";
    // Ids, what a record holds, and what shows its format.
    EventId = "eventid" "event.id";
    FlowId = "flowid";
    Id = "id";
    IdUnderscore = "@id";
    MetadataUid = "metadata.uid";
    MetadataVersion = "metadata.version";
    Stats = "stats";
    Uid = "uid";
    Version = "version";
    ShortMessage = "shortmessage";
    Message = "message" "msg" "log" "raw" "event.original" "textpayload" "@message" "rawmessage"
        "rawlog" "rawevent" "originalmessage" "logmessage" "event.message" "rawdata" "original"
        "eventoriginal" "line" "event" "data" "body";
    Records = "records";
    Items = "items";
    Value = "value";
    LogEvents = "logevents";
    ResourceLogs = "resourcelogs";
    ResourceSpans = "resourcespans" "resourcemetrics";
    Streams = "streams";
}

/// An object whose keys are used: its number in the table. The record itself is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(u8);

impl Group {
    pub(super) const RECORD: Self = Self(0);
}

/// What is done with a key's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Want {
    /// A value that is not an object of a used group is kept.
    pub(super) slot: Option<Slot>,
    /// The keys of an object are used.
    pub(super) group: Option<Group>,
}

/// Returns what is done with the value of `key` in an object of `group`.
pub(super) fn want(group: Group, key: &str) -> Want {
    let key = key.as_bytes();
    if key.first() == Some(&b'_') {
        // Zeek and Elastic distinguish these from the names without the underscore.
        match key {
            b"_path" => return TABLE.find(group, b"@path"),
            b"_id" => return TABLE.find(group, b"@id"),
            b"_system_name" => return TABLE.find(group, b"@systemname"),
            b"_node_name" => return TABLE.find(group, b"@nodename"),
            _ => {}
        }
    }
    let table = &*TABLE;
    if key.len() > KEY_SIZE_MAX || !table.may_have(group, key) {
        return Want::default();
    }
    table.find(group, key)
}

/// Each byte in lower case; 0 for those that do not count.
const FOLD: [u8; 256] = {
    let mut fold = [0; 256];
    let mut byte = 0u8;
    loop {
        fold[byte as usize] = match byte {
            b'_' | b'-' | b' ' => 0,
            byte => byte.to_ascii_lowercase(),
        };
        if byte == 255 {
            break fold;
        }
        byte += 1;
    }
};

/// The bytes of a key that count.
fn folded(key: &[u8]) -> impl Iterator<Item = u8> {
    key.iter().map(|byte| FOLD[usize::from(*byte)]).filter(|byte| *byte != 0)
}

/// Whether the bytes of a key that count are these.
fn is_folded(key: &[u8], known: &[u8]) -> bool {
    let mut rest = known;
    for byte in key {
        let byte = FOLD[usize::from(*byte)];
        if byte != 0 {
            match rest.split_first() {
                Some((first, after)) if *first == byte => rest = after,
                _ => return false,
            }
        }
    }
    rest.is_empty()
}

/// A hash of a key's bytes that count (Bernstein's, with a multiplication at the end).
fn hash(group: Group, key: &[u8]) -> u32 {
    let mut sum = 5381 + u64::from(group.0);
    for byte in key {
        let byte = FOLD[usize::from(*byte)];
        if byte != 0 {
            sum = (sum << 5).wrapping_add(sum).wrapping_add(u64::from(byte));
        }
    }
    let mixed = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    u32::try_from(mixed).unwrap_or_default()
}

struct Entry {
    group: Group,
    key: Box<[u8]>,
    want: Want,
}

/// A bucket of the hash table.
#[derive(Clone, Copy, Default)]
struct Bucket {
    hash: u32,
    /// The index of an entry plus 1; 0: the bucket is free.
    entry: u16,
}

/// Keys by hash, with open addressing.
struct Table {
    buckets: Box<[Bucket]>,
    entries: Vec<Entry>,
    /// The path of each group.
    groups: Vec<String>,
    /// For each group and the low bits of a key's first byte, the low bits of last bytes. Most
    /// unknown keys are rejected by it, without a look at their other bytes.
    ends: Vec<[u32; 32]>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

impl Table {
    fn new() -> Self {
        let mut table = Self {
            buckets: vec![Bucket::default(); BUCKETS].into(),
            entries: Vec::new(),
            groups: vec![String::new()],
            ends: vec![[0; 32]],
        };
        for (path, slot) in PATHS {
            let parts: Vec<&str> = path.split('.').collect();
            for from in 0..parts.len() {
                let group = table.group(&parts[..from].join("."));
                for to in from + 1..=parts.len() {
                    let want = if to == parts.len() {
                        Want { slot: Some(*slot), group: None }
                    } else {
                        Want { slot: None, group: Some(table.group(&parts[..to].join("."))) }
                    };
                    table.insert(group, &parts[from..to].join("."), want);
                }
            }
        }
        table
    }

    fn group(&mut self, path: &str) -> Group {
        let known = self.groups.iter().position(|known| known == path);
        let index = known.unwrap_or_else(|| {
            self.groups.push(path.to_owned());
            self.ends.push([0; 32]);
            self.groups.len() - 1
        });
        debug_assert!(index < 256, "a group is one byte");
        Group(u8::try_from(index).unwrap_or_default())
    }

    fn insert(&mut self, group: Group, key: &str, want: Want) {
        match self.search(group, key.as_bytes()) {
            Ok(index) => {
                let entry = &mut self.entries[index];
                entry.want.slot = entry.want.slot.or(want.slot);
                entry.want.group = entry.want.group.or(want.group);
            }
            Err(free) => {
                let key_ends = (key.as_bytes().first(), key.as_bytes().last());
                if let (Some(first), Some(last)) = key_ends {
                    let ends = &mut self.ends[usize::from(group.0)];
                    ends[usize::from(*first & 31)] |= 1 << (*last & 31);
                }
                self.entries.push(Entry { group, key: folded(key.as_bytes()).collect(), want });
                let entry = u16::try_from(self.entries.len()).unwrap_or_default();
                self.buckets[free] = Bucket { hash: hash(group, key.as_bytes()), entry };
            }
        }
    }

    /// Whether a known key has the first and last bytes of this one. Those that do not count are
    /// skipped by a closer look.
    fn may_have(&self, group: Group, key: &[u8]) -> bool {
        let (Some(first), Some(last)) = (key.first(), key.last()) else { return false };
        let ends = &self.ends[usize::from(group.0)];
        let known = ends[usize::from(*first & 31)] >> (*last & 31) & 1 == 1;
        known || FOLD[usize::from(*first)] == 0 || FOLD[usize::from(*last)] == 0
    }

    /// The index of a key's entry, or the free bucket where it belongs. The table is never full.
    fn search(&self, group: Group, key: &[u8]) -> Result<usize, usize> {
        let hash = hash(group, key);
        let mut bucket = hash as usize % BUCKETS;
        loop {
            let found = self.buckets[bucket];
            let Some(index) = usize::from(found.entry).checked_sub(1) else { return Err(bucket) };
            if found.hash == hash {
                let entry = &self.entries[index];
                if entry.group == group && is_folded(key, &entry.key) {
                    return Ok(index);
                }
            }
            bucket = (bucket + 1) % BUCKETS;
        }
    }

    fn find(&self, group: Group, key: &[u8]) -> Want {
        self.search(group, key).map_or(Want::default(), |index| self.entries[index].want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_nested_dotted_and_in_any_case() {
        for (path, _) in PATHS {
            let parts: Vec<&str> = path.split('.').collect();
            let dotted = want(Group::RECORD, &path.to_uppercase());
            assert!(dotted.slot.is_some(), "{path}");
            let mut group = Group::RECORD;
            for (index, part) in parts.iter().enumerate() {
                let found = want(group, part);
                if index + 1 == parts.len() {
                    assert_eq!(found.slot, dotted.slot, "{path}");
                } else {
                    group = found.group.unwrap_or_else(|| panic!("{path} at {part}"));
                }
            }
        }
        assert!(SLOTS < 255 && TABLE.groups.len() < 255 && TABLE.entries.len() < BUCKETS / 2);
    }

    #[test]
    fn names_are_one_key_in_all_customary_spellings() {
        for key in
            ["EventTime", "eventTime", "event_time", "EVENT_TIME", "event-time", "Event Time"]
        {
            assert_eq!(want(Group::RECORD, key).slot, Some(Slot::EventTime), "{key}");
        }
        assert_eq!(want(Group::RECORD, "__REALTIME_TIMESTAMP").slot, Some(Slot::Realtime));
        assert_eq!(want(Group::RECORD, "_path").slot, Some(Slot::Path));
        for key in ["", "_", "path", "duration", &"k".repeat(1_000_000)] {
            assert_eq!(want(Group::RECORD, key), Want::default(), "{key:.20}");
        }
    }
}
