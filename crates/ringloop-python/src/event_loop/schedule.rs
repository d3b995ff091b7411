//! Scheduling, once per callback: `call_soon` and its kin, futures and tasks.
//!
//! Entered by vectorcall (see `ffi/method.rs`); signatures, checks and errors are those of
//! `asyncio.BaseEventLoop`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyType};
use ringloop::embed::sys::clock;

use super::callback::{self, Call};
use super::clock::foreign_time;
use super::core::LoopCore;
use super::debug;
use super::handle::{self, Handle, TimerHandle};
use super::inbox;
use super::ready::Entry;
use super::standard;
use super::threadsafe::ThreadSafeHandle;
use super::timers;
use super::watched::Direction;
use super::watchers;
use crate::ffi::{
    self, Args, Class, IntoObject as _, Obj, Payload as _, Raise as _, imported, install_methods,
    intern, method,
};

type Loop<'a, 'py> = Borrowed<'a, 'py, LoopCore>;

/// Puts the methods on the class.
pub fn install(py: Python<'_>) -> PyResult<()> {
    type Target = Class<LoopCore>;
    let methods = vec![
        method!(Target, call_soon("callback, *args, context=None") => call_soon, "Call `callback` in the next pass."),
        method!(Target, call_later("delay, callback, *args, context=None") => call_later, "Call `callback` after `delay` seconds."),
        method!(Target, call_at("when, callback, *args, context=None") => call_at, "Call `callback` when the loop's clock reads `when`."),
        method!(Target, call_soon_threadsafe("callback, *args, context=None") => |loop_, args| call_threadsafe(loop_, args, inbox::Bound::Capacity), "Call `callback` in the loop's thread; callable from any thread."),
        method!(Target, _answer("callback, *args") => |loop_, args| call_threadsafe(loop_, args, inbox::Bound::Request), "As call_soon_threadsafe, also where the inbox is full: somebody in the loop waits for it."),
        method!(Target, time() => |_loop| clock::monotonic_ns() as f64 / 1e9, "Return the loop's clock, `time.monotonic()`."),
        method!(Target, create_future() => create_future, "Make a future of this loop."),
        method!(Target, create_task("coro, **kwargs") => create_task, "Schedule a coroutine."),
        method!(Target, is_running() => |loop_| loop_.get().is_running(), "Say whether the loop runs."),
        method!(Target, is_closed() => |loop_| loop_.get().is_closed(), "Say whether the loop was closed."),
        method!(Target, get_debug() => |loop_| loop_.get().debug(), "Say whether debug mode is on."),
        method!(Target, _add_reader("fd, callback, *args") => |loop_, args| watchers::add(loop_, args, Direction::Read, &watchers::WATCHER), "Watch for data; returns the handle."),
        method!(Target, _add_child_reader("fd, callback, *args") => |loop_, args| watchers::add(loop_, args, Direction::Read, &watchers::CHILD), "As _add_reader, behind what others bring in the same wait."),
        method!(Target, _add_writer("fd, callback, *args") => |loop_, args| watchers::add(loop_, args, Direction::Write, &watchers::WATCHER), "Watch for room; returns the handle."),
        method!(Target, _remove_reader("fd") => |loop_, args| watchers::remove(loop_, args, Direction::Read), "Stop watching for data."),
        method!(Target, _remove_writer("fd") => |loop_, args| watchers::remove(loop_, args, Direction::Write), "Stop watching for room."),
    ];
    install_methods::<LoopCore>(&py.get_type::<LoopCore>(), methods)
}

/// Parses the callback at `index` and the context; `None` if leading parameters are missing or
/// given by keyword.
#[inline(always)]
fn parse<'a, 'py>(
    args: &Args<'a, 'py>,
    function: &str,
    index: usize,
) -> PyResult<Option<Call<'a, 'py>>> {
    let py = args.py();
    let Some(callback) = args.get(index) else {
        return Ok(None);
    };
    let context = match args.only_keyword(function, intern!(py, "context"))? {
        Some(context) if context.is_none() => callback::current_context(py)?,
        Some(context) if is_foreign_context(context)? => return Ok(None),
        Some(context) => Some(Obj::from_borrowed(context)),
        None => callback::current_context(py)?,
    };
    Ok(Some(Call { callback, context }))
}

/// Whether a context is another object with a `run` method, which asyncio calls.
#[inline]
fn is_foreign_context(context: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    if ffi::is_context(&context) {
        return Ok(false);
    }
    context.hasattr(intern!(context.py(), "run"))
}

