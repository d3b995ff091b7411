//! Several futures in one task: [`join!`](crate::join), [`select!`](crate::select) and their functions.
//!
//! Called by: tasks. They poll the futures in the order written, and start no task.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// One of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

/// Waits for the first of two futures; if both are ready, `first` wins.
///
/// # Cancel safety
/// The other future is dropped, so that its cancel safety applies.
pub async fn select<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(value));
        }
        second.as_mut().poll(cx).map(Either::Right)
    })
    .await
}

/// An arm of `select!` that may be disabled, or whose output may not fit: ready with `None` then.
#[doc(hidden)]
pub async fn arm<F: Future>(
    is_enabled: Option<bool>,
    fits: impl Fn(&F::Output) -> bool,
    future: F,
) -> Option<F::Output> {
    if is_enabled == Some(false) {
        return None;
    }
    Some(future.await).filter(fits)
}

/// Waits for the first of two arms that has an output; `None` once both have none.
#[doc(hidden)]
pub async fn select_some<A, B>(
    first: impl Future<Output = Option<A>>,
    second: impl Future<Output = Option<B>>,
) -> Option<Either<A, B>> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut two) = (None, None);
    std::future::poll_fn(|cx| {
        poll_into(&mut one, first.as_mut(), cx);
        if let Some(Some(output)) = one.as_mut().map(Option::take) {
            return Poll::Ready(Some(Either::Left(output)));
        }
        poll_into(&mut two, second.as_mut(), cx);
        if let Some(Some(output)) = two.as_mut().map(Option::take) {
            return Poll::Ready(Some(Either::Right(output)));
        }
        if one.is_some() && two.is_some() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Waits for both.
pub async fn join<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut two) = (None, None);
    std::future::poll_fn(|cx| {
        poll_into(&mut one, first.as_mut(), cx);
        poll_into(&mut two, second.as_mut(), cx);
        match (one.take(), two.take()) {
            (Some(one), Some(two)) => Poll::Ready((one, two)),
            waiting => {
                (one, two) = waiting;
                Poll::Pending
            }
        }
    })
    .await
}

