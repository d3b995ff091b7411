//! One turn of the loop.
//!
//! ```text
//! park ─▶ inbox ─▶ what was ready ─▶ completions ─▶ due timers ─▶ ready: a few passes ─┐
//!  ▲                                                                                   │
//!  └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! The order is that of `BaseEventLoop._run_once`: what was ready before the wait runs before the
//! callbacks of the wait, so that a task about to change a connection (`start_tls`, `set_protocol`,
//! `pause_reading`) does so before its next bytes arrive. A pass runs what was ready when it
//! started. Unlike there, several passes may run before the kernel is polled again, within the
//! budgets of `limits.rs`, and never past a due timer, a message from another thread, a `stop()`,
//! or a pass that submitted I/O. Rust futures that are ready are polled after the completions.
//!
//! The interpreter lock is released for a wait that may block, and if a thread has waited for it
//! (`give_way`). `KeyboardInterrupt` and `SystemExit` leave the loop; what is still in the ready
//! ring runs next time.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pyo3::prelude::*;
use ringloop::embed::sys::clock;
use ringloop::embed::sys::libc;
use ringloop::embed::{Event, Kind};

use super::callback::AsHandle as _;
use super::callback::Callback;
use super::contexts::Entered;
use super::core::LoopCore;
use super::exceptions;
use super::give_way::Looks;
use super::handle::{Handle, HandleType, TimerHandle};
use super::handlers::{Completed, contained};
use super::outward;
use super::ready::{Entry, Ready};
use super::slow;
use super::threadsafe::ThreadSafeHandle;
use super::timers::Timers;
use crate::ffi::{self, Obj, Payload, This, intern};
use crate::limits;

/// Budget used by the passes of one turn.
#[derive(Default)]
struct Budget {
    callbacks: usize,
    /// Callbacks since the clock was last read.
    unclocked: usize,
    end_ns: Option<u64>,
}

impl LoopCore {
    /// Runs turns until `stop` or an exception that leaves the loop.
    pub(super) fn run(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        if !self.engine.is_of_another_process() {
            self.bind()?;
        }
        self.look_for_clock(loop_)?;
        self.meters.begins(clock::monotonic_ns());
        let ended = outward::as_running(loop_, || {
            loop {
                let mut turned = self.turn(loop_);
                if self.engine.is_of_another_process() {
                    turned = self.turns_in_child(loop_, turned);
                }
                if turned.is_err() || self.is_stopping() {
                    break turned;
                }
            }
        });
        if self.engine.is_of_another_process() {
            return ended;
        }
        // Writes of the last pass must not wait for the next run.
        let ended = ended.and(self.flush(loop_)).and(self.engine.look());
        // Another thread may run it next.
        ended.and(self.engine.unbind())
    }

    /// Binds the loop to the calling thread.
    fn bind(&self) -> PyResult<()> {
        self.engine.check_futures_thread()?;
        self.engine.bind()
    }

    fn turn(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let py = loop_.py();
        self.shared.turns.add(1);
        self.flush(loop_)?;
        let now_ns = self.park(loop_)?;
        if self.owes() {
            self.pay(loop_)?;
        }
        self.collect_inbox()?;
        // Timers due as of now: timers set by the pass come after what it schedules.
        self.collect_timers(loop_, now_ns)?;
        let mut entered = Entered::new(&self.contexts);
        self.run_passes(loop_, &mut entered).and(entered.leave(py))
    }

    /// Turns after a fork, in the child, behind the one with the fork: run what is ready, so that a task
    /// can end with its process. The kernel's side and the inbox, whose lock a thread of the parent
    /// may have held, are left alone.
    ///
    /// # Errors
    /// What leaves the loop; `RuntimeError` where it would wait.
    #[cold]
    fn turns_in_child(
        &self,
        loop_: &Bound<'_, LoopCore>,
        mut turned: PyResult<()>,
    ) -> PyResult<()> {
        let py = loop_.py();
        loop {
            // Any other error is the engine's, which refuses to work here.
            if turned.as_ref().is_err_and(|error| exceptions::leaves_the_loop(py, error)) {
                return turned;
            }
            if self.is_stopping() {
                return Ok(());
            }
            ffi::check_signals(py)?;
            let count = self.ready.with(|ready| ready.len())?;
            if count == 0 {
                return self.engine.check_process();
            }
            let mut entered = Entered::new(&self.contexts);
            turned = self.run_pass(loop_, count, &mut entered).and(entered.leave(py));
        }
    }

