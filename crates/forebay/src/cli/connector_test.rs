//! `forebay connector test`: whether a component keeps the promises of a connector, for its author.
//!
//! The promises are those of `forebay_sdk::acceptance`. Each is reported by itself.

use std::path::PathBuf;

use forebay_base::ByteSize;

use super::settings::DataArgs;

const AFTER_HELP: &str = "\
A promise that is broken is reported with what was found; the exit code is then 1. The rows of the
streams must not change during the test, and are read about twelve times: use small ones.

A destination is written to only with `--into`, which names a table that does not exist. The test
leaves 80 rows in it.

Examples:
  forebay connector test ./meters.wasm --settings '{\"rows\": 5000}'
  forebay connector test meters --settings @settings.json --stream readings --cursor-field id
  forebay connector test warehouse --settings @settings.json --into scratch_table
  forebay connector test clean --settings '{\"columns\": [\"city\"]}' --column city=text";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TestArgs {
    /// A component, or the name of an installed one.
    #[arg(value_name = "FILE|NAME")]
    component: PathBuf,
    /// Test only this role [default: all roles that the component has].
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<RoleName>,
    /// Settings of the connector, as a JSON object or as @FILE. `${NAME}` in them is replaced by the
    /// environment's value.
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    settings: String,
    /// Test only this stream of a source [default: all streams that it lists]. May be repeated.
    #[arg(long = "stream", value_name = "NAME")]
    streams: Vec<String>,
    /// Read the streams of a source incrementally, by this column.
    #[arg(long, value_name = "COLUMN")]
    cursor_field: Option<String>,
    /// Size of the units into which streams are divided. With a size that gives one unit, what units promise together
    /// is not tested.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = unit_size)]
    unit_size: ByteSize,
    /// Write generated rows into this table, collection or file of a destination, which must not exist.
    #[arg(long, value_name = "NAME")]
    into: Option<String>,
    /// Column of the generated rows for a destination or a transform [default: `id`, `note`, `amount` and
    /// `is it`]. May be repeated.
    #[arg(long = "column", value_name = "NAME=TYPE")]
    columns: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// Reads a size of units: a source cannot divide a stream into units without bytes.
