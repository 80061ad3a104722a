//! Time, pauses and tasks, where a connector runs.
//!
//! In a process they are those of the standard library and of tokio. In a sandbox there are neither a clock nor a
//! runtime: what runs the component installs its own.
//!
//! Invariant: a connector that takes them from here is the same code in both places.

#[cfg(not(target_family = "wasm"))]
pub use native::{Instant, now_us, random, sleep, spawn, timeout};
#[cfg(target_family = "wasm")]
pub use sandbox::{
    Instant, Platform, Transport, connect, install, now_us, random, read_file, sleep, spawn,
    timeout,
};

/// A future took longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time limit has passed")]
pub struct Elapsed;

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    pub use std::time::Instant;
    pub use tokio::time::sleep;

    /// Microseconds since 1970.
    #[must_use]
    pub fn now_us() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// A number that no other process gets: for names, not for secrets.
    #[must_use]
    pub fn random() -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// Runs a future to its end, beside others.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        // It ends by itself, and reports nothing.
        drop(tokio::spawn(future));
    }

    /// Waits for a future, but not longer than a limit.
    ///
    /// # Errors
    /// The limit has passed.
    pub async fn timeout<T>(
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, super::Elapsed> {
        tokio::time::timeout(limit, future).await.map_err(|_| super::Elapsed)
    }
}

#[cfg(target_family = "wasm")]
mod sandbox {
    use std::future::poll_fn;
    use std::ops::{Add, Sub};
    use std::pin::{Pin, pin};
    use std::sync::OnceLock;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::io::{AsyncRead, AsyncWrite};

    use crate::error::ConnectorError;

    /// A connection to a server.
    pub trait Transport: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug {
        /// Encrypts it. The certificate is verified for the name that was connected to.
        ///
        /// * `trusted`: certificates (PEM) that are trusted instead of the system's.
        ///
        /// # Errors
        /// The certificate is not trusted, or the connection was lost.
        fn start_tls(&self, trusted: Option<&str>) -> Result<(), ConnectorError>;

        /// The hash of the server's certificate for channel bindings; empty without encryption.
        fn server_end_point(&self) -> Vec<u8>;
    }

    /// What runs a component.
    pub trait Platform: Send + Sync {
        /// Nanoseconds since an arbitrary point.
        fn monotonic_ns(&self) -> u64;

        /// Microseconds since 1970.
        fn now_us(&self) -> u64;

        /// A random number.
        fn random(&self) -> u64;

        /// A pause.
        fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

        /// Runs a future beside others.
        fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>);

        /// Connects to a server that the pipeline permits.
        ///
        /// # Errors
        /// It does not permit it, or the server was not reached.
        fn connect(
            &self,
            host: &str,
            port: u16,
            limit: Duration,
        ) -> Result<Box<dyn Transport>, ConnectorError>;

        /// Reads a file in a directory that the pipeline permits.
        ///
        /// # Errors
        /// It does not permit it, or the file cannot be read.
        fn read_file(&self, path: &str) -> Result<Vec<u8>, ConnectorError>;
    }

    static PLATFORM: OnceLock<&'static dyn Platform> = OnceLock::new();

    /// Sets what runs this component. Only the first call has an effect.
    pub fn install(platform: &'static dyn Platform) {
        PLATFORM.get_or_init(|| platform);
    }

    /// A point in time; zero where nothing was installed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Instant(Duration);

    impl Instant {
        /// Now.
        #[must_use]
        pub fn now() -> Self {
            Self(
                PLATFORM.get().map_or(Duration::ZERO, |platform| {
                    Duration::from_nanos(platform.monotonic_ns())
                }),
            )
        }

        /// The time since then.
        #[must_use]
        pub fn elapsed(&self) -> Duration {
            Self::now().0.saturating_sub(self.0)
        }

        /// The time between two points; zero if `earlier` is later.
        #[must_use]
        pub fn duration_since(&self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, duration: Duration) -> Self {
            Self(self.0.saturating_add(duration))
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, earlier: Self) -> Duration {
            self.duration_since(earlier)
        }
    }

    fn platform() -> Result<&'static dyn Platform, ConnectorError> {
        PLATFORM.get().copied().ok_or(ConnectorError::Stopped)
    }

    /// Connects to a server that the pipeline permits.
    ///
    /// # Errors
    /// It does not permit it, or the server was not reached.
    pub fn connect(
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<Box<dyn Transport>, ConnectorError> {
        platform()?.connect(host, port, limit)
    }

    /// Reads a file in a directory that the pipeline permits.
    ///
    /// # Errors
    /// It does not permit it, or the file cannot be read.
    pub fn read_file(path: &str) -> Result<Vec<u8>, ConnectorError> {
        platform()?.read_file(path)
    }

    /// Microseconds since 1970; zero where nothing was installed.
    #[must_use]
    pub fn now_us() -> u64 {
        PLATFORM.get().map_or(0, |platform| platform.now_us())
    }

    /// A number that no other process gets: for names, not for secrets.
    #[must_use]
    pub fn random() -> u64 {
        PLATFORM.get().map_or(0, |platform| platform.random())
    }

    /// Waits.
    pub async fn sleep(duration: Duration) {
        if let Some(platform) = PLATFORM.get() {
            platform.sleep(duration).await;
        }
    }

    /// Runs a future to its end, beside others.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        if let Some(platform) = PLATFORM.get() {
            platform.spawn(Box::pin(future));
        }
    }

    /// Waits for a future, but not longer than a limit.
    ///
    /// # Errors
    /// The limit has passed.
    pub async fn timeout<T>(
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, super::Elapsed> {
        let (mut future, mut limit) = (pin!(future), pin!(sleep(limit)));
        poll_fn(|context| {
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            limit.as_mut().poll(context).map(|()| Err(super::Elapsed))
        })
        .await
    }
}
