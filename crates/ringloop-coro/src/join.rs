//! The result of a coroutine, for whoever waits for it: a coroutine, a thread, async code.
//!
//! Called by: the spawner. Never does: keep a coroutine alive; without its handle it runs on by itself.

use crate::task::{self, Joinable, Runnable};
use crate::wait::{self, block_on};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Why a coroutine has no result.
pub enum JoinError {
    /// It was cancelled, or its runtime ended.
    Cancelled,
    /// It panicked; the payload is what `std::thread::JoinHandle::join` would give.
    Panicked(Box<dyn Any + Send>),
    /// The system has no stack for it; it never began.
    Refused(io::Error),
}

impl JoinError {
    pub(crate) fn from_payload(payload: Box<dyn Any + Send>) -> Self {
        if payload.is::<wait::Cancelled>() {
            Self::Cancelled
        } else {
            Self::Panicked(payload)
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the coroutine was cancelled"),
            Self::Refused(error) => write!(f, "there is no stack for the coroutine: {error}"),
            Self::Panicked(payload) => {
                let said = payload
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                write!(
                    f,
                    "the coroutine panicked: {}",
                    said.unwrap_or("(no message)")
                )
            }
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Refused(error) => error,
            // A boxed panic is `Send` only; its words are what can be kept.
            other => io::Error::other(other.to_string()),
        }
    }
}

/// Waits for a coroutine's result, from anywhere; dropping it detaches the coroutine.
///
/// It moves between threads where the result does:
/// ```compile_fail,E0277
/// fn may_leave_the_thread<T: Send>() {}
/// may_leave_the_thread::<ringloop_coro::JoinHandle<std::rc::Rc<u8>>>();
/// ```
/// ```
/// fn may_leave_the_thread<T: Send>() {}
/// may_leave_the_thread::<ringloop_coro::JoinHandle<String>>();
/// ```
#[must_use = "dropping the handle detaches the coroutine"]
pub struct JoinHandle<T> {
    task: Arc<dyn Joinable<T>>,
    taken: bool,
    /// It is as `Send` as the result.
    result: PhantomData<T>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("name", &self.task.head().traits.name)
            .field("place", &self.task.head().place.to_string())
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

// The result is not in it.
impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Arc<dyn Joinable<T>>) -> Self {
        Self {
            task,
            taken: false,
            result: PhantomData,
        }
    }

    /// Whether the coroutine is over.
    pub fn is_finished(&self) -> bool {
        self.task.head().is_over()
    }

    /// Have the coroutine unwind: at once where it is parked, else at its next park; one that has not begun never
    /// begins. Its destructors run, and its result is [`JoinError::Cancelled`]. One that is over is left alone.
    pub fn cancel(&self) {
        task::cancel(&self.task());
    }

    /// The task, for who cancels it without the handle.
    pub(crate) fn task(&self) -> Arc<dyn Runnable> {
        Arc::clone(&self.task) as Arc<dyn Runnable>
    }

    /// Wait for the end: a coroutine parks, a plain thread blocks. Async code awaits the handle instead.
    ///
    /// # Panics
    /// In async code on a runtime's thread, which blocking would stop.
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        if wait::is_coroutine() {
            return block_on(self.into_future());
        }
        assert!(
            ringloop::executor::Local::try_current().is_none(),
            "JoinHandle::join would block the loop of this thread: await the handle in async code"
        );
        self.join_thread()
    }

    /// Wait on a thread that no loop runs on.
    fn join_thread(mut self) -> Result<T, JoinError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            match self.poll_result(&mut cx) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        if !self.is_finished() {
            self.task.head().register(cx.waker());
            // It may have ended before it could see the waker.
            if !self.is_finished() {
                return Poll::Pending;
            }
        }
        self.taken = true;
        match self.task.take() {
            Some(result) => Poll::Ready(result),
            None => panic!("JoinHandle polled after it gave the coroutine's result"),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if !self.taken {
            self.task.detach();
        }
    }
}

/// The future of [`JoinHandle`].
#[derive(Debug)]
#[must_use = "dropping it detaches the coroutine"]
pub struct Join<T>(JoinHandle<T>);

impl<T> Future for Join<T> {
    type Output = Result<T, JoinError>;

    /// Panics: when it is polled after it gave the result, as an `async` block does.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_result(cx)
    }
}

/// The future of a borrowed [`JoinHandle`]; dropping it leaves the handle as it was.
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct JoinRef<'a, T>(&'a mut JoinHandle<T>);

impl<T> Future for JoinRef<'_, T> {
    type Output = Result<T, JoinError>;

    /// Panics: when the handle has given the result already.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_result(cx)
    }
}

impl<'a, T> IntoFuture for &'a mut JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = JoinRef<'a, T>;

    fn into_future(self) -> JoinRef<'a, T> {
        JoinRef(self)
    }
}

impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = Join<T>;

    fn into_future(self) -> Join<T> {
        Join(self)
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
