//! What a request needs a key for: the scope, and the resource it names.
//!
//! Limited keys are checked here, in one place, by path and query alone. What a route reads or
//! changes must therefore be in its path or in the one parameter named here. If it is not (a
//! file by its id, a batch whose namespace is in its body alone), a limited key is refused. There are three
//! exceptions, whose routes compare: uploads, with the namespace that is in a header or in the upload's
//! record; copying, moving and deleting several files, with the namespaces in the body; and one job, with
//! the resource of the request that it carries out.

use std::borrow::Cow;

use http::header::IF_NONE_MATCH;
use http::{HeaderMap, Method, Uri};

use crate::keys::{Area, Denied, Grant, Scope};
use crate::query;
use crate::uploads;

/// The resource of a request.
#[derive(Debug, PartialEq, Eq)]
enum Subject<'a> {
    /// One named resource of an area.
    One(Area, Cow<'a, str>),
    /// Two named resources of an area.
    Both(Area, Cow<'a, str>, Cow<'a, str>),
    /// What every key for some resource of the area may read, such as a signed checkpoint. It has no
    /// content of any resource, at most hashes.
    Common(Area),
    /// Files and documents of a namespace: a batch.
    Batch(Cow<'a, str>),
    /// The collection of uploads: to begin one, or to ask what the server supports. Listing them shows
    /// those of every namespace.
    Uploads,
    /// One upload.
    Upload,
    /// Files that the body names.
    Named,
    /// One job.
    Job,
    /// Anything else.
    Everything,
}

/// Checks that `grant` permits a request.
///
/// # Errors
/// [`Denied::Scope`] or [`Denied::Limit`].
pub(super) fn check(
    grant: &Grant,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Denied> {
    if uri.path() == super::presign::PATH {
        // What is checked there is the request that is to be signed.
        return Ok(());
    }
    grant.allow(scope(method, uri.path(), headers))?;
    // It returns what the file has already, even if it changes nothing.
    let path = uri.path();
    if *method == Method::PATCH && path.starts_with("/v1/files/") || path == "/v1/files/change" {
        grant.allow(Scope::Read)?;
    }
    if !grant.is_limited() {
        return Ok(());
    }
    let permitted = match subject(method, uri) {
        Subject::Common(area) => *method == Method::GET && grant.reaches(area),
        Subject::Uploads => {
            matches!(*method, Method::POST | Method::OPTIONS) && grant.reaches(Area::Files)
        }
        Subject::Upload | Subject::Named => grant.reaches(Area::Files),
        Subject::Job => true,
        subject => names(grant, &subject),
    };
    if permitted { Ok(()) } else { Err(Denied::Limit) }
}

/// Whether `grant` permits what a request names in its path or query: that of a job.
pub(crate) fn permits_target(grant: &Grant, method: &Method, target: &Uri) -> bool {
    !grant.is_limited() || names(grant, &subject(method, target))
}

fn names(grant: &Grant, subject: &Subject<'_>) -> bool {
    match subject {
        Subject::One(area, name) => grant.permits(*area, name),
        Subject::Both(area, name, other) => {
            grant.permits(*area, name) && grant.permits(*area, other)
        }
        Subject::Batch(name) => {
            grant.permits(Area::Files, name) && grant.permits(Area::Documents, name)
        }
        _ => false,
    }
}

/// Returns the scope that a request needs.
fn scope(method: &Method, path: &str, headers: &HeaderMap) -> Scope {
    let admin = path.strip_prefix("/v1/admin").is_some_and(|r| r.is_empty() || r.starts_with('/'));
    let below = |area: &str| {
        path.strip_prefix("/v1/")
            .and_then(|path| path.strip_prefix(area))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match *method {
        _ if admin => Scope::Admin,
        // They make the server send what it stores to any address, and their secrets sign.
        _ if below("webhooks") => Scope::Admin,
        // It makes the server transfer all bytes of files.
        _ if below("blobs") && *method == Method::POST => Scope::Admin,
        _ if below("uploads") && *method != Method::GET => of_upload(method, path, headers),
        Method::GET | Method::HEAD | Method::OPTIONS => Scope::Read,
        // What is deeper than a namespace changes what is stored.
        Method::POST if below("events") || is_namespace(path) => Scope::Append,
        // A new name only: an existing file stays unchanged.
        Method::PUT if below("files") => match headers.get(IF_NONE_MATCH) {
            Some(value) if value.as_bytes() == b"*" => Scope::Append,
            _ => Scope::Write,
        },
        _ => Scope::Write,
    }
}

/// Returns the scope of a request that begins, continues or ends an upload. Its id proves that the client
/// may continue it.
fn of_upload(method: &Method, path: &str, headers: &HeaderMap) -> Scope {
    let is_new_only = headers.get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == b"*");
    let is_one = path.strip_prefix("/v1/uploads/").is_some_and(|id| !id.is_empty());
    let method = match *method {
        Method::POST if is_one => uploads::overriding(headers).unwrap_or(Method::POST),
        _ => method.clone(),
    };
    match method {
        Method::HEAD | Method::OPTIONS => Scope::Append,
        Method::PATCH if is_one => Scope::Append,
        Method::POST if !is_one && is_new_only => Scope::Append,
        _ => Scope::Write,
    }
}

/// Whether a path is that of documents or of one namespace of them.
fn is_namespace(path: &str) -> bool {
    let below = path.strip_prefix("/v1/documents");
    below.is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('/').is_some_and(|name| !name.contains('/'))
    })
}

