//! The blocking pool: threads for calls that can only be made blocking.
//!
//! Owns: the threads, the queue of work, and the requests that the readiness driver has handed
//! over. Called by: `driver::readiness` (files, which epoll does not support), and
//! `executor::blocking` (the application's blocking calls, name look-up) on either driver. The ring
//! driver's data never passes through it.
//!
//! ```text
//!                 hand_over                     a free thread
//!   in the slot ────────────▶ in the queue ────────────────────▶ at work (one system call)
//!        ▲                         │ revoke                          │
//!        └─────────────────────────┴───────── collect ◀── finished ──┘
//! ```
//!
//! A request moves: it is in its slot, in the queue, on a thread, or among the finished, and only
//! its current owner touches it or its buffers. A thread cannot be stopped in the middle of a
//! system call, so a call that has begun ends with its own result. Nothing of a request is dropped
//! on a pool thread, since what a buffer releases belongs to the loop thread.
//!
//! # Invariants
//! 1. One thread at a time touches a request, and only the loop thread drops it; a request that the
//!    loop can no longer wait for is leaked.

mod room;

use crate::limits;
use crate::op::Key;
use crate::op::{Operation, Request};
use crate::sys::event::EventFd;
use crate::sys::fork::Generation;
use crate::sys::libc;
use crate::sys::thread::block_signals;
use room::{Room, RoomSlot};
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

/// A blocking call of the application.
pub(crate) type Call = Box<dyn FnOnce() + Send>;

/// A waiter's slot in the queue for room; freed when it is dropped.
#[derive(Debug)]
pub(crate) struct RoomWaiter {
    pool: BlockingPool,
    slot: Option<RoomSlot>,
}

impl RoomWaiter {
    /// No slot taken yet.
    fn new(pool: BlockingPool) -> Self {
        Self { pool, slot: None }
    }
}

impl Drop for RoomWaiter {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread of the parent: do not take it.
        if let Some(slot) = self.slot
            && !self.pool.shared.generation.is_inherited()
        {
            let given_up = self.pool.shared.lock().room.leave(slot);
            drop(given_up);
        }
    }
}

/// A request on its way to a pool thread and back.
#[derive(Debug)]
struct Job {
    key: Key,
    // Leaked unless the loop thread takes it out.
    request: ManuallyDrop<Box<Request>>,
}

// SAFETY: invariant 1. What makes a request `!Send` is the owner of foreign memory, or a slot of a
// ring's table; both are touched only when the request is dropped.
unsafe impl Send for Job {}

impl Job {
    fn into_request(self) -> Request {
        *ManuallyDrop::into_inner(self.request)
    }

