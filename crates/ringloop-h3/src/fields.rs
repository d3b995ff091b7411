//! Field sections and the types of the `http` crate, with the rules of RFC 9114 §4.1 to §4.3.

/// The `:protocol` of an extended CONNECT (RFC 9220), as an extension of a request; `websocket`, for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol(String);

impl Protocol {
    /// The protocol of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
