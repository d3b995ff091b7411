//! The default session stores of clients and servers: in memory, bounded, the oldest entries dropped first.
//!
//! Owns: [`ClientSessions`] and [`ServerSessions`]. Called by: rustls during handshakes, on the thread that drives the
//! endpoint.
//!
//! They grow as needed, unlike rustls' own stores, which allocate their full size at once (75 KB
//! for a client, 400 KB for a server). A session for which there is no memory is not stored, and
//! the next handshake is a full one.

use crate::limits::{SERVER_NAMES, SESSIONS, TICKETS_PER_SERVER};
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::server::StoresServerSessions;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A map that holds entries only for the newest `len_max` keys.
struct Newest<K, V> {
    entries: HashMap<K, V>,
    /// In the order of insertion; a key stays here when its entry is taken.
    keys: VecDeque<K>,
    len_max: usize,
}

impl<K: Clone + Eq + Hash, V> Newest<K, V> {
    fn new(len_max: usize) -> Self {
        Self { entries: HashMap::new(), keys: VecDeque::new(), len_max }
    }

    /// Insert an entry under a key that has none; without memory it is dropped.
    fn insert(&mut self, key: K, value: V) -> bool {
        if self.keys.len() >= self.len_max
            && let Some(oldest) = self.keys.pop_front()
        {
            self.entries.remove(&oldest);
        }
        let has_room = self.keys.try_reserve(1).is_ok() && self.entries.try_reserve(1).is_ok();
        if has_room {
            self.keys.push_back(key.clone());
            self.entries.insert(key, value);
        }
        has_room
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of a server.
#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    /// The oldest first.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

/// A client's sessions by server name.
pub(super) struct ClientSessions(Mutex<Newest<ServerName<'static>, Server>>);

impl ClientSessions {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Newest::new(SERVER_NAMES)))
    }

    fn update(&self, name: ServerName<'static>, change: impl FnOnce(&mut Server)) {
        let mut servers = lock(&self.0);
        if let Some(server) = servers.entries.get_mut(&name) {
            return change(server);
        }
        let mut server = Server::default();
        change(&mut server);
        servers.insert(name, server);
    }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSessions").finish_non_exhaustive()
    }
}

impl ClientSessionStore for ClientSessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.update(name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        lock(&self.0).entries.get(name)?.group
    }

    // QUIC has no TLS 1.2 (RFC 9001 §4.2).
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.update(name, |server| {
            if server.tickets.len() >= TICKETS_PER_SERVER {
                server.tickets.pop_front();
            }
            if server.tickets.try_reserve(1).is_ok() {
                server.tickets.push_back(ticket);
            }
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut servers = lock(&self.0);
        servers.entries.get_mut(name)?.tickets.pop_back()
    }
}

/// A server's sessions by ticket.
pub(super) struct ServerSessions(Mutex<Newest<Vec<u8>, Vec<u8>>>);

impl ServerSessions {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Newest::new(SESSIONS)))
    }
}

impl fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSessions").finish_non_exhaustive()
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        lock(&self.0).insert(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        lock(&self.0).entries.get(key).cloned()
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        lock(&self.0).entries.remove(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Newest, ServerSessions};
    use crate::limits::SESSIONS;
    use rustls::server::StoresServerSessions;

    #[test]
    fn oldest_entry_is_evicted_when_full() {
        let store = ServerSessions::new();
        for number in 0..=SESSIONS {
            assert!(store.put(number.to_be_bytes().to_vec(), vec![1]));
        }
        assert_eq!(store.get(&0_usize.to_be_bytes()), None);
        assert_eq!(store.get(&1_usize.to_be_bytes()), Some(vec![1]));
        assert_eq!(store.get(&SESSIONS.to_be_bytes()), Some(vec![1]));
    }

    #[test]
    fn session_is_taken_once() {
        let store = ServerSessions::new();
        store.put(vec![7], vec![8]);
        assert_eq!(store.take(&[7]), Some(vec![8]));
        assert_eq!(store.take(&[7]), None);
    }

    #[test]
    fn taken_entries_do_not_accumulate_keys() {
        let mut map = Newest::new(3);
        for number in 0..100 {
            map.insert(number, ());
            map.entries.remove(&number);
        }
        assert_eq!(map.keys.len(), 3);
    }

    #[test]
    fn new_stores_do_not_allocate() {
        let map = Newest::<Vec<u8>, Vec<u8>>::new(SESSIONS);
        assert_eq!((map.entries.capacity(), map.keys.capacity()), (0, 0));
    }
}