/// Waits for all; returns the results in the order of the futures. Each future is allocated, and
/// polled whenever one is woken: for thousands, spawn tasks and await their handles.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut ready = true;
        for (future, output) in &mut all {
            poll_into(output, future.as_mut(), cx);
            ready &= output.is_some();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

/// Polls a future that has no output yet.
fn poll_into<F: Future>(output: &mut Option<F::Output>, future: Pin<&mut F>, cx: &mut Context<'_>) {
    if output.is_none()
        && let Poll::Ready(value) = future.poll(cx)
    {
        *output = Some(value);
    }
}

/// Waits for all futures in one task; the result is a tuple in their order.
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let (one, two, three) = ringloop::join!(async { 1 }, async { "two" }, async { 3.0 });
/// assert_eq!((one, two, three), (1, "two", 3.0));
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[macro_export]
macro_rules! join {
    ($one:expr $(,)?) => {
        ($one.await,)
    };
    ($one:expr, $two:expr $(,)?) => {
        $crate::future::join($one, $two).await
    };
    ($one:expr, $two:expr, $three:expr $(,)?) => {{
        let (one, (two, three)) =
            $crate::future::join($one, $crate::future::join($two, $three)).await;
        (one, two, three)
    }};
    ($one:expr, $two:expr, $three:expr, $four:expr $(,)?) => {{
        let ((one, two), (three, four)) = $crate::future::join(
            $crate::future::join($one, $two),
            $crate::future::join($three, $four),
        )
        .await;
        (one, two, three, four)
    }};
}

/// Waits for the first of several futures, and evaluates its expression.
///
/// Takes any number of `pattern = future => expression`. If several are ready, the one written first
/// wins. The losers are dropped before the expression runs, so it may use what they borrowed;
/// `return`, `break` and `?` in it are those of the surrounding code.
///
/// * `pattern = future, if guard => …`: the future is made, and not polled where the guard is false.
///   Guards are evaluated before all futures.
/// * `else => …`, written last, allows refutable patterns. A future whose output does not fit drops
///   out, and the others go on; `else` runs once none is left. An output is matched by reference first,
///   so that `ref` and `mut` have no place inside such a pattern.
///
/// ```
/// use ringloop::{sync::local::mpsc, time::sleep};
/// use std::time::Duration;
/// # ringloop::Runtime::new()?.block_on(async {
/// let (sender, mut numbers) = mpsc::channel(1);
/// let (_sender, mut stop) = mpsc::channel::<()>(1);
/// sender.try_send(1).unwrap();
/// drop(sender);
/// let (mut sum, limit) = (0, 10);
/// loop {
///     ringloop::select! {
///         Some(number) = numbers.recv(), if sum < limit => sum += number,
///         () = sleep(Duration::ZERO), if sum >= limit => break,
///         Some(()) = stop.recv(), if false => break,
///         else => break,
///     }
/// }
/// assert_eq!(sum, 1);
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// ```
/// use ringloop::time::sleep;
/// use std::time::Duration;
/// # ringloop::Runtime::new()?.block_on(async {
/// let won = ringloop::select! {
///     () = sleep(Duration::from_secs(60)) => "the sleeper",
///     number = async { 7 } => {
///         assert_eq!(number, 7);
///         "the number"
///     }
/// };
/// assert_eq!(won, "the number");
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// # Panics
/// If every guard is false and there is no `else`.
///
/// # Cancel safety
/// The cancel safety of the losers applies. To keep a future, pass it by reference: `&mut pinned`.
#[macro_export]
macro_rules! select {
    ($($arms:tt)+) => {
        $crate::__select!(@arms [[] [.await]] [] $($arms)+)
    };
}

/// The expansion of `select!`, also of the coroutines'; the first argument has the tokens around the
/// race that wait for it. Arms become `(pattern, future, [guard], expression)`.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // An arm up to its arrow.
    (@arms $wait:tt [$($done:tt)+] else => $then:expr $(,)?) => {
        $crate::__select!(@go $wait [$then] $($done)+)
    };
    (@arms $wait:tt [$($done:tt)*] $pattern:pat = $future:expr => $($rest:tt)+) => {
        $crate::__select!(@then $wait [$($done)*] ($pattern, $future, []) $($rest)+)
    };
    (@arms $wait:tt [$($done:tt)*] $pattern:pat = $future:expr, if $guard:expr => $($rest:tt)+) => {
        $crate::__select!(@then $wait [$($done)*] ($pattern, $future, [$guard]) $($rest)+)
    };
    // Its expression. The comma after a block is optional.
    (@then $wait:tt [$($done:tt)*] ($($head:tt)*) $then:block $(,)?) => {
        $crate::__select!(@go $wait [] $($done)* ($($head)*, $then))
    };
    (@then $wait:tt [$($done:tt)*] ($($head:tt)*) $then:expr $(,)?) => {
        $crate::__select!(@go $wait [] $($done)* ($($head)*, $then))
    };
    (@then $wait:tt [$($done:tt)*] ($($head:tt)*) $then:block , $($rest:tt)+) => {
        $crate::__select!(@arms $wait [$($done)* ($($head)*, $then)] $($rest)+)
    };
    (@then $wait:tt [$($done:tt)*] ($($head:tt)*) $then:block $($rest:tt)+) => {
        $crate::__select!(@arms $wait [$($done)* ($($head)*, $then)] $($rest)+)
    };
    (@then $wait:tt [$($done:tt)*] ($($head:tt)*) $then:expr , $($rest:tt)+) => {
        $crate::__select!(@arms $wait [$($done)* ($($head)*, $then)] $($rest)+)
    };
    // All arms: without a guard or `else` every future runs.
    (@go [[$($before:tt)*] [$($after:tt)*]] [] $(($pattern:pat, $future:expr, [], $then:expr))+) => {
        $crate::__select!(@take $($before)* ($crate::__select!(@race $($future),+)) $($after)*; [] $($pattern => $then),+)
    };
    (@go [[$($before:tt)*] [$($after:tt)*]] $else:tt $(($pattern:pat, $future:expr, $guard:tt, $then:expr))+) => {{
        // Before the futures, which may borrow what the guards look at.
        let mut guards = [$($crate::__select!(@guard $guard)),+].into_iter();
        match $($before)* ($crate::__select!(@some guards $else $(($pattern, $future)),+)) $($after)* {
            Some(won) => $crate::__select!(@take won; $else $($pattern => $then),+),
            None => $crate::__select!(@none $else),
        }
    }};
    (@guard []) => { true };
    (@guard [$guard:expr]) => { $guard };
    (@none []) => { panic!("every branch of select! is disabled, and there is no else branch") };
    (@none [$else:expr]) => { $else };
    // The futures, nested to the right.
    (@race $future:expr) => { ::std::future::IntoFuture::into_future($future) };
    (@race $future:expr, $($rest:expr),+) => {
        $crate::future::select($crate::__select!(@race $future), $crate::__select!(@race $($rest),+))
    };
    // The same, of arms that may be disabled.
    (@some $guards:ident $else:tt ($pattern:pat, $future:expr)) => {
        $crate::future::arm(
            $guards.next(),
            $crate::__select!(@fits $else $pattern),
            ::std::future::IntoFuture::into_future($future),
        )
    };
    (@some $guards:ident $else:tt $arm:tt, $($rest:tt),+) => {
        $crate::future::select_some(
            $crate::__select!(@some $guards $else $arm),
            $crate::__select!(@some $guards $else $($rest),+),
        )
    };
    (@fits [] $pattern:pat) => { |_| true };
    (@fits [$else:expr] $pattern:pat) => {
        |output| match output {
            #[allow(unused_variables)]
            $pattern => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    };
    // The result, destructured the same way.
    (@take $won:expr; [] $pattern:pat => $then:expr) => {{
        let $pattern = $won;
        $then
    }};
    (@take $won:expr; [$else:expr] $pattern:pat => $then:expr) => {
        match $won {
            $pattern => $then,
            #[allow(unreachable_patterns)]
            _ => unreachable!("an arm won whose pattern does not fit"),
        }
    };
    (@take $won:expr; $else:tt $pattern:pat => $then:expr, $($patterns:pat => $thens:expr),+) => {
        match $won {
            $crate::future::Either::Left(won) => $crate::__select!(@take won; $else $pattern => $then),
            $crate::future::Either::Right(won) => {
                $crate::__select!(@take won; $else $($patterns => $thens),+)
            }
        }
    };
}
