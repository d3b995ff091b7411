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
    ($($arms:tt)+) => {
        $crate::ringloop::__select!(@arms [[$crate::block_on] []] [] $($arms)+)
    };
}
