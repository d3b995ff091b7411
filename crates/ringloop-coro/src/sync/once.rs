//! A value that is made once, by whoever comes first; making it may park.

use super::semaphore::Semaphore;
use std::fmt;

/// A value that is made at the first use.
///
/// ```
/// use ringloop_coro::sync::OnceLock;
///
/// static GREETING: OnceLock<String> = OnceLock::new();
///
/// ringloop_coro::start(1, || {
///     let made = GREETING.get_or_init(|| {
///         ringloop_coro::yield_now(); // the others wait
///         "hello".to_owned()
///     });
///     assert_eq!(made, "hello");
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// One permit, for whoever makes the value.
    turn: std::sync::OnceLock<Semaphore>,
}

impl<T> OnceLock<T> {
    /// Without a value.
    pub const fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            turn: std::sync::OnceLock::new(),
        }
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Give it its value; what comes second is returned.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)
    }

    /// The value; `make` makes it where nobody has, and whoever comes meanwhile waits.
    ///
    /// Where `make` panics or its coroutine is cancelled, the next one makes the value. A `make` that asks for the
    /// same value waits for itself.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _permit = self.turn.get_or_init(|| Semaphore::new(1)).acquire(1);
        if let Some(value) = self.value.get() {
            return value;
        }
        let value = make();
        self.value.get_or_init(|| value)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}