/// Returns the resource of a request.
fn subject<'a>(method: &Method, uri: &'a Uri) -> Subject<'a> {
    let mut segments = uri.path().split('/').skip(2);
    let area = segments.next().unwrap_or_default();
    let (name, more) = (segments.next(), segments.next());
    let one = |area, name: &'_ str| match percent_encoding::percent_decode_str(name).decode_utf8() {
        Ok(name) => Subject::One(area, Cow::Owned(name.into_owned())),
        Err(_) => Subject::Everything,
    };
    match (area, name, more) {
        ("files", None | Some("search" | "statistics" | "duplicates"), None) => {
            by_parameter(uri, Area::Files, "namespace")
        }
        ("files", Some("copy" | "move" | "delete" | "change"), None) if *method == Method::POST => {
            Subject::Named
        }
        ("files", Some(namespace), Some(_)) => one(Area::Files, namespace),
        // The body may name no other namespace than the query.
        ("ingest", None | Some("async"), None) if *method == Method::POST => {
            match by_parameter(uri, Area::Files, "namespace") {
                Subject::One(_, name) => Subject::Batch(name),
                _ => Subject::Everything,
            }
        }
        ("namespaces", Some(namespace), None) => one(Area::Files, namespace),
        ("uploads", None, None) => Subject::Uploads,
        ("uploads", Some(_), None) => Subject::Upload,
        // Removing a job and queueing it again need an unlimited key.
        ("jobs", Some(id), more) if !matches!(id, "" | "page" | "stats") => {
            match (method.as_str(), more) {
                ("GET" | "HEAD", None | Some("events")) | ("POST", Some("cancel")) => Subject::Job,
                _ => Subject::Everything,
            }
        }
        ("documents", Some(namespace), _) => one(Area::Documents, namespace),
        ("events", Some("checkpoint" | "key" | "proof"), _)
        | ("events", Some("tlog"), Some("checkpoint")) => Subject::Common(Area::Events),
        // Tiles of a level have hashes. Those of entries have the events of every stream.
        ("events", Some("tlog"), Some("tile"))
            if segments.next().is_some_and(|level| level.parse::<u8>().is_ok()) =>
        {
            Subject::Common(Area::Events)
        }
        ("events", Some("tlog"), _) => Subject::Everything,
        ("events", None, None) => by_parameter(uri, Area::Events, "stream"),
        // The format of an append. A request for one event by id has no stream in its path.
        ("events", Some(_), None) => by_parameter(uri, Area::Events, "stream"),
        ("inventories", Some(name), Some("diff")) => {
            match (one(Area::Inventories, name), by_parameter(uri, Area::Inventories, "old")) {
                (Subject::One(area, name), Subject::One(_, old)) => Subject::Both(area, name, old),
                _ => Subject::Everything,
            }
        }
        // What it is built from is in the body: files of any namespace, or of the machine.
        ("inventories", Some(_), None) if *method == Method::POST => Subject::Everything,
        ("inventories", Some(name), _) if name != "page" => one(Area::Inventories, name),
        ("pipelines", Some(name), _) if name != "page" => one(Area::Pipelines, name),
        _ => Subject::Everything,
    }
}

