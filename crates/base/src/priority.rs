//! Threads whose work can wait for that of others.

/// How much lower the priority is: next to a thread of the usual priority, a tenth of the processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Lets the calling thread run only where threads of the usual priority leave a processor free, or
/// nearly so. For work in the background that others must not wait for.
///
/// Does nothing where a system has priorities of processes alone.
///
/// # Errors
/// The system refused: the thread keeps its priority.
pub fn lower() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    if rustix::process::getpriority_process(None)? < NICE {
        rustix::process::setpriority_process(None, NICE)?;
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn only_the_calling_thread_has_a_lower_priority() {
        let of_this = || rustix::process::getpriority_process(None).unwrap();
        let usual = of_this();
        let lowered = std::thread::spawn(move || {
            super::lower().unwrap();
            of_this()
        });
        assert_eq!(lowered.join().unwrap(), usual.max(super::NICE));
        assert_eq!(of_this(), usual);
    }
}
