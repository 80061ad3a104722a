//! `forebay s3 secret`.

use anyhow::{bail, ensure};
use forebay_api::keys::{KeyFile, MasterKey};
use serde_json::json;

use super::settings::{DataArgs, wrong};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Print the S3 credentials of an API key.
    ///
    /// The access key id is the id of the API key. The secret is derived from the master key of the data
    /// directory, so it can be printed again. Revoking the API key ends both.
    #[command(after_help = "Examples:
  forebay s3 secret 3f9c0a1b2c3d
  export $(forebay s3 secret laptop)")]
    Secret(SecretArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct SecretArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Id of the key, or its name if no other valid key has the same name.
    #[arg(value_name = "ID")]
    id: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Secret(args) => secret(args),
    }?;
    Ok(Exit::Ok)
}

fn secret(args: &SecretArgs) -> anyhow::Result<()> {
    let config = args.data.resolve()?.config().map_err(wrong)?;
    let data = &config.process.data;
    let keys = KeyFile::in_data_dir(data).read()?.unwrap_or_default();
    let valid = || keys.iter().filter(|key| key.revoked.is_none());
    let by_id = valid().find(|key| key.id == args.id);
    let mut named = valid().filter(|key| key.name == args.id);
    let by_name = named.next().filter(|_| named.next().is_none());
    let count = valid().filter(|key| key.name == args.id).count();
    let Some(key) = by_id.or(by_name) else {
        ensure!(
            count < 2,
            "{count} valid keys have the name {:?}; name one by its id, which forebay key list prints",
            args.id
        );
        bail!(
            "no valid key {:?} in {}; forebay key list prints the ids of all keys",
            args.id,
            data.display()
        );
    };
    let secret = forebay_s3::secret(&MasterKey::open(data)?, &key.id);
    if args.json {
        return out::json(&json!({ "access_key_id": key.id, "secret_access_key": secret }));
    }
    out::line(format_args!("AWS_ACCESS_KEY_ID={}", key.id))?;
    out::line(format_args!("AWS_SECRET_ACCESS_KEY={secret}"))
}
