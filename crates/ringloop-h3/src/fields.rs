//! Field sections and the types of the `http` crate, with the rules of RFC 9114 §4.1 to §4.3.
//!
//! Called by: the connection. What it returns as [`Malformed`] ends a stream with `H3_MESSAGE_ERROR`.

use crate::error::StreamError;
use crate::qpack::{Field, Line};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{
    HeaderMap, Method, Request, Response, StatusCode, Uri, Version, request, response, uri,
};

/// The `:protocol` of an extended CONNECT (RFC 9220), as an extension of a request; `websocket`, for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol(Bytes);

impl Protocol {
    /// The protocol of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into().into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Why a message is malformed (RFC 9114 §4.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The pseudo-header fields of a section, and the others.
#[derive(Default)]
struct Section {
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    protocol: Option<Bytes>,
    status: Option<Bytes>,
    headers: HeaderMap,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Response,
    Trailers,
}

/// The fields of a message that are kept once they have been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    /// `host`, `content-length` and `priority`: the caller gets the raw fields.
    Own,
}

fn is_own(name: &HeaderName) -> bool {
    *name == header::HOST || *name == header::CONTENT_LENGTH || name == "priority"
}

/// Reads a request; `:protocol` is permitted if we have announced it.
pub(crate) fn read_request(
    fields: Vec<Field>,
    extended_connect: bool,
    kept: Kept,
) -> Result<request::Parts, Malformed> {
    let mut section = Section::read(fields, Kind::Request, kept)?;
    let method = section.method.take().ok_or(Malformed("no :method"))?;
    let method = Method::from_bytes(&method).map_err(|_| Malformed("invalid :method"))?;
    let protocol = section.protocol.take();
    if protocol.is_some() && !(extended_connect && method == Method::CONNECT) {
        return Err(Malformed("an unexpected :protocol"));
    }
    let uri = if method == Method::CONNECT && protocol.is_none() {
        section.connect_uri()?
    } else {
        section.uri(&method)?
    };
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = method;
    parts.uri = uri;
    parts.version = Version::HTTP_3;
    parts.headers = section.headers;
    if let Some(protocol) = protocol {
        if HeaderName::from_bytes(&protocol).is_err() {
            return Err(Malformed("invalid :protocol"));
        }
        parts.extensions.insert(Protocol(protocol));
    }
    Ok(parts)
}

/// Reads a response, interim or final.
pub(crate) fn read_response(fields: Vec<Field>, kept: Kept) -> Result<response::Parts, Malformed> {
    let section = Section::read(fields, Kind::Response, kept)?;
    let status = section.status.ok_or(Malformed("no :status"))?;
    let status = StatusCode::from_bytes(&status).map_err(|_| Malformed("invalid :status"))?;
    // RFC 9114 §4.5.
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Malformed("status 101"));
    }
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.version = Version::HTTP_3;
    parts.headers = section.headers;
    Ok(parts)
}

/// Reads trailers.
pub(crate) fn read_trailers(fields: Vec<Field>) -> Result<HeaderMap, Malformed> {
    Section::read(fields, Kind::Trailers, Kept::All).map(|section| section.headers)
}

/// The length that a message declares; several fields must agree (RFC 9110 §8.6).
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let values = headers.get_all(header::CONTENT_LENGTH);
    declared_length(values.iter().map(HeaderValue::as_bytes))
}

/// The same, of a message to send.
pub(crate) fn content_length_of(lines: &[Line<'_>]) -> Result<Option<u64>, StreamError> {
    let lines = lines.iter().filter(|line| *line.name == *b"content-length");
    declared_length(lines.map(|line| &*line.value))
        .map_err(|Malformed(reason)| StreamError::Invalid(reason))
}

fn declared_length<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Option<u64>, Malformed> {
    let mut declared = None;
    for digits in values {
        let wrong = Malformed("invalid content-length");
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(wrong);
        }
        let text = str::from_utf8(digits).map_err(|_| wrong)?;
        let len = text.parse().map_err(|_| wrong)?;
        if declared.is_some_and(|other| other != len) {
            return Err(Malformed("conflicting values of content-length"));
        }
        declared = Some(len);
    }
    Ok(declared)
}

