//! Evaluates the responses of a load: fills the oracle, and collects what is reported.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::Answer;
use super::inputs::Documents;
use super::jobs::{Carries, Prepared};
use super::load::Event;
use super::oracle::{Kept, Key, Oracle};

/// Files up to this size count as small PUTs.
const SMALL_SIZE_MAX: u64 = 64 << 10;
/// Maximum number of refusals and the like that are listed.
const SAMPLE_MAX: usize = 10;

/// Files and bytes of a category.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(super) struct Sum {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// The target of a namespace's documents and the reason, from the server's first response.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Decision {
    pub(super) namespace: String,
    pub(super) target: String,
    pub(super) decided_by: String,
    pub(super) rules: Vec<Rule>,
    pub(super) ddl: Vec<String>,
}

/// One rule of a decision.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Rule {
    pub(super) rule: String,
    pub(super) measured: Value,
    pub(super) threshold: Value,
    pub(super) says: String,
    pub(super) detail: String,
}

/// Texts of which the first few are kept.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sample {
    pub(super) count: u64,
    pub(super) first: Vec<String>,
}

impl Sample {
    fn add(&mut self, text: String) {
        self.count += 1;
        if self.first.len() < SAMPLE_MAX {
            self.first.push(text);
        }
    }
}

/// The result of all responses.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) oracle: Oracle,
    /// Requests acknowledged.
    pub(super) requests: u64,
    /// Responses the server remembered from before it was killed.
    pub(super) replayed: u64,
    pub(super) sent: Sum,
    pub(super) duplicates: Sum,
    pub(super) categories: BTreeMap<String, Sum>,
    pub(super) decisions: BTreeMap<String, Decision>,
    pub(super) refused: Sample,
    pub(super) unread: Sample,
    pub(super) small_puts: Vec<Duration>,
    pub(super) unacknowledged: Vec<Prepared>,
    /// Acknowledgements that contradict what was sent.
    pub(super) problems: Vec<String>,
}

impl Tally {
    /// Adds one event and returns the bytes it moved.
    ///
    /// # Errors
    /// A response that the API does not describe.
    pub(super) fn take(&mut self, event: Event, documents: &Documents) -> anyhow::Result<u64> {
        match event {
            Event::Answered { prepared, answer, took } => {
                let about = || format!("{} {}", prepared.method, prepared.path);
                self.answered(&prepared, &answer, took, documents).with_context(about)?;
                Ok(prepared.body.len() as u64)
            }
            Event::Unacknowledged(prepared) => {
                self.unacknowledged.push(*prepared);
                Ok(0)
            }
            Event::Unread(text) => {
                self.unread.add(text);
                Ok(0)
            }
            Event::Failed(error) => Err(error),
        }
    }

    fn answered(
        &mut self,
        prepared: &Prepared,
        answer: &Answer,
        took: Duration,
        documents: &Documents,
    ) -> anyhow::Result<()> {
        self.requests += 1;
        self.replayed += u64::from(answer.header("idempotent-replay").is_some());
        match &prepared.carries {
            Carries::File((key, kept)) => {
                if !matches!(answer.status, 200 | 201) {
                    self.refused.add(format!("{}: {}", key.1, answer.describe()));
                    return Ok(());
                }
                if kept.size <= SMALL_SIZE_MAX {
                    self.small_puts.push(took);
                }
                self.file(key, *kept, read(&answer.body)?);
            }
            Carries::Batch(files) => self.batch(files, answer)?,
            Carries::Documents { namespace, from, to } => {
                let texts = documents.sets.get(namespace).and_then(|texts| texts.get(*from..*to));
                self.documents(namespace, texts.unwrap_or_default(), answer)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, key: &Key, kept: Kept, reply: FileReply) {
        if reply.sha256 != kept.digest.to_hex() || reply.size != kept.size {
            let (namespace, name) = key;
            self.problems.push(format!(
                "{namespace}/{name}: sent {} bytes {}, acknowledged as {} bytes {}",
                kept.size, kept.digest, reply.size, reply.sha256
            ));
        }
        self.sent.add(kept.size);
        self.categories.entry(reply.category).or_default().add(kept.size);
        if reply.status == "duplicate" {
            self.duplicates.add(kept.size);
        }
        self.oracle.file(key.clone(), kept);
    }

    fn batch(&mut self, files: &[(Key, Kept)], answer: &Answer) -> anyhow::Result<()> {
        let reply: BatchReply = read(&answer.body)?;
        if reply.error.is_some() || reply.parts.len() != files.len() {
            bail!("the batch was answered {}", answer.describe());
        }
        for ((key, kept), part) in files.iter().zip(reply.parts) {
            match part.file {
                Some(file) => self.file(key, *kept, file),
                None => self.refused.add(format!("{}: {}", key.1, part.error.unwrap_or_default())),
            }
        }
        Ok(())
    }

    fn documents(
        &mut self,
        namespace: &str,
        texts: &[Box<str>],
        answer: &Answer,
    ) -> anyhow::Result<()> {
        let reply: DocumentsReply = match answer.status {
            200..=299 | 422 => read(&answer.body)?,
            _ => bail!("the documents were answered {}", answer.describe()),
        };
        if reply.accepted + reply.errors.len() as u64 != texts.len() as u64 {
            bail!("{} documents were sent; the answer was {}", texts.len(), answer.describe());
        }
        for error in &reply.errors {
            self.refused.add(format!("a document for {namespace}: {}", error.reason));
        }
        let refused = |at: usize| reply.errors.iter().any(|error| error.index == at as u64);
        let taken = texts.iter().enumerate().filter(|(at, _)| !refused(*at));
        self.oracle.documents(namespace, taken.map(|(_, text)| &**text));
        let decided: Value = read(&answer.body)?;
        if decided["decided_by"] != "existing" && decided["target"].is_string() {
            let decision =
                serde_json::from_value(decided).context("the decision is not as described")?;
            self.decisions.insert(namespace.to_owned(), decision);
        }
        Ok(())
    }

    /// Returns the time within which the share `hundredths` of small PUTs completed.
    pub(super) fn small_put_percentile(&mut self, hundredths: usize) -> Duration {
        self.small_puts.sort_unstable();
        let at = self.small_puts.len() * hundredths / 100;
        self.small_puts.get(at).or(self.small_puts.last()).copied().unwrap_or_default()
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("the response is not the expected JSON")
}

#[derive(Deserialize)]
struct FileReply {
    status: String,
    category: String,
    size: u64,
    sha256: String,
}

#[derive(Deserialize)]
struct BatchReply {
    parts: Vec<PartReply>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct PartReply {
    file: Option<FileReply>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct DocumentsReply {
    accepted: u64,
    #[serde(default)]
    errors: Vec<RefusedReply>,
}

#[derive(Deserialize)]
struct RefusedReply {
    index: u64,
    reason: String,
}
