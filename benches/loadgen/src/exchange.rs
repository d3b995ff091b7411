//! The exchange on a connection: one request, one response, repeated.
//!
//! Owns: the request bytes and the progress of a response. Called by: the drivers.
//! Does no I/O and reads no clock; the drivers pass it bytes.

/// Echoed messages up to this size are compared byte by byte.
pub const CHECKED_LEN_MAX: usize = 2 * 1024;
/// Of longer messages one in `CHECK_EVERY` is compared; of the others only the length is known.
pub const CHECK_EVERY: usize = 16;
/// Number of different messages of a size, so that swapped responses are noticed.
const VARIANTS: usize = 509;
/// Messages begin on cache lines: copies from unaligned addresses cost several times more on some
/// CPUs, which would make the client the slower side for long messages.
const ALIGNMENT: usize = 64;
/// A response head longer than this is treated as garbage.
const HEAD_LEN_MAX: usize = 16 * 1024;

/// The contents of the load; the same for all connections.
#[derive(Clone, Copy)]
pub enum Script {
    /// Messages are windows of `size` bytes into a constant text.
    Echo { text: &'static [u8], size: usize },
    /// One GET, answered with a Content-Length.
    Http { request: &'static [u8] },
}

impl Script {
    /// Create echo messages of `size` bytes. The text is leaked.
    pub fn echo(size: usize) -> Self {
        // xorshift64: no period that could hide a shifted or swapped message.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let text: &'static [u8] = (0..size + (VARIANTS + 1) * ALIGNMENT)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect::<Vec<u8>>()
            .leak();
        let skipped = text.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self::Echo { text: &text[skipped..], size }
    }

    /// Create a keep-alive GET of `path`. The text is leaked.
    pub fn http(host: &str, path: &str) -> Self {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
        Self::Http { request: text.into_bytes().leak() }
    }

    /// Whether every response is short enough to be checked in full.
    pub fn is_checked_in_full(self) -> bool {
        match self {
            Self::Echo { size, .. } => size <= CHECKED_LEN_MAX,
            Self::Http { .. } => true,
        }
    }

    /// The number of bytes of a response, if the request determines it; else 0.
    pub fn response_len(self) -> usize {
        match self {
            Self::Echo { size, .. } => size,
            Self::Http { .. } => 0,
        }
    }
}

/// The progress of one connection.
pub struct Exchange {
    script: Script,
    /// Requests sent so far, offset by the connection's number: selects the message.
    turn: usize,
    /// Echo: bytes of the response received so far.
    received_len: usize,
    http: Response,
}

/// An invalid response, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong(pub &'static str);

impl Exchange {
    /// Start on connection number `connection`.
    pub fn new(script: Script, connection: usize) -> Self {
        Self { script, turn: connection * 31, received_len: 0, http: Response::default() }
    }

    /// The next request; the exchange now expects its response.
    pub fn next_request(&mut self) -> &'static [u8] {
        self.turn = self.turn.wrapping_add(1);
        self.received_len = 0;
        self.http = Response::default();
        self.request()
    }

    fn request(&self) -> &'static [u8] {
        match self.script {
            Script::Echo { text, size } => {
                let start = self.turn % VARIANTS * ALIGNMENT;
                &text[start..start + size]
            }
            Script::Http { request } => request,
        }
    }

    /// Handle received bytes; `true` if they complete the response.
    pub fn received(&mut self, bytes: &[u8]) -> Result<bool, Wrong> {
        match self.script {
            Script::Echo { .. } => {
                let rest = &self.request()[self.received_len..];
                match rest.get(..bytes.len()) {
                    None => return Err(Wrong("more bytes came back than were sent")),
                    Some(expected) if expected != bytes => {
                        return Err(Wrong("other bytes came back than were sent"));
                    }
                    Some(_) => (),
                }
                self.received_unseen(bytes.len())
            }
            Script::Http { .. } => self.http.received(bytes),
        }
    }

    /// Handle received bytes of which only the number is known (echo).
    pub fn received_unseen(&mut self, len: usize) -> Result<bool, Wrong> {
        self.received_len += len;
        let size = self.script.response_len();
        if self.received_len > size {
            return Err(Wrong("more bytes came back than were sent"));
        }
        Ok(self.received_len == size)
    }

    /// Bytes of the response still to be received (echo).
    pub fn missing_len(&self) -> usize {
        self.script.response_len() - self.received_len
    }

