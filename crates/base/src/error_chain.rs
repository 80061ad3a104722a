//! Prints an error together with all its causes.
//!
//! Errors in this workspace never repeat their source in `Display`, so the joined chain reports
//! each cause once. Foreign errors sometimes repeat it: a message with which the previous message
//! already ends is left out.

use std::{error::Error, fmt};

/// Returns `error` and its sources as one line, joined by `": "`.
///
/// ```
/// use forebay_base::error_chain::chain;
/// let error = std::io::Error::other("disk on fire");
/// assert_eq!(chain(&error).to_string(), "disk on fire");
/// ```
pub fn chain(error: &dyn Error) -> impl fmt::Display {
    Chain(error)
}

struct Chain<'a>(&'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            let message = error.to_string();
            if !said.ends_with(&message) {
                write!(f, ": {message}")?;
                said = message;
            }
            next = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    fn link(message: &'static str, source: Option<Link>) -> Link {
        Link(message, source.map(Box::new))
    }

    #[test]
    fn every_cause_is_said_once() {
        let error = link("open log", Some(link("read header", Some(link("EIO", None)))));
        assert_eq!(chain(&error).to_string(), "open log: read header: EIO");
    }

    #[test]
    fn a_message_that_repeats_its_source_is_not_doubled() {
        let error = link("open log: EIO", Some(link("EIO", Some(link("bad cable", None)))));
        assert_eq!(chain(&error).to_string(), "open log: EIO: bad cable");
    }
}
