//! Sessions and address tokens as files, which workers, processes and machines may share.
//!
//! Owns: [`Directory`], a store for servers' sessions and clients' address tokens, and a
//! connection's share of a store. Called by: TLS and the engine, during handshakes, on the thread
//! that drives the endpoint. Errors do not fail a handshake: without the entry it is a full one.
//!
//! A file is an entry. It is written under a temporary name and renamed into place, and claimed by
//! renaming it away: only one process succeeds, so a session is resumed once and early data is not
//! accepted twice. The store's files are named `session-`, `token-` or `.ringloop-`, followed by
//! hexadecimal digits and dashes; it leaves others alone.

use crate::limits::{STORED_ENTRIES, STORED_LIFETIME, STORED_TOKENS};
use crate::proto;
use bytes::Bytes;
use ringloop::embed::sys::private;
use rustls::server::StoresServerSessions;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

/// Minimum number of writes between two counts of the entries.
const WRITES_BETWEEN_MIN: usize = 64;

/// Writes between two counts, as a fraction of the store's capacity: each count reads the whole
/// directory, during a handshake.
const LOOK_PART: usize = 16;

/// Fraction of the capacity that is freed when the store is full. Twice the other, as several
/// processes may write.
const FREE_PART: usize = 8;

const SESSION: &str = "session-";
const TOKEN: &str = "token-";
/// Prefix of files being written or claimed.
const OWN: &str = ".ringloop-";

/// Creates and removes a file in a directory, to report early what would fail for every entry.
pub(crate) fn try_to_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(hex(OWN, &proto::first_id()));
    drop(private::create_new(&path)?);
    fs::remove_file(&path)
}

/// Stores the tokens by which a client validates its address in later connections (RFC 9000
/// §8.1.3).
pub trait TokenStore: Send + Sync {
    /// Stores a token of a server.
    fn insert(&self, server_name: &str, token: Bytes);
    /// Takes a token; each is used once.
    fn take(&self, server_name: &str) -> Option<Bytes>;
}

/// A directory whose files are entries. Read access reveals what resumed sessions exchange, and
/// write access allows planting sessions: it is created for its owner only, and an existing one
/// should be private too.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    count_max: usize,
    written: AtomicU64,
}

impl Directory {
    /// Opens a directory, creating it if necessary.
    ///
    /// # Errors
    /// `PermissionDenied` if it is world-writable, as `/tmp` itself is; errors of reading it
    /// and creating files in it.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        match private::create_directory(&path) {
            // If it exists but is no directory, reading it fails below.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::read_dir(&path)?;
        if private::is_open_to_all(&fs::metadata(&path)?) {
            let reason = "the directory of sessions and tokens is world-writable";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        try_to_write(&path)?;
        Ok(Self { path, count_max: STORED_ENTRIES, written: AtomicU64::new(0) })
    }

    /// Sets the maximum number of entries (65536 by default); the newest are kept. They are counted
    /// once per sixteenth of that many writes, at least 64, so there may be a few more; then an
    /// additional eighth is removed.
    #[must_use]
    pub fn entries_max(mut self, count: usize) -> Self {
        self.count_max = count;
        self
    }

    /// An unpredictable, unused name.
    fn own(&self) -> PathBuf {
        self.path.join(hex(OWN, &proto::first_id()))
    }

    fn write(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let own = self.own();
        let mut file = private::create_new(&own)?;
        let written = file.write_all(value);
        drop(file);
        let placed = written.and_then(|()| fs::rename(&own, self.path.join(name)));
        if placed.is_err() {
            drop(fs::remove_file(&own));
        }
        let count = self.written.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(self.writes_between()) {
            drop(self.tidy());
        }
        placed
    }

    fn writes_between(&self) -> u64 {
        (self.count_max / LOOK_PART).max(WRITES_BETWEEN_MIN) as u64
    }

    fn read(path: &Path) -> Option<Vec<u8>> {
        let written = fs::metadata(path).ok()?.modified().ok()?;
        is_fresh(written).then(|| fs::read(path).ok()).flatten()
    }

    /// Reads an entry and removes it; of several callers, one gets it.
    fn claim(&self, name: &str) -> Option<Vec<u8>> {
        let own = self.own();
        fs::rename(self.path.join(name), &own).ok()?;
        let value = Self::read(&own);
        drop(fs::remove_file(&own));
        value
    }

