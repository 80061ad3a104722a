//! Envelopes: one JSON object that holds a list of events, each of which becomes one.
//!
//! `Records` (CloudTrail, S3), `records` (Azure), `items` of a Kubernetes list, `value` (Microsoft
//! Graph), `logEvents` (CloudWatch), `streams` (Loki's push) and `resourceLogs` (OTLP). What the
//! envelope says about all of them becomes attributes of each. Traces and metrics are refused.
//!
//! Invariant: each element of the list is passed on, as an event or as a reject with its place. One
//! that is not valid affects no other.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Fields, Slot, plain};
use crate::event::{Draft, Value};
use crate::input::text::{address, fitting};
use crate::input::time::{self, When};
use crate::input::{Reject, severity};

/// Maximum number of attributes from an envelope, and of bytes of one.
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTE_SIZE_MAX: usize = 4096;

type Attributes = Vec<(Cow<'static, str>, Value<'static>)>;

/// A list of events in an envelope.
pub(in crate::input) struct Wrapped<'a> {
    form: Form,
    list: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Objects that are events.
    Objects,
    /// CloudWatch: objects with an id, a time and a message.
    LogEvents,
    Loki,
    Otlp,
}

/// Where an element is in its envelope; all count from 1.
#[derive(Debug, Clone, Copy)]
pub(in crate::input) enum Place {
    /// Of a list.
    Element(usize),
    /// Of Loki: a stream, and a value of it.
    Stream(usize),
    Value(usize, usize),
    /// Of OTLP: a resource, a scope of it, and a record of that.
    Resource(usize),
    Scope(usize, usize),
    Record(usize, usize, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(number) => write!(formatter, "element {number}"),
            Self::Stream(stream) => write!(formatter, "stream {stream}"),
            Self::Value(stream, value) => write!(formatter, "value {value} of stream {stream}"),
            Self::Resource(resource) => write!(formatter, "resource {resource}"),
            Self::Scope(resource, scope) => {
                write!(formatter, "scope {scope} of resource {resource}")
            }
            Self::Record(resource, scope, record) => {
                write!(formatter, "record {record} of scope {scope} of resource {resource}")
            }
        }
    }
}

/// Takes the elements of an envelope.
type Take<'t, 'a> = &'t mut dyn FnMut(Result<Element<'a>, Reject>);

/// One event of an envelope.
pub(in crate::input) struct Element<'a> {
    /// The bytes of the event.
    pub(in crate::input) raw: Cow<'a, [u8]>,
    /// Its time, where the envelope has it.
    pub(in crate::input) when: Option<When>,
    /// What the envelope says about it. The type, host, address, collector and severity count
    /// where the event itself says nothing; the raw bytes are not used.
    pub(in crate::input) known: Draft<'static>,
    /// Whether `known` is all: the raw bytes are not to be parsed.
    pub(in crate::input) complete: bool,
    /// Whether it must be a JSON object.
    pub(in crate::input) object: bool,
    /// Where it is.
    pub(in crate::input) place: Place,
}

impl<'a> Fields<'a> {
    /// Returns the list of events that the record holds, if it is an envelope.
    pub(super) fn wrapped(&self) -> Result<Option<Wrapped<'a>>, Reject> {
        if self.has(Slot::ResourceSpans) && self.list(Slot::ResourceSpans).is_some() {
            let text = "traces and metrics of OTLP are not events; only resourceLogs is accepted";
            return Err(Reject::new(text));
        }
        let of = |form, slot| self.list(slot).map(|list| (form, list));
        let list_kind = self.text(Slot::Kind).is_some_and(|kind| kind.ends_with("List"));
        let timed = || self.any_time().is_some();
        let found = of(Form::Otlp, Slot::ResourceLogs)
            .or_else(|| of(Form::Loki, Slot::Streams).filter(|_| !timed()))
            .or_else(|| of(Form::LogEvents, Slot::LogEvents))
            .or_else(|| of(Form::Objects, Slot::Records).filter(|_| !timed()))
            .or_else(|| of(Form::Objects, Slot::Items).filter(|_| list_kind))
            .or_else(|| of(Form::Objects, Slot::Value).filter(|_| !timed()));
        let Some((form, list)) = found else { return Ok(None) };
        Ok(Some(Wrapped { form, list }))
    }

    /// A list that begins with an object, or an empty one of a key that only envelopes have.
    fn list(&self, slot: Slot) -> Option<&'a str> {
        let list = self.json(slot)?;
        let inside = list.strip_prefix('[')?.trim_ascii_start();
        let empty = inside == "]" && !matches!(slot, Slot::Value | Slot::Items | Slot::Streams);
        (inside.starts_with('{') || empty).then_some(list)
    }
}

