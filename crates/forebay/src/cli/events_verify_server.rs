//! `forebay events verify --server`: the server verifies its store, and what was kept elsewhere is
//! compared here with its proofs.
//!
//! Invariant: what is compared here does not rest on the server's word: signatures, cosignatures and
//! proofs of consistency are verified with the keys of this side, where there are any.

use forebay_base::error_chain::chain;
use forebay_events::checkpoint::{Checkpoint, SignedNote, VerifierKey};
use forebay_events::merkle::ConsistencyProof;
use forebay_events::store::Kept;
use serde_json::Value;

use super::https;
use super::server::base_url;
use crate::exit::{Coded, Exit};

/// Maximum size of a server's answer.
const ANSWER_SIZE_MAX: u64 = 4 << 20;

/// A server, and the key for it.
struct Server<'a> {
    agent: ureq::Agent,
    url: String,
    api_key: Option<&'a str>,
}

/// Returns the result of a verification, as the server answers it, with the faults found here.
///
/// # Errors
/// The server cannot be reached or refuses (exit code 3).
pub(super) fn verify(server: &str, api_key: Option<&str>, kept: &Kept) -> anyhow::Result<Value> {
    let url = base_url(server, "/v1/events/verify")?;
    let server = Server { agent: https::agent(&url, None)?, url, api_key };
    let mut answer: Value =
        serde_json::from_str(&server.get("/v1/events/verify")?).unwrap_or_default();
    if answer["sound"].as_bool().is_none() {
        let text = format!("{} did not answer with the result of a verification", server.url);
        return Err(Coded::error(Exit::Start, text));
    }
    let mut faults = Vec::new();
    if !kept.since.is_empty() || !kept.witnesses.is_empty() {
        let key = match &kept.key {
            Some(key) => key.clone(),
            None => server.key()?,
        };
        server.compare(kept, &key, &mut faults)?;
    }
    if !faults.is_empty() {
        answer["sound"] = false.into();
        let found = answer["faults"].as_array_mut();
        match found {
            Some(found) => found.extend(faults.into_iter().map(Value::from)),
            None => answer["faults"] = faults.into(),
        }
    }
    Ok(answer)
}

impl Server<'_> {
    fn get(&self, path: &str) -> anyhow::Result<String> {
        let (status, body) = self.ask(path)?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        Err(self.refused(status, &body))
    }

    fn refused(&self, status: u16, body: &str) -> anyhow::Error {
        let answer: Value = serde_json::from_str(body).unwrap_or_default();
        let message = answer["error"]["message"].as_str().unwrap_or(body);
        Coded::error(Exit::Start, format!("{} refuses ({status}): {message}", self.url))
    }

    /// Returns status and body of an answer.
    fn ask(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(key) = self.api_key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let failed = |what: &str| {
            let text = format!("cannot {what} {}", self.url);
            |error: ureq::Error| Coded::wrap(Exit::Start, text, https::Cause::of(error).into())
        };
        let mut response = request.call().map_err(failed("connect to"))?;
        let body = response.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
        let body = body.map_err(failed("read the answer of"))?;
        Ok((response.status().as_u16(), body))
    }

    /// The server's own key, if none is known from elsewhere.
    fn key(&self) -> anyhow::Result<VerifierKey> {
        let text = self.get("/v1/events/key")?;
        text.trim().parse().map_err(|error| {
            let text = format!("{} did not answer with a key: {error}", self.url);
            Coded::error(Exit::Start, text)
        })
    }

    /// Compares the server's checkpoint with those that were kept, and counts its cosignatures.
    fn compare(
        &self,
        kept: &Kept,
        key: &VerifierKey,
        faults: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let served = self.get("/v1/events/tlog/checkpoint")?;
        if let Err(error) = Checkpoint::open(served.as_bytes(), key) {
            faults.push(format!("the served checkpoint: {}", chain(&error)));
        } else if let Ok(note) = SignedNote::parse(served.as_bytes()) {
            for witness in &kept.witnesses {
                if let Err(error) = witness.verify(&note) {
                    faults.push(format!("the served checkpoint: {error}"));
                }
            }
        }
        // The served one too: with witnesses it is older than the newest.
        for note in kept.since.iter().chain([&served]) {
            match Checkpoint::open(note.as_bytes(), key) {
                Ok(earlier) => faults.extend(self.contradiction(&earlier, key)?),
                Err(error) => faults.push(format!("checkpoint: {}", chain(&error))),
            }
        }
        Ok(())
    }

    /// Returns how the server's events contradict an earlier checkpoint, if they do.
    fn contradiction(
        &self,
        earlier: &Checkpoint,
        key: &VerifierKey,
    ) -> anyhow::Result<Option<String>> {
        let size = earlier.size;
        let named = |found: &str| {
            Some(format!("history, compared with the checkpoint of {size} events: {found}"))
        };
        let (status, body) = self.ask(&format!("/v1/events/proof/consistency?first={size}"))?;
        if status == 400 {
            return Ok(named("the server has fewer events: its newest are missing"));
        }
        if status != 200 {
            return Err(self.refused(status, &body));
        }
        let Ok(proof) = serde_json::from_str::<ConsistencyProof>(&body) else {
            return Ok(named("the server did not answer with a proof"));
        };
        let verified = proof.verify(key, earlier);
        Ok(verified.err().and_then(|error| named(&chain(&error).to_string())))
    }
}
