//! Connects the endpoint's state to the HTTP/3 of a connection.

use std::time::Instant;

use ringloop_h3::{ConnectionError, Role, webtransport};
use ringloop_quic::Direction;
use ringloop_quic::core::{Event, Handle};
use ringloop_quic::session::{Wake, index_of};

use super::driver::{ALPN, Driver};
use crate::quic::state::{State, Style};

impl State {
    /// Passes an event to a connection's HTTP/3; returns whether it was HTTP/3's alone.
    pub fn route_http(
        &mut self,
        now: Instant,
        handle: Handle,
        event: &Event,
        woken: &mut Vec<Wake>,
    ) -> bool {
        if let Event::HandshakeData(_) | Event::Connected(_) = event {
            self.start_http(handle, event);
        }
        let handled = self.with_http(now, handle, woken, |driver, state, woken| {
            driver.handle_event(state, event, woken)
        });
        matches!(handled, Some(Ok(true)))
    }

    /// Makes a connection's HTTP/3, if the handshake negotiated it.
    ///
    /// A server does so before its handshake is complete: early data may contain requests, and its
    /// SETTINGS may be sent. A client waits: rejected early data would lose its streams.
    fn start_http(&mut self, handle: Handle, event: &Event) {
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return;
        };
        let is_client = connection.is_client();
        let is_too_early = is_client && matches!(event, Event::HandshakeData(_));
        if !session.attached.wants_http || session.attached.http.is_some() || is_too_early {
            return;
        }
        let agreed = connection.handshake();
        if agreed.and_then(|agreed| agreed.protocol).as_deref() != Some(ALPN) {
            return;
        }
        let role = if is_client { Role::Client } else { Role::Server };
        let datagrams = connection.takes_datagrams();
        let opened = session.attached.opened[index_of(Direction::Uni)];
        let mut webtransport = session.attached.webtransport.take();
        if let Some(wanted) = &mut webtransport {
            wanted.has_reset_stream_at = connection.announces_reset_stream_at();
            if wanted.flow_control.is_some() {
                connection.watch_final_sizes();
            }
        }
        let driver = Driver::new(handle, role, opened, datagrams, webtransport.as_deref());
        session.attached.first = Some(driver.own);
        session.attached.http = Some(Box::new(driver));
    }

    /// Drives a connection's HTTP/3 here, once its handshake has negotiated it; `false` if the
    /// handshake is already complete. `webtransport`: with WebTransport sessions.
    pub fn want_http(
        &mut self,
        handle: Handle,
        webtransport: Option<webtransport::Config>,
    ) -> bool {
        let style = self.style;
        let session = self.sessions.get(handle);
        let session = session.filter(|session| session.is_handshaking());
        let Some(session) = session.filter(|_| style == Style::Futures) else {
            return false;
        };
        session.attached.wants_http = true;
        session.attached.webtransport = webtransport.map(Box::new);
        self.has_http = true;
        true
    }

    /// Lets `act` use a connection's HTTP/3, then passes its output to QUIC. An error of `act` closes
    /// the connection. `None` if the connection has no HTTP/3, or is closed.
    pub fn with_http<T>(
        &mut self,
        now: Instant,
        handle: Handle,
        woken: &mut Vec<Wake>,
        act: impl FnOnce(&mut Driver, &mut Self, &mut Vec<Wake>) -> Result<T, ConnectionError>,
    ) -> Option<Result<T, ConnectionError>> {
        let session = self.sessions.get(handle)?;
        let mut driver = session.attached.http.take()?;
        let done = act(&mut driver, self, woken);
        let done = driver.transmit(self, woken).and(done);
        if let Err(error) = &done {
            let reason = error.reason.as_bytes();
            self.close(now, handle, error.code.0, reason, woken);
        }
        if std::mem::take(&mut driver.is_eventful) {
            self.announce(handle);
            self.notify_eventful(handle);
        }
        let unlimited = std::mem::take(&mut driver.unlimited);
        if let Some(session) = self.sessions.get(handle) {
            session.attached.http = Some(driver);
        }
        if !unlimited.is_empty() {
            self.pour_sessions(handle, &unlimited, woken);
        }
        Some(done)
    }
}
