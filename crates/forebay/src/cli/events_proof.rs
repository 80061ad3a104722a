//! `forebay events checkpoint`, `prove` and `verify-proof`.

use std::path::PathBuf;

use anyhow::Context as _;
use forebay_events::checkpoint::{Checkpoint, VerifierKey};
use forebay_events::merkle::{ConsistencyProof, InclusionProof};
use forebay_events::{EventId, ReadError, format, render};

use super::settings::DataArgs;
use crate::exit::{Coded, Exit};
use crate::out;

const PROVE_HELP: &str = "\
Examples:
  forebay events prove 01ARZ3NDEKTSV4RRFFQ69G5FAV > proof.json
  forebay events prove --consistency 1000 2000

Of an event: {\"leaf_index\",\"tree_size\",\"leaf_hash\",\"leaf_base64\",\"audit_path\",\"checkpoint\"}; of two
sizes: {\"first\",\"second\",\"path\",\"first_root\",\"second_root\"}, and the checkpoint where the second size
is the newest signed one. Hashes are RFC 9162's over SHA-256, in hexadecimal.

Exit codes: 0 printed, 1 there is no such event or size, 3 the store cannot be opened.";

#[derive(clap::Args, Debug)]
#[command(after_help = PROVE_HELP)]
pub(super) struct ProveArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The same: a proof is always JSON.
    #[arg(long)]
    json: bool,
    /// Prove that the first M events are the beginning of the first N.
    #[arg(long, num_args = 2, value_names = ["M", "N"], conflicts_with = "id")]
    consistency: Option<Vec<u64>>,
    /// The event's id: a ULID or a UUID.
    #[arg(value_name = "ID", required_unless_present = "consistency")]
    id: Option<EventId>,
}

const VERIFY_PROOF_HELP: &str = "\
Examples:
  forebay events verify-proof --key 'forebay.local/events+c1b2...+AY...' proof.json
  forebay events verify-proof --key-file verifier.key --since old-checkpoint.txt consistency.json

The verifier key is what `forebay events stats` prints; it is no secret. For a proof of consistency
--since names the earlier checkpoint. Nothing is read but these files.

Exit codes: 0 the proof holds, 1 it does not, 2 wrong command line, 3 a file cannot be read.";

#[derive(clap::Args, Debug)]
#[command(after_help = VERIFY_PROOF_HELP)]
pub(super) struct VerifyProofArgs {
    /// The verifier key.
    #[arg(long, value_name = "KEY", required_unless_present = "key_file")]
    key: Option<VerifierKey>,
    /// File that holds it.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    key_file: Option<PathBuf>,
    /// For a proof of consistency: the signed note of the earlier size.
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Print what the proof shows as one JSON object.
    #[arg(long)]
    json: bool,
    /// The proof, as `prove` printed it; `-`: standard input.
    #[arg(value_name = "FILE")]
    proof: PathBuf,
}

pub(super) fn checkpoint(data: &DataArgs, json: bool) -> anyhow::Result<Exit> {
    let store = super::events::open(data, false)?;
    let note = store.checkpoint().map_err(refused)?;
    if json {
        let key = store.verifier_key().map_err(refused)?.to_string();
        out::json(&serde_json::json!({ "note": note, "verifier_key": key }))?;
    } else {
        out::line(note.trim_end())?;
    }
    store.close()?;
    Ok(Exit::Ok)
}

pub(super) fn prove(args: &ProveArgs) -> anyhow::Result<Exit> {
    let store = super::events::open(&args.data, false)?;
    let json = match (&args.consistency, args.id) {
        (Some(sizes), _) => {
            let [first, second] = sizes.as_slice() else {
                return Err(Coded::error(Exit::Usage, "--consistency takes two sizes"));
            };
            let proof = store.prove_consistency(*first, Some(*second)).map_err(refused)?;
            serde_json::to_value(proof)?
        }
        (None, Some(id)) => serde_json::to_value(store.prove(id).map_err(refused)?)?,
        (None, None) => return Err(Coded::error(Exit::Usage, "name an event, or --consistency")),
    };
    out::json(&json)?;
    store.close()?;
    Ok(Exit::Ok)
}

fn refused(error: ReadError) -> anyhow::Error {
    Coded::wrap(Exit::Failed, "nothing can be proven", error.into())
}

pub(super) fn verify_proof(args: &VerifyProofArgs) -> anyhow::Result<Exit> {
    let key = match (&args.key, &args.key_file) {
        (Some(key), _) => key.clone(),
        (None, Some(path)) => {
            let text = read(path)?;
            text.trim().parse().map_err(|error| {
                Coded::wrap(Exit::Usage, format!("{} is no verifier key", path.display()), {
                    let error: forebay_events::checkpoint::KeyError = error;
                    error.into()
                })
            })?
        }
        (None, None) => return Err(Coded::error(Exit::Usage, "a verifier key is needed")),
    };
    let text = read(&args.proof)?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        let text = format!("{} is no proof", args.proof.display());
        Coded::wrap(Exit::Failed, text, error.into())
    })?;
    if json.get("audit_path").is_some() {
        inclusion(serde_json::from_value(json).context("the proof cannot be read")?, &key, args)
    } else {
        consistency(serde_json::from_value(json).context("the proof cannot be read")?, &key, args)
    }
}

fn read(path: &PathBuf) -> anyhow::Result<String> {
    let read = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin().lock())
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| {
        Coded::wrap(Exit::Start, format!("cannot read {}", path.display()), error.into())
    })
}

fn inclusion(
    proof: InclusionProof,
    key: &VerifierKey,
    args: &VerifyProofArgs,
) -> anyhow::Result<Exit> {
    let included = proof
        .verify(key)
        .map_err(|error| Coded::wrap(Exit::Failed, "the proof does not hold", error.into()))?;
    let event = format::leaf::decode(&included.leaf)
        .map_err(|error| Coded::wrap(Exit::Failed, "what is proven is no event", error.into()))?;
    if args.json {
        out::json(&serde_json::json!({
            "valid": true,
            "id": event.id.to_string(),
            "leaf_index": proof.leaf_index,
            "tree_size": proof.tree_size,
            "origin": included.checkpoint.origin,
            "timestamp": render::time(event.timestamp_ns),
            "stream": event.tags.stream,
            "raw": String::from_utf8_lossy(event.raw),
        }))?;
    } else {
        out::line(format_args!(
            "event {} of {} is at position {} of the {} events of {}",
            event.id,
            render::time(event.timestamp_ns),
            proof.leaf_index,
            proof.tree_size,
            included.checkpoint.origin
        ))?;
    }
    Ok(Exit::Ok)
}

fn consistency(
    proof: ConsistencyProof,
    key: &VerifierKey,
    args: &VerifyProofArgs,
) -> anyhow::Result<Exit> {
    let Some(since) = &args.since else {
        let text = "a proof of consistency needs --since, the earlier checkpoint";
        return Err(Coded::error(Exit::Usage, text));
    };
    let failed = |error: anyhow::Error| Coded::wrap(Exit::Failed, "the proof does not hold", error);
    let earlier =
        Checkpoint::open(read(since)?.as_bytes(), key).map_err(|error| failed(error.into()))?;
    let later = proof.verify(key, &earlier).map_err(|error| failed(error.into()))?;
    if args.json {
        out::json(&serde_json::json!({
            "valid": true, "origin": later.origin, "first": earlier.size, "second": later.size,
        }))?;
    } else {
        out::line(format_args!(
            "the first {} of the {} events of {} are those of the earlier checkpoint",
            earlier.size, later.size, later.origin
        ))?;
    }
    Ok(Exit::Ok)
}
