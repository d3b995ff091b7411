//! Contains a panic of the protocol engine, TLS or its cryptography to one connection.
//!
//! Called by: the core, around the engine's steps for one connection. aws-lc-rs panics if its C
//! library runs out of memory, and an application's verifier, store or log may have a bug. The
//! connection fails with `INTERNAL_ERROR` (RFC 9000 §20.1) without a packet to the peer, since the
//! engine's state may be inconsistent.

use super::live::{End, Live, Loss};
use crate::error::ConnectionError;
use crate::proto;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// RFC 9000 §20.1.
const INTERNAL_ERROR: u64 = 1;

/// Runs a step of a connection; `None` if it panicked, after which the engine no longer knows the
/// connection.
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

/// Runs a step that belongs to no connection yet; `Err` if it panicked.
pub(super) fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, ConnectionError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| lost_by(&*payload))
}

fn lost_by(payload: &(dyn Any + Send)) -> ConnectionError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    ConnectionError::Transport {
        code: INTERNAL_ERROR,
        reason: format!(
            "it panicked, out of memory or because of a bug: {}",
            text.unwrap_or("no message")
        ),
    }
}