    /// The store's files, oldest first.
    fn entries(&self) -> io::Result<Vec<(SystemTime, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().into_string();
            let Some(name) = name.ok().filter(|name| is_ours(name)) else {
                continue;
            };
            // Skip an entry that was claimed meanwhile.
            if let Ok(written) = entry.metadata().and_then(|about| about.modified()) {
                found.push((written, name));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The slots of a server's tokens: when each was written, if it was, and its name; oldest
    /// first. As many slots as tokens are kept, so that no lookup reads the directory.
    fn tokens(&self, server_name: &str) -> Vec<(Option<SystemTime>, String)> {
        let key = server_name.as_bytes();
        let prefix = hex(TOKEN, &key[..key.len().min(KEY_LEN_MAX - 8)]);
        let places = (0..STORED_TOKENS).map(|place| {
            let name = format!("{prefix}-{place:02x}");
            let written = fs::metadata(self.path.join(&name)).and_then(|about| about.modified());
            (written.ok(), name)
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places
    }

    /// Removes expired and surplus entries, and leftovers of killed processes.
    fn tidy(&self) -> io::Result<()> {
        let entries = self.entries()?;
        let excess = if entries.len() > self.count_max {
            entries.len() - (self.count_max - self.count_max / FREE_PART)
        } else {
            0
        };
        for (at, (written, name)) in entries.iter().enumerate() {
            if at < excess || !is_fresh(*written) {
                drop(fs::remove_file(self.path.join(name)));
            }
        }
        Ok(())
    }
}

/// Whether a file of this name belongs to the store.
fn is_ours(name: &str) -> bool {
    let mut kinds = [SESSION, TOKEN, OWN].into_iter();
    let rest = kinds.find_map(|prefix| name.strip_prefix(prefix));
    rest.is_some_and(|rest| {
        let mut rest = rest.bytes();
        rest.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
    })
}

fn is_fresh(written: SystemTime) -> bool {
    // A clock that was set back makes nothing older.
    written.elapsed().map_or(true, |age| age < STORED_LIFETIME)
}

fn hex(kind: &str, bytes: &[u8]) -> String {
    bytes.iter().fold(kind.to_owned(), |mut name, byte| {
        // Writing to a string cannot fail.
        let _always_ok = write!(name, "{byte:02x}");
        name
    })
}

/// The longest key: its file name must fit the file system's limit.
const KEY_LEN_MAX: usize = 100;

impl StoresServerSessions for Directory {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        key.len() <= KEY_LEN_MAX && self.write(&hex(SESSION, &key), &value).is_ok()
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        Self::read(&self.path.join(hex(SESSION, key)))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.claim(&hex(SESSION, key))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl TokenStore for Directory {
    fn insert(&self, server_name: &str, token: Bytes) {
        // An empty slot sorts before the oldest.
        if let Some((_, name)) = self.tokens(server_name).first() {
            drop(self.write(name, &token));
        }
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let places = self.tokens(server_name);
        let newest_first = places.iter().rev().filter(|(written, _)| written.is_some());
        newest_first.filter_map(|(_, name)| self.claim(name)).map(Bytes::from).next()
    }
}

/// A connection's share of a store: a server may send any number of tokens, and each costs work.
pub(crate) struct OneConnectionsTokens {
    store: Arc<dyn proto::TokenStore>,
    left: AtomicUsize,
}

impl OneConnectionsTokens {
    pub(crate) fn new(store: &Arc<dyn proto::TokenStore>) -> Self {
        Self { store: Arc::clone(store), left: AtomicUsize::new(STORED_TOKENS) }
    }
}

impl proto::TokenStore for OneConnectionsTokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            // A connection's tokens arrive one after another.
            self.left.store(left - 1, Ordering::Relaxed);
            self.store.insert(server_name, token);
        }
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        self.store.take(server_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;
    use std::time::Duration;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            drop(fs::remove_dir_all(&path));
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn session_is_claimed_once_by_concurrent_takers() {
        let folder = Folder::new("ringloop-quic-store-once");
        let stores: Vec<_> =
            (0..4).map(|_| Arc::new(Directory::open(&folder.0).unwrap())).collect();
        for round in 0..50u8 {
            assert!(stores[0].put(vec![round; 32], vec![round; 500]));
            assert_eq!(stores[1].get(&[round; 32]), Some(vec![round; 500]));
            let takers = stores.iter().map(|store| {
                let store = Arc::clone(store);
                std::thread::spawn(move || StoresServerSessions::take(&*store, &[round; 32]))
            });
            let takers: Vec<_> = takers.collect();
            let taken = takers.into_iter().filter_map(|taker| taker.join().unwrap());
            assert_eq!(taken.collect::<Vec<_>>(), [vec![round; 500]]);
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn entries_are_private_bounded_and_expire_after_a_week() {
        let folder = Folder::new("ringloop-quic-store-bounds");
        let store = Directory::open(&folder.0).unwrap().entries_max(10);
        assert_eq!(fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777, 0o700);
        for number in 0..=WRITES_BETWEEN_MIN as u8 {
            assert!(store.put(vec![number], vec![1]));
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 9);
        let last = folder.0.join(hex("session-", &[WRITES_BETWEEN_MIN as u8]));
        assert_eq!(fs::metadata(&last).unwrap().permissions().mode() & 0o777, 0o600);
        let file = OpenOptions::new().write(true).open(&last).unwrap();
        file.set_modified(SystemTime::now() - STORED_LIFETIME - Duration::from_secs(1)).unwrap();
        assert_eq!(store.get(&[WRITES_BETWEEN_MIN as u8]), None);
        assert_eq!(StoresServerSessions::take(&store, &[WRITES_BETWEEN_MIN as u8]), None);
        assert!(!store.put(vec![0; 1000], vec![1]), "a key that makes no name");
        assert_eq!(StoresServerSessions::take(&store, b"unknown"), None);
    }

    #[test]
    fn tokens_are_returned_per_server_newest_first() {
        let folder = Folder::new("ringloop-quic-store-tokens");
        let store = Directory::open(&folder.0).unwrap();
        for number in 0..STORED_TOKENS as u8 + 3 {
            store.insert("example.org", Bytes::from(vec![number; 60]));
            // Files of the same time have no order.
            let mut paths = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
            let last = paths.find(|path| fs::read(path).unwrap() == vec![number; 60]);
            let file = OpenOptions::new().write(true).open(last.unwrap()).unwrap();
            let age = Duration::from_secs(100 - u64::from(number));
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), STORED_TOKENS);
        store.insert("example.com", Bytes::from_static(b"another"));
        let newest = STORED_TOKENS as u8 + 2;
        assert_eq!(TokenStore::take(&store, "example.org").unwrap(), vec![newest; 60]);
        let mut left = 0;
        while TokenStore::take(&store, "example.org").is_some() {
            left += 1;
        }
        assert_eq!(left, STORED_TOKENS - 1);
        assert_eq!(TokenStore::take(&store, "example.com").unwrap(), "another");
        assert!(TokenStore::take(&store, "example.com").is_none());
    }

    fn age(path: &Path) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - STORED_LIFETIME - Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn full_store_is_scanned_once_per_sixteenth() {
        let folder = Folder::new("ringloop-quic-store-full");
        let store = Directory::open(&folder.0).unwrap().entries_max(1600);
        let put = |numbers: std::ops::Range<u16>| {
            for number in numbers {
                assert!(store.put(number.to_be_bytes().to_vec(), vec![1]));
            }
        };
        let count = || fs::read_dir(&folder.0).unwrap().count();
        for number in 0..1600u16 {
            fs::write(folder.0.join(hex(SESSION, &number.to_be_bytes())), b"x").unwrap();
        }
        // It makes room for writes until the next count, and an eighth more.
        put(1600..1601);
        assert_eq!(count(), 1400);
        // The next count removes it.
        age(&folder.0.join(hex(SESSION, &1600u16.to_be_bytes())));
        put(1601..1700);
        assert_eq!(count(), 1499);
        put(1700..1701);
        assert_eq!(count(), 1499);
        assert_eq!(store.get(&1600u16.to_be_bytes()), None);
    }

    #[test]
    fn foreign_files_stay_and_leftovers_are_removed() {
        let folder = Folder::new("ringloop-quic-store-foreign");
        let store = Directory::open(&folder.0).unwrap().entries_max(0);
        let foreign = ["notes.txt", "session-notes", ".profile", ".1234-0"];
        let ours = [hex(SESSION, &[1; 32]), hex(OWN, &[2; 20])];
        let all = foreign.into_iter().chain(ours.iter().map(String::as_str));
        for name in all {
            fs::write(folder.0.join(name), b"x").unwrap();
            age(&folder.0.join(name));
        }
        store.tidy().unwrap();
        assert!(foreign.iter().all(|name| folder.0.join(name).exists()));
        assert!(!ours.iter().any(|name| folder.0.join(name).exists()));
    }

    #[test]
    fn temporary_names_are_unpredictable() {
        let folder = Folder::new("ringloop-quic-store-names");
        let stores = [(); 2].map(|()| Directory::open(&folder.0).unwrap());
        let mut names: Vec<_> =
            stores.iter().flat_map(|store| [store.own(), store.own()]).collect();
        assert!(names.iter().all(|name| {
            let name = name.file_name().unwrap().to_str().unwrap();
            name.len() >= OWN.len() + 32 && is_ours(name)
        }));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn world_writable_directory_is_rejected() {
        let folder = Folder::new("ringloop-quic-store-open");
        fs::create_dir(&folder.0).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o1777)).unwrap();
        let refused = Directory::open(&folder.0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[derive(Default)]
    struct Counted(Mutex<Vec<Bytes>>);

    impl proto::TokenStore for Counted {
        fn insert(&self, _server_name: &str, token: Bytes) {
            self.0.lock().unwrap().push(token);
        }

        fn take(&self, _server_name: &str) -> Option<Bytes> {
            self.0.lock().unwrap().pop()
        }
    }

    #[test]
    fn endless_tokens_of_one_connection_are_capped() {
        use proto::TokenStore as _;
        let counted = Arc::new(Counted::default());
        let store: Arc<dyn proto::TokenStore> = Arc::<Counted>::clone(&counted);
        for connection in 1..=2 {
            let tokens = OneConnectionsTokens::new(&store);
            for number in 0..1000u16 {
                tokens.insert("localhost", Bytes::copy_from_slice(&number.to_be_bytes()));
            }
            let kept = counted.0.lock().unwrap().len();
            assert_eq!(kept, STORED_TOKENS * connection);
        }
        let tokens = OneConnectionsTokens::new(&store);
        assert_eq!(tokens.take("localhost").unwrap()[..], [0, 7]);
    }
}
