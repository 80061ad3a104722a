//! The body of a request to a witness (C2SP tlog-witness, `add-checkpoint`).
//!
//! ```text
//! old <size of the checkpoint that the witness cosigned last>
//! <base64 of a hash of the consistency proof>   at most 63 lines
//!
//! <checkpoint, a signed note>
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::body::parse_size;
use super::{NOTE_SIZE_MAX, SignedNote};
use crate::merkle::Hash;

/// Maximum number of hashes in a proof.
pub const PROOF_LINES_MAX: usize = 63;
/// Maximum size of a body: a note, and before it at most 63 hashes and the old size.
pub const ADD_CHECKPOINT_SIZE_MAX: usize = NOTE_SIZE_MAX + 4096;

/// A checkpoint to be cosigned, with the proof that it extends an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddCheckpoint {
    /// Size of the earlier checkpoint; 0: there is none.
    pub old: u64,
    /// Proof of consistency from it; empty if there is none.
    pub proof: Vec<Hash>,
    /// The checkpoint.
    pub note: SignedNote,
}

impl AddCheckpoint {
    /// Returns the body.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut body = format!("old {}\n", self.old);
        for hash in &self.proof {
            body.push_str(&STANDARD.encode(hash.0));
            body.push('\n');
        }
        body.push('\n');
        body.push_str(&self.note.to_string());
        body
    }

    /// Parses a body; verifies nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(body: &[u8]) -> Result<Self, &'static str> {
        if body.len() > ADD_CHECKPOINT_SIZE_MAX {
            return Err("it is too large");
        }
        let body = str::from_utf8(body).map_err(|_| "it is not UTF-8")?;
        let (head, note) = body.split_once("\n\n").ok_or("it has no empty line")?;
        let mut lines = head.split('\n');
        let old = lines.next().and_then(|line| line.strip_prefix("old "));
        let old = old.and_then(parse_size).ok_or("its first line is not `old` and a size")?;
        let mut proof = Vec::new();
        for line in lines {
            if proof.len() == PROOF_LINES_MAX {
                return Err("its proof has more than 63 lines");
            }
            let hash = STANDARD.decode(line).ok().and_then(|bytes| bytes.try_into().ok());
            proof.push(Hash(hash.ok_or("a line of its proof is not 32 bytes in base64")?));
        }
        let note = SignedNote::parse(note.as_bytes());
        Ok(Self { old, proof, note: note.map_err(|_| "its checkpoint is not a signed note")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of tlog-witness.
    const NOTE: &str = "example.com/behind-the-sofa\n20852163\n\
        CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
        \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n";
    const HEAD: &str = "old 20852014\n\
        PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n\
        jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=\n\
        5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=\n\
        /6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=\n";

    #[test]
    fn the_published_example_is_parsed_and_written_again() {
        let body = format!("{HEAD}\n{NOTE}");
        let parsed = AddCheckpoint::parse(body.as_bytes()).unwrap();
        assert_eq!((parsed.old, parsed.proof.len()), (20_852_014, 4));
        assert_eq!(parsed.note.to_string(), NOTE);
        assert_eq!(parsed.encode(), body);
        let first = AddCheckpoint { old: 0, proof: Vec::new(), ..parsed };
        assert_eq!(first.encode(), format!("old 0\n\n{NOTE}"));
        assert_eq!(AddCheckpoint::parse(first.encode().as_bytes()), Ok(first));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let hash = "PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n";
        for (body, reason) in [
            (String::new(), "no empty line"),
            (NOTE.to_owned(), "its first line"),
            (format!("old 01\n\n{NOTE}"), "its first line"),
            (format!("old -1\n\n{NOTE}"), "its first line"),
            (format!("old 99999999999999999999\n\n{NOTE}"), "its first line"),
            (format!("old 5\nAAAA\n\n{NOTE}"), "a line of its proof"),
            (format!("old 5\n{}\n{NOTE}", hash.repeat(64)), "more than 63"),
            (format!("old 5\n\n{}", &NOTE[..60]), "not a signed note"),
            ("x".repeat(ADD_CHECKPOINT_SIZE_MAX + 1), "too large"),
        ] {
            let found = AddCheckpoint::parse(body.as_bytes()).unwrap_err();
            assert!(found.contains(reason), "{found}: {body:.80}");
        }
        assert!(AddCheckpoint::parse(&[b'o', 0xff]).is_err());
        let most = format!("old 5\n{}\n{NOTE}", hash.repeat(63));
        assert_eq!(AddCheckpoint::parse(most.as_bytes()).unwrap().proof.len(), 63);
    }
}
