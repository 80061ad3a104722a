//! `forebay config show` and `forebay config init`.

use super::settings::{ServerArgs, wrong};
use crate::config::{show_human, show_json, template};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Print every setting, its value, and the source of the value.
    ///
    /// Accepts the flags of `forebay serve`, to show their effect. Without --json the output is a
    /// valid forebay.toml, except that passwords are hidden.
    Show(Box<ShowArgs>),
    /// Print a forebay.toml with every setting and its description, commented out at its default.
    ///
    /// Example: forebay config init > forebay.toml
    Init,
}

#[derive(clap::Args, Debug)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    settings: ServerArgs,
    /// Print one JSON object, by key.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Show(args) => {
            let resolved = args.settings.resolve()?;
            resolved.config().map_err(wrong)?;
            resolved.warnings().for_each(out::note);
            if args.json {
                out::json(&show_json(&resolved))?;
            } else {
                out::line(show_human(&resolved).trim_end())?;
            }
        }
        Command::Init => out::line(template().trim_end())?,
    }
    Ok(Exit::Ok)
}
