//! Named profiles, as the AWS command line keeps them in `~/.aws/credentials` and `~/.aws/config`.
//!
//! Only keys stored in the profile are used. If a profile gets its keys in another way, by a role,
//! a sign-on or a program, the error names that way, which is not supported. No message has a
//! secret.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Coded, Exit};

/// The content of a profile.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) keys: Option<Keys>,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
    /// Settings that would lead to keys, but are not supported.
    other_ways: Vec<String>,
}

/// Keys that sign requests.
#[derive(PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) access: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

/// Settings by which a profile gets its keys if they are not stored.
const OTHER_WAYS: [&str; 6] = [
    "role_arn",
    "credential_process",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
    "login_session",
];

impl Profile {
    /// Reads a profile from the files of this user.
    ///
    /// # Errors
    /// There is no profile of that name, or it is not complete (exit code 2); a file cannot be
    /// read.
    pub(super) fn load(name: &str) -> anyhow::Result<Self> {
        let credentials = place("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        let config = place("AWS_CONFIG_FILE", "config")?;
        let found = Self::find(name, &read(&credentials)?, &read(&config)?);
        let found = found.map_err(|message| Coded::error(Exit::Usage, message))?;
        found.ok_or_else(|| {
            let (credentials, config) = (credentials.display(), config.display());
            let message = format!("there is no profile {name:?} in {credentials} or {config}");
            Coded::error(Exit::Usage, message)
        })
    }

    /// Returns the profile in the texts of both files; the first takes precedence.
    fn find(name: &str, credentials: &str, config: &str) -> Result<Option<Self>, String> {
        let mut found = Vec::new();
        let mut is_there = false;
        for (text, is_config) in [(credentials, false), (config, true)] {
            for line in Lines::new(text) {
                match line {
                    Line::Section(section) if is_profile(section, name, is_config) => {
                        is_there = true;
                    }
                    Line::Property(section, key, value) if is_profile(section, name, is_config) => {
                        found.push((key.to_ascii_lowercase(), value));
                    }
                    _ => {}
                }
            }
        }
        if !is_there {
            return Ok(None);
        }
        let of = |wanted: &str| {
            let value = found.iter().find(|(key, value)| key == wanted && !value.is_empty());
            value.map(|(_, value)| (*value).to_owned())
        };
        let keys = match (of("aws_access_key_id"), of("aws_secret_access_key")) {
            (Some(access), Some(secret)) => {
                Some(Keys { access, secret, token: of("aws_session_token") })
            }
            (None, None) => None,
            (Some(_), None) => {
                return Err(format!("profile {name:?} has no aws_secret_access_key"));
            }
            (None, Some(_)) => return Err(format!("profile {name:?} has no aws_access_key_id")),
        };
        let ways = OTHER_WAYS.iter().filter(|way| of(way).is_some());
        let other_ways = ways.map(|&way| way.to_owned()).collect();
        Ok(Some(Self { keys, region: of("region"), endpoint: of("endpoint_url"), other_ways }))
    }

    /// Returns why a profile has no keys (exit code 2).
    pub(super) fn no_keys(&self, name: &str) -> anyhow::Error {
        let message = match self.other_ways.first() {
            Some(way) => format!(
                "profile {name:?} gets its keys by {way}, which is not supported; set them in the \
                 environment with eval \"$(aws configure export-credentials --profile {name} \
                 --format env)\" and omit --profile"
            ),
            None => {
                format!("profile {name:?} has neither aws_access_key_id nor aws_secret_access_key")
            }
        };
        Coded::error(Exit::Usage, message)
    }
}

/// Returns the path of a file: that in a variable, or in `~/.aws`.
fn place(variable: &str, name: &str) -> anyhow::Result<PathBuf> {
    let given = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    match (given, home) {
        (Some(given), Some(home)) => {
            Ok(given.strip_prefix("~").map(|rest| home.join(rest)).unwrap_or(given.clone()))
        }
        (Some(given), None) => Ok(given),
        (None, Some(home)) => Ok(home.join(".aws").join(name)),
        (None, None) => {
            let message = format!("HOME is not set, nor is {variable}: there are no profiles");
            Err(Coded::error(Exit::Usage, message))
        }
    }
}

/// Returns the text of a file; none if it does not exist.
fn read(path: &Path) -> anyhow::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Returns whether a section is that of a profile: `[NAME]`, and in the configuration, which has
/// sections of other things too, `[profile NAME]` unless it is the default.
fn is_profile(section: &str, name: &str, is_config: bool) -> bool {
    if !is_config || name == "default" && section == name {
        return section == name;
    }
    let Some(rest) = section.strip_prefix("profile") else { return false };
    let named = rest.trim_start();
    let unquoted = named.strip_prefix('"').and_then(|named| named.strip_suffix('"'));
    named.len() < rest.len() && unquoted.unwrap_or(named) == name
}

/// A significant line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Section(&'a str),
    /// The section, the key, the value.
    Property(&'a str, &'a str, &'a str),
}

/// Returns the lines of such a file. Lines indented below a property belong to it and are skipped.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    section: &'a str,
    /// Indentation of the previous property.
    indent: Option<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { lines: text.lines(), section: "", indent: None }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.lines.next()?;
            let text = line.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some((section, _)) = text.strip_prefix('[').and_then(|it| it.split_once(']')) {
                self.section = section.trim();
                self.indent = None;
                return Some(Line::Section(self.section));
            }
            let indent = line.len() - line.trim_start().len();
            if self.indent.is_some_and(|above| indent > above) {
                continue;
            }
            self.indent = Some(indent);
            if let Some((key, value)) = text.split_once('=') {
                let value = without_comment(value.trim());
                return Some(Line::Property(self.section, key.trim(), value));
            }
        }
    }
}

