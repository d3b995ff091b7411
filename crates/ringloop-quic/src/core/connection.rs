//! Operations on one connection.
//!
//! Owns: nothing; it borrows a connection of the core for a few calls. Called by: the futures of
//! this crate, embedders. Calls that would block return so, and an event reports when to retry.

use super::datagrams::DatagramRefusal;
use super::live::{Live, Queues};
use super::outcome::{Read, Written};
use super::resets::Outcome;
use super::staged;
use super::tuning::announce_streams;
use crate::error::StreamError;
use crate::limits::STREAMS_LIMIT;
use crate::proto::concluded::{Agreed, PeerCertificates};
use crate::proto::{self, varint};
use crate::stats::Stats;
use crate::{Direction, StreamId};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// One connection of a core.
pub struct Connection<'a> {
    live: &'a mut Live,
    queues: &'a mut Queues,
    slot: u32,
}

impl std::fmt::Debug for Connection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("remote", &self.remote_address()).finish_non_exhaustive()
    }
}

/// What a handshake agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Handshake {
    /// The application's protocol (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// Servers: the name that the client requested.
    pub server_name: Option<String>,
    /// The cipher suite, by its IANA name.
    pub cipher_suite: Option<String>,
    /// The group of the key exchange.
    pub key_exchange: Option<String>,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

fn id_of(stream: StreamId) -> proto::StreamId {
    proto::StreamId::from(varint(stream.0))
}

impl<'a> Connection<'a> {
    pub(super) fn new(live: &'a mut Live, queues: &'a mut Queues, slot: u32) -> Self {
        Self { live, queues, slot }
    }

    /// Marks the connection as one with something to send.
    fn mark(&mut self) {
        self.queues.mark(self.live, self.slot);
    }

