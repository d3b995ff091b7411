//! Minimal HTTP/1.1: the least that a client accepts, so that the runtime is what is measured.

/// The response to every request.
pub const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

/// Whether `received` is a complete request. The client sends one at a time and no body.
pub fn is_request(received: &[u8]) -> bool {
    received.ends_with(b"\r\n\r\n")
}