impl<'a> Wrapped<'a> {
    /// Passes each event to `take`, and what is none as a reject.
    ///
    /// # Errors
    /// The envelope has no list: nothing was passed on.
    pub(in crate::input) fn each(self, record: &'a [u8], take: Take<'_, 'a>) -> Result<(), Reject> {
        let list = read::<Vec<&'a RawValue>>(self.list, "list")?;
        if self.form == Form::Otlp {
            for (number, raw) in (1..).zip(list) {
                resource(number, raw, take);
            }
            return Ok(());
        }
        let shared = match self.form {
            Form::LogEvents => cloudwatch_attributes(record),
            _ => Vec::new(),
        };
        for (number, raw) in (1..).zip(list) {
            let place = Place::Element(number);
            match self.form {
                Form::Loki => stream(number, raw, take),
                Form::LogEvents => take(log_event(place, raw, &shared).map_err(at(place, raw))),
                _ => {
                    let raw = raw.get().as_bytes().into();
                    let element = Element::plain(place, raw, Draft::default());
                    take(Ok(Element { object: true, ..element }));
                }
            }
        }
        Ok(())
    }
}

impl<'a> Element<'a> {
    fn plain(place: Place, raw: Cow<'a, [u8]>, known: Draft<'static>) -> Self {
        Self { raw, when: None, known, complete: false, object: false, place }
    }
}

/// Adds the place and the bytes to a reject.
fn at(place: Place, raw: &RawValue) -> impl FnOnce(Reject) -> Reject {
    move |reject| reject.of_element(place, raw.get().as_bytes())
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, what: &str) -> Result<T, Reject> {
    serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        let reason = text.split(" at line ").next().unwrap_or_default();
        Reject::new(format!("not a valid {what}: {reason}"))
    })
}

/// Reads an object: a structure would be read from an array, too.
fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue, what: &str) -> Result<T, Reject> {
    if !raw.get().starts_with('{') {
        return Err(Reject::new(format!("not a valid {what}: it is not an object")));
    }
    read(raw.get(), what)
}

/// Adds an attribute, if it fits.
fn add(to: &mut Attributes, key: &str, value: Value<'static>) {
    let size = match &value {
        Value::Text(text) => text.len(),
        _ => 0,
    };
    if to.len() < ATTRIBUTES_MAX
        && !key.is_empty()
        && key.len() <= 255
        && size <= ATTRIBUTE_SIZE_MAX
    {
        to.push((Cow::Owned(key.to_owned()), value));
    }
}

fn text(value: &str) -> Value<'static> {
    Value::Text(Cow::Owned(value.to_owned()))
}

#[derive(Deserialize)]
struct LogEvent<'a> {
    #[serde(default, borrow)]
    timestamp: Option<&'a RawValue>,
    message: String,
}

fn cloudwatch_attributes(record: &[u8]) -> Attributes {
    let mut attributes = Vec::new();
    for key in ["logGroup", "logStream", "owner"] {
        if let Some(value) = super::value_at(record, key).and_then(plain) {
            add(&mut attributes, key, text(&value));
        }
    }
    attributes
}

