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

For an event it prints
{\"leaf_index\",\"tree_size\",\"leaf_hash\",\"leaf_base64\",\"audit_path\",\"checkpoint\"}; for two
sizes {\"first\",\"second\",\"path\",\"first_root\",\"second_root\"}, with the checkpoint if the
second size is the newest signed one. Hashes are those of RFC 9162 with SHA-256, in hexadecimal.

Exit codes: 0 printed; 1 there is no such event or size; 3 the store cannot be opened.";

#[derive(clap::Args, Debug)]
#[command(after_help = PROVE_HELP)]
pub(super) struct ProveArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Has no effect: a proof is always JSON.
    #[arg(long)]
    json: bool,
    /// Prove that the first M events are the beginning of the first N.
    #[arg(long, num_args = 2, value_names = ["M", "N"], conflicts_with = "id")]
    consistency: Option<Vec<u64>>,
    /// Id of the event: a ULID or a UUID.
    #[arg(value_name = "ID", required_unless_present = "consistency")]
    id: Option<EventId>,
}

const VERIFY_PROOF_HELP: &str = "\
Examples:
  forebay events verify-proof --key 'forebay.local/events+c1b2...+AY...' proof.json
  forebay events verify-proof --key-file verifier.key --since old-checkpoint.txt consistency.json

The verifier key is printed by `forebay events stats` and is not secret. For a consistency proof
--since names the earlier checkpoint. Only these files are read.

Exit codes: 0 the proof is valid; 1 it is not valid; 2 invalid command line; 3 a file cannot be
read.";

#[derive(clap::Args, Debug)]
#[command(after_help = VERIFY_PROOF_HELP)]
pub(super) struct VerifyProofArgs {
    /// Verifier key.
    #[arg(long, value_name = "KEY", required_unless_present = "key_file")]
    key: Option<VerifierKey>,
    /// File that contains the verifier key.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    key_file: Option<PathBuf>,
    /// For a consistency proof: file with the signed note of the earlier size.
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Print what is proven as one JSON object.
    #[arg(long)]
    json: bool,
    /// File with the proof, as printed by `prove`; `-` for standard input.
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
        (None, None) => {
            return Err(Coded::error(Exit::Usage, "give an event id, or --consistency"));
        }
    };
    out::json(&json)?;
    store.close()?;
    Ok(Exit::Ok)
}

fn refused(error: ReadError) -> anyhow::Error {
    Coded::wrap(Exit::Failed, "cannot make the proof", error.into())
}

pub(super) fn verify_proof(args: &VerifyProofArgs) -> anyhow::Result<Exit> {
    let key = match (&args.key, &args.key_file) {
        (Some(key), _) => key.clone(),
        (None, Some(path)) => {
            let text = read(path)?;
            text.trim().parse().map_err(|error| {
                Coded::wrap(Exit::Usage, format!("{} is not a verifier key", path.display()), {
                    let error: forebay_events::checkpoint::KeyError = error;
                    error.into()
                })
            })?
        }
        (None, None) => return Err(Coded::error(Exit::Usage, "--key or --key-file is required")),
    };
    let text = read(&args.proof)?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        let text = format!("{} is not a proof", args.proof.display());
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
        .map_err(|error| Coded::wrap(Exit::Failed, "the proof is not valid", error.into()))?;
    let event = format::leaf::decode(&included.leaf).map_err(|error| {
        Coded::wrap(Exit::Failed, "the proven leaf is not an event", error.into())
    })?;
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
        let text = "a consistency proof requires --since, the earlier checkpoint";
        return Err(Coded::error(Exit::Usage, text));
    };
    let failed = |error: anyhow::Error| Coded::wrap(Exit::Failed, "the proof is not valid", error);
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