    /// Makes the system call; retries after `EINTR`.
    fn run(&mut self) -> io::Result<u32> {
        loop {
            match self.request.work() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// Requests that are leaked on purpose: reachable, so that leak checkers do not report them.
static LEFT: Mutex<Vec<Job>> = Mutex::new(Vec::new());

enum Work {
    Request(Job),
    Call(Call),
}

/// A request that a thread has finished.
pub(super) struct Finished {
    pub key: Key,
    pub request: Request,
    pub result: io::Result<u32>,
}

struct State {
    queue: VecDeque<Work>,
    finished: Vec<(Job, io::Result<u32>)>,
    /// Waiters that found the queue full.
    room: Room,
    /// A request of the loop found the queue full.
    is_loop_waiting: bool,
    thread_count: usize,
    idle_count: usize,
    /// Requests that threads are working on.
    busy_count: usize,
    closed: bool,
    /// The loop collects no more results.
    abandoned: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    /// Ends the loop's wait when a request is finished. Weak: threads do not keep it open for a
    /// closed loop.
    wake: Weak<EventFd>,
    generation: Generation,
}

/// The pool threads of a loop: started on demand, and ended after a while without work.
#[derive(Clone)]
pub(crate) struct BlockingPool {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("BlockingPool")
            .field("queued", &state.queue.len())
            .field("threads", &state.thread_count)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while the lock is held, and the state is whole at any point.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue has room: notifies the loop. Returns the other waiters, to be woken after the lock
    /// is released.
    #[must_use]
    fn has_room_now(&self, state: &mut State) -> Vec<Waker> {
        if std::mem::take(&mut state.is_loop_waiting)
            && let Some(wake) = self.wake.upgrade()
        {
            wake.notify();
        }
        state.room.note_dequeued()
    }
}

impl BlockingPool {
    /// Creates a pool that wakes its loop through `wake`.
    pub fn new(wake: Weak<EventFd>) -> Self {
        let state = State {
            queue: VecDeque::new(),
            finished: Vec::new(),
            room: Room::default(),
            is_loop_waiting: false,
            thread_count: 0,
            idle_count: 0,
            busy_count: 0,
            closed: false,
            abandoned: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            wake,
            generation: Generation::current(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Hands a request to the next free thread. Returns it if the queue is full (without an error;
    /// the loop is notified when there is room), or if no thread can be started.
    pub(super) fn hand_over(
        &self,
        key: Key,
        request: Request,
    ) -> Result<(), (Request, Option<io::Error>)> {
        let job = Job { key, request: ManuallyDrop::new(Box::new(request)) };
        match self.push(Work::Request(job), None) {
            Ok(()) => Ok(()),
            Err((Work::Request(job), error)) => Err((job.into_request(), error)),
            Err((Work::Call(_), _)) => unreachable!("a request was pushed"),
        }
    }

    /// True if the queue has room for a request; otherwise the loop is notified when it has.
    pub(super) fn has_room(&self) -> bool {
        let mut state = self.shared.lock();
        state.is_loop_waiting = state.queue.len() >= limits::BLOCKING_QUEUE;
        !state.is_loop_waiting
    }

    /// Runs an application's call on the next free thread. A full queue returns the call; `waker`,
    /// if given, is woken when there is room, unless its waiter has been dropped.
    pub fn call(
        &self,
        call: Call,
        asks: Option<(&Waker, &mut Option<RoomWaiter>)>,
    ) -> Result<(), (Call, Option<io::Error>)> {
        let asks = asks.map(|(waker, waiter)| {
            let waiter = waiter.get_or_insert_with(|| RoomWaiter::new(self.clone()));
            (waker, waiter)
        });
        match self.push(Work::Call(call), asks) {
            Ok(()) => Ok(()),
            Err((Work::Call(call), error)) => Err((call, error)),
            Err((Work::Request(_), _)) => unreachable!("a call was pushed"),
        }
    }

    /// If the queue is full, the caller's waker, or for a request the loop, is notified when there
    /// is room.
    fn push(
        &self,
        work: Work,
        asks: Option<(&Waker, &mut RoomWaiter)>,
    ) -> Result<(), (Work, Option<io::Error>)> {
        let mut state = self.shared.lock();
        if state.closed {
            return Err((work, Some(io::Error::from_raw_os_error(libc::ECANCELED))));
        }
        if state.queue.len() >= limits::BLOCKING_QUEUE {
            // Under the same lock as the check: a thread makes room only after it sees this waiter.
            state.is_loop_waiting |= matches!(work, Work::Request(_));
            let replaced =
                asks.and_then(|(waker, waiter)| state.room.wait(waker, &mut waiter.slot));
            drop(state);
            drop(replaced);
            return Err((work, None));
        }
        state.queue.push_back(work);
        if state.idle_count >= state.queue.len() {
            self.shared.work.notify_one();
            return Ok(());
        }
        if state.thread_count >= limits::BLOCKING_THREADS {
            return Ok(());
        }
        match self.start_thread() {
            Ok(()) => state.thread_count += 1,
            // An existing thread will take it.
            Err(_) if state.thread_count > 0 => {}
            Err(error) => {
                let work = state.queue.pop_back();
                drop(state);
                return work.map_or(Ok(()), |work| Err((work, Some(error))));
            }
        }
        Ok(())
    }

    /// Replaces the pool with a closed one: the threads are the parent's, and one of them may have
    /// held the lock during fork(2), so it is not taken.
    pub fn leave_to_parent(&mut self) {
        let closed = Self::new(Weak::new());
        closed.shared.lock().closed = true;
        std::mem::forget(std::mem::replace(&mut self.shared, closed.shared));
    }

    /// Number of threads, if all of them are idle and the queue is empty.
    pub fn idle_threads(&self) -> Option<usize> {
        let state = self.shared.lock();
        let idle = state.queue.is_empty()
            && state.finished.is_empty()
            && state.idle_count == state.thread_count;
        idle.then_some(state.thread_count)
    }

    fn start_thread(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("ringloop-blocking".to_owned());
        builder.spawn(move || shared.run()).map(drop)
    }

    /// Takes back a request that no thread has begun.
    pub(super) fn revoke(&self, key: Key) -> Option<Request> {
        let mut state = self.shared.lock();
        let at = state.queue.iter().position(|work| match work {
            Work::Request(job) => job.key == key,
            Work::Call(_) => false,
        })?;
        let work = state.queue.remove(at);
        let waiting = self.shared.has_room_now(&mut state);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        match work {
            Some(Work::Request(job)) => Some(job.into_request()),
            _ => None,
        }
    }

    /// Takes the finished requests.
    pub(super) fn collect(&self) -> Vec<Finished> {
        collected(std::mem::take(&mut self.shared.lock().finished))
    }

    /// Like [`BlockingPool::collect`], but waits until there is one, or until `deadline`.
    pub(super) fn collect_until(&self, deadline: Instant) -> Vec<Finished> {
        let mut state = self.shared.lock();
        while state.finished.is_empty() && state.busy_count > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            let waited = self.shared.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        collected(std::mem::take(&mut state.finished))
    }

    /// No results are collected after this: calls still running are leaked when they end (invariant
    /// 1).
    pub(super) fn abandon(&self) {
        self.shared.lock().abandoned = true;
    }

    /// Accepts no more work and lets the threads end. Calls that have not begun are dropped; the
    /// driver revokes its requests.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let queue = std::mem::take(&mut state.queue).into_iter();
        let (requests, calls): (VecDeque<_>, VecDeque<_>) =
            queue.partition(|work| matches!(work, Work::Request(_)));
        state.queue = requests;
        let mut waiting = self.shared.has_room_now(&mut state);
        waiting.extend(state.room.end_round());
        drop(state);
        self.shared.work.notify_all();
        // Outside the lock: dropping a call may run arbitrary code.
        drop(calls);
        waiting.into_iter().for_each(Waker::wake);
    }
}

fn collected(finished: Vec<(Job, io::Result<u32>)>) -> Vec<Finished> {
    let jobs = finished.into_iter();
    jobs.map(|(job, result)| Finished { key: job.key, request: job.into_request(), result })
        .collect()
}

impl Shared {
    /// Body of a pool thread.
    fn run(&self) {
        // Otherwise the application's signal handlers could run here; best effort.
        drop(block_signals());
        while let Some(work) = self.next() {
            match work {
                Work::Request(job) => self.serve(job),
                Work::Call(call) => call(),
            }
        }
    }

    /// The next piece of work; `None` ends the thread, which is no longer counted.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                state.busy_count += usize::from(matches!(work, Work::Request(_)));
                let waiting = self.has_room_now(&mut state);
                drop(state);
                waiting.into_iter().for_each(Waker::wake);
                return Some(work);
            }
            if state.closed {
                break;
            }
            state.idle_count += 1;
            let waited = self.work.wait_timeout(state, limits::BLOCKING_IDLE);
            let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle_count -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.thread_count -= 1;
        None
    }

    fn serve(&self, mut job: Job) {
        let result = job.run();
        let mut state = self.lock();
        state.busy_count -= 1;
        if state.abandoned {
            drop(state);
            if let Ok(result) = result {
                // The result may be a descriptor without an owner: close it. The memory is leaked
                // (invariant 1).
                job.request.discard(result as i32);
            }
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(job);
            return;
        }
        let first = state.finished.is_empty();
        state.finished.push((job, result));
        // Under the lock: once the result is collected, the descriptor may be closed.
        if first && let Some(wake) = self.wake.upgrade() {
            wake.notify();
        }
        drop(state);
        self.done.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Nop;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::Wake;

    const LONG: Duration = Duration::from_secs(20);

    fn pool() -> BlockingPool {
        BlockingPool::new(Weak::new())
    }

    fn key(index: u32) -> Key {
        Key { index, generation: 0 }
    }

    fn call(pool: &BlockingPool, call: impl FnOnce() + Send + 'static) -> bool {
        pool.call(Box::new(call), None).is_ok()
    }

    #[test]
    fn invariant_1_a_request_is_in_one_place_at_a_time() {
        let pool = pool();
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..limits::BLOCKING_THREADS {
            let wait = Arc::clone(&wait);
            assert!(call(&pool, move || wait.lock().unwrap().recv().unwrap()));
        }
        assert!(pool.hand_over(key(1), Request::Nop(Nop)).is_ok());
        assert!(pool.hand_over(key(2), Request::Nop(Nop)).is_ok());
        assert!(pool.revoke(key(1)).is_some(), "it had not begun");
        assert!(pool.revoke(key(1)).is_none());
        for _ in 0..limits::BLOCKING_THREADS {
            go.send(()).unwrap();
        }
        let deadline = Instant::now() + LONG;
        let mut finished = Vec::new();
        while finished.is_empty() && Instant::now() < deadline {
            finished = pool.collect_until(deadline);
        }
        assert_eq!(finished.len(), 1);
        assert_eq!(finished[0].key, key(2));
        assert!(pool.revoke(key(2)).is_none(), "it is over");
    }

    #[test]
    fn threads_are_bounded_and_a_full_queue_gives_the_call_back() {
        let pool = pool();
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let mut taken = 0;
        while taken < limits::BLOCKING_THREADS + limits::BLOCKING_QUEUE + 1 {
            let wait = Arc::clone(&wait);
            if !call(&pool, move || wait.lock().unwrap().recv().unwrap()) {
                break;
            }
            taken += 1;
        }
        assert!(taken >= limits::BLOCKING_QUEUE, "{taken}");
        assert!(taken <= limits::BLOCKING_QUEUE + limits::BLOCKING_THREADS);
        assert_eq!(pool.shared.lock().thread_count, limits::BLOCKING_THREADS);
        for _ in 0..taken {
            go.send(()).unwrap();
        }
    }

    #[test]
    fn waiter_for_room_is_woken_once_however_often_it_polled() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let pool = pool();
        let (go, wait) = mpsc::channel::<()>();
        let shared = Arc::new((Mutex::new(wait), AtomicUsize::new(0)));
        let stuck = || {
            let shared = Arc::clone(&shared);
            move || {
                shared.1.fetch_add(1, Ordering::SeqCst);
                assert!(shared.0.lock().unwrap().recv().is_err());
            }
        };
        let deadline = Instant::now() + LONG;
        // Every thread has a call, and the queue behind them is full.
        loop {
            let all_begun = shared.1.load(Ordering::SeqCst) == limits::BLOCKING_THREADS;
            if !call(&pool, stuck()) && all_begun {
                break;
            }
            assert!(Instant::now() < deadline);
        }
        assert_eq!(pool.shared.lock().room.counts(), (0, 0), "no waker");
        let counts: [_; 2] = std::array::from_fn(|_| Arc::new(Count(AtomicUsize::new(0))));
        // Clones of a waker share one vtable; another compilation unit may have created the first
        // one.
        let wakers = counts.each_ref().map(|count| {
            let first = Waker::from(Arc::clone(count));
            Waker::clone(&first)
        });
        let mut places = [None, None];
        for at in [0, 1, 0, 1, 1] {
            let asks = Some((&wakers[at], &mut places[at]));
            assert!(pool.call(Box::new(stuck()), asks).is_err());
        }
        assert_eq!(pool.shared.lock().room.counts(), (2, 2));
        // A dropped waiter leaves nothing, and its slot is reused.
        for _ in 0..5 {
            let mut waiter = None;
            let asks = Some((&wakers[0], &mut waiter));
            assert!(pool.call(Box::new(stuck()), asks).is_err());
            assert_eq!(pool.shared.lock().room.counts(), (3, 3));
            drop(waiter);
            assert_eq!(pool.shared.lock().room.counts(), (2, 3));
        }
        drop(go);
        while pool.idle_threads().is_none() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        for count in counts {
            assert_eq!(count.0.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn closed_workers_refuse_drop_what_waits_and_end() {
        let pool = pool();
        let (started, begun) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        assert!(call(&pool, move || {
            started.send(()).unwrap();
            wait.recv().unwrap();
        }));
        begun.recv_timeout(LONG).unwrap();
        pool.close();
        assert!(!call(&pool, || ()));
        go.send(()).unwrap();
        let deadline = Instant::now() + LONG;
        while pool.shared.lock().thread_count > 0 {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
}