    /// Runs what was ready before the wait, what the wait has brought, and more passes.
    fn run_passes(&self, loop_: &Bound<'_, LoopCore>, entered: &mut Entered<'_>) -> PyResult<()> {
        let py = loop_.py();
        let count = self.ready.with(|ready| ready.len())?;
        if let Err(left) = self.run_first_pass(loop_, count, entered).and(entered.leave(py)) {
            self.ready.with(Ready::append_io_callbacks)?;
            return Err(left);
        }
        let scheduled = self.ready.with(|ready| ready.len())?;
        let dispatched = self.dispatch(loop_);
        if self.engine.hosts_futures() {
            self.run_futures()?;
        }
        // What the pass has scheduled goes after watchers and timers, and before what the
        // completions' callbacks have scheduled.
        let (brought, waiting) =
            self.ready.with(|ready| (ready.prepend_io_callbacks(), ready.len()))?;
        let had_events = dispatched?;
        let second = if scheduled == 0 { waiting } else { brought };
        self.run_pass(loop_, second, entered)?;
        // After I/O, more may have arrived by now, which only a system call can tell: its callbacks
        // run before what these callbacks have scheduled.
        if had_events && self.engine.kind()? == Kind::Epoll {
            return ffi::check_signals(py);
        }
        self.run_ready(loop_, count + second, entered)
    }

