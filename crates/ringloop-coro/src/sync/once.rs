//! A value that is initialized once, by a function that may park.
//!
//! Owns: [`OnceLock`]. Called by: coroutines and threads.

use super::semaphore::Semaphore;
use std::fmt;

/// A value that is initialized at its first use.
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
    /// One permit: to initialize the value.
    permit: std::sync::OnceLock<Semaphore>,
}

impl<T> OnceLock<T> {
    /// A cell without a value.
    pub const fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), permit: std::sync::OnceLock::new() }
    }

    /// The value, if it is initialized.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value.
    ///
    /// # Errors
    /// Returns `value` if there is a value already.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)
    }

    /// The value; the first caller initializes it by `make`, while others wait.
    ///
    /// If `make` panics or its coroutine is cancelled, the next caller initializes it. A `make`
    /// that uses the same cell deadlocks.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _permit = self.permit.get_or_init(|| Semaphore::new(1)).acquire(1);
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
