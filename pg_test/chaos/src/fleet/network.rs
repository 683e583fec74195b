//! The network between a node and the registry's two hosts: a Unix socket for each, and threads that pass on
//! what comes, or do not.

use snowflake_server_tests::{faults, ms};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

const SOCKET: &str = ".s.PGSQL.5432";

/// What becomes of a node's connections to the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing arrives, and nothing is closed. What was sent arrives at the end.
    Stall,
    /// Every connection is closed, and new ones are refused.
    Close,
    /// New connections are refused.
    Refuse,
    /// Every piece arrives this much later.
    Delay,
    /// A contact reaches the registry, and its answer does not come back.
    LoseAnswers,
}

pub const CUTS: [Cut; 5] = [Cut::Stall, Cut::Close, Cut::Refuse, Cut::Delay, Cut::LoseAnswers];
const DELAY: Duration = Duration::from_millis(400);

/// Where the registry's two hosts are now.
#[derive(Default)]
pub struct Hosts([RwLock<PathBuf>; 2]);

impl Hosts {
    pub fn put(&self, host: usize, folder: &Path) {
        *self.0[host].write().unwrap_or_else(PoisonError::into_inner) = folder.join(SOCKET);
    }

    fn connect(&self, host: usize) -> std::io::Result<UnixStream> {
        UnixStream::connect(&*self.0[host].read().unwrap_or_else(PoisonError::into_inner))
    }
}

struct State {
    hosts: Arc<Hosts>,
    /// 0, or 1 + the place of a cut in `CUTS`.
    cut: AtomicU8,
    /// Counts what ends every connection.
    ends: AtomicU64,
    is_over: AtomicBool,
}

impl State {
    fn cut(&self) -> Option<Cut> {
        CUTS.get(usize::from(self.cut.load(Ordering::Acquire)).wrapping_sub(1)).copied()
    }
}

/// A node's way to the registry.
pub struct Link {
    state: Arc<State>,
    folders: [PathBuf; 2],
}

impl Link {
    pub fn new(hosts: &Arc<Hosts>) -> Self {
        let state = Arc::new(State {
            hosts: hosts.clone(),
            cut: AtomicU8::new(0),
            ends: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let folders = [0, 1].map(|host| {
            let folder = faults::new_folder();
            let path = folder.join(SOCKET);
            let listener = UnixListener::bind(&path).expect("a socket can be made");
            faults::own(&path);
            let state = state.clone();
            std::thread::spawn(move || listen(&listener, host, &state));
            folder
        });
        Self { state, folders }
    }

    /// The connection string of the node.
    pub fn registry_string(&self) -> String {
        let [a, b] = self.folders.each_ref().map(|folder| folder.display());
        format!("host={a},{b} port=5432 dbname=postgres user=node target_session_attrs=read-write")
    }

    pub fn cut(&self, cut: Cut) {
        let place = CUTS.iter().position(|other| *other == cut).expect("a cut");
        self.state.cut.store(place as u8 + 1, Ordering::Release);
        if cut == Cut::Close {
            self.state.ends.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub fn heal(&self) {
        self.state.cut.store(0, Ordering::Release);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
        self.state.ends.fetch_add(1, Ordering::AcqRel);
        // Wakes the listeners.
        self.folders.iter().for_each(|folder| drop(UnixStream::connect(folder.join(SOCKET))));
    }
}

fn listen(listener: &UnixListener, host: usize, state: &Arc<State>) {
    for node in listener.incoming().map_while(Result::ok) {
        if state.is_over.load(Ordering::Acquire) {
            return;
        }
        if matches!(state.cut(), Some(Cut::Close | Cut::Refuse)) {
            continue;
        }
        let Ok(registry) = state.hosts.connect(host) else { continue };
        let Ok(way) = Way::new(&node, &registry, state) else { continue };
        let (Ok(a), Ok(b)) = (node.try_clone(), registry.try_clone()) else { continue };
        let back = way.clone();
        std::thread::spawn(move || way.pass(a, b, false));
        std::thread::spawn(move || back.pass(registry, node, true));
    }
}

/// A connection.
#[derive(Clone)]
struct Way {
    state: Arc<State>,
    ends: u64,
    /// A contact has been sent.
    is_asked: Arc<AtomicBool>,
}

impl Way {
    fn new(node: &UnixStream, registry: &UnixStream, state: &Arc<State>) -> std::io::Result<Self> {
        // So that a thread whose connection is silent notices when it is to end.
        node.set_read_timeout(Some(ms(100)))?;
        registry.set_read_timeout(Some(ms(100)))?;
        let ends = state.ends.load(Ordering::Acquire);
        Ok(Self { state: state.clone(), ends, is_asked: Arc::default() })
    }

    fn pass(&self, mut from: UnixStream, mut to: UnixStream, is_answer: bool) {
        let _ = self.try_to_pass(&mut from, &mut to, is_answer);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn try_to_pass(
        &self,
        from: &mut UnixStream,
        to: &mut UnixStream,
        is_answer: bool,
    ) -> std::io::Result<()> {
        let mut bytes = [0; 16_384];
        while !self.is_over() {
            let length = match from.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(e) if e.raw_os_error() == Some(EAGAIN) => continue,
                Err(e) => return Err(e),
            };
            let piece = &bytes[..length];
            if !is_answer && contains(piece, b"snowflake_registry_contact(") {
                self.is_asked.store(true, Ordering::Release);
            }
            match self.state.cut() {
                Some(Cut::Delay) => std::thread::sleep(DELAY),
                Some(Cut::LoseAnswers) if is_answer && self.is_asked.load(Ordering::Acquire) => {
                    return Ok(());
                }
                _ => {}
            }
            while self.state.cut() == Some(Cut::Stall) && !self.is_over() {
                std::thread::sleep(ms(10));
            }
            to.write_all(piece)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.state.ends.load(Ordering::Acquire) != self.ends
    }
}

/// What a read that has timed out returns.
const EAGAIN: i32 = nix::errno::Errno::EAGAIN as i32;

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
