//! Coroutine-local values.
//!
//! Owns: [`LocalKey`]. Called by: applications. The values are at the root of the coroutine's stack
//! (`switch`), and are dropped with it.

use crate::switch::with_current;
use std::any::Any;
use std::fmt;
use std::rc::Rc;

/// Declares a coroutine-local value, like `thread_local!`.
///
/// ```
/// use std::cell::Cell;
///
/// ringloop_coro::coroutine_local! {
///     /// Requests that this coroutine has served.
///     static SERVED: Cell<u32> = Cell::new(0);
/// }
///
/// ringloop_coro::start(1, || {
///     let count = || {
///         SERVED.with(|served| served.set(served.get() + 1));
///         SERVED.with(Cell::get)
///     };
///     assert_eq!((count(), count()), (1, 2));
///     assert_eq!(ringloop_coro::spawn(count).join().unwrap(), 1);
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[macro_export]
macro_rules! coroutine_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {$(
        $(#[$attribute])*
        $visibility static $name: $crate::LocalKey<$type> = $crate::LocalKey::new(|| $value);
    )*};
}

/// A coroutine-local value; [`coroutine_local!`] declares one.
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> Self {
        Self { init }
    }

    /// Uses the value of the running coroutine, which its first use initializes.
    ///
    /// # Panics
    /// Outside of a coroutine.
    #[track_caller]
    pub fn with<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        match self.try_with(work) {
            Some(result) => result,
            None => panic!(
                "a coroutine's local value was used outside of a coroutine: use thread_local! there, or LocalKey::try_with"
            ),
        }
    }

    /// As [`LocalKey::with`]; `None` outside of a coroutine.
    pub fn try_with<R>(&'static self, work: impl FnOnce(&T) -> R) -> Option<R> {
        let key = std::ptr::from_ref(self).addr();
        with_current(|frame| {
            let locals = &frame?.locals;
            // No borrow is held while a value is initialized, used or dropped.
            let value = locals.find(key).unwrap_or_else(|| {
                let made: Rc<dyn Any> = Rc::new((self.init)());
                locals.insert(key, Rc::clone(&made));
                made
            });
            value.downcast_ref().map(work)
        })
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}
