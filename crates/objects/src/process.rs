//! Keys that a program prints: `credential_process` of a profile. With it every way works that the AWS command
//! line knows, such as sign-on and roles: `credential_process = aws configure export-credentials --profile NAME`.
//!
//! The program is started without a shell, and again shortly before its keys expire.
//!
//! Invariants: nothing that it prints is repeated in a message, since it may be a secret; it ends, or is ended;
//! what is read of its output is limited.

use std::fmt;
use std::io::{self, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use serde::Deserialize;
use tokio::sync::Mutex;

/// Maximum time that the program may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long before they expire keys are requested again.
const EARLY: Duration = Duration::from_secs(300);
/// How long keys without an expiry are used.
const UNDATED: Duration = Duration::from_secs(3_600);
/// Maximum size of what it prints.
const OUTPUT_MAX: u64 = 64 << 10;

/// The keys of a program.
pub(crate) struct ProcessKeys {
    profile: String,
    command: Vec<String>,
    kept: Mutex<Option<Kept>>,
}

#[derive(Clone)]
struct Kept {
    keys: Arc<AwsCredential>,
    /// From when on they are requested again.
    until: Instant,
    /// From when on they are refused.
    expires: Option<Timestamp>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("cannot start credential_process of profile {profile:?}")]
    Start {
        profile: String,
        #[source]
        source: std::io::Error,
    },
    #[error("credential_process of profile {profile:?} did not end within {} s", LIMIT.as_secs())]
    Slow { profile: String },
    #[error("credential_process of profile {profile:?} failed with {status}; run it to see why")]
    Failed { profile: String, status: String },
    #[error("credential_process of profile {profile:?} does not print keys: {reason}")]
    Output { profile: String, reason: &'static str },
}

/// What such a program prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl ProcessKeys {
    /// * `command`: of the profile, as it is written there.
    ///
    /// Returns `None` if it names no program.
    pub(crate) fn new(profile: &str, command: &str) -> Option<Self> {
        let command = words(command);
        let is_empty = command.first().is_none_or(String::is_empty);
        (!is_empty).then(|| Self { profile: profile.to_owned(), command, kept: Mutex::default() })
    }

    /// Runs the program. Blocks.
    fn run(profile: &str, command: &[String]) -> Result<Kept, ProcessError> {
        let profile = || profile.to_owned();
        let started = |source| ProcessError::Start { profile: profile(), source };
        let mut program = Command::new(command.first().map_or("", String::as_str));
        program.args(command.get(1..).unwrap_or_default());
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = program.spawn().map_err(started)?;
        let output = child.stdout.take();
        let deadline = Instant::now() + LIMIT;
        // On another thread: a program that prints more than a pipe holds would wait for its reader, and one that
        // has ended may have left others that keep the pipe open.
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut printed = Vec::new();
            let read = match output {
                Some(output) => output.take(OUTPUT_MAX).read_to_end(&mut printed).map(|_| printed),
                None => Ok(printed),
            };
            // The receiver has left if the program took too long.
            drop(send.send(read));
        });
        let status = ended(&mut child, deadline).map_err(started)?;
        let Some(status) = status else { return Err(ProcessError::Slow { profile: profile() }) };
        if !status.success() {
            let status = status.to_string();
            return Err(ProcessError::Failed { profile: profile(), status });
        }
        let broken = |reason| ProcessError::Output { profile: profile(), reason };
        let printed = receive
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .map_err(|_| ProcessError::Slow { profile: profile() })?
            .map_err(|_| broken("its output cannot be read"))?;
        kept(&printed).map_err(broken)
    }
}

/// Waits for a program, and ends it if it takes too long.
fn ended(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::park_timeout(LOOK);
    }
}

fn kept(printed: &[u8]) -> Result<Kept, &'static str> {
    let found: Printed =
        serde_json::from_slice(printed).map_err(|_| "it is not the JSON of keys")?;
    if found.version != 1 {
        return Err("its version is not 1");
    }
    let expires = found.expiration.map(|text| text.parse::<Timestamp>()).transpose();
    let expires = expires.map_err(|_| "its Expiration is not a time")?;
    let left = match expires {
        Some(expires) => {
            let left = expires.duration_since(Timestamp::now());
            let left = Duration::try_from(left).map_err(|_| "its keys have expired")?;
            left.saturating_sub(EARLY)
        }
        None => UNDATED,
    };
    let keys = AwsCredential {
        key_id: found.access_key_id,
        secret_key: found.secret_access_key,
        token: found.session_token,
    };
    Ok(Kept { keys: Arc::new(keys), until: Instant::now() + left, expires })
}