fn log_event<'a>(
    place: Place,
    raw: &'a RawValue,
    shared: &Attributes,
) -> Result<Element<'a>, Reject> {
    let event: LogEvent<'a> = object(raw, "event of CloudWatch")?;
    let known = Draft { attributes: shared.clone(), ..Draft::default() };
    let when = event.timestamp.and_then(|value| time::text(&plain(value.get())?, None));
    Ok(Element { when, ..Element::plain(place, event.message.into_bytes().into(), known) })
}

#[derive(Deserialize)]
struct LokiStream<'a> {
    #[serde(default, borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    values: Vec<&'a RawValue>,
}

type Labels = BTreeMap<String, String>;

fn stream<'a>(number: usize, raw: &'a RawValue, take: Take<'_, 'a>) {
    let LokiStream { stream, values } = match object(raw, "Loki stream") {
        Ok(stream) => stream,
        Err(reject) => return take(Err(at(Place::Stream(number), raw)(reject))),
    };
    let labels = stream.map_or(Ok(Labels::new()), |labels| read(labels.get(), "set of labels"));
    for (value, raw) in (1..).zip(values) {
        let place = Place::Value(number, value);
        let found = labels.as_ref().map_err(Clone::clone);
        take(found.and_then(|labels| loki(place, raw, labels)).map_err(at(place, raw)));
    }
}

fn loki<'a>(place: Place, raw: &'a RawValue, labels: &Labels) -> Result<Element<'a>, Reject> {
    let value: Vec<&'a RawValue> = read(raw.get(), "value of Loki")?;
    let [when, line, more @ ..] = value.as_slice() else {
        return Err(Reject::new("not a valid value of Loki: it is not [time, line]"));
    };
    let Ok(line) = serde_json::from_str::<String>(line.get()) else {
        return Err(Reject::new("not a valid value of Loki: its line is not a text"));
    };
    let mut attributes = Vec::new();
    for (key, value) in labels {
        add(&mut attributes, key, text(value));
    }
    if let Some(more) = more.first() {
        for (key, value) in &read::<Labels>(more.get(), "set of labels")? {
            add(&mut attributes, key, text(value));
        }
    }
    let label = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| labels.get(*key));
        fitting(Cow::Owned(found.cloned().unwrap_or_default()))
    };
    let level = ["level", "detected_level", "severity"];
    let known = Draft {
        host: label(&["host", "hostname", "node_name", "node", "instance"]),
        kind: label(&["job", "service_name", "app"]),
        severity: severity::word(&label(&level)).unwrap_or_default(),
        attributes,
        ..Draft::default()
    };
    let when = plain(when.get()).and_then(|text| time::text(&text, None));
    Ok(Element { when, ..Element::plain(place, line.into_bytes().into(), known) })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceLogs<'a> {
    #[serde(default, borrow)]
    resource: Option<&'a RawValue>,
    #[serde(default, borrow, alias = "instrumentationLibraryLogs", alias = "scope_logs")]
    scope_logs: Vec<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Resource {
    #[serde(default)]
    attributes: Vec<KeyValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScopeLogs<'a> {
    #[serde(default, borrow)]
    scope: Option<&'a RawValue>,
    #[serde(default, borrow, alias = "log_records", alias = "logs")]
    log_records: Vec<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Scope {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogRecord {
    #[serde(default, alias = "time_unix_nano")]
    time_unix_nano: serde_json::Value,
    #[serde(default, alias = "observed_time_unix_nano")]
    observed_time_unix_nano: serde_json::Value,
    #[serde(default, alias = "severity_number")]
    severity_number: serde_json::Value,
    #[serde(default, alias = "severity_text")]
    severity_text: String,
    #[serde(default, alias = "event_name")]
    event_name: String,
    #[serde(default)]
    attributes: Vec<KeyValue>,
}

fn resource<'a>(number: usize, raw: &'a RawValue, take: Take<'_, 'a>) {
    let ResourceLogs { resource, scope_logs } = match object(raw, "resource of OTLP") {
        Ok(logs) => logs,
        Err(reject) => return take(Err(at(Place::Resource(number), raw)(reject))),
    };
    let attributes = resource_attributes(resource);
    for (scope, raw) in (1..).zip(scope_logs) {
        let logs: ScopeLogs<'a> = match object(raw, "scope of OTLP") {
            Ok(logs) => logs,
            Err(reject) => {
                take(Err(at(Place::Scope(number, scope), raw)(reject)));
                continue;
            }
        };
        let attributes = attributes.clone().and_then(|mut attributes| {
            let named = logs.scope.map_or(Ok(Scope::default()), |scope| {
                object::<Scope>(scope, "description of a scope")
            })?;
            if !named.name.is_empty() {
                add(&mut attributes, "scope.name", text(&named.name));
            }
            Ok(attributes)
        });
        for (record, raw) in (1..).zip(logs.log_records) {
            let place = Place::Record(number, scope, record);
            let element = attributes.clone().and_then(|attributes| {
                let record: LogRecord = object(raw, "OTLP log record")?;
                Ok(otlp_record(place, raw.get(), &record, attributes))
            });
            take(element.map_err(at(place, raw)));
        }
    }
}