impl Section {
    fn read(fields: Vec<Field>, kind: Kind, kept: Kept) -> Result<Self, Malformed> {
        let mut section = Self::default();
        if kept == Kept::All {
            let _ = section.headers.try_reserve(fields.len());
        }
        let mut has_regular = false;
        let mut cookies = Vec::new();
        for field in fields {
            if field.name.first() == Some(&b':') {
                if has_regular {
                    return Err(Malformed("a pseudo-header field after regular fields"));
                }
                let slot = section.pseudo(&field.name, kind);
                let slot = slot.ok_or(Malformed("an unexpected pseudo-header field"))?;
                if slot.replace(field.value).is_some() {
                    return Err(Malformed("a repeated pseudo-header field"));
                }
                continue;
            }
            has_regular = true;
            let (name, value) = regular(field)?;
            if kept == Kept::Own && !is_own(&name) {
                continue;
            }
            if name == header::COOKIE && kind == Kind::Request {
                cookies.push(value);
                continue;
            }
            let appended = section.headers.try_append(name, value);
            appended.map_err(|_| Malformed("too many fields"))?;
        }
        if let Some(cookie) = join_cookies(cookies)? {
            let inserted = section.headers.try_insert(header::COOKIE, cookie);
            inserted.map_err(|_| Malformed("too many fields"))?;
        }
        Ok(section)
    }

    fn pseudo(&mut self, name: &[u8], kind: Kind) -> Option<&mut Option<Bytes>> {
        Some(match (name, kind) {
            (b":method", Kind::Request) => &mut self.method,
            (b":scheme", Kind::Request) => &mut self.scheme,
            (b":authority", Kind::Request) => &mut self.authority,
            (b":path", Kind::Request) => &mut self.path,
            (b":protocol", Kind::Request) => &mut self.protocol,
            (b":status", Kind::Response) => &mut self.status,
            _ => return None,
        })
    }

    /// The target of CONNECT, which has neither scheme nor path (RFC 9114 §4.4).
    fn connect_uri(&mut self) -> Result<Uri, Malformed> {
        if self.scheme.is_some() || self.path.is_some() {
            return Err(Malformed("CONNECT has a :scheme or a :path"));
        }
        let mut parts = uri::Parts::default();
        let authority = self.take_authority()?;
        parts.authority = Some(authority.ok_or(Malformed("CONNECT has no :authority"))?);
        Uri::from_parts(parts).map_err(|_| Malformed("invalid :authority"))
    }

    fn uri(&mut self, method: &Method) -> Result<Uri, Malformed> {
        let scheme = self.scheme.take().ok_or(Malformed("no :scheme"))?;
        let scheme = Scheme::try_from(&scheme[..]).map_err(|_| Malformed("invalid :scheme"))?;
        if !scheme.as_str().starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(Malformed("invalid :scheme"));
        }
        let path = self.path.take().ok_or(Malformed("no :path"))?;
        let authority = self.take_authority()?;
        if scheme == Scheme::HTTP || scheme == Scheme::HTTPS {
            let authority = authority.as_ref().ok_or(Malformed("no :authority"))?;
            if authority.as_str().contains('@') {
                return Err(Malformed("user information in :authority"));
            }
            let is_path = path.first() == Some(&b'/') || method == Method::OPTIONS && path == "*";
            if !is_path {
                return Err(Malformed("invalid :path"));
            }
        }
        // The parser would drop it.
        if path.contains(&b'#') {
            return Err(Malformed("a fragment in :path"));
        }
        let mut parts = uri::Parts::default();
        let path = PathAndQuery::from_maybe_shared(path).map_err(|_| Malformed("invalid :path"))?;
        parts.path_and_query = Some(path);
        // `Uri` has no scheme without an authority.
        parts.scheme = authority.is_some().then_some(scheme);
        parts.authority = authority;
        Uri::from_parts(parts).map_err(|_| Malformed("invalid request target"))
    }

    /// `:authority`, or `host` instead; if both are given they must agree (RFC 9114 §4.3.1).
    fn take_authority(&mut self) -> Result<Option<Authority>, Malformed> {
        let mut hosts = self.headers.get_all(header::HOST).iter();
        let (host, second) = (hosts.next(), hosts.next());
        if second.is_some() {
            return Err(Malformed("host twice"));
        }
        let wrong = |_| Malformed("invalid :authority or host");
        match (self.authority.take(), host) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host.as_bytes()) => {
                Err(Malformed("host differs from :authority"))
            }
            (Some(authority), _) => {
                Authority::from_maybe_shared(authority).map(Some).map_err(wrong)
            }
            (None, Some(host)) => Authority::try_from(host.as_bytes()).map(Some).map_err(wrong),
            (None, None) => Ok(None),
        }
    }
}