#[async_trait]
impl CredentialProvider for ProcessKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        // Held while the program runs, so that it is started once for all requests that wait.
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return Ok(Arc::clone(&kept.keys));
        }
        let (profile, command) = (self.profile.clone(), self.command.clone());
        let run = move || Self::run(&profile, &command);
        let found = tokio::task::spawn_blocking(run).await;
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| {
            object_store::Error::Unauthenticated { path: String::new(), source }
        };
        match (found.map_err(|error| refused(error.into()))?, kept.as_ref()) {
            (Ok(found), _) => Ok(Arc::clone(&kept.insert(found).keys)),
            // They are not refused yet.
            (Err(error), Some(old)) if old.expires.is_some_and(|at| at > Timestamp::now()) => {
                let error = forebay_base::error_chain::chain(&error);
                tracing::warn!(%error, "keys for S3 are not renewed; the earlier ones are used");
                Ok(Arc::clone(&old.keys))
            }
            (Err(error), _) => Err(refused(error.into())),
        }
    }
}

impl fmt::Debug for ProcessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessKeys").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// The words of a command: separated by blanks, which are part of a word inside quotation marks.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    /// A program that prints a text, and appends a line to a file each time it is started.
    fn program(dir: &std::path::Path, text: &str, then: &str) -> ProcessKeys {
        let script = dir.join("keys of \"x\"".replace('"', "").as_str());
        let started = dir.join("started");
        let body =
            format!("echo run >> '{}'\ncat <<'END'\n{text}\nEND\n{then}\n", started.display());
        std::fs::write(&script, body).unwrap();
        ProcessKeys::new("work", &format!("/bin/sh \"{}\" a", script.display())).unwrap()
    }

    fn runs(dir: &std::path::Path) -> usize {
        std::fs::read_to_string(dir.join("started")).unwrap_or_default().lines().count()
    }

    fn get(keys: &ProcessKeys) -> object_store::Result<Arc<AwsCredential>> {
        run(keys.get_credential())
    }

    fn json(expiration: &str) -> String {
        format!(
            "{{\"Version\": 1, \"AccessKeyId\": \"AK\", \"SecretAccessKey\": \"hunter2\", \
             \"SessionToken\": \"hunter3\"{expiration}}}"
        )
    }

    #[test]
    fn keys_are_those_that_the_program_prints_and_it_is_run_again_when_they_are_about_to_expire() {
        for (expiration, expected) in [
            (String::new(), 1),
            (format!(", \"Expiration\": \"{}\"", Timestamp::now() + Duration::from_secs(3_600)), 1),
            (format!(", \"Expiration\": \"{}\"", Timestamp::now() + Duration::from_secs(60)), 2),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let keys = program(dir.path(), &json(&expiration), "");
            for _ in 0..2 {
                let found = get(&keys).unwrap();
                assert_eq!((&*found.key_id, &*found.secret_key), ("AK", "hunter2"));
                assert_eq!(found.token.as_deref(), Some("hunter3"));
            }
            assert_eq!(runs(dir.path()), expected, "{expiration}");
        }
    }

    #[test]
    fn a_program_that_fails_or_prints_something_else_is_named_and_its_output_is_not() {
        let past = ", \"Expiration\": \"2001-01-01T00:00:00Z\"";
        for (text, then, reason) in [
            (json(""), "exit 3", "failed with exit status: 3"),
            ("hunter2".to_owned(), "", "not the JSON of keys"),
            (json("").replace("\"Version\": 1", "\"Version\": 2"), "", "version"),
            (json(past), "", "expired"),
            (json(", \"Expiration\": \"soon\""), "", "not a time"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let error = get(&program(dir.path(), &text, then)).unwrap_err();
            let failure = crate::Failure::from(error);
            let shown = format!("{failure} {failure:?}");
            assert!(shown.contains(reason) && !shown.contains("hunter"), "{shown}");
            assert!(!failure.is_retryable());
        }
        let absent = ProcessKeys::new("work", "/no/such/program").unwrap();
        assert!(
            crate::Failure::from(get(&absent).unwrap_err()).to_string().contains("No such file")
        );
    }

    #[test]
    fn keys_that_are_still_valid_are_used_when_the_program_fails() {
        let dir = tempfile::tempdir().unwrap();
        let soon = format!(", \"Expiration\": \"{}\"", Timestamp::now() + Duration::from_secs(60));
        let keys = program(dir.path(), &json(&soon), "");
        get(&keys).unwrap();
        drop(program(dir.path(), "", "exit 1"));
        assert_eq!(get(&keys).unwrap().key_id, "AK");
        assert_eq!(runs(dir.path()), 2);
    }

    #[test]
    fn a_command_is_split_at_blanks_outside_of_quotation_marks() {
        assert_eq!(words(" a  \"b c\"d \"\" "), ["a", "b cd", ""]);
        assert!(ProcessKeys::new("x", " ").is_none());
    }
}
