//! Values that belong to a task, or to a part of one.
//!
//! Owns: [`LocalKey`]. Called by: applications. A value is in its thread's slot during the polls of its
//! scope, and in the scope's future between them.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

/// Declares task-local values, like `thread_local!`, without an initial value.
///
/// ```
/// ringloop::task_local! {
///     /// The request that the task serves.
///     static REQUEST: u32;
/// }
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let number = REQUEST.scope(7, async {
///     ringloop::time::yield_now().await;
///     REQUEST.with(|request| *request)
/// });
/// assert_eq!(number.await, 7);
/// assert!(REQUEST.try_with(|_| ()).is_err());
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty);* $(;)?) => {$(
        $(#[$attribute])*
        $visibility static $name: $crate::task::LocalKey<$type> = $crate::task::LocalKey::new({
            ::std::thread_local! {
                static SLOT: ::std::cell::RefCell<Option<::std::rc::Rc<$type>>> =
                    const { ::std::cell::RefCell::new(None) };
            }
            SLOT
        });
    )*};
}

/// A task-local value; [`task_local!`](crate::task_local) declares one.
pub struct LocalKey<T: 'static> {
    slot: std::thread::LocalKey<RefCell<Option<Rc<T>>>>,
}

/// A task-local value was used outside of its [`LocalKey::scope`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSet;

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(slot: std::thread::LocalKey<RefCell<Option<Rc<T>>>>) -> Self {
        Self { slot }
    }

    /// Runs `future` with the value: also across its waits, but not in tasks that it starts, and not
    /// while it is dropped.
    ///
    /// # Cancel safety
    /// That of `future`.
    pub async fn scope<F: Future>(&'static self, value: T, future: F) -> F::Output {
        let (value, mut future) = (Rc::new(value), pin!(future));
        poll_fn(|cx| self.with_value(&value, || future.as_mut().poll(cx))).await
    }

    /// Runs `call` with the value.
    pub fn sync_scope<R>(&'static self, value: T, call: impl FnOnce() -> R) -> R {
        self.with_value(&Rc::new(value), call)
    }

    fn with_value<R>(&'static self, value: &Rc<T>, call: impl FnOnce() -> R) -> R {
        let _former = Former { key: self, value: self.slot.replace(Some(Rc::clone(value))) };
        call()
    }

    /// Uses the value of the innermost scope.
    ///
    /// # Panics
    /// Outside of a scope.
    #[track_caller]
    pub fn with<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        match self.try_with(work) {
            Ok(result) => result,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`LocalKey::with`].
    ///
    /// # Errors
    /// [`NotSet`] outside of a scope.
    pub fn try_with<R>(&'static self, work: impl FnOnce(&T) -> R) -> Result<R, NotSet> {
        // No borrow is held while the value is used, which may enter a scope.
        let value = self.slot.try_with(|slot| slot.borrow().clone()).ok().flatten();
        value.map(|value| work(&value)).ok_or(NotSet)
    }
}

/// Puts the value of the outer scope back, also after a panic.
struct Former<T: 'static> {
    key: &'static LocalKey<T>,
    value: Option<Rc<T>>,
}

impl<T: 'static> Drop for Former<T> {
    fn drop(&mut self) {
        let _inner = self.key.slot.replace(self.value.take());
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

impl fmt::Display for NotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a task-local value was used outside of its scope: use LocalKey::scope or try_with",
        )
    }
}

impl std::error::Error for NotSet {}
