//! asyncio futures that wait for something a connection will tell.
//!
//! Made only where there is nothing to be had at the moment. A future that was cancelled stays until what it
//! waited for comes, or another one waits for the same: at most one for a stream's direction, and one for each
//! task that accepts, opens or waits for datagrams.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use ringloop_quic::{Direction, StreamId};

/// What a future waits for.
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
    /// Whether at most one future waits for it.
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
    /// All, of every connection.
    Everybody,
}

/// The futures, by connection.
#[derive(Default)]
pub struct Waiters {
    by_key: HashMap<u64, HashMap<Wait, Vec<Py<PyAny>>>>,
}

impl Waiters {
    /// Have a future wait. Those that are done, and what it replaces, are dropped once the lock is free.
    pub fn add(
        waiters: &Mutex<Self>,
        py: Python<'_>,
        key: u64,
        wait: Wait,
        future: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let future = future.clone().unbind();
        let old = {
            let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
            let place = guard.by_key.entry(key).or_default().entry(wait);
            std::mem::replace(place.or_default(), vec![future])
        };
        if wait.is_single() || old.is_empty() {
            return Ok(());
        }
        let mut waiting = Vec::with_capacity(old.len());
        for future in old {
            if !is_done(future.bind(py))? {
                waiting.push(future);
            }
        }
        let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let place = guard.by_key.entry(key).or_default().entry(wait);
        place.or_default().append(&mut waiting);
        Ok(())
    }

    /// Give those a result who wait for what has come.
    pub fn wake(waiters: &Mutex<Self>, py: Python<'_>, woken: &[Wake]) -> PyResult<()> {
        let mut futures = Vec::new();
        {
            let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
            for wake in woken {
                guard.take(*wake, &mut futures);
            }
        }
        for future in futures {
            let future = future.bind(py);
            if !is_done(future)? {
                future.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, wake: Wake, into: &mut Vec<Py<PyAny>>) {
        match wake {
            Wake::For(key, wait) => {
                let Some(of_one) = self.by_key.get_mut(&key) else {
                    return;
                };
                into.extend(of_one.remove(&wait).into_iter().flatten());
                if of_one.is_empty() {
                    self.by_key.remove(&key);
                }
            }
            Wake::All(key) => {
                let of_one = self.by_key.remove(&key).into_iter().flatten();
                into.extend(of_one.flat_map(|(_, futures)| futures));
            }
            Wake::Everybody => {
                let all = std::mem::take(&mut self.by_key).into_values().flatten();
                into.extend(all.flat_map(|(_, futures)| futures));
            }
        }
    }

    /// Every future, for the collector.
    pub fn futures(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.by_key.values().flat_map(HashMap::values).flatten()
    }
}

fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    future
        .call_method0(intern!(future.py(), "done"))?
        .is_truthy()
}
