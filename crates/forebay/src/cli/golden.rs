//! The help of every command is compared with `tests/golden/help/`: one file for each command of the
//! first level, with those below it.
//!
//! A difference is a change that users see. `FOREBAY_UPDATE_GOLDEN=1 cargo test help_` writes the
//! files again; the change is then reviewed with them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::CommandFactory as _;

use super::Cli;

/// Columns of the terminal that the help is written for.
const COLUMNS: usize = 100;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help")
}

/// Appends the help of `command` and of every command below it.
fn help(command: &mut clap::Command, path: &str, out: &mut String) {
    let title = format!("$ {path} --help");
    let text = command.clone().term_width(COLUMNS).render_long_help();
    writeln!(out, "{title}\n{}\n", text.to_string().trim_end()).unwrap();
    let below: Vec<String> = visible(command).map(|below| below.get_name().to_owned()).collect();
    for name in below {
        let below = command.find_subcommand_mut(&name).unwrap();
        help(below, &format!("{path} {name}"), out);
    }
}

fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

/// The golden files as they must be: names and text.
fn wanted() -> BTreeMap<String, String> {
    let mut command = Cli::command();
    command.build();
    let mut files = BTreeMap::new();
    let text = command.clone().term_width(COLUMNS).render_long_help().to_string();
    files.insert("forebay.txt".to_owned(), format!("$ forebay --help\n{}\n", text.trim_end()));
    let names: Vec<String> = visible(&command).map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let mut out = String::new();
        help(command.find_subcommand_mut(&name).unwrap(), &format!("forebay {name}"), &mut out);
        files.insert(format!("{name}.txt"), format!("{}\n", out.trim_end()));
    }
    files
}

#[test]
fn help_of_every_command_is_the_reviewed_one() {
    let (directory, wanted) = (directory(), wanted());
    if std::env::var_os("FOREBAY_UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in &wanted {
            std::fs::write(directory.join(name), text).unwrap();
        }
    }
    for (name, text) in &wanted {
        let golden = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let differs = text.lines().zip(golden.lines()).find(|(new, old)| new != old);
        assert!(
            *text == golden,
            "{name} differs at {differs:?}; FOREBAY_UPDATE_GOLDEN=1 writes the files again"
        );
    }
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(wanted.contains_key(&name), "{name} is the help of no command");
    }
}

/// A longer line would be wrapped after its last words, and the rest would stand alone.
#[test]
fn help_has_no_line_that_is_wrapped_in_the_middle_of_a_paragraph() {
    fn check(command: &clap::Command) {
        let texts = [command.get_after_help(), command.get_after_long_help()];
        for text in texts.into_iter().flatten().map(ToString::to_string) {
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS, "{}: {line}", command.get_name());
            }
        }
        visible(command).for_each(check);
    }
    check(&Cli::command());
}
