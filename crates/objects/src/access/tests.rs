//! The chain of credentials, and how buckets are addressed.

use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::error::Class;
use crate::testing::{answering, run};

/// A home directory with profiles.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let keys = |id: &str| format!("aws_access_key_id = {id}\naws_secret_access_key = s-{id}\n");
    let text = format!(
        "[work]\n{}region = eu-west-1\nendpoint_url = https://work.test\n[other]\n{}[empty]\n",
        keys("WORK"),
        keys("OTHER")
    );
    std::fs::write(home.path().join(".aws/credentials"), text).unwrap();
    home
}

fn environment(home: &Path, variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Environment::new(variables, Some(home.to_owned()))
}

const KEYS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "ENV"),
    ("AWS_SECRET_ACCESS_KEY", "s-ENV"),
    ("AWS_SESSION_TOKEN", "t-ENV"),
];

/// Key, token, region and endpoint.
fn outcome(access: &Access) -> (Option<String>, Option<String>, String, Option<String>) {
    let set = |key| access.builder.get_config_value(&key);
    let endpoint = access.endpoint.as_ref().map(ToString::to_string);
    let key = set(AmazonS3ConfigKey::AccessKeyId);
    (key, set(AmazonS3ConfigKey::Token), access.region.clone(), endpoint)
}

#[test]
fn explicit_keys_precede_a_profile_asked_for_and_that_the_environment_and_that_its_profile() {
    let home = home();
    let with_keys = [&KEYS[..], &[("AWS_PROFILE", "other")]].concat();
    let with_keys = environment(home.path(), &with_keys);
    let named = environment(home.path(), &[("AWS_PROFILE", "work")]);
    let plain = environment(home.path(), &[]);
    let asked =
        Settings { profile: Some(Profile::load("work", &plain).unwrap()), ..Settings::default() };
    let explicit = Settings { keys: Some(Keys::new("MINE", "s", None)), ..asked.clone() };
    let none = Settings::default();
    for (settings, environment, key, token) in [
        (&explicit, &with_keys, Some("MINE"), None),
        (&asked, &with_keys, Some("WORK"), None),
        (&none, &with_keys, Some("ENV"), Some("t-ENV")),
        (&none, &named, Some("WORK"), None),
        (&none, &plain, None, None),
    ] {
        let found = outcome(&Access::with_environment(settings, environment).unwrap());
        assert_eq!((found.0.as_deref(), found.1.as_deref()), (key, token));
    }
    let alone = Access::new(&asked).unwrap();
    assert_eq!(outcome(&alone).0.as_deref(), Some("WORK"));
    let unsigned = |access: &Access| is_true(&access.builder, AmazonS3ConfigKey::SkipSignature);
    assert!(unsigned(&Access::new(&none).unwrap()) && !unsigned(&alone));
    assert!(!unsigned(&Access::with_environment(&none, &plain).unwrap()));
}

#[test]
fn region_and_endpoint_are_explicit_of_the_environment_or_of_the_profile() {
    let home = home();
    let named = environment(home.path(), &[("AWS_PROFILE", "work")]);
    let both = [
        ("AWS_PROFILE", "work"),
        ("AWS_REGION", "eu-north-1"),
        ("AWS_ENDPOINT_URL", "https://env.test"),
        ("AWS_ALLOW_HTTP", ""),
    ];
    let both = environment(home.path(), &both);
    let explicit = Settings {
        region: Some("eu-central-1".into()),
        endpoint: Some("https://mine.test/".into()),
        ..Settings::default()
    };
    let none = Settings::default();
    for (settings, environment, region, endpoint) in [
        (&explicit, &both, "eu-central-1", Some("https://mine.test")),
        (&none, &both, "eu-north-1", Some("https://env.test")),
        (&none, &named, "eu-west-1", Some("https://work.test")),
        (&none, &Environment::default(), "us-east-1", None),
    ] {
        let found = outcome(&Access::with_environment(settings, environment).unwrap());
        assert_eq!((&*found.2, found.3.as_deref()), (region, endpoint));
    }
    // What the store uses is the endpoint that precedes, and so is what lists.
    let (builder, url) = Access::with_environment(&explicit, &both).unwrap().builder("b");
    let used = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
    assert_eq!((used.as_deref(), &*url), (Some("https://mine.test"), "https://mine.test/b"));
}

#[test]
fn a_profile_that_was_asked_for_must_have_keys() {
    let home = home();
    let plain = environment(home.path(), &[]);
    let profile = Some(Profile::load("empty", &plain).unwrap());
    let settings = Settings { profile, ..Settings::default() };
    let error = Access::with_environment(&settings, &plain).unwrap_err();
    assert!(matches!(error, ConfigError::NoKeys { .. }), "{error}");
    // One that is only named need not: there may be a role.
    let named = environment(home.path(), &[("AWS_PROFILE", "empty")]);
    assert!(Access::with_environment(&Settings::default(), &named).is_ok());
    let absent = environment(home.path(), &[("AWS_DEFAULT_PROFILE", "absent")]);
    assert!(Access::with_environment(&Settings::default(), &absent).is_err());
}

