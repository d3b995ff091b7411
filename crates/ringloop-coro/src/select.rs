//! [`select!`](crate::select): waits for the first of several futures.
//!
//! Owns: the macro, which nests the engine's race of two futures. Called by: applications. It
//! starts no coroutine.

/// Waits for the first of several futures, and evaluates its expression.
///
/// Takes any number of `pattern = future => expression`, with irrefutable patterns. If several are
/// ready, the one written first wins. The methods of this crate that end in `_async`, `readable`
/// and `writable` of sockets, [`time::after`](crate::time::after), a `&mut`
/// [`JoinHandle`](crate::JoinHandle) and the engine's futures fit. The losers are dropped before
/// the expression runs, so it may use what they borrowed; `return`, `break` and `?` in it are those
/// of the surrounding code.
///
/// # Cancel safety
/// A cancelled coroutine unwinds here. A future that loses has taken nothing, unless its own
/// documentation says so.
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
        $crate::ringloop::future::select($crate::select!(@race $future), $crate::select!(@race $($rest),+))
    };
    // The result, destructured the same way.
    (@take $won:expr; $pattern:pat => $then:expr) => {{
        let $pattern = $won;
        $then
    }};
    (@take $won:expr; $pattern:pat => $then:expr, $($patterns:pat => $thens:expr),+) => {
        match $won {
            $crate::ringloop::future::Either::Left($pattern) => $then,
            $crate::ringloop::future::Either::Right(won) => {
                $crate::select!(@take won; $($patterns => $thens),+)
            }
        }
    };
    // The comma after a block is optional.
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
