//! [`select!`](crate::select): wait for the first of several.
//!
//! Owns: nothing but the futures it is given. Called by: coroutines. Never does: start a coroutine.

use std::future::{Future, IntoFuture};

/// What came first, for the macro.
#[doc(hidden)]
pub use ringloop::future::Either;

/// Race two, for the macro; the first wins where both are ready.
#[doc(hidden)]
pub fn race<A: IntoFuture, B: IntoFuture>(
    first: A,
    second: B,
) -> impl Future<Output = Either<A::Output, B::Output>> {
    ringloop::future::select(first.into_future(), second.into_future())
}

/// Wait for the first of several, and go on with what belongs to it.
///
/// Shape: any number of `pattern = future => expression`, the patterns irrefutable; the first that is written wins
/// where several are ready. Everything that waits has a future for this: the methods that end in `_async`, `readable`
/// and `writable` of sockets, [`time::after`](crate::time::after), a `&mut` [`JoinHandle`](crate::JoinHandle), the
/// engine's own. The others are dropped before the expression runs, so it may use what they borrowed, and `return`,
/// `break` or `?` in it are those of the code around.
/// Losing: a source that loses has given nothing away, unless its own documentation says so.
/// Cancellation: a cancelled coroutine unwinds here.
///
/// ```
/// use ringloop_coro::{select, sync::channel, time};
/// use std::time::Duration;
///
/// ringloop_coro::start(1, || {
///     let (sender, receiver) = channel::unbounded();
///     let (_stop, stopped) = channel::bounded::<()>(1);
///     sender.send(7).unwrap();
///     let got = select! {
///         number = receiver.recv_async() => number.ok(),
///         _ = stopped.recv_async() => None,
///         () = time::after(Duration::from_secs(60)) => None,
///     };
///     assert_eq!(got, Some(7));
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[macro_export]
macro_rules! select {
    // The futures, nested to the right.
    (@race $future:expr) => { ::std::future::IntoFuture::into_future($future) };
    (@race $future:expr, $($rest:expr),+) => {
        $crate::__race($future, $crate::select!(@race $($rest),+))
    };
    // The result, taken apart the same way.
    (@take $won:expr; $pattern:pat => $then:expr) => {{
        let $pattern = $won;
        $then
    }};
    (@take $won:expr; $pattern:pat => $then:expr, $($patterns:pat => $thens:expr),+) => {
        match $won {
            $crate::__Either::Left($pattern) => $then,
            $crate::__Either::Right(won) => {
                $crate::select!(@take won; $($patterns => $thens),+)
            }
        }
    };
    // A comma may be left out after a block.
    (@arms [$($done:tt)*] $pattern:pat = $future:expr => $then:block $(,)?) => {
        $crate::select!(@go $($done)* ($pattern, $future, $then))
    };
    (@arms [$($done:tt)*] $pattern:pat = $future:expr => $then:expr $(,)?) => {
        $crate::select!(@go $($done)* ($pattern, $future, $then))
    };
    (@arms [$($done:tt)*] $pattern:pat = $future:expr => $then:block , $($rest:tt)+) => {
        $crate::select!(@arms [$($done)* ($pattern, $future, $then)] $($rest)+)
    };
    (@arms [$($done:tt)*] $pattern:pat = $future:expr => $then:block $($rest:tt)+) => {
        $crate::select!(@arms [$($done)* ($pattern, $future, $then)] $($rest)+)
    };
    (@arms [$($done:tt)*] $pattern:pat = $future:expr => $then:expr , $($rest:tt)+) => {
        $crate::select!(@arms [$($done)* ($pattern, $future, $then)] $($rest)+)
    };
    (@go $(($pattern:pat, $future:expr, $then:expr))+) => {
        $crate::select!(@take $crate::block_on($crate::select!(@race $($future),+)); $($pattern => $then),+)
    };
    ($($arms:tt)+) => {
        $crate::select!(@arms [] $($arms)+)
    };
}