fn unit_size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.0 > 0 => Ok(size),
        Ok(_) => Err("use a size of at least 1B".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum RoleName {
    /// As a source.
    Source,
    /// As a destination.
    Destination,
    /// As a transform.
    Transform,
}

#[cfg(feature = "wasm")]
pub(super) use built::run;

#[cfg(feature = "wasm")]
mod built {
    use anyhow::Context as _;
    use forebay_base::error_chain::chain;
    use forebay_base::printable::printable;
    use forebay_sdk::acceptance::{self, Findings, Outcome};
    use forebay_sdk::component::Column;
    use forebay_sdk::settings::StreamSettings;
    use forebay_sdk::settings::text::resolving;
    use forebay_sdk::values::types;
    use forebay_wasm::examine::{Accepted, Subject, Tried, resolved};
    use serde_json::{Value, json};

    use super::{RoleName, TestArgs};
    use crate::exit::{Coded, Exit};
    use crate::{out, pipelines};

    /// Maximum size of a file of settings, in bytes.
    const CONFIG_SIZE_MAX: u64 = 1 << 20;

    /// The promises of one role, or of one of its streams.
    struct Group {
        role: Tried,
        stream: Option<String>,
        findings: Findings,
    }

    /// Tests a component.
    ///
    /// # Errors
    /// There is no such component, or the arguments do not fit it.
    pub(in crate::cli) fn run(args: &TestArgs) -> anyhow::Result<Exit> {
        let config = config(args)?;
        let columns = columns(&args.columns)?;
        let subject = subject(args)?;
        let roles = roles(args, &subject)?;
        let runtime = super::super::pipeline::runtime()?;
        let mut groups = Vec::new();
        for role in roles {
            let (findings, accepted) = runtime.block_on(subject.examine(role, &config));
            groups.push(Group { role, stream: None, findings });
            if let Some(accepted) = accepted {
                runtime.block_on(examine(args, role, &accepted, &columns, &mut groups))?;
            }
        }
        report(args, &groups)
    }

    /// The settings, with their names replaced.
    fn config(args: &TestArgs) -> anyhow::Result<Value> {
        let wrong = |error: anyhow::Error| Coded::wrap(Exit::Usage, "invalid --settings", error);
        let text = match args.settings.strip_prefix('@') {
            None => args.settings.clone(),
            Some(path) => {
                let size = std::fs::metadata(path).map(|found| found.len());
                let size = size.with_context(|| format!("cannot read {path}")).map_err(wrong)?;
                if size > CONFIG_SIZE_MAX {
                    return Err(wrong(anyhow::anyhow!("{path} has {size} bytes")));
                }
                let text = std::fs::read_to_string(path);
                text.with_context(|| format!("cannot read {path}")).map_err(wrong)?
            }
        };
        let config: Value = serde_json::from_str(&text).map_err(|error| wrong(error.into()))?;
        if !config.is_object() {
            return Err(wrong(anyhow::anyhow!("it is not a JSON object")));
        }
        let resolver = std::rc::Rc::new(pipelines::resolve);
        let resolved = resolving(resolver, || resolved(config));
        resolved.map_err(|error| wrong(anyhow::anyhow!(error)))
    }

    /// The columns of generated rows.
    fn columns(named: &[String]) -> anyhow::Result<Vec<Column>> {
        if named.is_empty() {
            return Ok(acceptance::plain_columns());
        }
        let column = |text: &String| {
            let column = text.split_once('=').and_then(|(name, of)| types::column(name, of));
            column.ok_or_else(|| {
                let message =
                    format!("invalid --column {text:?}: write NAME=TYPE, as in id=bigint");
                Coded::error(Exit::Usage, message)
            })
        };
        named.iter().map(column).collect()
    }

    fn subject(args: &TestArgs) -> anyhow::Result<Subject> {
        let connectors = pipelines::installed_in(&args.data.resolve()?.config()?.process.data);
        let text = args.component.to_string_lossy();
        let is_file = args.component.is_file() || text.contains('/') || text.ends_with(".wasm");
        let (loaded, roles) = match is_file {
            true => connectors.inspect(&args.component, None),
            false => connectors.inspect_installed(text.strip_prefix("wasm:").unwrap_or(&text)),
        }?;
        Ok(Subject::new(loaded, roles))
    }

    fn roles(args: &TestArgs, subject: &Subject) -> anyhow::Result<Vec<Tried>> {
        let has = |role: &Tried| subject.role(*role).is_some();
        let Some(role) = args.role else {
            return Ok(Tried::ALL.into_iter().filter(has).collect());
        };
        let role = match role {
            RoleName::Source => Tried::Source,
            RoleName::Destination => Tried::Destination,
            RoleName::Transform => Tried::Transform,
        };
        if !has(&role) {
            let message = format!("the component is no {}", role.name());
            return Err(Coded::error(Exit::Usage, message));
        }
        Ok(vec![role])
    }

    /// Tests a role with settings that were accepted.
    async fn examine(
        args: &TestArgs,
        role: Tried,
        accepted: &Accepted,
        columns: &[Column],
        groups: &mut Vec<Group>,
    ) -> anyhow::Result<()> {
        let mut add = |stream: Option<&str>, findings| {
            groups.push(Group { role, stream: stream.map(str::to_owned), findings });
        };
        match role {
            Tried::Source => {
                let source = accepted.source();
                add(None, acceptance::check_source(&source).await);
                let (findings, found) = acceptance::discover_source(&source).await;
                add(None, findings);
                let names = if args.streams.is_empty() { found } else { args.streams.clone() };
                for name in names {
                    let stream = stream(args, &name)?;
                    let findings =
                        acceptance::examine_source(&source, &stream, args.unit_size.0, None).await;
                    add(Some(name.as_str()), findings);
                }
            }
            Tried::Destination => {
                let destination = accepted.destination();
                add(None, acceptance::check_destination(&destination).await);
                if let Some(into) = &args.into {
                    let findings = acceptance::examine_target(&destination, into, columns).await;
                    add(Some(into.as_str()), findings);
                }
            }
            Tried::Transform => {
                let open = async |columns: &[Column]| accepted.transform("rows", columns).await;
                add(None, acceptance::examine_transform(open, columns).await);
            }
        }
        Ok(())
    }

    fn stream(args: &TestArgs, name: &str) -> anyhow::Result<StreamSettings> {
        let mut stream = json!({ "name": name });
        if let Some(fields) = stream.as_object_mut()
            && let Some(cursor) = &args.cursor_field
        {
            fields.insert("sync_mode".to_owned(), json!("incremental"));
            fields.insert("cursor_field".to_owned(), json!(cursor));
        }
        serde_json::from_value(stream).context("invalid stream")
    }

    /// The name of an outcome, and what was found.
    fn shown(outcome: &Outcome) -> (&'static str, Option<String>) {
        match outcome {
            Outcome::Kept => ("passed", None),
            Outcome::Broken(failure) => ("failed", Some(chain(failure).to_string())),
            Outcome::Untested(reason) => ("skipped", Some((*reason).to_owned())),
        }
    }

    fn report(args: &TestArgs, groups: &[Group]) -> anyhow::Result<Exit> {
        let count = |name: &str| {
            let all = groups.iter().flat_map(|group| group.findings.iter());
            all.filter(|finding| shown(&finding.outcome).0 == name).count()
        };
        let (passed, failed, skipped) = (count("passed"), count("failed"), count("skipped"));
        if args.json {
            let checks = groups.iter().flat_map(|group| {
                group.findings.iter().map(|finding| {
                    let (outcome, found) = shown(&finding.outcome);
                    json!({
                        "role": group.role.name(), "stream": group.stream, "check": finding.claim,
                        "outcome": outcome, "found": found,
                    })
                })
            });
            out::json(&json!({
                "component": args.component.display().to_string(),
                "passed": passed, "failed": failed, "skipped": skipped,
                "checks": checks.collect::<Vec<_>>(),
            }))?;
        } else {
            let mut title = String::new();
            for group in groups {
                let stream = group.stream.as_deref().map(|name| format!(" {}", printable(name)));
                let next = format!("{}{}", group.role.name(), stream.unwrap_or_default());
                if title != next {
                    out::line(&next)?;
                    title = next;
                }
                for finding in group.findings.iter() {
                    print(finding)?;
                }
            }
            out::line(format_args!("{passed} passed, {failed} failed, {skipped} skipped"))?;
        }
        Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
    }

    /// Prints a promise, and what was found if that is of interest.
    fn print(finding: &acceptance::Finding) -> anyhow::Result<()> {
        let (outcome, found) = shown(&finding.outcome);
        match found {
            None => out::line(format_args!("  {outcome:<8}{}", finding.claim)),
            Some(found) => {
                // A failure begins with the promise.
                let found = found.strip_prefix(finding.claim).unwrap_or(&found);
                let found = printable(found.trim_start_matches([':', ' '])).into_owned();
                out::line(format_args!("  {outcome:<8}{}\n          {found}", finding.claim))
            }
        }
    }
}
