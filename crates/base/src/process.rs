//! Whether a process of this machine is still running, so that no one waits for what it left.
//!
//! A process is identified by the machine's boot, its PID namespace, its PID, and its start time:
//! no other process has or gets the same. Nothing is known of a process on another machine, or in
//! another container.

use std::fs;

/// The identity of this process; `None` if the system does not reveal it.
#[must_use]
pub fn this() -> Option<String> {
    let started = started("self")?;
    Some(format!("{} {} {started}", place()?, std::process::id()))
}

/// Whether the process with this identity is known to have ended.
#[must_use]
pub fn is_gone(name: &str) -> bool {
    let of_name = || {
        let (at, rest) = name.split_once(' ')?;
        let (pid, then) = rest.split_once(' ')?;
        Some((at, pid.parse::<u32>().ok()?, then))
    };
    let Some((at, pid, then)) = of_name() else { return false };
    place().is_some_and(|here| here == at)
        && match fs::exists(format!("/proc/{pid}")) {
            Ok(false) => true,
            Ok(true) => started(&pid.to_string()).is_some_and(|started| started != then),
            Err(_) => false,
        }
}

/// The machine's boot id and the PID namespace.
fn place() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let namespace = namespace.to_str()?.replace(' ', "_");
    Some(format!("{}/{namespace}", boot.trim()))
}

/// The start time of a process, in ticks since the boot. A process that has ended but is not yet
/// reaped has none.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses, and may contain any characters.
    let (_, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    match fields.next()? {
        "Z" | "X" => Some("ended".into()),
        _ => fields.nth(18).map(ToOwned::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_it_ends() {
        let Some(this) = this() else { return };
        assert!(!is_gone(&this));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let at = place().unwrap();
        let name = format!("{at} {} {}", child.id(), started(&child.id().to_string()).unwrap());
        assert!(!is_gone(&name));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&name));
        assert!(is_gone(&format!("{at} {} 1", std::process::id())), "the number was used again");
        assert!(!is_gone(&format!("elsewhere {} 1", u32::MAX)));
        assert!(!is_gone("nonsense"));
    }
}
