//! Congestion controllers whose window a close may exceed.
//!
//! Owns: the wrapper around each controller of the engine. Called by: `config` (which controllers),
//! `core` (what a connection sends).
//!
//! A packet of only `CONNECTION_CLOSE` and acknowledgements is not congestion controlled (RFC 9002
//! §2, §7). The engine counts it as one of the stream data that still waits, and holds it back while
//! the window is full; a closed connection processes no acknowledgements, so that the window stays
//! full and the peer would learn of the close only by its idle timeout (quinn issue 2785).

use quinn_proto::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::congestion::{CubicConfig, NewRenoConfig};
use quinn_proto::{Connection, RttEstimator, Transmit};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

/// CUBIC (RFC 9438).
pub(crate) fn cubic() -> Factory {
    Arc::new(Liftable(Arc::new(CubicConfig::default())))
}

/// `NewReno` (RFC 9002 §7).
pub(crate) fn new_reno() -> Factory {
    Arc::new(Liftable(Arc::new(NewRenoConfig::default())))
}

/// BBR.
pub(crate) fn bbr() -> Factory {
    Arc::new(Liftable(Arc::new(BbrConfig::default())))
}

/// The connection's next message; that of a closed one regardless of the window.
pub(crate) fn poll_transmit(
    connection: &mut Connection,
    now: Instant,
    segments_max: usize,
    buf: &mut Vec<u8>,
) -> Option<Transmit> {
    if !connection.is_closed() {
        return connection.poll_transmit(now, segments_max, buf);
    }
    let controller = connection.congestion_state().clone_box().into_any();
    let is_lifted = controller.downcast::<Lifted>().ok().map(|controller| controller.is_lifted);
    let lift = |lifts| {
        if let Some(is_lifted) = &is_lifted {
            is_lifted.store(lifts, Ordering::Relaxed);
        }
    };
    lift(true);
    let transmit = connection.poll_transmit(now, segments_max, buf);
    lift(false);
    transmit
}

/// Makes controllers whose window can be lifted.
struct Liftable(Factory);

impl ControllerFactory for Liftable {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let controller = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Lifted { controller, is_lifted: Arc::default() })
    }
}

/// A controller whose window is unlimited while it is lifted. Clones share that.
struct Lifted {
    controller: Box<dyn Controller>,
    is_lifted: Arc<AtomicBool>,
}

impl Controller for Lifted {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.controller.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.controller.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.controller.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.is_lifted.load(Ordering::Relaxed) { u64::MAX } else { self.controller.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let is_lifted = Arc::clone(&self.is_lifted);
        Box::new(Self { controller: self.controller.clone_box(), is_lifted })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_controller_are_lifted_together() {
        for factory in [cubic(), new_reno(), bbr()] {
            let controller = factory.build(Instant::now(), 1200);
            let window = controller.window();
            let lifted = controller.clone_box().into_any().downcast::<Lifted>().unwrap();
            lifted.is_lifted.store(true, Ordering::Relaxed);
            assert_eq!(controller.window(), u64::MAX);
            lifted.is_lifted.store(false, Ordering::Relaxed);
            assert_eq!(controller.window(), window);
        }
    }
}
