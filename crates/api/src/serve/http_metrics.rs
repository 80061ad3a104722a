//! Request and connection metrics: plain atomics, registered once, rendered on a scrape.
//!
//! They do not use the `metrics` recorder because its histograms keep every sample until
//! the next upkeep: at 50,000 requests per second that costs memory and work for nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use forebay_base::push_line;
use http::StatusCode;

use super::stripes::Stripes;
use crate::ROUTE_CLASSES;

/// Upper bounds of the latency buckets, in microseconds, with their Prometheus labels.
const BOUNDS: [(u64, &str); 16] = [
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
    (60_000_000, "60"),
];

/// Status labels; the last is for requests whose client left before the response.
const STATUSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "aborted"];

/// Classes before those of [`ROUTE_CLASSES`].
const SHELL_CLASSES: [&str; 4] = ["other", "v1", "health", "s3"];
const CLASS_COUNT: usize = SHELL_CLASSES.len() + ROUTE_CLASSES.len();

/// The class of a path; an index into the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteClass(usize);

impl RouteClass {
    /// Pages and unknown paths.
    pub(super) const OTHER: Self = Self(0);
    /// Below `/v1`, without a separate class.
    pub(super) const V1: Self = Self(1);
    /// Health, readiness, metrics: answered even if the server is overloaded.
    pub(super) const HEALTH: Self = Self(2);
    /// Everything on the S3 port.
    pub(super) const S3: Self = Self(3);

    /// Returns the class of `path`.
    pub(super) fn of(path: &str) -> Self {
        let Some(rest) = path.strip_prefix("/v1/") else {
            return match path {
                "/healthz" | "/readyz" | "/metrics" => Self::HEALTH,
                "/v1" => Self::V1,
                _ => Self::OTHER,
            };
        };
        let segment = rest.split('/').next().unwrap_or(rest);
        ROUTE_CLASSES
            .iter()
            .position(|class| *class == segment)
            .map_or(Self::V1, |at| Self(SHELL_CLASSES.len() + at))
    }

    /// Returns whether it is below `/v1` and so may need a key.
    pub(super) fn is_api(self) -> bool {
        self != Self::OTHER && self != Self::HEALTH && self != Self::S3
    }

    fn label(self) -> &'static str {
        SHELL_CLASSES.iter().chain(&ROUTE_CLASSES).nth(self.0).copied().unwrap_or("other")
    }
}

#[derive(Debug, Default)]
struct Route {
    statuses: [AtomicU64; STATUSES.len()],
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

/// What [`Route`] counts, of all threads.
#[derive(Debug, Default)]
struct Sums {
    statuses: [u64; STATUSES.len()],
    buckets: [u64; BOUNDS.len() + 1],
    sum_us: u64,
}

/// All request and connection metrics of the server.
#[derive(Debug, Default)]
pub(super) struct HttpMetrics {
    routes: Stripes<[Route; CLASS_COUNT]>,
    /// Connections accepted since start.
    pub(super) connections: AtomicU64,
    /// Connections refused because of the limit.
    pub(super) connections_refused: AtomicU64,
    /// Requests refused because of the limit.
    pub(super) requests_refused: AtomicU64,
    /// Followers refused because of their share of the connections.
    pub(super) followers_refused: AtomicU64,
    /// Requests refused for lack of a key.
    pub(super) requests_denied: AtomicU64,
    /// Requests for another host, or from a page of another origin.
    pub(super) requests_foreign: AtomicU64,
    /// Connections closed because a request head took too long.
    pub(super) timeouts_head: AtomicU64,
    /// Connections closed because no request arrived.
    pub(super) timeouts_idle: AtomicU64,
    /// Connections closed because a response was not read.
    pub(super) timeouts_write: AtomicU64,
    /// Requests whose body arrived too slowly.
    pub(super) timeouts_body: AtomicU64,
    /// Connections closed because the memory of their responses was needed.
    pub(super) cut_output: AtomicU64,
    /// Idle connections that were closed because their slot was needed.
    pub(super) cut_crowded: AtomicU64,
    /// Handlers that panicked.
    pub(super) panics: AtomicU64,
}

/// Current values, which are not counters.
#[derive(Debug, Default)]
pub(super) struct Now {
    /// Number of open connections.
    pub(super) connections: usize,
    /// Number of requests in progress.
    pub(super) in_flight: usize,
    /// Number of responses without an end.
    pub(super) followers: usize,
    /// Memory for responses that clients have not read yet, in bytes.
    pub(super) output: usize,
}

impl HttpMetrics {
    /// Records a finished request; `status` is `None` if its client left before the response.
    pub(super) fn record(&self, class: RouteClass, status: Option<StatusCode>, took: Duration) {
        let Some(route) = self.routes.here().1.get(class.0) else { return };
        let at = status.map_or(5, |status| usize::from(status.as_u16() / 100).clamp(1, 5) - 1);
        route.statuses[at].fetch_add(1, Relaxed);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < took_us);
        route.buckets[bucket].fetch_add(1, Relaxed);
        route.sum_us.fetch_add(took_us, Relaxed);
    }

