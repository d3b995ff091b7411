//! Transfers data between QUIC streams and the HTTP/3 state.

use ringloop_h3::qpack::Line;
use ringloop_h3::{
    Code, ConnectionError, Role, StreamError as HttpError, StreamId as HttpStreamId, Transmit,
};
use ringloop_quic::core::{Event, Read};
use ringloop_quic::error::StreamError;
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::driver::{Driver, in_http, in_quic};
use crate::limits::H3_CONTROL_BYTES_MAX;
use crate::quic::state::State;

/// The urgency of requests that name none (RFC 9218 §4.1); QUIC's priority is 0 then.
const URGENCY_DEFAULT: i32 = 3;

impl Driver {
    /// Takes an event; returns whether it was HTTP/3's alone.
    pub(super) fn handle_event(
        &mut self,
        state: &mut State,
        event: &Event,
        woken: &mut Vec<Wake>,
    ) -> Result<bool, ConnectionError> {
        let is_handled = match event {
            Event::Opened(_, direction) => {
                while let Some(stream) = state.accept(self.handle, *direction) {
                    if *direction == Direction::Bi {
                        self.add(stream);
                    } else {
                        self.unidirectional.insert(stream);
                    }
                    self.read(state, stream, woken)?;
                }
                true
            }
            Event::Readable(_, stream) if self.reads(*stream) => {
                self.read(state, *stream, woken)?;
                true
            }
            Event::Stopped(_, stream, code) => {
                let taken = self.connection.receive_stop(in_http(*stream), Code(*code));
                taken.and(self.take_events(woken))?;
                // Queued data is dropped, and a writer woken, as in any stream.
                false
            }
            Event::FinalSize(_, stream, size) => {
                self.note_final_size(*stream, *size);
                true
            }
            Event::DatagramReceived(_) => {
                self.receive_datagrams(state, woken)?;
                true
            }
            Event::Connected(_) | Event::Available(_, Direction::Uni) => {
                state.open_queued(self.handle, Direction::Uni);
                false
            }
            _ => false,
        };
        self.read_unblocked(state, woken)?;
        Ok(is_handled)
    }

    /// Reads a stream while there is room for its body.
    fn read(
        &mut self,
        state: &mut State,
        stream: StreamId,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        loop {
            let room = self.room(stream);
            let Some((mut connection, _)) = state.sessions.both(self.handle) else {
                return Ok(());
            };
            if room == 0 {
                return Ok(());
            }
            let pieces = &mut self.pieces;
            let read = connection.read(stream, room, |piece| {
                pieces.push_back(piece);
                true
            });
            let is_end = matches!(read, Ok(Read::End(_)));
            self.receive(stream, is_end, woken)?;
            if !self.reads(stream) {
                return Ok(());
            }
            match read {
                Ok(Read::Some(_)) if self.connection.is_reading(in_http(stream)) => {}
                Err(StreamError::Reset(code)) => {
                    let http = &mut self.connection;
                    let taken = http.receive_reset(in_http(stream), Code(code));
                    let taken = taken.and(self.take_events(woken));
                    self.note_read_end(stream);
                    self.forget_unknown(stream);
                    return taken;
                }
                Ok(Read::End(_)) => {
                    self.note_read_end(stream);
                    return Ok(());
                }
                Ok(Read::Some(_) | Read::Blocked) | Err(_) => return Ok(()),
            }
        }
    }

    fn receive_datagrams(
        &mut self,
        state: &mut State,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        let Some((mut connection, _)) = state.sessions.both(self.handle) else {
            return Ok(());
        };
        while let Some(datagram) = connection.receive_datagram() {
            self.connection.receive_datagram(datagram)?;
            self.take_events(woken)?;
        }
        Ok(())
    }

    /// Stops reading a stream.
    fn note_read_end(&mut self, stream: StreamId) {
        self.unidirectional.remove(&stream);
        self.final_sizes.remove(&stream);
        if let Some(hosted) = &mut self.webtransport {
            hosted.note_read_end(stream);
        }
    }

    /// Reads streams whose field sections no longer wait for the peer's encoder.
    fn read_unblocked(
        &mut self,
        state: &mut State,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        while let Some(stream) = self.unblocked.pop() {
            self.read(state, stream, woken)?;
        }
        Ok(())
    }

    /// Resumes reading a stream, as its body's queue has room.
    pub fn resume(
        &mut self,
        state: &mut State,
        stream: StreamId,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        self.read(state, stream, woken)?;
        self.read_unblocked(state, woken)
    }

    /// The application has dropped its object. An incomplete message is cancelled; a request that was
    /// answered is no longer read (RFC 9114 §4.1).
    pub fn forget(&mut self, state: &mut State, stream: StreamId, has_ended: bool) {
        self.remove(stream);
        let code = match self.role {
            Role::Client => Code::H3_REQUEST_CANCELLED,
            Role::Server if has_ended => Code::H3_NO_ERROR,
            Role::Server => Code::H3_INTERNAL_ERROR,
        };
        // Unknown if both sides have ended.
        let _known = if has_ended {
            self.connection.stop(in_http(stream), code)
        } else {
            self.cancel(stream, code)
        };
        if let Some(session) = state.sessions.get(self.handle) {
            session.forget_finish(stream);
        }
    }

