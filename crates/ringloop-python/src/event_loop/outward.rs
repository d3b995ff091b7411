//! Operations of a callback that make unsent writes observable.
//!
//! Owns: the loop that the thread runs, and the events before which that loop sends what was
//! gathered in the turn. Called by: the interpreter (`ffi/audit.rs`), `turn` (the running loop).
//! Other threads' loops are not affected.
//!
//! Starting or forking a process, a signal and a connection are noticed by others, who may then
//! expect the bytes. A sleep keeps them waiting. The interpreter raises audit events for these, but
//! not for `os._exit`.

use std::cell::RefCell;

use pyo3::prelude::*;

use super::core::LoopCore;
use crate::ffi;

thread_local! {
    static RUNNING: RefCell<Option<Py<LoopCore>>> = const { RefCell::new(None) };
}

static WATCH: ffi::AuditWatch = ffi::AuditWatch { is_wanted, about: send_gathered };

/// Registers for the events; whether that succeeded.
pub(super) fn watch() -> bool {
    ffi::watch_audit(&WATCH)
}

/// Runs `body`, the turns of `loop_`, as the thread's loop.
pub(super) fn as_running<R>(loop_: &Bound<'_, LoopCore>, body: impl FnOnce() -> R) -> R {
    let own = Some(loop_.clone().unbind());
    let outer = RUNNING.with(|running| running.replace(own));
    let result = body();
    drop(RUNNING.with(|running| running.replace(outer)));
    result
}

fn is_wanted(event: &[u8]) -> bool {
    // In an ending thread, there is none.
    let runs = RUNNING.try_with(|running| running.try_borrow().is_ok_and(|loop_| loop_.is_some()));
    runs == Ok(true) && is_outward(event)
}

fn is_outward(event: &[u8]) -> bool {
    matches!(
        event,
        b"os.exec"
            | b"os.fork"
            | b"os.forkpty"
            | b"os.kill"
            | b"os.killpg"
            | b"os.posix_spawn"
            | b"os.spawn"
            | b"os.system"
            | b"pty.spawn"
            | b"signal.pthread_kill"
            | b"socket.connect"
            | b"socket.sendmsg"
            | b"socket.sendto"
            | b"subprocess.Popen"
            | b"_posixsubprocess.fork_exec"
            | b"_thread.start_joinable_thread"
            | b"_thread.start_new_thread"
            | b"time.sleep"
    )
}

fn send_gathered(py: Python<'_>) -> PyResult<()> {
    let running = RUNNING.with(|running| {
        let running = running.try_borrow().ok()?;
        running.as_ref().map(|loop_| loop_.clone_ref(py))
    });
    match running {
        Some(loop_) => loop_.get().send_gathered(loop_.bind(py)),
        None => Ok(()),
    }
}