fn resource_attributes(resource: Option<&RawValue>) -> Result<Attributes, Reject> {
    let mut attributes = Vec::new();
    if let Some(resource) = resource {
        let found: Resource = object(resource, "description of a resource")?;
        for KeyValue { key, value } in &found.attributes {
            if let Some(value) = any_value(value) {
                add(&mut attributes, key, value);
            }
        }
    }
    Ok(attributes)
}

fn otlp_record<'a>(
    place: Place,
    raw: &'a str,
    record: &LogRecord,
    attributes: Attributes,
) -> Element<'a> {
    let number = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let when = |value| number(value).and_then(|text| time::text(&text, None));
    let own = |key: &str| {
        let found = record.attributes.iter().find(|attribute| attribute.key == key)?;
        any_value(&found.value).and_then(as_text)
    };
    let known = |key: &str| {
        let found = attributes.iter().find(|(known, _)| known == key)?;
        as_text(found.1.clone())
    };
    let field = |text: Option<String>| fitting(Cow::Owned(text.unwrap_or_default()));
    let named = Some(record.event_name.clone()).filter(|name| !name.is_empty());
    let severity = number(&record.severity_number).and_then(|code| code.parse().ok());
    let severity = severity.map(severity::telemetry).unwrap_or_default();
    let draft = Draft {
        kind: field(named.or_else(|| own("event.name"))),
        host: field(
            known("host.name").or_else(|| own("host.name")).or_else(|| known("k8s.pod.name")),
        ),
        ip: ["client.address", "source.address", "network.peer.address"]
            .iter()
            .find_map(|key| address(&own(key)?)),
        collector: field(known("service.name")),
        severity: match severity {
            crate::Severity::Unknown => severity::word(&record.severity_text).unwrap_or_default(),
            severity => severity,
        },
        format: Cow::Borrowed("otlp"),
        attributes,
        ..Draft::default()
    };
    let when = when(&record.time_unix_nano).or_else(|| when(&record.observed_time_unix_nano));
    Element { when, complete: true, ..Element::plain(place, raw.as_bytes().into(), draft) }
}

fn as_text(value: Value<'static>) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.into_owned()),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A value of OTLP: an object with one member that names the type.
fn any_value(value: &serde_json::Value) -> Option<Value<'static>> {
    let (kind, value) = value.as_object()?.iter().next()?;
    match (kind.as_str(), value) {
        ("stringValue" | "string_value", serde_json::Value::String(value)) => Some(text(value)),
        ("boolValue" | "bool_value", serde_json::Value::Bool(value)) => {
            Some(Value::Boolean(*value))
        }
        ("intValue" | "int_value", serde_json::Value::String(value)) => {
            value.parse().ok().map(Value::Integer)
        }
        ("intValue" | "int_value", value) => value.as_i64().map(Value::Integer),
        ("doubleValue" | "double_value", value) => value.as_f64().map(Value::Real),
        // Lists, maps and bytes as their JSON.
        (_, value) => Some(text(&value.to_string())),
    }
}