    /// Opens a stream; `None` while the peer allows no more.
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let id = self.live.proto.streams().open(direction.into())?;
        Some(StreamId(id.into()))
    }

    /// Accepts a stream that the peer opened.
    pub fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        let id = self.live.proto.streams().accept(direction.into())?;
        Some(StreamId(id.into()))
    }

    fn sends(&self, stream: StreamId) -> bool {
        let by_us = stream.is_by_client() == (self.live.proto.side() == proto::Side::Client);
        stream.direction() == Direction::Bi || by_us
    }

    fn receives(&self, stream: StreamId) -> bool {
        let by_us = stream.is_by_client() == (self.live.proto.side() == proto::Side::Client);
        stream.direction() == Direction::Bi || !by_us
    }

    /// Writes some of `bytes`, which are copied.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Written, StreamError> {
        if self.live.staged.push(id_of(stream), bytes) {
            self.note_written(stream, bytes.len());
            self.mark();
            return Ok(Written::Some(bytes.len()));
        }
        let written = self.sending(stream, |send| send.write(bytes))?;
        if written != Written::Blocked {
            let Live { proto, staged, .. } = &mut *self.live;
            staged.push_after(proto, id_of(stream));
        }
        Ok(written)
    }

    /// Writes some of `chunks` without copying: written ones become empty, one may be split.
    pub fn write_chunks(
        &mut self,
        stream: StreamId,
        chunks: &mut [Bytes],
    ) -> Result<Written, StreamError> {
        self.sending(stream, |send| send.write_chunks(chunks).map(|written| written.bytes))
    }

    fn sending(
        &mut self,
        stream: StreamId,
        write: impl FnOnce(&mut proto::SendStream<'_>) -> Result<usize, proto::WriteError>,
    ) -> Result<Written, StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        if !self.live.flush(Some(id_of(stream))) {
            return Ok(Written::Blocked);
        }
        if self.is_reset_waiting(stream) {
            return Err(StreamError::Closed);
        }
        let result = write(&mut self.live.proto.send_stream(id_of(stream)));
        self.mark();
        match result {
            Ok(count) => {
                self.note_written(stream, count);
                Ok(Written::Some(count))
            }
            Err(proto::WriteError::Blocked) => Ok(Written::Blocked),
            Err(proto::WriteError::Stopped(code)) => Err(StreamError::Stopped(code.into_inner())),
            Err(proto::WriteError::ClosedStream) => Err(StreamError::Closed),
        }
    }

    /// Finishes the stream. If the peer stopped it, it is reset with the peer's code instead (RFC
    /// 9000 §3.5), so that both ends forget it.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        if !self.live.flush(Some(id_of(stream))) {
            self.live.staged.finish();
            return Ok(());
        }
        if self.is_reset_waiting(stream) {
            return Err(StreamError::Closed);
        }
        let result = staged::finish(&mut self.live.proto, id_of(stream));
        self.mark();
        result.map_err(|error| match error {
            proto::FinishError::Stopped(code) => StreamError::Stopped(code.into_inner()),
            proto::FinishError::ClosedStream => StreamError::Closed,
        })
    }

    /// Whether the finish is queued behind data without room; if the peer stops the stream meanwhile,
    /// it is reset.
    pub fn finishes_later(&self, stream: StreamId) -> bool {
        self.live.staged.finishes(id_of(stream))
    }

    fn note_written(&mut self, stream: StreamId, count: usize) {
        if let Some(resets) = &mut self.live.resets {
            resets.note_written(stream, count);
        }
    }

    fn is_reset_waiting(&self, stream: StreamId) -> bool {
        self.live.resets.as_ref().is_some_and(|resets| resets.is_waiting(stream))
    }

    /// Makes a later reset of a stream opened here deliver its first `len` bytes, from 1 to 63; to
    /// be called before they are written. The reset then waits until they are acknowledged, unless
    /// the peer stops the stream. `false`, without effect: one of both ends does not take
    /// `RESET_STREAM_AT` ([`Transport::reset_stream_at`](crate::config::Transport)), or that is not
    /// known before the handshake is complete.
    pub fn keep_head(&mut self, stream: StreamId, len: usize) -> bool {
        let is_sent = self.sends(stream) && !self.live.proto.is_handshaking();
        let resets = self.live.resets.as_mut().filter(|_| is_sent);
        resets.is_some_and(|resets| resets.keep_head(stream, len))
    }

    /// Whether this end has announced that it takes `RESET_STREAM_AT`.
    pub fn announces_reset_stream_at(&self) -> bool {
        self.live.resets.is_some()
    }

    /// Whether both ends take `RESET_STREAM_AT`; known once the handshake is complete.
    pub fn takes_reset_stream_at(&self) -> bool {
        self.live.resets.as_ref().is_some_and(|resets| resets.is_taken_by_peer())
    }

    /// Resets the stream; data in flight may be lost, apart from that of
    /// [`keep_head`](Self::keep_head).
    pub fn reset(&mut self, stream: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        if self.live.resets.is_some() {
            if self.is_reset_waiting(stream) {
                return Err(StreamError::Closed);
            }
            self.live.flush(Some(id_of(stream)));
            let Live { proto, resets, staged, .. } = &mut *self.live;
            if let Some(resets) = resets
                && resets.reset(proto, stream, code)
            {
                staged.clear(id_of(stream));
                self.mark();
                return Ok(());
            }
        }
        self.live.staged.clear(id_of(stream));
        let result = self.live.proto.send_stream(id_of(stream)).reset(varint(code));
        self.mark();
        result.map_err(|_| StreamError::Closed)
    }

    /// The code with which the peer stopped the stream, if it did; [`StreamError::Closed`] once
    /// everything was acknowledged.
    pub fn stopped(&mut self, stream: StreamId) -> Result<Option<u64>, StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        let stopped = self.live.proto.send_stream(id_of(stream)).stopped();
        let code = stopped.map_err(|_| StreamError::Closed)?;
        Ok(code.map(proto::VarInt::into_inner))
    }

    /// Sets the priority: higher ones send first; 0 by default.
    pub fn set_priority(&mut self, stream: StreamId, priority: i32) -> Result<(), StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        let result = self.live.proto.send_stream(id_of(stream)).set_priority(priority);
        result.map_err(|_| StreamError::Closed)
    }

    /// A stream's priority.
    pub fn priority(&mut self, stream: StreamId) -> Result<i32, StreamError> {
        if !self.sends(stream) {
            return Err(StreamError::Closed);
        }
        let priority = self.live.proto.send_stream(id_of(stream)).priority();
        priority.map_err(|_| StreamError::Closed)
    }

    /// Passes received data to `take`, in order, up to `bytes_max` in total and per piece; ends
    /// when it returns `false`. The peer gets flow-control credit for what was passed.
    ///
    /// # Errors
    /// [`StreamError::Reset`]; [`StreamError::Closed`] after the end, a reset or a stop.
    pub fn read(
        &mut self,
        stream: StreamId,
        bytes_max: usize,
        take: impl FnMut(Bytes) -> bool,
    ) -> Result<Read, StreamError> {
        if !self.receives(stream) {
            return Err(StreamError::Closed);
        }
        let read = self.read_engine(stream, bytes_max, take);
        let Some(resets) = &mut self.live.resets else {
            return read;
        };
        match resets.on_read(stream, read) {
            Outcome::Read(read) => read,
            // The engine waits for data that may never come, and knows where the stream ends: with
            // a stop it returns the credit and forgets the stream.
            Outcome::Reset(code) => {
                drop(self.stop(stream, code));
                Err(StreamError::Reset(code))
            }
        }
    }

    fn read_engine(
        &mut self,
        stream: StreamId,
        mut bytes_max: usize,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Result<Read, StreamError> {
        let mut recv = self.live.proto.recv_stream(id_of(stream));
        let mut chunks = recv.read(true).map_err(|error| match error {
            proto::ReadableError::ClosedStream | proto::ReadableError::IllegalOrderedRead => {
                StreamError::Closed
            }
        })?;
        let mut count = 0;
        let end = loop {
            if bytes_max == 0 {
                break Ok(Read::Some(count));
            }
            match chunks.next(bytes_max) {
                Ok(Some(chunk)) => {
                    count += chunk.bytes.len();
                    bytes_max -= chunk.bytes.len();
                    if !take(chunk.bytes) {
                        break Ok(Read::Some(count));
                    }
                }
                Ok(None) => break Ok(Read::End(count)),
                Err(proto::ReadError::Blocked) if count == 0 => break Ok(Read::Blocked),
                Err(proto::ReadError::Reset(code)) if count == 0 => {
                    break Err(StreamError::Reset(code.into_inner()));
                }
                // The next read reports the reset, which drops unread data.
                Err(_) => break Ok(Read::Some(count)),
            }
        };
        let has_credit = chunks.finalize().should_transmit();
        self.live.tuning.on_read(count);
        if has_credit {
            self.mark();
        }
        end
    }

    /// Asks the peer to stop sending, and drops received data.
    pub fn stop(&mut self, stream: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.receives(stream) {
            return Err(StreamError::Closed);
        }
        if let Some(resets) = &mut self.live.resets
            && resets.forget_received(stream)
        {
            return Ok(());
        }
        let mut recv = self.live.proto.recv_stream(id_of(stream));
        // The credit of a reset stream was given with the reset; a stop would give it twice.
        let result = match recv.received_reset() {
            Ok(Some(_)) => Ok(()),
            _ => recv.stop(varint(code)),
        };
        let Live { proto, tuning, .. } = &mut *self.live;
        tuning.queue_stream_credit(proto, stream.direction());
        self.mark();
        result.map_err(|_| StreamError::Closed)
    }

    /// Reports the final size of each stream of the peer by [`Event::FinalSize`](super::Event), from the
    /// next datagram on; for a reset or stopped stream too, and again where its frame is repeated.
    pub fn watch_final_sizes(&mut self) {
        self.live.final_sizes.get_or_insert_default();
    }

    /// Sends a datagram without copying it. With `drops_oldest`, the oldest queued ones make room.
    pub fn send_datagram(
        &mut self,
        bytes: Bytes,
        drops_oldest: bool,
    ) -> Result<(), DatagramRefusal> {
        self.send_datagram_until(bytes, drops_oldest, None)
    }

    /// Sends a datagram without copying it, and drops it if it is still queued at `deadline`.
    pub fn send_datagram_until(
        &mut self,
        bytes: Bytes,
        drops_oldest: bool,
        deadline: Option<Instant>,
    ) -> Result<(), DatagramRefusal> {
        let result = {
            let reserved_len = self.reserved_len();
            let Live { proto, datagrams, .. } = &mut *self.live;
            datagrams.send(proto, bytes, drops_oldest, deadline, reserved_len)
        };
        self.mark();
        result
    }

    /// Whether the peer may send datagrams.
    pub fn takes_datagrams(&self) -> bool {
        self.live.datagrams.is_enabled()
    }

    /// Takes a received datagram.
    pub fn receive_datagram(&mut self) -> Option<Bytes> {
        self.live.datagrams.receive(&mut self.live.proto)
    }

    /// The longest datagram that may be sent now; `None` if the peer accepts none.
    pub fn max_datagram_len(&mut self) -> Option<usize> {
        let len_max = self.live.proto.datagrams().max_size()?;
        Some(len_max.saturating_sub(self.reserved_len()))
    }

    /// Bytes of a packet that resets in flight may need in addition to those they have.
    fn reserved_len(&self) -> usize {
        self.live.resets.as_ref().map_or(0, |resets| resets.reserved_len())
    }

    /// Bytes of datagrams that may be sent now without blocking.
    pub fn datagram_room(&mut self) -> usize {
        self.live.datagrams.room(&mut self.live.proto)
    }

    /// Closes the connection with the application's code and reason; streams and datagrams are
    /// dropped. A client's outstanding handshake messages go first.
    pub fn close(&mut self, now: Instant, code: u64, reason: Bytes) {
        self.close_with(now, code, reason, false);
    }

    /// The same, after sending written data as far as the peer's current credit allows.
    pub fn close_behind(&mut self, now: Instant, code: u64, reason: Bytes) {
        self.close_with(now, code, reason, true);
    }

    fn close_with(&mut self, now: Instant, code: u64, reason: Bytes, is_behind: bool) {
        if let Some(log) = &self.live.log {
            log.set_now(now);
            log.closed(true, Some(code), &String::from_utf8_lossy(&reason));
        }
        self.live.close(now, code, reason, is_behind);
        self.mark();
    }

    /// Asks the peer for an acknowledgement.
    pub fn ping(&mut self) {
        self.live.proto.ping();
        self.mark();
    }

    /// Streams whose data, with its end, is not all acknowledged; those the peer has opened both ways
    /// included.
    pub fn unacknowledged_streams(&mut self) -> usize {
        self.live.proto.streams().send_streams()
    }

    /// Updates the keys. No effect before the handshake is complete, and while the last update is
    /// not acknowledged.
    pub fn update_keys(&mut self) {
        self.live.proto.force_key_update();
        self.mark();
    }

    /// Whether the handshake is confirmed (RFC 9001 §4.1.2): both ends know that it is complete.
    pub fn is_confirmed(&self) -> bool {
        self.live.is_confirmed()
    }

    /// Migrates to another local address: switches the connection id and tells the peer. `false`,
    /// without effect, before the handshake is confirmed (RFC 9000 §9).
    #[must_use]
    pub fn local_address_changed(&mut self) -> bool {
        let is_confirmed = self.is_confirmed();
        if is_confirmed {
            self.live.moves();
            self.mark();
        }
        is_confirmed
    }

    /// What the handshake agreed on; `None` before that.
    pub fn handshake(&self) -> Option<Handshake> {
        let agreed = self.live.proto.crypto_session().handshake_data()?;
        let agreed = agreed.downcast::<Agreed>().ok()?;
        Some(Handshake {
            protocol: agreed.protocol,
            server_name: agreed.server_name,
            cipher_suite: agreed.cipher_suite.map(|suite| format!("{suite:?}")),
            key_exchange: agreed.key_exchange.map(|group| format!("{group:?}")),
            is_resumed: agreed.resumed,
        })
    }

    /// The peer's transport parameters, encoded (RFC 9000 §18); `None` before they arrive.
    pub fn peer_transport_parameters(&self) -> Option<Vec<u8>> {
        let session = self.live.proto.crypto_session();
        let parameters = session.transport_parameters().ok()??;
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        Some(encoded)
    }

    /// The peer's certificates, leaf first.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let chain = self.live.proto.crypto_session().peer_identity()?;
        Some(*chain.downcast::<PeerCertificates>().ok()?)
    }

    /// Fills `output` with keying material of this connection (RFC 8446 §7.5); `false` if that many
    /// bytes are not available.
    pub fn export_keying_material(&self, output: &mut [u8], label: &[u8], context: &[u8]) -> bool {
        let session = self.live.proto.crypto_session();
        session.export_keying_material(output, label, context).is_ok()
    }

    /// Whether early data may be, or was, sent.
    pub fn has_early_data(&self) -> bool {
        self.live.proto.has_0rtt()
    }

    /// Clients: whether the server accepted the early data; valid once the handshake is complete.
    pub fn early_data_accepted(&self) -> bool {
        self.live.proto.accepted_0rtt()
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.live.proto.is_handshaking()
    }

    /// Whether this end started it.
    pub fn is_client(&self) -> bool {
        self.live.proto.side() == proto::Side::Client
    }

    /// The peer's current address.
    pub fn remote_address(&self) -> SocketAddr {
        self.live.proto.remote_address()
    }

    /// Servers: the address that the client connected to, if known.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.live.proto.local_ip()
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.live.proto.rtt()
    }

    /// The idle timeout: the smaller of both ends' limits (RFC 9000 §10.1), but never less than three
    /// probe timeouts. `None`: neither has one, or the handshake is not complete.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.live.idle_timeout()
    }

    /// Time since the peer's last packet.
    pub fn idle_for(&self, now: Instant) -> Duration {
        self.live.idle.passed(now)
    }

    /// The id that the peer uses first, and the client's original destination id; only of cores
    /// that report ids (`EndpointConfig::connection_id_len`).
    pub fn ids(&self) -> Option<(Bytes, Bytes)> {
        self.live.ids.as_ref().map(|ids| ids.known())
    }

    /// Statistics.
    pub fn stats(&self) -> Stats {
        let (receive_window_bytes, send_window_bytes) = self.live.tuning.windows();
        let datagrams = &self.live.datagrams;
        Stats {
            receive_window_bytes,
            send_window_bytes,
            datagrams_expired: datagrams.expired_count,
            datagrams_dropped: datagrams.dropped_count,
            datagrams_unread: datagrams.unread_count,
            ..self.live.proto.stats().into()
        }
    }

    /// Sets how many streams of a direction the peer may have open; at most [`STREAMS_LIMIT`].
    pub fn set_streams_max(&mut self, direction: Direction, count: u64) {
        let (count, dir) = (count.min(STREAMS_LIMIT), direction.into());
        self.live.tuning.fix_streams(dir, count);
        announce_streams(&mut self.live.proto, dir, count);
        self.mark();
    }

    /// Sets the receive window of all streams together, and ends its automatic growth.
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.live.tuning.fix_receive(bytes);
        self.live.proto.set_receive_window(varint(bytes));
        self.mark();
    }

    /// Sets the send window of all streams together, which then no longer follows the congestion
    /// window.
    pub fn set_send_window(&mut self, bytes: u64) {
        self.live.tuning.fix_send(bytes);
        self.live.proto.set_send_window(bytes);
        // Blocked writers may continue.
        self.mark();
    }

    #[cfg(test)]
    pub(crate) fn reset_counts(&self) -> [usize; 8] {
        self.live.resets.as_ref().map_or([0; 8], |resets| resets.counts())
    }
}