/// Calls again with the leading parameters by position (`call_later(1, callback=print)`), and with
/// `context.run(callback, …)` for a context that is none of Python's.
#[cold]
fn by_keyword(
    loop_: Loop<'_, '_>,
    args: Args<'_, '_>,
    function: &str,
    names: &[&str],
) -> PyResult<Obj> {
    let py = loop_.py();
    let mut leading: Vec<Bound<'_, PyAny>> = args.skip(0).map(Borrowed::to_owned).collect();
    let given = ffi::new_dict(py)?;
    for (name, value) in args.keywords() {
        given.set_item(name, value)?;
    }
    for name in names.iter().skip(leading.len()) {
        let name = ffi::new_str(py, name)?;
        match given.get_item(&name)? {
            Some(value) => leading.push(value),
            None => {
                return Err(PyTypeError::raise(format!(
                    "{function}() missing 1 required positional argument: '{name}'"
                )));
            }
        }
        given.del_item(name)?;
    }
    let context = intern!(py, "context");
    if let Some(foreign) = given.get_item(context)?
        && !foreign.is_none()
        && is_foreign_context(foreign.as_borrowed())?
    {
        let callback = &mut leading[names.len() - 1];
        let run = foreign.getattr(intern!(py, "run"))?;
        *callback = imported!(py, PyType, "functools", "partial")?.call1((run, &*callback))?;
        given.del_item(context)?;
    }
    let leading = ffi::new_tuple(py, leading.into_iter())?;
    loop_.call_method(ffi::new_str(py, function)?, leading, Some(&given)).map(Obj::from)
}

fn call_soon(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let core = loop_.get();
    core.check_open()?;
    let Some(mut call) = parse(&args, "call_soon", 0)? else {
        return by_keyword(loop_, args, "call_soon", &["callback"]);
    };
    if core.may_skip_handles()
        && args.len() <= 2
        && core.steps.is_step(call.callback)
        && let Some(context) = call.context.take()
    {
        let step = Entry::Step {
            callable: Obj::from_borrowed(call.callback),
            argument: args.get(1).map(Obj::from_borrowed),
            context,
        };
        core.ready.with(|ready| ready.try_push(step))??;
        return Ok(loop_.py().None().into_bound(loop_.py()).into());
    }
    if core.debug() {
        debug::check(&loop_, call.callback, "call_soon", true)?;
    }
    let handle = handle::new(Handle::default(), loop_, call, args, 1)?;
    let entry = Entry::Handle(handle.clone_ref(loop_.py()));
    core.ready.with(|ready| ready.try_push(entry))??;
    Ok(handle)
}

fn call_threadsafe(loop_: Loop<'_, '_>, args: Args<'_, '_>, bound: inbox::Bound) -> PyResult<Obj> {
    let core = loop_.get();
    core.check_open()?;
    let Some(call) = parse(&args, "call_soon_threadsafe", 0)? else {
        return by_keyword(loop_, args, "call_soon_threadsafe", &["callback"]);
    };
    if core.debug() {
        debug::check(&loop_, call.callback, "call_soon_threadsafe", false)?;
    }
    let handle = if ThreadSafeHandle::native().is_created() {
        handle::new(ThreadSafeHandle::default(), loop_, call, args, 1)?
    } else {
        // Before 3.14 such a handle is an ordinary one.
        handle::new(Handle::default(), loop_, call, args, 1)?
    };
    core.send(handle.clone_ref(loop_.py()), bound)?;
    Ok(handle)
}

fn call_later(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let Some(call) = parse(&args, "call_later", 1)? else {
        return by_keyword(loop_, args, "call_later", &["delay", "callback"]);
    };
    let Some(delay) = args.get(0).filter(|delay| !delay.is_none()) else {
        return Err(PyTypeError::raise("delay must not be None"));
    };
    let delay = seconds(delay, "delay")?;
    let core = loop_.get();
    if !core.is_running_here() {
        core.look_for_clock_again(&loop_)?;
    }
    if core.has_foreign_call_at() {
        return by_foreign_call_at(loop_, args, delay);
    }
    if core.has_foreign_clock() {
        let when = foreign_time(&loop_)? + delay;
        return schedule_timer(loop_, args, call, when, None);
    }
    let now_ns = clock::monotonic_ns();
    let when = now_ns as f64 / 1e9 + delay;
    let due_at_once = delay == 0.0;
    schedule_timer(loop_, args, call, when, due_at_once.then_some(now_ns as i64))
}

