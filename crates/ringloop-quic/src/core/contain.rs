//! Keeps a panic of the protocol engine, of TLS or of its cryptography to the connection that it happened in.
//!
//! Called by: the core, around what the engine does for one connection. aws-lc-rs panics where its C library has no
//! memory, and so does a verifier, store or log of the application that has a fault. The connection is lost with
//! `INTERNAL_ERROR` (RFC 9000 §20.1); its peer is told nothing, since the engine's state may be half changed.

use super::live::{End, Live, Loss};
use crate::error::ConnectionError;
use crate::proto;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// RFC 9000 §20.1.
const INTERNAL_ERROR: u64 = 1;

/// Run a step of a connection; `None` if it panicked, after which the engine no longer knows the connection.
pub(super) fn step<T>(
    endpoint: &mut proto::Endpoint,
    live: &mut Live,
    work: impl FnOnce(&mut proto::Endpoint, &mut Live) -> T,
) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(|| work(endpoint, live))) {
        Ok(done) => Some(done),
        Err(payload) => {
            live.loss = Loss::Unreported(Box::new(lost_by(&*payload)));
            live.is_broken = true;
            live.armed = None;
            if live.end == End::NotYet {
                live.end = End::Drained;
                endpoint.handle_event(live.key, proto::EndpointEvent::drained());
            }
            None
        }
    }
}

/// Run what belongs to no connection yet; `Err` if it panicked.
pub(super) fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, ConnectionError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| lost_by(&*payload))
}

fn lost_by(payload: &(dyn Any + Send)) -> ConnectionError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    ConnectionError::Transport {
        code: INTERNAL_ERROR,
        reason: format!(
            "it panicked, for want of memory or by a fault: {}",
            text.unwrap_or("no message")
        ),
    }
}
