//! The list of tasks, for a dump, and their spans.
//!
//! Owns: with the feature `task-dump` the thread's list of tasks: where each was spawned, and what its
//! last poll waits for; with `tracing` a span of each. Called by: `local` and `workers`, which wrap a
//! task's future; every future that waits, through [`waits_for`]. Without the features it is nothing.

use std::task::Poll;

#[cfg(any(feature = "task-dump", feature = "tracing"))]
pub(crate) use on::listed;
#[cfg(feature = "task-dump")]
pub(crate) use on::waits_for;
#[cfg(feature = "task-dump")]
pub use on::{TaskInfo, dump};

/// The future of a task, on the list.
#[cfg(not(any(feature = "task-dump", feature = "tracing")))]
#[inline(always)]
pub(crate) fn listed<F: Future>(future: F, _: &'static std::panic::Location<'static>) -> F {
    future
}

/// Records what the running task waits for.
#[cfg(not(feature = "task-dump"))]
#[inline(always)]
pub(crate) fn waits_for(_: &'static str) {}

/// Pending, for `what`.
#[inline(always)]
pub(crate) fn waiting<T>(what: &'static str) -> Poll<T> {
    waits_for(what);
    Poll::Pending
}

#[cfg(any(feature = "task-dump", feature = "tracing"))]
mod on {
    use std::future::poll_fn;
    use std::panic::Location;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The future of a task, on the list, and in its span, until it is dropped.
    pub fn listed<F: Future>(
        future: F,
        spawned_at: &'static Location<'static>,
    ) -> impl Future<Output = F::Output> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "task-dump")]
        let entry = list::Listed::new(id, std::any::type_name::<F>(), spawned_at);
        #[cfg(feature = "tracing")]
        let span = tracing::debug_span!(
            target: "ringloop::task",
            "task",
            id,
            spawned_at.file = spawned_at.file(),
            spawned_at.line = spawned_at.line(),
        );
        #[cfg(not(feature = "tracing"))]
        let _ = (id, spawned_at);
        async move {
            let mut future = pin!(future);
            poll_fn(move |cx| {
                #[cfg(feature = "task-dump")]
                let _running = entry.enter();
                #[cfg(feature = "tracing")]
                let _entered = span.enter();
                future.as_mut().poll(cx)
            })
            .await
        }
    }

    #[cfg(feature = "task-dump")]
    pub use list::{TaskInfo, dump, waits_for};

    #[cfg(feature = "task-dump")]
    mod list {
        use std::cell::RefCell;
        use std::fmt;
        use std::panic::Location;
        use std::rc::Rc;

        /// Things that one poll may be recorded to wait for; a task that selects among more shows the
        /// first.
        const WAITS_MAX: usize = 8;

        /// A task, as [`dump`] found it.
        #[derive(Debug, Clone)]
        pub struct TaskInfo {
            /// Its number, unique within the process.
            pub id: u64,
            /// Where it was spawned.
            pub spawned_at: &'static Location<'static>,
            /// The type of its future, which names the function.
            pub future: &'static str,
            /// How often it was polled.
            pub poll_count: u64,
            /// Whether it calls [`dump`].
            pub is_running: bool,
            /// What its last poll waits for: operations, timers, locks, channels, tasks. Empty if that is
            /// another runtime's or the task's own future, or if it is ready.
            pub waits_for: Vec<&'static str>,
        }

        impl fmt::Display for TaskInfo {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self { id, spawned_at, future, poll_count, .. } = self;
                write!(f, "task {id}, {future}, spawned at {spawned_at}, {poll_count} polls: ")?;
                match (self.is_running, self.waits_for.as_slice()) {
                    (true, _) => f.write_str("running"),
                    (false, []) => f.write_str("ready, or waits for something unknown"),
                    (false, waits) => write!(f, "waits for {}", waits.join(" or ")),
                }
            }
        }

        type Entry = Rc<RefCell<TaskInfo>>;

        thread_local! {
            static TASKS: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
            static RUNNING: RefCell<Option<Entry>> = const { RefCell::new(None) };
        }

        /// The tasks of the current thread's loop, in the order of their numbers; the future of `block_on`
        /// is one.
        ///
        /// Of other workers: `spawn_on(worker, async || task::dump())`.
        pub fn dump() -> Vec<TaskInfo> {
            let tasks =
                TASKS.with_borrow(|tasks| tasks.iter().map(|task| task.borrow().clone()).collect());
            let mut tasks: Vec<TaskInfo> = tasks;
            tasks.sort_by_key(|task| task.id);
            tasks
        }

        /// Records what the running task waits for.
        pub fn waits_for(what: &'static str) {
            // Threads that end have no list.
            let _ended = RUNNING.try_with(|running| {
                if let Some(task) = &*running.borrow() {
                    let waits = &mut task.borrow_mut().waits_for;
                    // An operation's type is its name.
                    let what = what.rsplit("::").next().unwrap_or(what);
                    if waits.len() < WAITS_MAX && !waits.contains(&what) {
                        waits.push(what);
                    }
                }
            });
        }

        /// An entry of the list, until it is dropped.
        pub struct Listed(Entry);

        impl Listed {
            pub fn new(
                id: u64,
                future: &'static str,
                spawned_at: &'static Location<'static>,
            ) -> Self {
                let entry = Rc::new(RefCell::new(TaskInfo {
                    id,
                    spawned_at,
                    future,
                    poll_count: 0,
                    is_running: false,
                    waits_for: Vec::new(),
                }));
                let _ended = TASKS.try_with(|tasks| tasks.borrow_mut().push(Rc::clone(&entry)));
                Self(entry)
            }

            /// Makes it the running task until the guard is dropped.
            pub fn enter(&self) -> Running {
                let mut task = self.0.borrow_mut();
                task.poll_count += 1;
                task.is_running = true;
                task.waits_for.clear();
                Running {
                    task: Rc::clone(&self.0),
                    outer: RUNNING.replace(Some(Rc::clone(&self.0))),
                }
            }
        }

        impl Drop for Listed {
            fn drop(&mut self) {
                let _ended = TASKS.try_with(|tasks| {
                    let mut tasks = tasks.borrow_mut();
                    if let Some(index) = tasks.iter().position(|task| Rc::ptr_eq(task, &self.0)) {
                        tasks.swap_remove(index);
                    }
                });
            }
        }

        pub struct Running {
            task: Entry,
            outer: Option<Entry>,
        }

        impl Drop for Running {
            fn drop(&mut self) {
                self.task.borrow_mut().is_running = false;
                let _inner = RUNNING.replace(self.outer.take());
            }
        }
    }
}