/// As in asyncio, `call_later` uses a `call_at` that the application overrides.
#[cold]
fn by_foreign_call_at(loop_: Loop<'_, '_>, args: Args<'_, '_>, delay: f64) -> PyResult<Obj> {
    let py = loop_.py();
    let when = (foreign_time(&loop_)? + delay).into_object(py)?;
    let rest = args.skip(1).map(Borrowed::to_owned);
    let all =
        ffi::new_tuple(py, std::iter::once(when).chain(rest).collect::<Vec<_>>().into_iter())?;
    let keywords = ffi::new_dict(py)?;
    for (name, value) in args.keywords() {
        keywords.set_item(name, value)?;
    }
    loop_.call_method(intern!(py, "call_at"), all, Some(&keywords)).map(Obj::from)
}

fn call_at(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let Some(call) = parse(&args, "call_at", 1)? else {
        return by_keyword(loop_, args, "call_at", &["when", "callback"]);
    };
    let Some(when) = args.get(0).filter(|when| !when.is_none()) else {
        return Err(PyTypeError::raise("when cannot be None"));
    };
    let handle = schedule_timer(loop_, args, call, seconds(when, "when")?, None)?;
    if when.is_instance_of::<PyInt>()
        && let Some(this) = TimerHandle::native().get(handle.bind(loop_.py()))
    {
        this.mark_whole();
    }
    Ok(handle)
}

/// Parses seconds; the error names the argument.
fn seconds(value: Borrowed<'_, '_, PyAny>, name: &str) -> PyResult<f64> {
    value.extract::<f64>().or_else(|error| {
        if error.is_instance_of::<PyTypeError>(value.py()) {
            let kind = value.get_type().name()?;
            return Err(PyTypeError::raise(format!("{name} must be a number, not {kind}")));
        }
        Err(error)
    })
}

fn schedule_timer(
    loop_: Loop<'_, '_>,
    args: Args<'_, '_>,
    call: Call<'_, '_>,
    when: f64,
    due_ns: Option<i64>,
) -> PyResult<Obj> {
    let py = loop_.py();
    let core = loop_.get();
    core.check_open()?;
    if core.debug() {
        debug::check(&loop_, call.callback, "call_at", true)?;
    }
    let handle = handle::new(TimerHandle::new(when), loop_, call, args, 2)?;
    let queued = handle.clone_ref(py);
    core.timers.with(|timers| match due_ns {
        Some(now_ns) => timers.push_due(now_ns, queued),
        None => timers.push(timers::deadline_ns(when), queued),
    })??;
    Ok(handle)
}

fn create_future<'py>(loop_: Loop<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let class = standard::FUTURES.get(intern!(py, "Future"))?;
    if is_asyncios_running_loop(loop_.get()) && !loop_.get().debug() {
        // Without `loop=` it looks up the running loop, which is cheaper than a keyword dictionary.
        return class.call0();
    }
    let keywords = ffi::new_dict(py)?;
    keywords.set_item(intern!(py, "loop"), loop_)?;
    class.call((), Some(&keywords))
}

/// Whether futures without `loop=` are this loop's: to asyncio, a child of a fork has no running loop.
fn is_asyncios_running_loop(core: &LoopCore) -> bool {
    core.is_running_here() && !core.engine.is_of_another_process()
}

fn create_task<'py>(loop_: Loop<'_, 'py>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let core = loop_.get();
    core.check_open()?;
    let coroutine = args.get(0).filter(|_| args.len() == 1);
    let plain = !core.has_task_factory() && !core.debug();
    let (Some(coroutine), true) = (coroutine, plain) else {
        return inherited_create_task(loop_, args);
    };
    let class = standard::TASKS.get(intern!(py, "Task"))?;
    if !core.steps.is_task_type(&class) {
        // A replaced method expects the arguments that this version of asyncio passes.
        return inherited_create_task(loop_, args);
    }
    if args.keyword_count() == 0 && is_asyncios_running_loop(core) {
        return class.call1((coroutine,));
    }
    let keywords = ffi::new_dict(py)?;
    for (name, value) in args.keywords() {
        keywords.set_item(name, value)?;
    }
    keywords.set_item(intern!(py, "loop"), loop_)?;
    class.call((coroutine,), Some(&keywords))
}

/// Task factories and debug mode: uses the standard library's method.
fn inherited_create_task<'py>(
    loop_: Loop<'_, 'py>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let base = standard::BASE_EVENTS.get(intern!(py, "BaseEventLoop"))?;
    let mut all = vec![loop_.to_owned().into_any()];
    all.extend(args.skip(0).map(Borrowed::to_owned));
    let keywords = ffi::new_dict(py)?;
    for (name, value) in args.keywords() {
        keywords.set_item(name, value)?;
    }
    base.call_method(
        intern!(py, "create_task"),
        ffi::new_tuple(py, all.into_iter())?,
        Some(&keywords),
    )
}
