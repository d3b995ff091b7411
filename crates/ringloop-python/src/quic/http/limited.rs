//! Streams of WebTransport sessions with flow control (draft-ietf-webtrans-http3-16 §5): data written
//! beyond a session's limit waits in the stream's queue, as data without QUIC credit does.

use ringloop_quic::StreamId;
use ringloop_quic::core::Handle;
use ringloop_quic::session::{Wait, Wake};

use super::driver::{Driver, in_http};
use crate::quic::queued::{Poured, Queued};
use crate::quic::state::State;

impl State {
    /// How many of `wanted` bytes a session's limit allows now; they count as sent.
    pub fn reserve(&mut self, handle: Handle, session: StreamId, wanted: usize) -> usize {
        self.with_driver(handle, |driver| {
            let granted = driver.with_sessions(|sessions, http| {
                sessions.reserve(http, in_http(session), wanted as u64)
            });
            // The session has ended: QUIC has reset the stream, and reports that.
            granted.map_or(wanted, |granted| usize::try_from(granted).unwrap_or(wanted))
        })
        .unwrap_or(wanted)
    }

    /// Returns reserved bytes that were not sent.
    pub fn unreserve(&mut self, handle: Handle, session: StreamId, count: usize) {
        if count > 0 {
            self.with_driver(handle, |driver| {
                let _known = driver.with_sessions(|sessions, _| {
                    sessions.unreserve(in_http(session), count as u64);
                    Ok(())
                });
            });
        }
    }

    fn with_driver<T>(&mut self, handle: Handle, act: impl FnOnce(&mut Driver) -> T) -> Option<T> {
        let now = self.clock.moment(None);
        // Nothing waits for flow control capsules.
        let mut woken = Vec::new();
        self.with_http(now, handle, &mut woken, |driver, _, _| Ok(act(driver)))?.ok()
    }

    /// Passes queued bytes on as far as the session and QUIC allow; whether nothing is left.
    pub fn pour_limited(&mut self, handle: Handle, stream: StreamId, limiting: StreamId) -> bool {
        let session = self.sessions.get(handle);
        let queued = session.and_then(|session| session.attached.queued.get(&stream));
        let Some(wanted) = queued.map(Queued::len) else {
            return true;
        };
        let granted = self.reserve(handle, limiting, wanted);
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return true;
        };
        let attached = &mut session.attached;
        let Some(queued) = attached.queued.get_mut(&stream) else {
            return true;
        };
        let is_last = queued.is_finishing();
        let (poured, count) = queued.pour_at_most(&mut connection, stream, granted);
        let is_all = poured != Poured::Some;
        if is_all {
            attached.queued.remove(&stream);
            if is_last {
                attached.limited.remove(&stream);
            }
        }
        self.unreserve(handle, limiting, granted - count);
        is_all
    }

    /// Session limits were raised: writes the data that waits for them.
    pub(super) fn pour_sessions(
        &mut self,
        handle: Handle,
        sessions: &[StreamId],
        woken: &mut Vec<Wake>,
    ) {
        let Some(session) = self.sessions.get(handle) else {
            return;
        };
        let queued = &session.attached.queued;
        let limited = session.attached.limited.iter();
        let mut waiting: Vec<StreamId> = limited
            .filter(|(stream, session)| sessions.contains(session) && queued.contains_key(stream))
            .map(|(stream, _)| *stream)
            .collect();
        waiting.sort_unstable();
        for stream in waiting {
            if self.pour(handle, stream) {
                woken.push(Wake::For(handle, Wait::Write(stream)));
            }
        }
    }
}

impl Driver {
    /// Whether sessions have flow control.
    pub fn limits_sessions(&self) -> bool {
        self.webtransport.as_ref().is_some_and(|hosted| hosted.sessions.has_flow_control())
    }

    /// Records a stream's final size, which counts against its session's limit.
    pub(super) fn note_final_size(&mut self, stream: StreamId, size: u64) {
        let http_stream = in_http(stream);
        let found = self.with_sessions(|sessions, http| {
            let is_counted = sessions.final_size(http, http_stream, size);
            Ok((is_counted, sessions.is_early(http_stream)))
        });
        if let Ok((false, is_early)) = found
            && (is_early || self.reads(stream))
        {
            self.final_sizes.insert(stream, size);
        }
    }

    /// The application has read `read` bytes of a stream, of which `arrived` were not counted yet.
    pub fn note_read(&mut self, session: StreamId, stream: StreamId, arrived: u64, read: u64) {
        let (session, stream) = (in_http(session), in_http(stream));
        let _known = self.with_sessions(|sessions, http| {
            sessions.received(http, session, stream, arrived);
            sessions.read(http, session, stream, read);
            Ok(())
        });
    }
}