    /// Dispatches the completions of the wait; whether there were any.
    fn dispatch(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<bool> {
        let mut looks = Looks::default();
        for count in 0..limits::EVENTS_PER_TURN {
            let Some(event) = self.engine.next_event()? else {
                return Ok(count > 0);
            };
            self.meters.completed.add(1);
            self.complete(loop_, event)?;
            looks.count(self, loop_.py())?;
        }
        Ok(true)
    }

    fn has_ready_futures(&self) -> PyResult<bool> {
        Ok(self.engine.hosts_futures() && self.engine.has_ready_futures()?)
    }

    /// Polls the Rust futures that are ready.
    fn run_futures(&self) -> PyResult<()> {
        self.engine.hosting(|local, _| {
            local.engine().fire_timers();
            local.run_tasks();
        })
    }

    /// Passes a completion to its handler.
    #[inline]
    fn complete(&self, loop_: &Bound<'_, LoopCore>, event: Event) -> PyResult<()> {
        let py = loop_.py();
        // Our own reference: the handler may remove itself.
        let found =
            self.handlers.with(|slab| slab.get(event.token).map(|found| found.clone_ref(py)))?;
        let Some(handler) = found else {
            return Ok(());
        };
        let object = handler.object.bind(py);
        let call = match handler.behaviour.completed {
            Completed::Call(call) => call,
            Completed::Bring(bring) => {
                // Ready, or the poll failed: either way the callback finds out.
                let is_cancelled =
                    Handle::native().get(object).is_some_and(|this| this.state().is_cancelled());
                if is_cancelled || event.completion.result == -libc::ECANCELED {
                    return Ok(());
                }
                return Ok(self.ready.with(|ready| bring(ready, Entry::Handle(handler.object)))?);
            }
        };
        self.pulse.callbacks.add(1);
        let run = || ffi::locked(object, || call(object, event));
        let done = if self.is_timed() { slow::complete_timed(loop_, object, run) } else { run() };
        contained(loop_, object, done)
    }

    /// Runs the steps that lacked memory. One that still does is queued again, for a later turn.
    #[cold]
    fn pay(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        self.owes.store(false, Relaxed);
        let mut list = self.owed.with(std::mem::take)?.into_iter();
        for owed in list.by_ref() {
            let object = owed.object.bind(loop_.py());
            if let Err(left) = contained(loop_, object, owed.call(loop_.py())) {
                // The rest is for the next run.
                self.owe_a_turn();
                self.owed.with(|again| again.extend(list))?;
                return Err(left);
            }
        }
        Ok(())
    }

    /// Polls the kernel, or sleeps; returns when it polled, or woke up.
    fn park(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<u64> {
        let py = loop_.py();
        // The flush may have called application code, which may have written.
        let idle = !self.is_stopping()
            && !self.has_unflushed()?
            && self.ready.with(|ready| ready.is_empty())?
            && !self.has_ready_futures()?;
        let now_ns = clock::monotonic_ns();
        let timeout = if idle && self.owes() {
            // Messages that lack memory wait, too.
            Some(Duration::from_millis(limits::OWED_RETRY_MILLISECONDS))
        } else if idle && !self.inbox.may_hold_any() {
            self.time_to_next_timer(loop_, now_ns)?
        } else {
            Some(Duration::ZERO)
        };
        self.meters.polls(now_ns);
        if timeout == Some(Duration::ZERO) {
            self.give_way_at(py, now_ns)?;
            self.engine.look()?;
            return Ok(now_ns);
        }
        let waiting = self.pulse.wait();
        let waited = self.engine.wait(py, timeout);
        drop(waiting);
        let woke_ns = clock::monotonic_ns();
        self.meters.woke(woke_ns);
        waited?;
        // A signal may have ended the wait.
        ffi::check_signals(py)?;
        Ok(woke_ns)
    }

    /// How long the loop may sleep; drops leading cancelled timers.
    fn time_to_next_timer(
        &self,
        loop_: &Bound<'_, LoopCore>,
        now_ns: u64,
    ) -> PyResult<Option<Duration>> {
        let py = loop_.py();
        loop {
            let cancelled = self.timers.with(|timers| {
                let in_front = timers.peek().is_some_and(|handle| is_cancelled_timer(py, handle));
                if !in_front {
                    return None;
                }
                timers.uncount_cancelled();
                timers.pop()
            })?;
            let Some(handle) = cancelled else { break };
            unschedule(py, &handle);
        }
        let Some(deadline_ns) = self.timers.with(|timers| timers.next_deadline_ns())? else {
            return Ok(None);
        };
        let left_ns =
            deadline_ns.saturating_sub(self.timers_now_ns(loop_, Some(now_ns))?).max(0) as u64;
        Ok(Some(Duration::from_nanos(left_ns).min(Duration::from_secs(limits::WAIT_SECONDS_MAX))))
    }

    /// Moves due timers into the ready ring, after the callbacks of the wait.
    fn collect_timers(&self, loop_: &Bound<'_, LoopCore>, now_ns: u64) -> PyResult<()> {
        if self.timers.with(|timers| timers.is_empty())? {
            return Ok(());
        }
        let now_ns = self.timers_now_ns(loop_, Some(now_ns))?;
        let py = loop_.py();
        // Timers without memory stay due.
        while self.ready.with(Ready::has_room_for_due)?
            && let Some((handle, late_ns)) = self.timers.with(|timers| timers.pop_due(now_ns))?
        {
            if is_cancelled_timer(py, &handle) {
                self.timers.with(Timers::uncount_cancelled)?;
                unschedule(py, &handle);
                continue;
            }
            unschedule(py, &handle);
            self.meters.timer_delay.record(late_ns);
            self.ready.with(|ready| ready.bring_due(Entry::Handle(handle)))?;
        }
        Ok(())
    }

    /// Moves messages of other threads into the ready ring; without memory they wait for the
    /// next turn.
    #[inline]
    fn collect_inbox(&self) -> PyResult<()> {
        if !self.inbox.may_hold_any() {
            return Ok(());
        }
        if !self.inbox.take(&self.ready)? {
            self.owe_a_turn();
        }
        Ok(())
    }

    /// Runs more passes after the one of `count` callbacks.
    fn run_ready(
        &self,
        loop_: &Bound<'_, LoopCore>,
        mut count: usize,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        let mut budget = Budget::default();
        for _ in 1..limits::READY_PASSES_MAX {
            ffi::check_signals(loop_.py())?;
            if self.owes_a_turn()? || self.is_spent(&mut budget, count)? {
                break;
            }
            count = self.ready.with(|ready| ready.len())?;
            if count == 0 {
                break;
            }
            self.run_pass(loop_, count, entered)?;
        }
        Ok(self.ready.with(Ready::shrink)?)
    }

    /// Runs what was ready at the poll. How long the last of several has waited is measured.
    #[inline]
    fn run_first_pass(
        &self,
        loop_: &Bound<'_, LoopCore>,
        count: usize,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        if count < 2 {
            return self.run_pass(loop_, count, entered);
        }
        self.run_pass(loop_, count - 1, entered)?;
        self.meters.drained(clock::monotonic_ns());
        self.run_pass(loop_, 1, entered)
    }

    /// Runs the first `count` entries.
    #[inline]
    fn run_pass(
        &self,
        loop_: &Bound<'_, LoopCore>,
        count: usize,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        if count > limits::READY_CALLBACKS_UNCLOCKED {
            return self.run_long_pass(loop_, count, entered);
        }
        for _ in 0..count {
            let Some(entry) = self.ready.with(Ready::pop)? else {
                break;
            };
            self.run_entry(loop_, entry, entered)?;
        }
        Ok(())
    }

    /// The same for a long pass, which releases the interpreter to other threads meanwhile.
    fn run_long_pass(
        &self,
        loop_: &Bound<'_, LoopCore>,
        count: usize,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        let mut looks = Looks::default();
        for _ in 0..count {
            let Some(entry) = self.ready.with(Ready::pop)? else {
                break;
            };
            self.run_entry(loop_, entry, entered)?;
            if looks.is_due() {
                entered.leave(loop_.py())?;
                looks.look(self, loop_.py())?;
            }
        }
        Ok(())
    }

    /// Whether something is pending that needs a new turn.
    fn owes_a_turn(&self) -> PyResult<bool> {
        Ok(self.is_stopping()
            || self.has_unflushed()?
            || self.inbox.may_hold_any()
            || self.engine.owes_io()?)
    }

    /// Accounts for a pass of `count` callbacks; whether the budget is used up. The clock is read
    /// only after several callbacks, unless a timer could be due.
    fn is_spent(&self, budget: &mut Budget, count: usize) -> PyResult<bool> {
        budget.callbacks += count;
        budget.unclocked += count;
        let timer_ns = self.timers.with(|timers| timers.next_deadline_ns())?;
        if timer_ns.is_none() && budget.unclocked < limits::READY_CALLBACKS_UNCLOCKED {
            return Ok(false);
        }
        budget.unclocked = 0;
        let now_ns = clock::monotonic_ns();
        let end_ns = *budget.end_ns.get_or_insert(now_ns + limits::READY_NANOSECONDS_MAX);
        Ok(budget.callbacks > limits::READY_CALLBACKS_MAX
            || now_ns >= end_ns
            // An overridden clock is read once per turn, by `collect_timers`.
            || (timer_ns.is_some() && self.has_foreign_clock())
            || timer_ns.is_some_and(|timer_ns| timer_ns <= now_ns as i64))
    }

    #[inline(always)]
    fn run_entry(
        &self,
        loop_: &Bound<'_, LoopCore>,
        entry: Entry,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        let py = loop_.py();
        self.pulse.callbacks.add(1);
        match entry {
            Entry::Step { callable, argument, context } if self.is_timed() => {
                let step = callable.clone_ref(py);
                let (given, its_context) =
                    (argument.as_ref().map(|one| one.clone_ref(py)), context.clone_ref(py));
                let handle = || Self::handle_of_step(loop_, step.clone_ref(py), given, its_context);
                let run = || Self::run_step(loop_, callable, argument, context, entered);
                slow::step_timed(loop_, &step, handle, run)
            }
            Entry::Step { callable, argument, context } => {
                Self::run_step(loop_, callable, argument, context, entered)
            }
            Entry::Handle(object) => {
                let object = object.into_bound(py);
                if let Some(this) = Handle::native().get(&object) {
                    self.run_handle(loop_, this, entered)
                } else if let Some(this) = TimerHandle::native().get(&object) {
                    self.run_handle(loop_, this, entered)
                } else if let Some(this) = ThreadSafeHandle::native().get(&object) {
                    self.run_handle(loop_, this, entered)
                } else {
                    entered.leave(py)?;
                    run_foreign(&object)
                }
            }
        }
    }

    #[inline(always)]
    fn run_handle<T: HandleType>(
        &self,
        loop_: &Bound<'_, LoopCore>,
        this: This<'_, '_, T>,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        if this.state().is_cancelled() {
            return Ok(());
        }
        if self.is_timed() {
            entered.leave(loop_.py())?;
            let run = || T::run(this, entered).and(entered.leave(loop_.py()));
            return slow::run_timed(loop_, &this.object(), run);
        }
        T::run(this, entered)
    }

    #[inline]
    fn run_step(
        loop_: &Bound<'_, LoopCore>,
        callable: Obj,
        argument: Option<Obj>,
        context: Obj,
        entered: &mut Entered<'_>,
    ) -> PyResult<()> {
        let py = loop_.py();
        let result = entered.call_in(py, &context, || match &argument {
            Some(argument) => ffi::call_one(py, &callable, argument),
            None => ffi::call_no_args(py, &callable),
        });
        let Err(error) = result else { return Ok(()) };
        // Only now a handle is needed: the exception handler gets one.
        let mut failed = Ok(());
        let loop_ = Obj::from(loop_.clone());
        Handle::native().instantiate_with(py, Handle::default(), |this| {
            let callback = Callback::of(this);
            callback.fill_step(callable, argument, context, loop_);
            failed = exceptions::callback_failed(this.object(), callback, error);
        })?;
        failed
    }

    /// A handle of a step, for a log line.
    #[cold]
    fn handle_of_step<'py>(
        loop_: &Bound<'py, LoopCore>,
        callable: Obj,
        argument: Option<Obj>,
        context: Obj,
    ) -> PyResult<Bound<'py, PyAny>> {
        let its_loop = Obj::from(loop_.clone());
        Handle::native().instantiate_with(loop_.py(), Handle::default(), |this| {
            Callback::of(this).fill_step(callable, argument, context, its_loop);
        })
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

/// Runs a handle of asyncio's own class, which `_add_callback` accepts.
#[cold]
fn run_foreign(handle: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = handle.py();
    if !handle.call_method0(intern!(py, "cancelled"))?.is_truthy()? {
        handle.call_method0(intern!(py, "_run"))?;
    }
    Ok(())
}

fn is_cancelled_timer(py: Python<'_>, handle: &Obj) -> bool {
    TimerHandle::native().get(handle.bind(py)).is_some_and(|this| this.state().is_cancelled())
}

fn unschedule(py: Python<'_>, handle: &Obj) {
    if let Some(this) = TimerHandle::native().get(handle.bind(py)) {
        this.unschedule();
    }
}
