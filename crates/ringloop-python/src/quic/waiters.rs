//! Who waits for something that a connection will tell.
//!
//! A waiter is made only where there is nothing to be had at the moment. One that was cancelled stays until what it
//! waited for comes, or another one waits for the same: at most one for a stream's direction, and one for each
//! task that accepts, opens or waits for datagrams.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringloop_quic::{Direction, StreamId};

use super::errors;
use super::loop_::LoopSide;
use super::route::Route;
use super::waiter::{Waiter, Way};
use crate::ffi::Raise as _;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    Read(StreamId),
    Write(StreamId),
    /// The peer's answer to what was sent: all of it was acknowledged, or is not wanted.
    Ended(StreamId),
    Open(Direction),
    Accept(Direction),
    DatagramIn,
    DatagramOut,
    /// A step of the handshake, an acknowledged ping, the end.
    Progress,
}

impl Wait {
    /// Whether at most one waits for it.
    fn is_single(self) -> bool {
        matches!(self, Self::Read(_))
    }
}

/// Whom to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Those who wait for one thing of a connection.
    For(u64, Wait),
    /// All who wait for anything of a connection.
    All(u64),
}

/// The waiters, by connection.
#[derive(Default)]
pub struct Waiters {
    by_key: HashMap<u64, HashMap<Wait, Waiting>>,
}

/// Those who wait for one thing, most often one; who came first is woken first.
struct Waiting {
    first: Py<Waiter>,
    others: Vec<Py<Waiter>>,
}

impl Waiting {
    /// Have one more wait, behind the others; returns those that are done, to be dropped.
    fn queue(&mut self, last: Py<Waiter>) -> Vec<Py<Waiter>> {
        self.others.push(last);
        // Looked for each time there are twice as many.
        if !self.others.len().is_power_of_two() {
            return Vec::new();
        }
        let others = std::mem::take(&mut self.others);
        let (mut done, mut waiting): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|waiter| waiter.get().is_done());
        if self.first.get().is_done() && !waiting.is_empty() {
            done.push(std::mem::replace(&mut self.first, waiting.remove(0)));
        }
        self.others = waiting;
        done
    }
}

impl Waiters {
    /// Have one wait; false: another one does already, for what only one may wait for. Those that are done, and what it
    /// replaces, are dropped once the lock is free.
    pub fn add(waiters: &Mutex<Self>, key: u64, wait: Wait, waiter: Py<Waiter>) -> bool {
        let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let place = guard.by_key.entry(key).or_default().entry(wait);
        let waiting = Waiting {
            first: waiter,
            others: Vec::new(),
        };
        let old = match place {
            Entry::Vacant(place) => {
                place.insert(waiting);
                return true;
            }
            Entry::Occupied(place) if wait.is_single() && !place.get().first.get().is_done() => {
                drop(guard);
                drop(waiting);
                return false;
            }
            Entry::Occupied(mut place) if wait.is_single() => {
                vec![place.insert(waiting).first]
            }
            Entry::Occupied(mut place) => place.get_mut().queue(waiting.first),
        };
        drop(guard);
        drop::<Vec<_>>(old);
        true
    }

    /// Wake those who wait for what has come; tells whether the loop's queue has anything of them now. All of them
    /// are woken, whatever one of them raises.
    pub fn wake(waiters: &Mutex<Self>, py: Python<'_>, woken: &[Wake], way: Way) -> PyResult<bool> {
        let mut found = Vec::new();
        {
            let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
            for wake in woken {
                guard.take(*wake, &mut found);
            }
        }
        let (mut queued, mut failed) = (false, Ok(()));
        for waiter in found {
            let way = if failed.is_ok() { way } else { Way::Queue };
            match Waiter::wake(waiter.bind(py), way) {
                Ok(is_queued) => queued |= is_queued,
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| queued)
    }

    fn take(&mut self, wake: Wake, into: &mut Vec<Py<Waiter>>) {
        match wake {
            Wake::For(key, wait) => {
                let Some(of_one) = self.by_key.get_mut(&key) else {
                    return;
                };
                if let Some(waiting) = of_one.remove(&wait) {
                    into.push(waiting.first);
                    into.extend(waiting.others);
                }
            }
            Wake::All(key) => {
                let of_one = self.by_key.remove(&key).into_iter().flatten();
                into.extend(of_one.flat_map(|(_, waiting)| waiting.all()));
            }
        }
    }

    /// Every waiter, for the collector.
    pub fn all(&self) -> impl Iterator<Item = &Py<Waiter>> {
        let waiting = self.by_key.values().flat_map(HashMap::values);
        waiting.flat_map(|waiting| std::iter::once(&waiting.first).chain(&waiting.others))
    }
}

/// Make a waiter for something of a connection.
pub fn wait_for<'py>(route: &Route, py: Python<'py>, wait: Wait) -> PyResult<Bound<'py, Waiter>> {
    let methods = LoopSide::methods(&route.shared.loop_)
        .ok_or_else(|| errors::connection(py, &route.record))?;
    let waiter = Bound::new(py, Waiter::new(methods.loop_.clone_ref(py)))?;
    if route.lost().is_some() {
        // Nothing else will wake it.
        Waiter::wake(&waiter, Way::Queue)?;
        return Ok(waiter);
    }
    let key = route.handle.to_bits();
    if !Waiters::add(&route.shared.waiters, key, wait, waiter.clone().unbind()) {
        return Err(PyRuntimeError::raise(
            "read() called while another coroutine is already waiting for incoming data",
        ));
    }
    Ok(waiter)
}

impl Waiting {
    fn all(self) -> impl Iterator<Item = Py<Waiter>> {
        std::iter::once(self.first).chain(self.others)
    }
}
