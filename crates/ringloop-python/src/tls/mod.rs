//! TLS over any transport: the state machine that stands between a transport and a user's protocol.

#![allow(
    dead_code,
    reason = "the state machine that calls it comes with the next change"
)]

mod engine;
