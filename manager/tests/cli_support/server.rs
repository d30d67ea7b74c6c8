//! A scripted manager that speaks the real frames.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use protocol::api::{ERROR, ITEM, Item, REPLY, REQUEST, Reply, Request};
use protocol::codec::{Frame, Hello, Joiner, read_frame, write_frame};
use protocol::error::WireError;

use crate::cli_support::Home;

/// What the scripted manager does with a request.
pub(crate) enum Answer {
    Reply(Reply),
    Items(Vec<Item>, Reply),
    Error(WireError),
    /// These items, and then silence for as long as the client stays.
    Silence(Vec<Item>),
    /// Hang up.
    HangUp,
}

type Script = dyn Fn(&Request) -> Answer + Send + Sync;

pub(crate) struct Manager {
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
    path: PathBuf,
    _thread: JoinHandle<()>,
}

impl Manager {
    /// Listens where the manager of `home` would.
    pub(crate) fn start(home: &Home, script: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::with_hello(home, Hello::ours("test"), script)
    }

    pub(crate) fn with_hello(
        home: &Home,
        hello: Hello,
        script: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let run = home.state().join("run");
        std::fs::create_dir_all(&run).unwrap();
        let path = run.join("manager.sock");
        let listener = bind(&path);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&asked));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, seen, hello) = (Arc::clone(&script), Arc::clone(&seen), hello.clone());
                std::thread::spawn(move || serve(stream, &hello, &*script, &seen));
            }
        });
        Self { asked, path, _thread: thread }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Binds also where the path is longer than a socket address.
fn bind(path: &Path) -> UnixListener {
    use std::os::fd::AsRawFd;
    let folder = std::fs::File::open(path.parent().unwrap()).unwrap();
    let through =
        format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), path.file_name().unwrap().to_str().unwrap());
    UnixListener::bind(through).unwrap()
}

fn serve(mut stream: UnixStream, hello: &Hello, script: &Script, seen: &Mutex<Vec<Request>>) {
    let mut joiner = Joiner::default();
    if write_frame(&mut stream, Frame::of(Hello::KIND, "", hello).unwrap()).is_err() {
        return;
    }
    while let Ok(Some(frame)) = read_frame(&mut stream) {
        let Some(frame) = joiner.push(frame).unwrap() else { continue };
        if frame.kind != REQUEST {
            continue;
        }
        let request: Request = frame.body().unwrap();
        let answer = script(&request);
        seen.lock().unwrap().push(request);
        let send = |stream: &mut UnixStream, frame: Frame| write_frame(stream, frame).is_ok();
        let items = |stream: &mut UnixStream, items: Vec<Item>| {
            items.into_iter().all(|item| send(stream, Frame::of(ITEM, &frame.id, &item).unwrap()))
        };
        let went = match answer {
            Answer::Reply(reply) => send(&mut stream, Frame::of(REPLY, &frame.id, &reply).unwrap()),
            Answer::Items(list, reply) => {
                items(&mut stream, list) && send(&mut stream, Frame::of(REPLY, &frame.id, &reply).unwrap())
            }
            Answer::Error(error) => send(&mut stream, Frame::of(ERROR, &frame.id, &error).unwrap()),
            Answer::Silence(list) => items(&mut stream, list),
            Answer::HangUp => return,
        };
        if !went {
            return;
        }
    }
}
