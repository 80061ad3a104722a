//! `forebay inventory tui`: browse an index in a terminal.
//!
//! [`state`] holds the position and handles keys, [`view`] reads from the index what to show,
//! [`draw`] draws it. The terminal is restored however the program ends: quit, failure, panic or
//! signal.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_inventory::cost::{CostError, Pricer};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::state::{Browser, Flow};
use self::view::View;
use super::inventory::{no_prefix, open};
use super::inventory_report::prices;
use crate::exit::{Coded, Exit};
use crate::interrupt::Interrupt;

mod draw;
mod find;
mod list;
mod state;
#[cfg(test)]
mod tests;
mod view;

const HELP: &str = "\
Examples:
  forebay inventory tui --index ./index
  forebay inventory tui --index ./index logs/2026/

Enter opens a prefix, left returns; b, v, x, o, n and c sort by billed, current and noncurrent
bytes, objects, name and cost; / finds a prefix by typing; i shows classes, sizes and ages; ? shows
all keys; q quits.

Exit codes: 0 quit; 1 the index is damaged; 2 there is no terminal; 3 the prefix does not exist; 130
ended by SIGINT or SIGTERM.";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Directory of the index.
    #[arg(long = "index", value_name = "DIR")]
    dir: PathBuf,
    /// Prefix to open first.
    #[arg(value_name = "PREFIX", default_value = "")]
    prefix: OsString,
    /// TOML file with prices [default: Amazon S3 in us-east-1].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        let text = "the browser needs a terminal; `forebay inventory children` prints prefixes, and \
                    `forebay inventory export` writes them to a file";
        return Err(Coded::error(Exit::Usage, text));
    }
    let prices = prices(args.prices.as_deref())?;
    let index = open(&args.dir)?;
    let pricer = match Pricer::new(&index, &prices) {
        Ok(pricer) => Some(pricer),
        Err(CostError::NoHistograms) => None,
        Err(error) => return Err(error.into()),
    };
    let Some(mut browser) = Browser::open(&index, pricer, args.prefix.as_bytes())? else {
        return Err(no_prefix(&index, args.prefix.as_bytes())?);
    };
    // From here on a panic restores the terminal before it is reported.
    let interrupt = Interrupt::listen()?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let browsed = browse(&mut terminal, &mut browser, &interrupt);
    let restored = ratatui::try_restore().context("cannot restore the terminal");
    let exit = browsed?;
    restored?;
    Ok(exit)
}

/// Maximum delay before a signal is noticed while no key is pressed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Draws, and handles keys until the end.
fn browse(
    terminal: &mut DefaultTerminal,
    browser: &mut Browser<'_>,
    interrupt: &Interrupt,
) -> anyhow::Result<Exit> {
    loop {
        let height = terminal.size().context("cannot read the terminal's size")?.height;
        browser.resize(usize::from(height.saturating_sub(draw::LINES_AROUND)));
        let view = View::of(browser)?;
        terminal.draw(|frame| draw::draw(frame, &view)).context("cannot draw")?;
        while !event::poll(LOOK_EVERY).context("cannot read the terminal")? {
            if interrupt.asked() {
                return Ok(Exit::Interrupted);
            }
        }
        // A change of the terminal's size is an event too, and leads to a redraw.
        let event = event::read().context("cannot read the terminal")?;
        let Event::Key(key) = event else { continue };
        if key.kind != KeyEventKind::Release && browser.key(key)? == Flow::Quit {
            return Ok(Exit::Ok);
        }
    }
}