#[test]
fn a_server_without_tls_must_be_permitted() {
    let settings = Settings { endpoint: Some("http://127.0.0.1:9".into()), ..Settings::default() };
    let error = Access::new(&settings).unwrap_err();
    assert!(matches!(error, ConfigError::NoTls { .. }), "{error}");
    for yes in ["true", "1", "Yes"] {
        let permits = Environment::new([("AWS_ALLOW_HTTP".into(), yes.into())], None);
        assert!(Access::with_environment(&settings, &permits).is_ok());
    }
    assert!(Access::new(&Settings { allow_http: true, ..settings }).is_ok());
    let region = Some("x@evil.test/".to_owned());
    let error = Access::new(&Settings { region, ..Settings::default() }).unwrap_err();
    assert!(matches!(error, ConfigError::Region { .. }), "{error}");
}

#[test]
fn a_bucket_is_named_in_the_path_or_in_the_host() {
    let url = |endpoint: Option<&str>, addressing| {
        let endpoint = endpoint.map(str::to_owned);
        let region = Some("eu-west-1".to_owned());
        let settings =
            Settings { endpoint, region, addressing, allow_http: true, ..Settings::default() };
        Access::new(&settings).unwrap().builder("b").1
    };
    let (amazon, s3) = ("s3.eu-west-1.amazonaws.com", "https://s3.test:9/");
    assert_eq!(url(None, Addressing::Auto), format!("https://b.{amazon}"));
    assert_eq!(url(None, Addressing::Host), format!("https://b.{amazon}"));
    assert_eq!(url(None, Addressing::Path), format!("https://{amazon}/b"));
    assert_eq!(url(Some(s3), Addressing::Auto), "https://s3.test:9/b");
    assert_eq!(url(Some(s3), Addressing::Path), "https://s3.test:9/b");
    assert_eq!(url(Some(s3), Addressing::Host), "https://b.s3.test:9");
    assert_eq!(url(Some("http://[::1]:9/"), Addressing::Host), "http://[::1]:9/b");
    let host = |endpoint: Option<&str>| {
        Settings { endpoint: endpoint.map(str::to_owned), ..Settings::default() }.host()
    };
    assert_eq!(host(None), Some(("s3.us-east-1.amazonaws.com".into(), Some(443))));
    assert_eq!(host(Some("s3.test:9")), Some(("s3.test".into(), Some(9))));
    assert_eq!(host(Some("https://u:p@s3.test")), None);
}

#[test]
fn no_secret_is_printed() {
    let settings = Settings {
        keys: Some(Keys::new("id", "hunter2", Some("hunter3".into()))),
        ..Settings::default()
    };
    let environment = Environment::new([("AWS_SECRET_ACCESS_KEY".into(), "hunter4".into())], None);
    let access = Access::new(&settings).unwrap();
    let text = format!("{settings:?} {environment:?} {access:?}");
    assert!(!text.contains("hunter"), "{text}");
}

#[test]
fn a_failed_request_is_classified_by_what_helps_against_it() {
    // A port that was free a moment ago refuses connections.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let refusal = "<Error><Code>SignatureDoesNotMatch</Code><Message>wrong</Message>\
                   <CanonicalRequest>x-amz-security-token:hunter2</CanonicalRequest></Error>";
    for (endpoint, class, reason) in [
        (nobody, Class::Unreachable, "no connection: Connection refused"),
        (
            answering("403 Forbidden", refusal),
            Class::Refused,
            "403 Forbidden: SignatureDoesNotMatch: wrong",
        ),
        (answering("404 Not Found", ""), Class::Missing, "404 Not Found"),
        (answering("400 Bad Request", "<Code>Odd</Code>"), Class::Refused, "400 Bad Request: Odd"),
        (answering("301 Moved Permanently", ""), Class::Refused, "check the region"),
        (answering("503 Slow Down", "<Code>SlowDown</Code>"), Class::Transient, "SlowDown"),
        (answering("429 Too Many Requests", ""), Class::Transient, "429"),
        (answering("200 OK", "no list"), Class::Transient, ""),
    ] {
        let keys = Some(Keys::new("id", "hunter3", Some("hunter2".into())));
        let endpoint = Some(endpoint);
        let settings = Settings { endpoint, keys, allow_http: true, ..Settings::default() };
        let access = Access::new(&settings).unwrap().with_one_retry();
        let store = access.store("b").unwrap();
        let failure = run(async { store.list_with_delimiter(None).await }).unwrap_err();
        let failure = Failure::from(failure);
        let text = format!("{failure} {failure:?}");
        assert_eq!(failure.class(), class, "{text}");
        assert!(text.contains(reason) && !text.contains("hunter"), "{text}");
    }
}

#[test]
fn an_answer_is_returned_whatever_its_status() {
    let endpoint = Some(answering("403 Forbidden", "<Error/>"));
    let settings = Settings { endpoint, allow_http: true, ..Settings::default() };
    let requests = Access::new(&settings).unwrap().requests("b").unwrap();
    let url = format!("{}/?list-type=2", requests.url());
    let answer = run(requests.get(&url)).unwrap();
    assert_eq!(answer.status().as_u16(), 403);
}