    /// Whether this turn's response is one of the long ones that are compared.
    pub fn is_sampled(&self) -> bool {
        self.turn.is_multiple_of(CHECK_EVERY)
    }

    /// Whether this turn's response must be passed as bytes.
    pub fn is_read_in_full(&self) -> bool {
        self.script.is_checked_in_full() || self.is_sampled()
    }
}

/// A partial HTTP/1.1 response: status 200, Content-Length, nothing else.
#[derive(Default)]
struct Response {
    head: Vec<u8>,
    /// Known once the head is complete.
    body_missing_len: Option<usize>,
}

impl Response {
    fn received(&mut self, bytes: &[u8]) -> Result<bool, Wrong> {
        if let Some(missing) = self.body_missing_len {
            return self.body(missing, bytes.len());
        }
        // The usual case: the head arrives in one piece and is never copied.
        if self.head.is_empty() {
            return match head_len(bytes) {
                Some(len) => self.body(content_len(&bytes[..len])?, bytes.len() - len),
                None => self.keep_head(bytes),
            };
        }
        self.head.extend_from_slice(bytes);
        match head_len(&self.head) {
            Some(len) => {
                let (missing, body) = (content_len(&self.head[..len])?, self.head.len() - len);
                self.body(missing, body)
            }
            None => self.keep_head(&[]),
        }
    }

    fn keep_head(&mut self, bytes: &[u8]) -> Result<bool, Wrong> {
        self.head.extend_from_slice(bytes);
        if self.head.len() > HEAD_LEN_MAX {
            Err(Wrong("response head too long"))
        } else {
            Ok(false)
        }
    }

    fn body(&mut self, missing: usize, arrived: usize) -> Result<bool, Wrong> {
        let left = missing.checked_sub(arrived).ok_or(Wrong("response longer than announced"))?;
        self.body_missing_len = Some(left);
        Ok(left == 0)
    }
}

/// The length of a complete response head, including its blank line.
fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|start| start + 4)
}

/// Parse the status and the Content-Length of a complete head.
fn content_len(head: &[u8]) -> Result<usize, Wrong> {
    if !head.starts_with(b"HTTP/1.1 200") {
        return Err(Wrong("response status is not 200"));
    }
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            let digits = line[colon + 1..].trim_ascii();
            let parsed = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
            return parsed.ok_or(Wrong("Content-Length is not a number"));
        }
    }
    Err(Wrong("response without Content-Length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_messages_begin_on_cache_lines() {
        let mut exchange = Exchange::new(Script::echo(1000), 3);
        for _ in 0..2 * VARIANTS {
            assert_eq!(exchange.next_request().as_ptr() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn echo_completes_in_any_pieces() {
        for piece in [1, 3, 64, 100] {
            let mut exchange = Exchange::new(Script::echo(100), 7);
            let request = exchange.next_request();
            let mut done = false;
            for part in request.chunks(piece) {
                assert!(!done);
                done = exchange.received(part).unwrap_or(false);
            }
            assert!(done);
        }
    }

    #[test]
    fn echo_refuses_changed_swapped_and_surplus_bytes() {
        let script = Script::echo(100);
        let mut exchange = Exchange::new(script, 0);
        let mut other = Exchange::new(script, 1);
        let request = exchange.next_request();
        assert!(exchange.received(other.next_request()).is_err());
        assert!(exchange.received(&[request, b"x"].concat()).is_err());
        let mut changed = request.to_vec();
        changed[99] ^= 1;
        assert!(exchange.received(&changed).is_err());
        assert!(exchange.received_unseen(101).is_err());
    }

    #[test]
    fn http_completes_in_any_pieces() {
        let response = b"HTTP/1.1 200 OK\r\nserver: x\r\nContent-Length: 13\r\n\r\nHello, World!";
        for piece in 1..=response.len() {
            let mut exchange = Exchange::new(Script::http("h", "/"), 0);
            exchange.next_request();
            let mut completed = 0;
            for part in response.chunks(piece) {
                completed += usize::from(exchange.received(part).unwrap_or(false));
            }
            assert_eq!(completed, 1, "pieces of {piece}");
        }
    }

    #[test]
    fn http_refuses_errors_missing_lengths_and_surplus() {
        for response in [
            &b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
            &vec![b'a'; HEAD_LEN_MAX + 1],
        ] {
            let mut exchange = Exchange::new(Script::http("h", "/"), 0);
            exchange.next_request();
            assert!(exchange.received(response).is_err());
        }
    }
}
