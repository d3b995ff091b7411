//! Several futures in one task: [`join!`](crate::join), [`select!`](crate::select) and what they are made of.
//!
//! Owns: nothing but the futures it is given. Called by: tasks. Never does: start a task; everything here
//! runs within the one that awaits it, in the order written.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Which of two it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

/// Wait for the first of two futures; the first one wins where both are ready.
/// Cancel safety: the other is dropped, so it is as cancel-safe as that one is.
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

/// Wait for both.
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

/// Wait for all; the results come in the order of the futures. Each future is allocated, and polled
/// whenever one of them is woken: for thousands of them, spawn tasks and await their handles.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures
        .into_iter()
        .map(|future| (Box::pin(future), None))
        .collect();
    std::future::poll_fn(|cx| {
        let mut ready = true;
        for (future, output) in &mut all {
            poll_into(output, future.as_mut(), cx);
            ready &= output.is_some();
        }
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

/// Poll a future that has no output yet.
fn poll_into<F: Future>(output: &mut Option<F::Output>, future: Pin<&mut F>, cx: &mut Context<'_>) {
    if output.is_none()
        && let Poll::Ready(value) = future.poll(cx)
    {
        *output = Some(value);
    }
}

/// Wait for all futures that are written, in one task; the results are a tuple in their order.
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

/// Wait for the first of the futures that are written, and go on with what belongs to it.
///
/// Shape: any number of `pattern = future => expression`, the patterns irrefutable; the first one wins where
/// several are ready. The others are dropped before the expression runs, so it may use what they
/// borrowed, and `return`, `break` or `?` in it are those of the code around.
/// Cancel safety: that of the futures that are dropped. To keep one, give it by reference: `&mut pinned`.
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
#[macro_export]
macro_rules! select {
    // The futures, nested to the right.
    (@race $future:expr) => { $future };
    (@race $future:expr, $($rest:expr),+) => {
        $crate::future::select($future, $crate::select!(@race $($rest),+))
    };
    // The result, taken apart the same way.
    (@take $won:expr; $pattern:pat => $then:expr) => {{
        let $pattern = $won;
        $then
    }};
    (@take $won:expr; $pattern:pat => $then:expr, $($patterns:pat => $thens:expr),+) => {
        match $won {
            $crate::future::Either::Left($pattern) => $then,
            $crate::future::Either::Right(won) => {
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
        $crate::select!(@take $crate::select!(@race $($future),+).await; $($pattern => $then),+)
    };
    ($($arms:tt)+) => {
        $crate::select!(@arms [] $($arms)+)
    };
}