    /// Appends all metrics as Prometheus text. `now` has the current values.
    pub(super) fn render(&self, out: &mut String, now: &Now) {
        self.render_routes(out);
        let gauge = |out: &mut String, name: &str, help: &str, value: usize| {
            push_line!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        };
        gauge(out, "forebay_http_connections", "Number of open connections.", now.connections);
        let help = "Number of requests in progress.";
        gauge(out, "forebay_http_requests_in_flight", help, now.in_flight);
        let help = "Number of clients that follow documents, events or jobs.";
        gauge(out, "forebay_http_followers", help, now.followers);
        let help = "Memory for responses that clients have not read yet, in bytes.";
        gauge(out, "forebay_http_output_bytes", help, now.output);
        for (name, help, value) in [
            ("connections_total", "Connections accepted.", &self.connections),
            (
                "connections_refused_total",
                "Connections refused because of the limit.",
                &self.connections_refused,
            ),
            (
                "requests_refused_total",
                "Requests refused because of the limit.",
                &self.requests_refused,
            ),
            (
                "followers_refused_total",
                "Followers refused because of their share of the connections.",
                &self.followers_refused,
            ),
            (
                "requests_denied_total",
                "Requests without a sufficient API key.",
                &self.requests_denied,
            ),
            (
                "requests_foreign_total",
                "Requests refused because of their host or origin.",
                &self.requests_foreign,
            ),
            ("panics_total", "Request handlers that panicked.", &self.panics),
        ] {
            push_line!(out, "# HELP forebay_http_{name} {help}");
            push_line!(out, "# TYPE forebay_http_{name} counter");
            push_line!(out, "forebay_http_{name} {}", value.load(Relaxed));
        }
        let name = "forebay_http_timeouts_total";
        push_line!(
            out,
            "# HELP {name} Connections and requests ended by the server.\n# TYPE {name} counter"
        );
        for (kind, value) in [
            ("head", &self.timeouts_head),
            ("idle", &self.timeouts_idle),
            ("write", &self.timeouts_write),
            ("body", &self.timeouts_body),
            ("output", &self.cut_output),
            ("crowded", &self.cut_crowded),
        ] {
            push_line!(out, "{name}{{kind=\"{kind}\"}} {}", value.load(Relaxed));
        }
    }

    /// Adds up what all threads have counted of a class.
    fn sums(&self, class: usize) -> Sums {
        let mut sums = Sums::default();
        for route in self.routes.iter().filter_map(|routes| routes.get(class)) {
            let add = |to: &mut [u64], from: &[AtomicU64]| {
                to.iter_mut().zip(from).for_each(|(sum, count)| *sum += count.load(Relaxed));
            };
            add(&mut sums.statuses, &route.statuses);
            add(&mut sums.buckets, &route.buckets);
            sums.sum_us += route.sum_us.load(Relaxed);
        }
        sums
    }

    fn render_routes(&self, out: &mut String) {
        let name = "forebay_http_requests_total";
        push_line!(out, "# HELP {name} Requests, by route and status.\n# TYPE {name} counter");
        let routes: [Sums; CLASS_COUNT] = std::array::from_fn(|class| self.sums(class));
        for (at, route) in routes.iter().enumerate() {
            let label = RouteClass(at).label();
            for (status, count) in STATUSES.iter().zip(route.statuses) {
                push_line!(out, "{name}{{route=\"{label}\",status=\"{status}\"}} {count}");
            }
        }
        let name = "forebay_http_request_duration_seconds";
        push_line!(
            out,
            "# HELP {name} Time from the request head to the last byte of the response.\n\
             # TYPE {name} histogram"
        );
        for (at, route) in routes.iter().enumerate() {
            let label = RouteClass(at).label();
            let mut total = 0;
            let labels = BOUNDS.iter().map(|(_, label)| *label).chain(["+Inf"]);
            for (bucket, bound) in route.buckets.iter().zip(labels) {
                total += bucket;
                push_line!(out, "{name}_bucket{{route=\"{label}\",le=\"{bound}\"}} {total}");
            }
            let sum = Duration::from_micros(route.sum_us).as_secs_f64();
            push_line!(out, "{name}_sum{{route=\"{label}\"}} {sum}");
            push_line!(out, "{name}_count{{route=\"{label}\"}} {total}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fall_into_their_class() {
        assert_eq!(RouteClass::of("/v1/files/a/b").label(), "files");
        assert_eq!(RouteClass::of("/v1/files").label(), "files");
        assert_eq!(RouteClass::of("/v1/filesystem"), RouteClass::V1);
        assert_eq!(RouteClass::of("/v1"), RouteClass::V1);
        assert_eq!(RouteClass::of("/v10/files"), RouteClass::OTHER);
        assert_eq!(RouteClass::of("/readyz"), RouteClass::HEALTH);
        assert!(RouteClass::of("/v1/anything").is_api() && !RouteClass::of("/docs").is_api());
    }

    #[test]
    fn counts_and_buckets_are_cumulative_in_the_text() {
        let metrics = HttpMetrics::default();
        let files = RouteClass::of("/v1/files");
        metrics.record(files, Some(StatusCode::OK), Duration::from_micros(100));
        metrics.record(files, Some(StatusCode::NOT_FOUND), Duration::from_micros(101));
        metrics.record(files, None, Duration::from_secs(3600));
        let mut text = String::new();
        metrics.render(&mut text, &Now { connections: 7, in_flight: 2, ..Now::default() });
        for line in [
            "forebay_http_requests_total{route=\"files\",status=\"2xx\"} 1",
            "forebay_http_requests_total{route=\"files\",status=\"4xx\"} 1",
            "forebay_http_requests_total{route=\"files\",status=\"aborted\"} 1",
            "forebay_http_request_duration_seconds_bucket{route=\"files\",le=\"0.0001\"} 1",
            "forebay_http_request_duration_seconds_bucket{route=\"files\",le=\"0.00025\"} 2",
            "forebay_http_request_duration_seconds_bucket{route=\"files\",le=\"+Inf\"} 3",
            "forebay_http_request_duration_seconds_count{route=\"files\"} 3",
            "forebay_http_connections 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
