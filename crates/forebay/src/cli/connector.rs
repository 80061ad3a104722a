//! `forebay connector`: connectors that are WebAssembly components, in the data directory.

use std::path::PathBuf;

use super::connector_new::{self, NewArgs};
use super::connector_test::TestArgs;
use super::settings::DataArgs;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
A component runs in a sandbox: it reaches only the servers and directories that its pipeline
permits. An installed one is named in a pipeline file as `use: wasm:NAME`, or as `use: NAME` with
`sandbox: true`. docs/formats/connectors.md describes how they are written, in any language.

Examples:
  forebay connector new meters --language python
  forebay connector check ./meters.wasm
  forebay connector test ./meters.wasm --settings '{\"rows\": 5000}'
  forebay connector install ./meters.wasm --sha256 9f86d081884c7d65...
  forebay connector list";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List the installed components.
    List(ListArgs),
    /// Check that a file is a connector, and print what it is; nothing is installed.
    Check(CheckArgs),
    /// Install a component, in the place of one with the same name.
    Install(InstallArgs),
    /// Remove an installed component.
    Remove(RemoveArgs),
    /// Write the project of a source in Rust, C or Python, which builds as it is.
    New(NewArgs),
    /// Test whether a component keeps the promises of a connector.
    Test(TestArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct CheckArgs {
    /// The component.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Expected SHA-256 of the file, in hexadecimal.
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct InstallArgs {
    /// The component.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its name in pipeline files [default: the name of the file].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Expected SHA-256 of the file, in hexadecimal; another file is refused.
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct RemoveArgs {
    /// Name of the component.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    data: DataArgs,
}

/// Runs a command.
///
/// # Errors
/// That of the command; this build has no components.
pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    if let Command::New(args) = command {
        return connector_new::run(args);
    }
    #[cfg(feature = "wasm")]
    return built::run(command);
    #[cfg(not(feature = "wasm"))]
    {
        Err(forebay_sdk::ConnectorError::not_built("connectors that are WebAssembly components")
            .into())
    }
}

#[cfg(feature = "wasm")]
mod built {
    use forebay_base::printable::printable;
    use forebay_wasm::inspect::Roles;
    use forebay_wasm::installed::{Connectors, InstallError, Manifest};
    use serde_json::{Value, json};

    use super::{CheckArgs, Command, InstallArgs, ListArgs, RemoveArgs};
    use crate::cli::settings::DataArgs;
    use crate::exit::{Coded, Exit};
    use crate::{data_dir, out, pipelines};

    pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
        match command {
            Command::List(args) => list(args),
            Command::Check(args) => check(args),
            Command::Install(args) => install(args),
            Command::Remove(args) => remove(args),
            Command::New(args) => super::connector_new::run(args),
            Command::Test(args) => crate::cli::connector_test::run(args),
        }
    }

    fn connectors(data: &DataArgs) -> anyhow::Result<Connectors> {
        Ok(pipelines::installed_in(&data.resolve()?.config()?.process.data))
    }

    /// A wrong name or hash is a wrong command line.
    fn coded(error: InstallError) -> anyhow::Error {
        match error {
            InstallError::Name { .. } => Coded::wrap(Exit::Usage, "invalid name", error.into()),
            error => error.into(),
        }
    }

    fn json_of(manifest: &Manifest) -> Value {
        json!({
            "name": manifest.name,
            "use": format!("wasm:{}", manifest.name),
            "sha256": manifest.sha256,
            "size_bytes": manifest.size,
            "roles": roles_of(&manifest.roles),
        })
    }

    fn roles_of(roles: &Roles) -> Value {
        let of = |role: &forebay_wasm::inspect::Role| {
            json!({
                "version": role.version,
                "description": role.description,
                "settings": role.settings,
            })
        };
        json!({
            "source": roles.source.as_ref().map(of),
            "destination": roles.destination.as_ref().map(|destination| of(&destination.role)),
            "transform": roles.transform.as_ref().map(of),
        })
    }

    /// The description of a component and its version.
    fn said(roles: &Roles) -> String {
        let destination = roles.destination.as_ref().map(|destination| &destination.role);
        let first = roles.source.as_ref().or(destination).or(roles.transform.as_ref());
        first.map_or_else(String::new, |role| {
            format!("{}  {}", printable(&role.version), printable(&role.description))
        })
    }

    fn list(args: &ListArgs) -> anyhow::Result<Exit> {
        let found = connectors(&args.data)?.list();
        if args.json {
            out::json(&json!({ "connectors": found.iter().map(json_of).collect::<Vec<_>>() }))?;
            return Ok(Exit::Ok);
        }
        for manifest in &found {
            let roles = manifest.roles.names().collect::<Vec<_>>().join(", ");
            let name = format!("wasm:{}", manifest.name);
            out::line(format_args!("{name:<24}  {roles:<20}  {}", said(&manifest.roles)))?;
        }
        if found.is_empty() {
            out::note("no component is installed");
        }
        Ok(Exit::Ok)
    }

    fn check(args: &CheckArgs) -> anyhow::Result<Exit> {
        let connectors = connectors(&args.data)?;
        let (_, roles) = connectors.inspect(&args.file, args.sha256.as_deref()).map_err(coded)?;
        if args.json {
            out::json(&roles_of(&roles))?;
            return Ok(Exit::Ok);
        }
        let names = roles.names().collect::<Vec<_>>().join(", ");
        out::line(format_args!("{names}: {}", said(&roles)))?;
        Ok(Exit::Ok)
    }

    fn install(args: &InstallArgs) -> anyhow::Result<Exit> {
        let config = args.data.resolve()?.config()?;
        data_dir::make(&config.process.data)?;
        let connectors = pipelines::installed_in(&config.process.data);
        let stem = || args.file.file_stem().map(|stem| stem.to_string_lossy().replace('_', "-"));
        let name = args.name.clone().or_else(stem).unwrap_or_default();
        let manifest =
            connectors.install(&name, &args.file, args.sha256.as_deref()).map_err(coded)?;
        if args.json {
            out::json(&json_of(&manifest))?;
            return Ok(Exit::Ok);
        }
        let roles = manifest.roles.names().collect::<Vec<_>>().join(", ");
        out::line(format_args!(
            "installed wasm:{} ({roles}), SHA-256 {}",
            manifest.name, manifest.sha256
        ))?;
        Ok(Exit::Ok)
    }

    fn remove(args: &RemoveArgs) -> anyhow::Result<Exit> {
        connectors(&args.data)?.remove(&args.name).map_err(coded)?;
        out::line(format_args!("removed wasm:{}", args.name))?;
        Ok(Exit::Ok)
    }
}