    /// Makes QUIC send urgent responses first (RFC 9218 §10). Responses of equal urgency share the
    /// path, incremental or not.
    fn prioritise(&mut self, state: &mut State) {
        for stream in self.prioritised.drain(..) {
            let priority = self.connection.priority(in_http(stream));
            if let (Some(priority), Ok((mut connection, _))) =
                (priority, state.sessions.open(self.handle))
            {
                let urgency = i32::from(priority.urgency);
                drop(connection.set_priority(stream, URGENCY_DEFAULT - urgency));
            }
        }
    }

    /// Cancels both messages of an exchange.
    pub fn cancel(&mut self, stream: StreamId, code: Code) -> Result<(), HttpError> {
        let is_session = self.is_session_pending(stream);
        let session = in_http(stream);
        if is_session
            && self.with_sessions(|sessions, http| sessions.abort(http, session, code)).is_ok()
        {
            return Ok(());
        }
        self.connection.cancel(session, code)
    }

    /// Sends a response's fields, interim ones or trailers.
    pub fn send_fields(
        &mut self,
        stream: StreamId,
        fields: &[Line<'_>],
        end: bool,
    ) -> Result<(), HttpError> {
        let is_session = self.is_session_pending(stream);
        let status = fields.iter().find(|line| line.name == b":status");
        let class = status.and_then(|line| line.value.first().copied());
        if is_session && class == Some(b'2') {
            return Err(HttpError::Invalid(
                "a WebTransport session is accepted by ringloop.webtransport.accept()",
            ));
        }
        self.connection.send_fields(in_http(stream), fields, end)?;
        if is_session && class.is_some_and(|class| class != b'1') {
            self.note_session_rejected(stream);
        }
        Ok(())
    }

    /// Passes output to QUIC, and drops it if its stream is gone.
    pub(super) fn transmit(
        &mut self,
        state: &mut State,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        self.prioritise(state);
        self.take_session_events(woken);
        while let Some(transmit) = self.connection.poll_transmit() {
            match transmit {
                Transmit::Stream { stream, data, fin } => self.send(state, stream, data, fin)?,
                Transmit::Reset { stream, code } => {
                    self.forget_unknown(in_quic(stream));
                    drop(state.reset(self.handle, in_quic(stream), code.0));
                }
                Transmit::Stop { stream, code } => {
                    self.note_read_end(in_quic(stream));
                    self.forget_unknown(in_quic(stream));
                    drop(state.stop(self.handle, in_quic(stream), code.0));
                }
                Transmit::Datagram(data) => {
                    if let Ok((mut connection, _)) = state.sessions.open(self.handle) {
                        drop(connection.send_datagram(data, true));
                    }
                }
            }
        }
        self.end_session_streams(state, woken);
        Ok(())
    }

    /// Ends the streams of closed sessions, and those refused by sessions.
    fn end_session_streams(&mut self, state: &mut State, woken: &mut Vec<Wake>) {
        while let Some(transmit) = self.next_session_transmit() {
            let (Transmit::Reset { stream, .. } | Transmit::Stop { stream, .. }) = transmit else {
                continue;
            };
            let stream = in_quic(stream);
            self.final_sizes.remove(&stream);
            if let Some(hosted) = &mut self.webtransport {
                hosted.discard(stream);
            }
            let waits = match transmit {
                Transmit::Reset { code, .. } => {
                    drop(state.reset(self.handle, stream, code.0));
                    [Wait::Write(stream), Wait::Finished(stream)]
                }
                Transmit::Stop { code, .. } => {
                    drop(state.stop(self.handle, stream, code.0));
                    [Wait::Read(stream); 2]
                }
                _ => continue,
            };
            woken.extend(waits.map(|wait| Wake::For(self.handle, wait)));
        }
    }

    fn send(
        &self,
        state: &mut State,
        stream: HttpStreamId,
        data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let (handle, id) = (self.handle, in_quic(stream));
        let is_own = !stream.is_bidirectional();
        // Data without credit waits in its queue.
        if is_own && state.open_up_to(handle, id).is_err() {
            return Ok(());
        }
        let written = state.write_bytes(handle, id, data);
        if fin && written.is_ok() {
            drop(state.finish(handle, id));
        }
        if is_own && written == Ok(false) {
            let session = state.sessions.get(handle);
            let queued = session.and_then(|session| session.attached.queued.get(&id));
            if queued.is_some_and(|queued| queued.len() > H3_CONTROL_BYTES_MAX) {
                return Err(ConnectionError::new(
                    Code::H3_EXCESSIVE_LOAD,
                    "no credit for the control and QPACK streams",
                ));
            }
        }
        Ok(())
    }
}
