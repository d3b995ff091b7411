//! Output for QUIC. Short pieces of one stream are merged.

use crate::event::Transmit;
use crate::limits::COPY_BYTES_MAX;
use crate::stream_id::StreamId;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// The queue behind [`crate::Connection::poll_transmit`].
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: VecDeque<Transmit>,
    /// Bytes of one stream that follow the queue; pieces split off share this memory.
    staged: BytesMut,
    staged_stream: Option<StreamId>,
}

impl Output {
    /// Where to append bytes of a stream.
    pub(super) fn stage(&mut self, stream: StreamId) -> &mut BytesMut {
        if self.staged_stream != Some(stream) {
            self.flush();
            self.staged_stream = Some(stream);
        }
        &mut self.staged
    }

    /// Appends bytes of a stream, without a copy unless they are few.
    pub(super) fn data(&mut self, stream: StreamId, data: Bytes) {
        if data.len() <= COPY_BYTES_MAX {
            self.stage(stream).extend_from_slice(&data);
        } else {
            self.push(Transmit::Stream { stream, data, fin: false });
        }
    }

    /// Ends a stream.
    pub(super) fn finish(&mut self, of: StreamId) {
        self.flush();
        match self.queue.back_mut() {
            Some(Transmit::Stream { stream, fin, .. }) if *stream == of => *fin = true,
            _ => {
                self.queue.push_back(Transmit::Stream {
                    stream: of,
                    data: Bytes::new(),
                    fin: true,
                });
            }
        }
    }

    pub(super) fn push(&mut self, transmit: Transmit) {
        self.flush();
        self.queue.push_back(transmit);
    }

    /// Takes the next one.
    pub(super) fn pop(&mut self) -> Option<Transmit> {
        if self.queue.is_empty() {
            self.flush();
        }
        self.queue.pop_front()
    }

    fn flush(&mut self) {
        let Some(stream) = self.staged_stream.take() else {
            return;
        };
        if !self.staged.is_empty() {
            let data = self.staged.split().freeze();
            self.queue.push_back(Transmit::Stream { stream, data, fin: false });
        }
    }
}