/// Returns the resource that a parameter names; everything unless it names exactly one, in UTF-8.
fn by_parameter(uri: &Uri, area: Area, parameter: &'static str) -> Subject<'static> {
    let mut named = query::values(uri.query().unwrap_or_default(), parameter);
    match (named.next().map(String::from_utf8), named.next()) {
        (Some(Ok(name)), None) => Subject::One(area, Cow::Owned(name)),
        _ => Subject::Everything,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn each_method_needs_its_scope_and_admin_routes_admin() {
        let none = HeaderMap::new();
        let new = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
        let over = |method| {
            let name = http::HeaderName::from_static("x-http-method-override");
            HeaderMap::from_iter([(name, HeaderValue::from_static(method))])
        };
        let (patch, delete) = (over("PATCH"), over("DELETE"));
        for (method, path, headers, needed) in [
            (Method::GET, "/v1/files", &none, Scope::Read),
            (Method::HEAD, "/v1/files", &none, Scope::Read),
            (Method::DELETE, "/v1/files/x/y", &none, Scope::Write),
            (Method::PUT, "/v1/files/x/y", &none, Scope::Write),
            (Method::PUT, "/v1/files/x/y", &new, Scope::Append),
            (Method::PUT, "/v1/filesystem/x", &new, Scope::Write),
            (Method::POST, "/v1/events/zeek", &none, Scope::Append),
            (Method::POST, "/v1/documents/x", &none, Scope::Append),
            (Method::POST, "/v1/documents/schema", &none, Scope::Append),
            (Method::POST, "/v1/documents/x/schema", &none, Scope::Write),
            (Method::PUT, "/v1/documents/x/1", &new, Scope::Write),
            (Method::PATCH, "/v1/documents/x/1", &none, Scope::Write),
            (Method::DELETE, "/v1/documents/x", &none, Scope::Write),
            (Method::POST, "/v1/database/replay", &none, Scope::Write),
            (Method::POST, "/v1/ingest", &none, Scope::Write),
            (Method::POST, "/v1/files/copy", &none, Scope::Write),
            (Method::PATCH, "/v1/files/x/y", &none, Scope::Write),
            (Method::PUT, "/v1/namespaces/x", &new, Scope::Write),
            (Method::GET, "/v1/uploads", &none, Scope::Read),
            (Method::GET, "/v1/uploads/x", &none, Scope::Read),
            (Method::POST, "/v1/uploads", &none, Scope::Write),
            (Method::POST, "/v1/uploads", &new, Scope::Append),
            (Method::POST, "/v1/uploads/x", &new, Scope::Write),
            (Method::POST, "/v1/uploads/x", &patch, Scope::Append),
            (Method::POST, "/v1/uploads/x", &delete, Scope::Write),
            (Method::POST, "/v1/uploads", &patch, Scope::Write),
            (Method::PATCH, "/v1/uploads/x", &none, Scope::Append),
            (Method::PATCH, "/v1/uploads", &none, Scope::Write),
            (Method::HEAD, "/v1/uploads/x", &none, Scope::Append),
            (Method::OPTIONS, "/v1/uploads", &none, Scope::Append),
            (Method::DELETE, "/v1/uploads/x", &none, Scope::Write),
            (Method::DELETE, "/v1/uploadsx", &none, Scope::Write),
            (Method::from_bytes(b"BREW").unwrap(), "/v1/x", &none, Scope::Write),
            (Method::GET, "/v1/blobs", &none, Scope::Read),
            (Method::POST, "/v1/blobs/move", &none, Scope::Admin),
            (Method::GET, "/v1/admin/x", &none, Scope::Admin),
            (Method::GET, "/v1/administer", &none, Scope::Read),
            (Method::GET, "/v1/webhooks", &none, Scope::Admin),
            (Method::POST, "/v1/webhooks/x/ping", &none, Scope::Admin),
            (Method::GET, "/v1/webhooksx", &none, Scope::Read),
        ] {
            assert_eq!(scope(&method, path, headers), needed, "{method} {path}");
        }
    }

    /// Requests that read, and the resources that they name.
    const GETS: [(&str, &str); 63] = [
        ("/v1/files/in/a/b", "Files:in"),
        ("/v1/files/%69n/a", "Files:in"),
        ("/v1/files/in%2Fx/a", "Files:in/x"),
        ("/v1/files?namespace=in&limit=3", "Files:in"),
        ("/v1/files?namespace=in&namespace=out", "everything"),
        ("/v1/files?namespace=in&%6Eamespace=out", "everything"),
        ("/v1/files?namespace=in&namespace=%FF", "everything"),
        ("/v1/files?namespace=in%FF", "everything"),
        ("/v1/files/in%FF/a", "everything"),
        ("/v1/files?prefix=in", "everything"),
        ("/v1/files/01ABC", "everything"),
        ("/v1/files/search?q=x&namespace=in", "Files:in"),
        ("/v1/files/search?q=x", "everything"),
        ("/v1/files/search/x", "Files:search"),
        ("/v1/files/statistics?namespace=in", "Files:in"),
        ("/v1/files/statistics?prefix=in", "everything"),
        ("/v1/files/statistics?namespace=in&namespace=out", "everything"),
        ("/v1/files/statistics/x", "Files:statistics"),
        ("/v1/files/duplicates?namespace=in", "Files:in"),
        ("/v1/files/duplicates", "everything"),
        ("/v1/ingest", "everything"),
        ("/v1/namespaces/in", "Files:in"),
        ("/v1/namespaces", "everything"),
        ("/v1/uploads", "uploads"),
        ("/v1/uploads?namespace=in", "uploads"),
        ("/v1/uploads/0123", "upload"),
        ("/v1/uploads/0123/x", "everything"),
        ("/v1/files/copy", "everything"),
        ("/v1/jobs", "everything"),
        ("/v1/jobs/", "everything"),
        ("/v1/jobs/page", "everything"),
        ("/v1/jobs/stats", "everything"),
        ("/v1/jobs/0123", "job"),
        ("/v1/jobs/0123/events", "job"),
        ("/v1/jobs/0123/cancel", "everything"),
        ("/v1/jobs/0123/requeue", "everything"),
        ("/v1/documents/orders/7", "Documents:orders"),
        ("/v1/documents", "everything"),
        ("/v1/events?stream=a%20b", "Events:a b"),
        ("/v1/events?str%65am=a+b", "Events:a b"),
        ("/v1/events?stream", "Events:"),
        ("/v1/events?stream=%ff", "everything"),
        ("/v1/events?stream=a&stream=a", "everything"),
        ("/v1/events/zeek?stream=auth", "Events:auth"),
        ("/v1/events", "everything"),
        ("/v1/events/01ABC", "everything"),
        ("/v1/events/checkpoint", "Events"),
        ("/v1/events/proof/consistency?first=1&second=2", "Events"),
        ("/v1/events/tlog/checkpoint", "Events"),
        ("/v1/events/tlog/tile/0/x001/234.p/5", "Events"),
        ("/v1/events/tlog/tile/entries/000", "everything"),
        ("/v1/events/tlog/tile/%65ntries/000", "everything"),
        ("/v1/events/tlog/tile//entries/000", "everything"),
        ("/v1/events/tlog/tile", "everything"),
        ("/v1/events/tlog", "everything"),
        ("/v1/events/01ABC/proof", "everything"),
        ("/v1/inventories/daily", "Inventories:daily"),
        ("/v1/inventories/daily/top", "Inventories:daily"),
        ("/v1/inventories/daily/diff?old=other", "Inventories:daily, other"),
        ("/v1/inventories/daily/diff?old=a&old=daily", "everything"),
        ("/v1/inventories/daily/diff", "everything"),
        ("/v1/inventories/page", "everything"),
        ("/v1/pipelines/nightly/runs", "Pipelines:nightly"),
    ];

    #[test]
    fn the_resource_of_a_request_is_in_its_path_or_one_parameter() {
        let of = |method: &Method, target: &str| {
            let uri: Uri = target.parse().unwrap();
            match subject(method, &uri) {
                Subject::One(area, name) => format!("{area:?}:{name}"),
                Subject::Both(area, name, other) => format!("{area:?}:{name}, {other}"),
                Subject::Batch(name) => format!("batch:{name}"),
                Subject::Common(area) => format!("{area:?}"),
                Subject::Uploads => "uploads".to_owned(),
                Subject::Upload => "upload".to_owned(),
                Subject::Named => "named".to_owned(),
                Subject::Job => "job".to_owned(),
                Subject::Everything => "everything".to_owned(),
            }
        };
        for (target, about) in GETS {
            assert_eq!(of(&Method::GET, target), about, "{target}");
        }
        assert_eq!(of(&Method::POST, "/v1/inventories/daily"), "everything");
        assert_eq!(of(&Method::POST, "/v1/jobs/0123/cancel"), "job");
        assert_eq!(of(&Method::POST, "/v1/jobs/0123"), "everything");
        assert_eq!(of(&Method::DELETE, "/v1/jobs/0123"), "everything");
        assert_eq!(of(&Method::POST, "/v1/files/copy"), "named");
        for (target, about) in [
            ("/v1/ingest?namespace=in", "batch:in"),
            ("/v1/ingest/async?priority=low&namespace=in", "batch:in"),
            ("/v1/ingest", "everything"),
            ("/v1/ingest?namespace=in&namespace=in", "everything"),
            ("/v1/ingest/x?namespace=in", "everything"),
        ] {
            assert_eq!(of(&Method::POST, target), about, "{target}");
        }
        assert_eq!(of(&Method::POST, "/v1/files/delete"), "named");
        assert_eq!(of(&Method::POST, "/v1/files/delete/x"), "Files:delete");
        assert_eq!(of(&Method::DELETE, "/v1/inventories/daily/build"), "Inventories:daily");
    }
}