/// Returns a value without the comment after it, which begins with a blank.
fn without_comment(value: &str) -> &str {
    let comment = value
        .match_indices(['#', ';'])
        .find(|(at, _)| value.get(..*at).is_some_and(|before| before.ends_with([' ', '\t'])));
    comment.and_then(|(at, _)| value.get(..at)).unwrap_or(value).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "\u{feff}# keys
[default]
aws_access_key_id=AKDEFAULT
aws_secret_access_key = se/cret=+== ; not part of it

[work]
  aws_access_key_id = AKWORK\r
  aws_secret_access_key = other
  aws_session_token = token==
[half]
aws_access_key_id = AKHALF
";
    const CONFIG: &str = "
[default]
region = eu-west-1
s3 =
    endpoint_url = http://nested.test
    region = nested
[profile work]
region=us-west-2
endpoint_url = https://s3.test:9000/
[work]
region = not-of-a-profile
[profile \"two words\"]
role_arn = arn:aws:iam::1:role/x
[profile empty]
";

    fn find(name: &str) -> Profile {
        Profile::find(name, CREDENTIALS, CONFIG).unwrap().unwrap()
    }

    #[test]
    fn a_profile_is_merged_from_both_files() {
        let default = find("default");
        let keys = default.keys.as_ref().unwrap();
        assert_eq!((&*keys.access, &*keys.secret), ("AKDEFAULT", "se/cret=+=="));
        assert!(keys.token.is_none());
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        assert_eq!(default.endpoint, None, "what is nested is another setting");
        let work = find("work");
        let keys = work.keys.as_ref().unwrap();
        assert_eq!((&*keys.access, keys.token.as_deref()), ("AKWORK", Some("token==")));
        assert_eq!(work.region.as_deref(), Some("us-west-2"));
        assert_eq!(work.endpoint.as_deref(), Some("https://s3.test:9000/"));
    }

    #[test]
    fn what_is_missing_is_said_and_no_secret_is() {
        assert!(Profile::find("nobody", CREDENTIALS, CONFIG).unwrap().is_none());
        let half = Profile::find("half", CREDENTIALS, CONFIG).err().unwrap();
        assert_eq!(half, "profile \"half\" has no aws_secret_access_key");
        let message = find("two words").no_keys("two words").to_string();
        assert!(message.contains("by role_arn"), "{message}");
        let message = find("empty").no_keys("empty").to_string();
        assert!(message.contains("neither"), "{message}");
    }
}
