//! Claims about the command line.

use clap::{CommandFactory as _, Parser as _};

use super::Cli;

#[test]
fn the_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_mistyped_flag_is_answered_with_the_right_one() {
    let error = Cli::try_parse_from(["forebay", "serve", "--lisen", "x"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--listen"), "{error}");
}

#[test]
fn a_mistyped_command_is_answered_with_the_right_one() {
    let error = Cli::try_parse_from(["forebay", "serv"]).unwrap_err();
    assert!(error.to_string().contains("'serve'"), "{error}");
}