/// A regular field.
fn regular(field: Field) -> Result<(HeaderName, HeaderValue), Malformed> {
    let name = HeaderName::from_lowercase(&field.name)
        .map_err(|_| Malformed("an empty field name, or one in upper case"))?;
    let ends = [field.value.first(), field.value.last()];
    if ends.into_iter().flatten().any(|byte| matches!(byte, b' ' | b'\t')) {
        return Err(Malformed("whitespace around a field value"));
    }
    let mut value = HeaderValue::from_maybe_shared(field.value)
        .map_err(|_| Malformed("a control character in a field value"))?;
    if is_connection_specific(&name)
        || name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers")
    {
        return Err(Malformed("a connection-specific field"));
    }
    value.set_sensitive(field.is_sensitive);
    Ok((name, value))
}

/// Fields that HTTP/3 does not have (RFC 9114 §4.2).
fn is_connection_specific(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || name == "keep-alive"
        || name == "proxy-connection"
}

/// One field out of several that a client has split (RFC 9114 §4.2.1).
fn join_cookies(mut cookies: Vec<HeaderValue>) -> Result<Option<HeaderValue>, Malformed> {
    if cookies.len() < 2 {
        return Ok(cookies.pop());
    }
    let is_sensitive = cookies.iter().any(HeaderValue::is_sensitive);
    let values: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    let joined = values.join(&b"; "[..]);
    let joined = HeaderValue::from_maybe_shared(Bytes::from(joined));
    let mut joined = joined.map_err(|_| Malformed("invalid cookie"))?;
    joined.set_sensitive(is_sensitive);
    Ok(Some(joined))
}

/// The lines of a request.
pub(crate) fn request_lines(parts: &request::Parts) -> Result<Vec<Line<'_>>, StreamError> {
    let uri = &parts.uri;
    let mut lines = Vec::with_capacity(parts.headers.len() + 5);
    lines.push(Line::new(b":method", parts.method.as_str().as_bytes()));
    let protocol = parts.extensions.get::<Protocol>();
    if protocol.is_some() && parts.method != Method::CONNECT {
        return Err(StreamError::Invalid("only CONNECT may have a protocol"));
    }
    let host = parts.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = uri.authority().map(|authority| {
        let authority = authority.as_str();
        let (_user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        host.as_bytes()
    });
    let authority = authority.or(host);
    if parts.method == Method::CONNECT && protocol.is_none() {
        let authority = authority.ok_or(StreamError::Invalid("CONNECT needs an authority"))?;
        lines.push(Line::new(b":authority", authority));
    } else {
        let scheme = uri.scheme().ok_or(StreamError::Invalid("the URI has no scheme"))?;
        lines.push(Line::new(b":scheme", scheme.as_str().as_bytes()));
        if let Some(authority) = authority {
            lines.push(Line::new(b":authority", authority));
        } else if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS {
            return Err(StreamError::Invalid("the URI has no authority"));
        }
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        if path == "/" && parts.method == Method::OPTIONS && uri.path() == "*" {
            lines.push(Line::new(b":path", b"*"));
        } else if path.starts_with('/') || path == "*" {
            lines.push(Line::new(b":path", path.as_bytes()));
        } else {
            lines.push(Line::owned(b":path", format!("/{path}").into_bytes()));
        }
    }
    if let Some(protocol) = protocol {
        if HeaderName::from_bytes(&protocol.0).is_err() {
            return Err(StreamError::Invalid("a protocol name must be a token"));
        }
        lines.push(Line::new(b":protocol", &protocol.0));
    }
    let is_host = |name: &HeaderName| *name == header::HOST;
    push_regular(&mut lines, &parts.headers, is_host);
    Ok(lines)
}

/// The lines of a response.
pub(crate) fn response_lines(parts: &response::Parts) -> Vec<Line<'_>> {
    let mut lines = Vec::with_capacity(parts.headers.len() + 1);
    lines.push(Line::new(b":status", parts.status.as_str().as_bytes()));
    push_regular(&mut lines, &parts.headers, |_| false);
    lines
}

/// The lines of trailers.
pub(crate) fn trailer_lines(trailers: &HeaderMap) -> Vec<Line<'_>> {
    let mut lines = Vec::with_capacity(trailers.len());
    push_regular(&mut lines, trailers, |_| false);
    lines
}

/// Adds fields, except what HTTP/3 does not have.
fn push_regular<'a>(
    lines: &mut Vec<Line<'a>>,
    headers: &'a HeaderMap,
    is_left_out: impl Fn(&HeaderName) -> bool,
) {
    for (name, value) in headers {
        if is_connection_specific(name)
            || name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers")
            || is_left_out(name)
        {
            continue;
        }
        let line = Line::new(name.as_str().as_bytes(), value.as_bytes().trim_ascii());
        lines.push(line.sensitive(value.is_sensitive()));
    }
}
